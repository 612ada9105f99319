# SPDX-License-Identifier: BSL-1.0
"""Two threads share a modelled core (SMT): its speed, its energy and its C-state. Threads that the kernel parks do not keep it awake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.model.modelled import ModelledRun, image, run
from tools.errors import UsageError
from tools.machine import SUCCESS
from tools.model import cpu_model, experiment, plugin, results
from tools.model.experiment import Experiment

MODEL = "e5-2690"
ROUNDING_NS = 2
MEMCACHED = image("apps/memcached", "memcached")


@dataclass(frozen=True)
class Part:
    """Between two snapshots."""

    before: dict[str, Any]
    after: dict[str, Any]

    def of(self, cpu: int, key: str) -> int:
        return self.after["cpus"][cpu][key] - self.before["cpus"][cpu][key]

    def residency_ns(self, cpu: int, key: str = "residency_ns") -> dict[str, int]:
        return {state: end - self.before["cpus"][cpu][key][state] for state, end in self.after["cpus"][cpu][key].items()}

    @property
    def time_ns(self) -> int:
        return self.after["virtual_ns"] - self.before["virtual_ns"]

    @property
    def cores_w(self) -> float:
        return (self.after["cores_j"] - self.before["cores_j"]) / self.time_ns * 1e9


def share(directory: Path, smt: bool) -> ModelledRun:
    done = run(image("tests/model", "threads_share_a_core"), directory, model=MODEL, cores=4, smt=smt)
    assert done.status == SUCCESS, "\n".join(done.lines)
    return done


@pytest.fixture(scope="module")
def with_threads(tmp_path_factory: pytest.TempPathFactory) -> ModelledRun:
    return share(tmp_path_factory.mktemp("threads"), True)


@pytest.fixture(scope="module")
def without_threads(tmp_path_factory: pytest.TempPathFactory) -> ModelledRun:
    return share(tmp_path_factory.mktemp("cores"), False)


def parts(done: ModelledRun) -> tuple[Part, Part]:
    """Core 0 alone, and all four."""
    return Part(done.at_mark(1), done.at_mark(2)), Part(done.at_mark(2), done.at_mark(3))


def ns_per_instruction(part: Part) -> float:
    return part.of(0, "c0_ns") / part.of(0, "instructions")


def test_threads_share_speed_and_energy_of_their_core(with_threads: ModelledRun, without_threads: ModelledRun) -> None:
    alone, together = parts(with_threads)
    speed = cpu_model.load(MODEL, smt=True).values["smt.thread_speed"]
    assert ns_per_instruction(together) / ns_per_instruction(alone) == pytest.approx(1 / speed, rel=0.01)
    own_alone, own_together = parts(without_threads)
    assert ns_per_instruction(own_together) / ns_per_instruction(own_alone) == pytest.approx(1, rel=0.01)
    # Four threads use two cores, four cores are four: one and three more than before. The rest of the power is that of cores that sleep.
    of_one_core_w = together.cores_w - alone.cores_w
    assert own_together.cores_w - own_alone.cores_w == pytest.approx(3 * of_one_core_w, rel=0.02)
    assert 0.75 * alone.cores_w < of_one_core_w < alone.cores_w


@pytest.mark.parametrize("threads", [1, 2])
def test_cpuid_names_the_threads_of_a_core(threads: int, with_threads: ModelledRun, without_threads: ModelledRun) -> None:
    done = with_threads if threads == 2 else without_threads
    found = [line.split() for line in done.lines if line.startswith("core ")]
    places = [{key: int(value) for key, value in zip(words[2::2], words[3::2], strict=True)} for words in found]
    assert [place["id"] for place in places] == [0, 1, 2, 3]
    for place in places:
        assert place["threads_of_core"] == place["threads_of_first_cache"] == threads
        assert place["thread_bits"] == threads - 1 and place["threads_of_package"] == 4
    assert f"cores: 1 package, {4 // threads} cores, 4 threads" in done.lines
    assert ("cores: package 0: 0+1 2+3" if threads == 2 else "cores: package 0: 0 1 2 3") in done.lines


def serve(directory: Path, **settings: Any) -> tuple[results.Result, Part, list[str]]:
    """memcached under a low load. Returns its figures, the window's snapshots and the console."""
    directory.mkdir()
    lines: list[str] = []
    wanted = Experiment(MODEL, rate=4_000, window_ms=200, **settings)
    result = experiment.run(wanted, MEMCACHED, directory, lines.append)
    assert result.world["failed"] == 0 and result.answered > 0
    phases = {one["phase"]: one for one in plugin.snapshots(directory)}
    return result, Part(phases[results.WINDOW], phases[results.DRAIN]), lines


def test_parked_threads_do_not_keep_their_core_awake(tmp_path: Path) -> None:
    result, window, lines = serve(tmp_path / "parked", cores=4, smt=True, arguments=["smt=off", "idle=c7"])
    assert "cores: 1 package, 2 cores, 4 threads; 2 parked" in lines and "cores: package 0: 0+- 1+-" in lines
    for running, parked in ((0, 1), (2, 3)):
        assert window.of(parked, "instructions") == 0 and window.of(parked, "wakeups") == 0
        assert window.residency_ns(parked)["C7"] == pytest.approx(window.time_ns, abs=ROUNDING_NS)
        # The core sleeps exactly when its running thread does.
        assert window.residency_ns(running, "core_residency_ns") == pytest.approx(window.residency_ns(running), abs=ROUNDING_NS)
        assert window.residency_ns(running)["C7"] > 0.3 * window.time_ns
    # A machine whose firmware has turned the threads off does the same for the same energy.
    without, _, _ = serve(tmp_path / "without", cores=2, arguments=["idle=c7"])
    assert result.watts == pytest.approx(without.watts, rel=0.02)
    assert result.instructions == pytest.approx(without.instructions, rel=0.02)


def test_equal_runs_are_equal_with_threads(with_threads: ModelledRun, tmp_path: Path) -> None:
    again = share(tmp_path, True)
    assert again.snapshots == with_threads.snapshots and again.lines == with_threads.lines


def test_an_odd_number_of_threads_is_refused() -> None:
    with pytest.raises(UsageError, match="even number"):
        Experiment(MODEL, cores=3, smt=True).check()
