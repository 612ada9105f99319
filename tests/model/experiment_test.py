# SPDX-License-Identifier: BSL-1.0
"""memcached on the model machine: equal seeds give equal runs whatever the host does, and settings have their published effects."""

from pathlib import Path

import pytest

from tests.model.modelled import image
from tools.bench.determinism import busy_host
from tools.errors import UsageError
from tools.model import cpu_model, experiment, results
from tools.model.experiment import Experiment

MEMCACHED = image("apps/memcached", "memcached")
ROUND_NS = 2000  # cores' clocks differ by up to a round


def run(wanted: Experiment, directory: Path) -> results.Result:
    directory.mkdir()
    result = experiment.run(wanted, MEMCACHED, directory)
    assert result.world["failed"] == 0 and result.answered == result.world["offered"] > 0
    assert result.window_ns == wanted.window_ms * 1e6, "the CPUs' snapshots are of the moments at which the world's window begins and ends"
    check_that_states_fill_the_window(result, cpu_model.load(wanted.model))
    return result


def check_that_states_fill_the_window(result: results.Result, cpu: cpu_model.CpuModel) -> None:
    """The time outside C0 and all sleep states is that of wake-ups, also for a core that sleeps from the window's start to its end."""
    values = cpu.values
    exits_us = [value for key, value in values.items() if key.startswith("sleep.C") and key.endswith(".exit_latency_us")]
    wake_up_ns = 1000 * (max(exits_us) + values["sleep.package_exit_latency_us"])
    for core in result.cores:
        waking_ns = result.window_ns - core.c0_ns - sum(core.residency_ns.values())
        # A wake-up may begin before the window, or end after it.
        assert -wake_up_ns - 2 * ROUND_NS <= waking_ns <= (core.wakeups + 1) * wake_up_ns + 2 * ROUND_NS, core


def logs(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((directory / experiment.LOG).glob("core*.log"))]


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_equal_seeds_give_equal_runs(tmp_path: Path, cores: int) -> None:
    wanted = Experiment("e5-2690", rate=40_000, window_ms=20, warm_up_ms=5, cores=cores, seed=7)
    first = run(wanted, tmp_path / "first")
    with busy_host():
        again = run(wanted, tmp_path / "again")
    assert first == again
    assert logs(tmp_path / "first") == logs(tmp_path / "again") and len(logs(tmp_path / "first")) == cores
    if cores == 1:
        other = run(Experiment("e5-2690", rate=40_000, window_ms=20, warm_up_ms=5, seed=8), tmp_path / "other")
        assert other.digest != first.digest and logs(tmp_path / "other") != logs(tmp_path / "first")


def test_random_numbers_of_the_cpu_come_from_the_seed(tmp_path: Path) -> None:
    """This model has RDRAND, and memcached's table takes its key from it."""
    wanted = Experiment("xeon-6430", rate=40_000, window_ms=2, warm_up_ms=1)
    first, again = (run(wanted, tmp_path / name) for name in ("first", "again"))
    assert first == again and logs(tmp_path / "first") == logs(tmp_path / "again")


def test_sixteen_cores_serve_and_repeat(tmp_path: Path) -> None:
    wanted = Experiment("e5-2690", rate=200_000, window_ms=2, warm_up_ms=1, cores=16, connections=128, depth=1)
    first, again = (run(wanted, tmp_path / name) for name in ("first", "again"))
    assert first == again and logs(tmp_path / "first") == logs(tmp_path / "again")
    assert len(first.cores) == 16 and min(core.instructions for core in first.cores) > 10_000, "each core served requests"


def test_moderation_trades_latency_for_energy(tmp_path: Path) -> None:
    """The studies' main effect: with longer intervals between interrupts, a core sleeps more and requests wait longer."""
    short, long = (
        run(Experiment("e5-2690", rate=50_000, window_ms=30, arguments=[f"itr={us}us"]), tmp_path / f"itr{us}") for us in (2, 200)
    )
    assert long.watts < short.watts
    assert long.row()["p99_us"] > short.row()["p99_us"]
    assert long.row()["wakeups"] < short.row()["wakeups"]


def test_a_slower_clock_takes_longer_for_a_request(tmp_path: Path) -> None:
    """`pstate` reaches the modelled CPU: the cycles of a request stay, their time does not."""
    fast, slow = (
        run(Experiment("e5-2690", rate=20_000, window_ms=20, arguments=[f"pstate={ratio}"]), tmp_path / str(ratio)) for ratio in (29, 12)
    )
    assert slow.cores[0].frequency_mhz == 1200 and fast.cores[0].frequency_mhz == 2900
    assert slow.cores[0].c0_ns > 1.5 * fast.cores[0].c0_ns


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Experiment("unknown"), "--model takes .*e5-2690"),
        (Experiment("e5-2690", cores=17), "1 to 16 cores"),
        (Experiment("e5-2690", rate=-1), "--rate"),
        (Experiment("e5-2690", seed=-1), "--seed"),
        (Experiment("e5-2690", arguments=["ip=1.2.3.4/24"]), "ip="),
    ],
)
def test_a_setting_that_cannot_be_is_refused(wrong: Experiment, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        wrong.check()
