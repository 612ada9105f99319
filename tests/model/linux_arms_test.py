# SPDX-License-Identifier: BSL-1.0
"""The static and the dynamic Linux of a comparison: moderation and frequency follow the load only in the dynamic one, and each
instruction of a request has a layer."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.model import experiment, layers, linux, linux_profile, results
from tools.model.experiment import Experiment

STATIC = ("itr=16us", "governor=performance")
# Requests/s. The set-up of few keys leaves the frequency low. After a long set-up schedutil kept the highest frequency for more than 0.1 s,
# even at 500 requests/s.
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
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Loaded]:
    """Runs an arm at a rate, each once."""
    system = experiment.System(*linux.image())
    arms = {"static": STATIC, "dynamic": linux.DYNAMIC}

    @functools.cache
    def loaded(arm: str, rate: int) -> Loaded:
        out = tmp_path_factory.mktemp("arm")
        console: list[str] = []
        wanted = Experiment(
            "e5-2690",
            load="fixed",
            rate=rate,
            keys=100,
            value_bytes=100,
            window_ms=80,
            warm_up_ms=80,
            depth=1,
            arguments=arms[arm],
            profile=True,
        )
        result = experiment.run(wanted, system, out, console.append)
        assert result.world["failed"] == 0 and result.answered > 20
        return Loaded(result, console, out / experiment.PROFILE)

    return loaded


def test_the_dynamic_arm_has_a_frequency_by_load(run: Callable[[str, int], Loaded]) -> None:
    assert run("dynamic", BUSY).mean_mhz > run("dynamic", QUIET).mean_mhz + 300


def test_the_static_arm_has_one_frequency(run: Callable[[str, int], Loaded]) -> None:
    quiet, busy = (run("static", rate) for rate in (QUIET, BUSY))
    assert quiet.mean_mhz == pytest.approx(busy.mean_mhz, rel=0.001)
    assert quiet.mean_mhz > run("dynamic", QUIET).mean_mhz


def test_the_dynamic_arm_lengthens_the_interval_with_the_load(run: Callable[[str, int], Loaded]) -> None:
    """At a low rate each request has an interrupt of its own. At a high rate the static arm's interval of 16 us still has one for most."""
    assert run("dynamic", BUSY).interrupts_per_request < 0.8 * run("dynamic", QUIET).interrupts_per_request
    assert run("dynamic", BUSY).result.world["interrupts"] != run("static", BUSY).result.world["interrupts"]


def test_a_request_has_instructions_in_each_layer_and_few_without_one(run: Callable[[str, int], Loaded]) -> None:
    for name, rate in itertools.product(("static", "dynamic"), (QUIET, BUSY)):
        one = run(name, rate)
        found = linux_profile.layers(one.profile_file, linux_profile.symbols(one.console))
        assert all(found[layer] > 0 for layer in layers.LAYERS if layer != layers.OTHER), (name, rate, found)
        assert found[layers.OTHER] < 0.05 * found.total(), (name, rate, found)
        assert found[layers.STACK] > found[layers.DRIVER], (name, rate, found)
