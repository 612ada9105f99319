# SPDX-License-Identifier: BSL-1.0
"""The static and the dynamic Linux of a comparison: moderation and frequency follow the load only in the dynamic one, and each
instruction of a request has a layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.model import experiment, layers, linux, linux_profile, results
from tools.model.experiment import Experiment

STATIC = ("itr=16us", "governor=performance")
# Requests/s. At 4,000 schedutil kept the highest frequency. The reason is probably that a core counts as busy for it while the tick goes on.
QUIET, BUSY = 500, 60_000


@dataclass(frozen=True)
class Loaded:
    result: results.Result
    console: list[str]
    profile_file: Path

    @property
    def interrupts_per_request(self) -> float:
        return self.result.world["interrupts"] / self.result.answered

    @property
    def mean_mhz(self) -> float:
        """Over the cycles of the window, not at its end."""
        return sum(core.cycles for core in self.result.cores) / sum(core.c0_ns for core in self.result.cores) * 1e3


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Loaded]:
    system = experiment.System(*linux.image())

    def loaded(words: Sequence[str], rate: int) -> Loaded:
        out = tmp_path_factory.mktemp("arm")
        console: list[str] = []
        wanted = Experiment("e5-2690", rate=rate, window_ms=80, warm_up_ms=80, depth=1, arguments=words, profile=True)
        result = experiment.run(wanted, system, out, console.append)
        assert result.world["failed"] == 0 and result.answered > 20
        return Loaded(result, console, out / experiment.PROFILE)

    arms = {"static": STATIC, "dynamic": linux.DYNAMIC}
    return {(name, rate): loaded(words, rate) for name, words in arms.items() for rate in (QUIET, BUSY)}


def test_the_dynamic_arm_has_a_frequency_by_load(runs: dict[tuple[str, int], Loaded]) -> None:
    assert runs["dynamic", BUSY].mean_mhz > runs["dynamic", QUIET].mean_mhz + 300


def test_the_static_arm_has_one_frequency(runs: dict[tuple[str, int], Loaded]) -> None:
    quiet, busy = (runs["static", rate] for rate in (QUIET, BUSY))
    assert quiet.mean_mhz == pytest.approx(busy.mean_mhz, rel=0.001)
    assert quiet.mean_mhz > runs["dynamic", QUIET].mean_mhz


def test_the_dynamic_arm_lengthens_the_interval_with_the_load(runs: dict[tuple[str, int], Loaded]) -> None:
    """At a low rate each request has an interrupt of its own. At a high rate the static arm's interval of 16 us still has one for most."""
    assert runs["dynamic", BUSY].interrupts_per_request < 0.8 * runs["dynamic", QUIET].interrupts_per_request
    assert runs["dynamic", BUSY].result.world["interrupts"] != runs["static", BUSY].result.world["interrupts"]


def test_a_request_has_instructions_in_each_layer_and_few_without_one(runs: dict[tuple[str, int], Loaded]) -> None:
    for (name, rate), one in runs.items():
        found = linux_profile.layers(one.profile_file, linux_profile.symbols(one.console))
        assert all(found[layer] > 0 for layer in layers.LAYERS if layer != layers.OTHER), (name, rate, found)
        assert found[layers.OTHER] < 0.05 * found.total(), (name, rate, found)
        assert found[layers.STACK] > found[layers.DRIVER], (name, rate, found)
