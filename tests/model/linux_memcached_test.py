# SPDX-License-Identifier: BSL-1.0
"""Linux with stock memcached on the model machine, with the soft card and the modelled load: equal runs are equal, and settings hold.

A run boots Linux, which takes the host ten seconds, so there are few of them.
"""

from pathlib import Path

import pytest

from tools.errors import UsageError
from tools.model import cpu_model, experiment, linux, results
from tools.model.experiment import Experiment

SHORT = {"rate": 25_000, "window_ms": 20, "warm_up_ms": 20}


@pytest.fixture(scope="module")
def system() -> experiment.System:
    return experiment.System(*linux.image())


def run(system: experiment.System, wanted: Experiment, directory: Path) -> results.Result:
    directory.mkdir()
    result = experiment.run(wanted, system, directory)
    assert result.world["failed"] == 0 and result.answered == result.world["offered"] > 0
    assert result.window_ns == wanted.window_ms * 1e6
    return result


def test_equal_seeds_give_equal_runs_and_settings_hold(system: experiment.System, tmp_path: Path) -> None:
    slow = Experiment("e5-2690", **SHORT, arguments=["itr=200us", "pstate=12"])
    first = run(system, slow, tmp_path / "first")
    assert run(system, slow, tmp_path / "again") == first
    assert first.cores[0].frequency_mhz == 1200
    # At most one message in 200 us on the queue, and now and then one of the driver's other vector.
    assert 0.5 * 20_000 / 200 < first.world["interrupts"] <= 20_000 / 200 + 3
    assert first.cores[0].residency_ns["C1E"] > 0, "intel_idle sleeps in the states of the model"


def test_every_core_has_its_queue_and_its_thread(system: experiment.System, tmp_path: Path) -> None:
    result = run(system, Experiment("e5-2690", **SHORT, cores=2, connections=32, arguments=["itr=20us", "pstate=29"]), tmp_path / "run")
    messages = {name: count for name, count in result.world["card"].items() if name.startswith("messages[")}
    assert messages["messages[0]"] > 20 and messages["messages[1]"] > 20, messages
    for core in result.cores:
        assert core.instructions > 0.25 * result.instructions


def test_words_are_those_of_our_images() -> None:
    for word in ("itr=1us", "itr=2000us", "itr=8", "pstate=0", "pstate=2.9GHz", "idle=c9", "tso=on", "itr"):
        with pytest.raises(UsageError):
            linux.settings([word])


def test_a_ratio_that_the_cpu_does_not_have_is_refused() -> None:
    cpu = cpu_model.load("e5-2690")
    linux.check(["pstate=12"], cpu)
    with pytest.raises(UsageError, match="12 to 38"):
        linux.check(["pstate=77"], cpu)
