# SPDX-License-Identifier: BSL-1.0
"""Settings have the promised effects: interrupt moderation and polling, observed at the card, on the model machine's clock.

Each message of the card has its virtual time, so intervals are compared to the nanosecond, and the host's load does not matter.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.model.modelled import image
from tools.log import decode
from tools.model import experiment, results
from tools.model.experiment import Experiment

MEMCACHED = image("apps/memcached", "memcached")
CORES = 2
RATE = 4000.0
WINDOW_MS = 50.0
# From the card's message to the record in the log: the wake-up from C1 takes 2 us, and an event that runs may come first.
RECORD_AFTER_NS = 40_000


@dataclass
class Traced:
    """A run's figures, with the card's messages in its window and the intervals in force, in virtual nanoseconds, by core."""

    result: results.Result
    directory: Path
    messages: dict[int, list[dict[str, int]]] = field(default_factory=lambda: defaultdict(list))
    intervals: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def distances(self, core: int) -> list[int]:
        times = [message["at"] for message in self.messages[core]]
        return [after - before for before, after in zip(times, times[1:])]

    def logged_ns(self, core: int, kind: int) -> list[float]:
        """Virtual times of the core's records of this kind whose messages came in the window. The TSC counts from the machine's reset."""
        log = decode.load([str(self.directory / experiment.LOG)]).cores[core]
        times = log.records["tsc"][log.records["kind"] == kind] / log.header.tsc_hz * 1e9
        window = self.result.world["window"]
        return [time for time in times if window["from_ns"] + RECORD_AFTER_NS <= time < window["to_ns"]]


def run(directory: Path, *words: str, rate: float = RATE, window_ms: float = WINDOW_MS) -> Traced:
    wanted = Experiment(
        "e5-2690", rate=rate, window_ms=window_ms, cores=CORES, connections=32, depth=1, arguments=words, trace_interrupts=True
    )
    traced = Traced(experiment.run(wanted, MEMCACHED, directory), directory)
    window = traced.result.world["window"]
    for entry in map(json.loads, (directory / experiment.INTERRUPTS).read_text().splitlines()):
        if "interval" in entry:
            traced.intervals[entry["vector"]].append(entry["interval"])
        elif window["from_ns"] <= entry["at"] < window["to_ns"]:
            traced.messages[entry["vector"]].append(entry)
    assert traced.result.world["failed"] == 0 and traced.result.answered > 0
    return traced


@pytest.mark.parametrize("itr_us", [0, 8, 100, 1000])
def test_moderation_spaces_interrupts_except_the_first_after_a_pause(tmp_path: Path, itr_us: int) -> None:
    traced = run(tmp_path, f"itr={itr_us}us", "idle=c1")
    itr_ns = itr_us * 1000
    for core in range(CORES):
        messages = traced.messages[core]
        assert len(messages) > 20, f"core {core} had no load: this run shows nothing"
        assert traced.intervals[core][-1:] == [itr_ns], f"EITR of core {core} was {traced.intervals[core]} ns"
        assert min(traced.distances(core)) >= itr_ns
        at_once = 0
        for before, after in zip(messages, messages[1:]):
            arrived = after["at"] - after["held"]
            # A frame that arrives after a pause longer than the interval is reported at once; an earlier one exactly when it ends.
            if arrived - before["at"] >= itr_ns:
                assert after["held"] == 0
                at_once += 1
            else:
                assert after["at"] - before["at"] == itr_ns
        assert at_once > 0
        held = sum(message["held"] != 0 for message in messages)
        assert held == 0 if itr_us == 0 else itr_us < 100 or held > 0, f"core {core}: {held} of {len(messages)} held back"
        logged = traced.logged_ns(core, decode.INTERRUPT)
        sent = [message["at"] for message in messages]
        assert len(logged) <= len(sent) and len(logged) > 0.8 * len(sent)
        for time in logged:
            assert any(0 <= time - at <= RECORD_AFTER_NS for at in sent), f"core {core} logged an interrupt at {time} that was not sent"


def test_a_polling_core_takes_no_interrupt_and_answers(tmp_path: Path) -> None:
    traced = run(tmp_path, "itr=8us", "idle=poll")
    assert not any(traced.messages[core] for core in range(CORES))
    for core in range(CORES):
        assert not traced.logged_ns(core, decode.INTERRUPT)
        assert traced.logged_ns(core, decode.POLL), f"core {core} had no frames"


def test_an_idle_machine_sleeps(tmp_path: Path) -> None:
    """Open connections do not wake a core. An unnecessary tick of a timer would wake it some times a second."""
    traced = run(tmp_path, rate=1, window_ms=30_000)
    requests = traced.result.answered
    # Four wake-ups a request: its frame, the acknowledgement of its answer, and two timers of the connection that are left to lapse,
    # because cancelling them would cost every request. A tick of one second would add 60.
    wakeups = [core.wakeups for core in traced.result.cores]
    assert sum(wakeups) <= 10 * CORES + 5 * requests, f"{wakeups} wake-ups in 30 s with {requests} requests"
    for core in traced.result.cores:
        assert core.c0_ns < 0.001 * traced.result.window_ns
