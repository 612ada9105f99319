# SPDX-License-Identifier: BSL-1.0
"""Wake-up latency as apps/wakeup measures it is the modelled CPU's own: the exit latency of each state, and that of the package.

The model's table is the truth. The rest of a latency is instructions, and with a write the rest of the writing core's turn.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.modelled import image
from tools.errors import Failure, UsageError
from tools.model import cpu_model, wakeup
from tools.model.sleeps import C_STATES

IMAGE = image("apps/wakeup", "wakeup")
ROUNDS = 10
# The debug image executes more instructions than the release image, whose limits `./neap bench wakeup` checks: up to 303, with the timer.
INSTRUCTIONS = 400
# With two threads a core's instructions take longer: `smt.thread_speed`.
SLOWEST_THREAD = 0.5


def near(cpu: cpu_model.CpuModel, latency_us: float) -> object:
    """Equal to this latency but for the time of instructions; in nanoseconds."""
    return pytest.approx(1000 * latency_us, abs=1000 * INSTRUCTIONS * wakeup.instruction_us(cpu) / SLOWEST_THREAD)


def measure(model: str, out: Path, *words: str, cores: int = 2, smt: bool = False) -> list[wakeup.Latency]:
    out.mkdir(exist_ok=True)
    return wakeup.run(wakeup.Wakeup(model, cores=cores, smt=smt, arguments=[f"rounds={ROUNDS}", *words]), IMAGE, out)


def states_of(cpu: cpu_model.CpuModel) -> set[str]:
    return {"poll", "monitor", *(state for state, slept in C_STATES.items() if f"sleep.{slept}.hint" in cpu.values)}


@pytest.mark.parametrize("model", ["e5-2690", "e5-2630v3", "xeon-6430"])
def test_each_latency_is_the_models(model: str, tmp_path: Path) -> None:
    cpu = cpu_model.load(model)
    found = measure(model, tmp_path)
    assert {one.state for one in found} == states_of(cpu)
    for one in found:
        truth_ns = 1000 * wakeup.model_us(cpu, one.state, one.doorbell)
        limit_ns = 1000 * wakeup.limit_us(cpu, one.state, one.doorbell, INSTRUCTIONS)
        assert truth_ns <= one.min <= one.median <= one.p99 <= one.max < limit_ns, (one, truth_ns)
        assert one.rounds == ROUNDS
    doorbells = {state: {one.doorbell for one in found if one.state == state} for state in states_of(cpu)}
    assert doorbells.pop("poll") == {"ipi", "write", "timer"}
    assert doorbells.pop("halt") == {"ipi", "timer", "timer-all"}, "a write does not end HLT"
    assert all(those == {"ipi", "write", "timer", "timer-all"} for those in doorbells.values())


def test_a_package_that_sleeps_wakes_up_later(tmp_path: Path) -> None:
    """On the modelled Xeon 6430 a core leaves C6 in 190 us, and in 290 us if no other core was awake."""
    cpu = cpu_model.load("xeon-6430")
    medians = {one.name: one.median for one in measure("xeon-6430", tmp_path)}
    assert medians["c6.timer-all"] - medians["c6.timer"] == near(cpu, 100)
    assert medians["c1e.timer-all"] == near(cpu, medians["c1e.timer"] / 1000)


def test_monitor_sleeps_in_its_own_state(tmp_path: Path) -> None:
    cpu = cpu_model.load("e5-2690")
    found = {one.name: one.median for one in measure("e5-2690", tmp_path, "monitor_state=c6")}
    for doorbell in ("ipi", "timer"):
        assert found[f"monitor.{doorbell}"] == near(cpu, wakeup.model_us(cpu, "c6", doorbell))
        assert found[f"c1.{doorbell}"] == near(cpu, wakeup.model_us(cpu, "c1", doorbell)), "the other states are as before"


def test_the_sleeper_is_on_another_physical_core(tmp_path: Path) -> None:
    """Threads 0 and 1 share a core. If the sleeper were thread 1, the ringing thread would keep its core in C1."""
    cpu = cpu_model.load("e5-2690", smt=True)
    found = {one.name: one.median for one in measure("e5-2690", tmp_path / "apart", cores=4, smt=True)}
    assert found["c6.ipi"] == near(cpu, wakeup.model_us(cpu, "c6", "ipi"))
    shared = {one.name: one.median for one in measure("e5-2690", tmp_path / "shared", "sleeper=1", cores=4, smt=True)}
    assert shared["c6.ipi"] == near(cpu, wakeup.model_us(cpu, "c1", "ipi"))


def test_the_printed_boot_option_makes_a_later_start_report_measured_times(tmp_path: Path) -> None:
    """The table of models (Linux's figures) has other times for C3 and deeper than the modelled CPU."""

    def start(name: str, *words: str) -> list[str]:
        (tmp_path / name).mkdir()
        return wakeup.console(wakeup.Wakeup("e5-2690", arguments=[f"rounds={ROUNDS}", *words]), IMAGE, tmp_path / name)

    def report(lines: list[str]) -> list[str]:
        return [line for line in lines if line.startswith("power: wake-up times")]

    first = start("first")
    table = "2 us from c1, 10 us from c1e, 80 us from c3, 104 us from c6, 109 us from c7"
    assert report(first) == [f"power: wake-up times, from the table: {table}"]
    option = wakeup.boot_option(first)
    assert option == "wake_up_times=c1:2us,c1e:10us,c3:15us,c6:20us,c7:20us"
    measured = "2 us from c1, 10 us from c1e, 15 us from c3, 20 us from c6, 20 us from c7"
    assert report(start("second", option)) == [f"power: wake-up times, measured: {measured}"]


def test_equal_runs_are_equal(tmp_path: Path) -> None:
    assert measure("xeon-6430", tmp_path / "one") == measure("xeon-6430", tmp_path / "other")


def test_words_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for number, word in enumerate(("rounds=0", "asleep=10us", "sleeper=0", "sleeper=2", "wake_up_times=c2:2us")):
        with pytest.raises(Failure):
            measure("e5-2690", tmp_path / str(number), word)
    with pytest.raises(UsageError, match="needs 2 to 16 cores"):
        wakeup.Wakeup("e5-2690", cores=1).check()
    with pytest.raises(UsageError, match="--model takes"):
        wakeup.Wakeup("e5-2691").check()
