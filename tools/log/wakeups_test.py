# SPDX-License-Identifier: BSL-1.0
"""Wake-ups of apps/wakeup are found among all sleep records, and summarised like the image's own table."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tools.errors import Failure
from tools.log import decode, synthetic, wakeups

TSC_HZ = synthetic.Shape().tsc_hz  # two ticks a nanosecond
C6, C1 = 4, 1
UNKNOWN, TIMER, WAKE_UP = 5, 3, 4


def sleeps(*rows: tuple[int, int, int, int, int]) -> np.ndarray:
    """Rows of begin, end, idle state, cause, vector."""
    found = np.zeros(len(rows), synthetic.TYPES["idle"])
    for entry, row in zip(found, rows):
        entry["kind"] = decode.IDLE
        entry["tsc_asleep"], entry["tsc"], entry["idle_state"], entry["cause"], entry["vector"] = row
    return found


@pytest.fixture
def run(tmp_path: Path) -> decode.RunLog:
    synthetic.write(tmp_path, synthetic.Shape(cores=1, records=10))
    return decode.load([str(tmp_path)])


def with_sleeps(run: decode.RunLog, idle: np.ndarray) -> decode.RunLog:
    return dataclasses.replace(run, cores=[dataclasses.replace(run.cores[0], idle=idle)])


def test_adjoining_entries_are_a_wake_up(run: decode.RunLog) -> None:
    measured = []
    for number in range(1, 201):
        begin = 1_000_000 * number
        measured.append((begin, begin + 1000, C6, UNKNOWN, 1))
        measured.append((begin + 1000, begin + 1000 + 2 * number, C6, WAKE_UP, 0xF1))
    measured += [(10**9, 10**9 + 50, C1, UNKNOWN, 3), (10**9 + 50, 10**9 + 90, C1, TIMER, 0xF0)]
    assert run.cores[0].tsc_hz == TSC_HZ == 2_000_000_000
    first, second = wakeups.latencies(with_sleeps(run, sleeps(*measured)))
    assert first == wakeups.Latency(0, "c6", "ipi", rounds=200, min=1, median=100, p99=198, max=200)
    assert second == wakeups.Latency(0, "c1", "timer", rounds=1, min=20, median=20, p99=20, max=20)
    assert [line.split()[1:4] for line in wakeups.text([first, second]).splitlines()[1:]] == [["c6", "ipi", "200"], ["c1", "timer", "1"]]


def test_other_sleeps_are_passed_over(run: decode.RunLog) -> None:
    others = sleeps(
        (100, 200, C6, WAKE_UP, 0xF1),  # one entry alone
        (300, 400, C6, UNKNOWN, 1),  # the next entry does not adjoin
        (401, 450, C6, WAKE_UP, 0xF1),
        (500, 600, C6, UNKNOWN, 1),  # the next entry has another state
        (600, 650, C1, WAKE_UP, 0xF1),
        (700, 800, C6, UNKNOWN, 0),  # no doorbell
        (800, 850, C6, TIMER, 0xF0),
        (900, 950, C6, TIMER, 3),  # another cause
        (950, 990, C6, TIMER, 0xF0),
    )
    with pytest.raises(Failure, match="no wake-up of apps/wakeup"):
        wakeups.latencies(with_sleeps(run, others))
    with pytest.raises(Failure, match="no wake-up of apps/wakeup"):
        wakeups.latencies(with_sleeps(run, sleeps()))
