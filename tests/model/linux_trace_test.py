# SPDX-License-Identifier: BSL-1.0
"""neap-trace on the model machine, where Linux has a driver of cpuidle: the log's sleeps against those of the model, and the load's
window in the log."""

from pathlib import Path

import pytest

from tools.log import decode, load_results
from tools.model import experiment, linux
from tools.model.experiment import Experiment, Load

RATE = 12_500
LOAD = Load("etc", rate=RATE, window_ms=100, warm_up_ms=50, log=True)
# Linux counts the work of its idle loop as idle time, about 1.3 us a sleep. The log begins before the window and ends after it.
SHARE_TOLERANCE = 0.04
SLEEPS_TOLERANCE = 0.05


@pytest.mark.parametrize("debian_13", [False, True], ids=["debian_12", "debian_13"])
def test_the_sleeps_of_a_log_are_those_of_the_machine(debian_13: bool, tmp_path: Path) -> None:
    system = experiment.System(*linux.image(debian_13, with_trace=True))
    wanted = Experiment("e5-2690", arguments=("itr=100us", "pstate=21", "trace=on"))
    (result,) = experiment.run_sequence(wanted, [LOAD], system, tmp_path)
    place = tmp_path / experiment.sequence_log(0, LOAD)
    run = decode.load([str(place)])
    records = run.cores[0].records
    seconds = (int(records["tsc"][-1]) - int(records["tsc"][0])) / 1e9
    window_seconds = LOAD.window_ms / 1e3
    figures = result.row()
    asleep = int(records["idle_ticks"][1:].sum()) / 1e9 / seconds
    assert asleep == pytest.approx(1 - figures["c0_share"], abs=SHARE_TOLERANCE)
    sleeps = int(records["idle_entries"][1:].sum())
    assert sleeps / seconds == pytest.approx(figures["wakeups"] / window_seconds, rel=SLEEPS_TOLERANCE)
    interrupts = int((records["kind"] == decode.INTERRUPT).sum())
    assert interrupts / seconds == pytest.approx(figures["interrupts"] / window_seconds, rel=SLEEPS_TOLERANCE)
    (window,) = load_results.read(place / experiment.RESULT, run)
    anchors = run.cores[0].anchors["tsc"]
    assert anchors[0] < window.begin_tsc < window.end_tsc <= anchors[-1], "the window is within its log"
    assert window.requests == result.answered
