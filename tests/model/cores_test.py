# SPDX-License-Identifier: BSL-1.0
"""The modelled cores: a guest's counters agree with the model's own sums, and equal runs are equal whatever the host does.

The image (cores_sleep_and_count.cpp) reads its counters and asks for a snapshot around each of its parts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.model.modelled import ModelledRun, image, run
from tools.bench.determinism import busy_host
from tools.machine import SUCCESS, MachineError
from tools.model import cpu_model, plugin

RUNS = 5
# Reading all counters takes some hundred instructions, between the first counter and the snapshot; a part takes at least 5 ms.
TOLERANCE = 0.001


@dataclass(frozen=True)
class Part:
    """The guest's own counts of one part, and the model's snapshots at its ends."""

    read: dict[str, int]
    before: dict[str, Any]
    after: dict[str, Any]

    def truth(self, key: str) -> float:
        return self.after[key] - self.before[key]

    def truth_of_core(self, key: str) -> int:
        return self.after["cpus"][0][key] - self.before["cpus"][0][key]

    def residency_ns(self, state: str) -> int:
        return self.after["cpus"][0]["residency_ns"].get(state, 0) - self.before["cpus"][0]["residency_ns"].get(state, 0)


def parts_of(done: ModelledRun) -> dict[str, Part]:
    found = {}
    for words in (line.split() for line in done.lines if line.startswith("part ")):
        # part NAME marks N N KEY VALUE …
        read = {key: int(value) for key, value in zip(words[5::2], words[6::2], strict=True)}
        found[words[1]] = Part(read, done.at_mark(int(words[3])), done.at_mark(int(words[4])))
    return found


@pytest.fixture(scope="module", params=["e5-2690", "e5-2630v3", "xeon-6430"])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[cpu_model.CpuModel, dict[str, Part]]:
    done = run(image("tests/model", "cores_sleep_and_count"), tmp_path_factory.mktemp("model"), model=request.param, cores=2)
    assert done.status == SUCCESS, "\n".join(done.lines)
    return cpu_model.load(request.param), parts_of(done)


def test_counters_agree_with_the_model(measured: tuple[cpu_model.CpuModel, dict[str, Part]]) -> None:
    cpu, parts = measured
    energy_unit_j = 2.0 ** -cpu.values["energy.unit_exponent"]
    dram_unit_j = 2.0 ** -cpu.values["energy.dram_unit_exponent"]
    for name, part in parts.items():
        assert part.read["instructions"] == part.truth_of_core("instructions"), name
        # A general counter that counts the event of this name (log_events=instructions).
        assert part.read["chosen_instructions"] == pytest.approx(part.truth_of_core("instructions"), rel=TOLERANCE, abs=2000), name
        for key, truth in (("cycles", "cycles"), ("aperf", "cycles"), ("reference_cycles", "reference_cycles"),
                           ("mperf", "reference_cycles")):  # fmt: skip
            assert part.read[key] == pytest.approx(part.truth_of_core(truth), rel=TOLERANCE, abs=2000), (name, key)
        tsc_hz = cpu.values["frequency.base_ratio"] * 1e8
        assert part.read["tsc"] / tsc_hz * 1e9 == pytest.approx(part.truth("virtual_ns"), rel=TOLERANCE), name
        assert part.read["package"] * energy_unit_j == pytest.approx(part.truth("package_j"), rel=TOLERANCE, abs=2 * energy_unit_j), name
        assert part.read["cores"] * energy_unit_j == pytest.approx(part.truth("cores_j"), rel=TOLERANCE, abs=2 * energy_unit_j), name
        assert part.read["dram"] * dram_unit_j == pytest.approx(part.truth("dram_j"), rel=TOLERANCE, abs=2 * dram_unit_j), name
        for state in ("C3", "C6", "C7"):
            assert part.read[state.lower()] / tsc_hz * 1e9 == pytest.approx(part.residency_ns(state), rel=TOLERANCE, abs=1000), name


def test_each_state_is_slept_in_and_saves_energy(measured: tuple[cpu_model.CpuModel, dict[str, Part]]) -> None:
    cpu, parts = measured
    watts = {}
    for state in ("C1", "C1E", "C3", "C6", "C7"):
        if f"sleep.{state}.hint" not in cpu.values:
            assert state.lower() not in parts
            continue
        part = parts[state.lower()]
        assert part.residency_ns(state) > 0.9 * part.truth("virtual_ns"), state
        assert sum(part.residency_ns(other) for other in ("C1", "C1E", "C3", "C6", "C7") if other != state) == 0, state
        watts[state] = part.truth("package_j") / part.truth("virtual_ns") * 1e9
    # Each deeper state saves energy, or costs at most what its longer wake-up costs here.
    for lighter, deeper in itertools.pairwise(watts.values()):
        assert deeper < lighter * 1.01, watts
    assert min(watts.values()) < 0.7 * max(watts.values()), watts
    assert watts["C1"] > watts["C6"] * 1.2


def test_frequency_sets_the_pace_and_the_power(measured: tuple[cpu_model.CpuModel, dict[str, Part]]) -> None:
    cpu, parts = measured
    ratios = {int(name.removeprefix("ratio-")): part for name, part in parts.items() if name.startswith("ratio-")}
    assert set(ratios) == {cpu.values["frequency.min_ratio"], cpu.values["frequency.base_ratio"], cpu.values["frequency.turbo_ratios"][0]}
    watts = []
    for ratio, part in sorted(ratios.items()):
        assert part.read["ratio"] == ratio
        assert part.read["aperf"] / part.read["mperf"] == pytest.approx(ratio / cpu.values["frequency.base_ratio"], rel=0.002)
        by_cycles_ns = cpu.values["pace.cycles_per_instruction"] * 10 / ratio
        expected_ns = by_cycles_ns + cpu.values["pace.unscaled_ps_per_instruction"] / 1000
        assert part.truth("virtual_ns") / part.read["instructions"] == pytest.approx(expected_ns, rel=0.01)
        watts.append(part.truth("package_j") / part.truth("virtual_ns") * 1e9)
    assert watts == sorted(watts)


def test_no_wake_up_is_lost_in_any_idle_state(tmp_path: Path) -> None:
    """The stress image needs every wake-up: a write to the watched line, an interrupt of another core, a timer."""
    done = run(image("tests/target", "no_wakeup_is_lost"), tmp_path, model="e5-2690", cores=2)
    assert done.status == SUCCESS, "\n".join(done.lines)
    for core in done.snapshots[-1]["cpus"]:
        by = core["wakeups_by"]
        assert sum(by.values()) == core["wakeups"]
        assert min(by["timer"], by["core"], by["write"]) > 1000 and by["card"] == by["outside"] == 0, by


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_equal_runs_are_equal_on_a_busy_host(cores: int, tmp_path: Path) -> None:
    path = image("tests/target", "timers_are_never_early")
    first = run(path, tmp_path / "quiet", model="e5-2690", cores=cores)
    assert first.status == SUCCESS, "\n".join(first.lines)
    with busy_host():
        for number in range(RUNS - 1):
            other = run(path, tmp_path / f"busy-{number}", model="e5-2690", cores=cores)
            assert other.snapshots == first.snapshots
            assert other.lines == first.lines


def test_the_host_interrupts_runs_without_effect(tmp_path: Path) -> None:
    """With HWP, wake-ups and the ends of periods change the pace of all cores. They come at the same instructions however the host cuts."""
    path = image("tests/target", "spawns_all_arrive")
    alone, interrupted = (run(path, tmp_path / str(us), model="xeon-6430", cores=4, interrupt_us=us) for us in (None, 100))
    assert alone.status == SUCCESS, "\n".join(alone.lines)
    assert interrupted.snapshots == alone.snapshots
    assert interrupted.lines == alone.lines


def test_a_guest_that_executes_too_much_ends_at_equal_instructions(tmp_path: Path) -> None:
    path, limit = image("tests/target", "spawns_all_arrive"), 1_000_000
    ends = []
    for us in (None, 500):
        with pytest.raises(MachineError) as ended:
            run(path, tmp_path / str(us), model="xeon-6430", cores=4, interrupt_us=us, instructions_max=limit)
        assert any(f"neap-machine: the guest has executed more than {limit} instructions" in line for line in ended.value.details)
        ends.append(plugin.snapshots(tmp_path / str(us)))
    assert ends[0] == ends[1]
    last = ends[0][-1]
    executed = sum(core["instructions"] for core in last["cpus"])
    # Counts are 10 ms apart, and a core executes less than 3 instructions in 1 ns.
    assert last["event"] == "error" and limit < executed < limit + 4 * 30_000_000


def test_a_seed_changes_the_digest(tmp_path: Path) -> None:
    path = image("tests/target", "boots")
    one, other = (run(path, tmp_path / str(seed), model="e5-2690", words="expected_cores=1", seed=seed) for seed in (1, 2))
    assert one.snapshots[-1]["digest"] != other.snapshots[-1]["digest"]
    assert one.snapshots[-1]["cpus"] == other.snapshots[-1]["cpus"]
