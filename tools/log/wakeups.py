# SPDX-License-Identifier: BSL-1.0
"""`./neap log wakeups`: wake-up latency from the sleep records of apps/wakeup, as the image's own table has it.

A wake-up that was measured is two entries of the sleeper that adjoin: the sleep until the doorbell, of cause `unknown` and with the
doorbell's number as its vector, and the time from the doorbell to the first clock reading. All other sleep records are passed over.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tools.errors import Failure
from tools.log.decode import CoreLog, RunLog
from tools.log.schema import name_of

# As in apps/wakeup/results.hpp.
DOORBELLS = {1: "ipi", 2: "write", 3: "timer", 4: "timer-all"}
HEAD = ("core", "state", "doorbell", "rounds", "min ns", "median ns", "p99 ns", "max ns")


@dataclasses.dataclass(frozen=True)
class Latency:
    """One row; latencies in nanoseconds. Percentiles are values that occurred (nearest rank)."""

    core: int
    state: str
    doorbell: str
    rounds: int
    min: int
    median: int
    p99: int
    max: int


def latencies(run: RunLog) -> list[Latency]:
    """The rows in the order in which they were measured. Raises Failure if the log has no wake-up that was measured."""
    found = [row for log in run.cores for row in _of_core(log)]
    if not found:
        raise Failure(
            "the log has no wake-up of apps/wakeup", "./neap run wakeup --cores 2 -- log_idle=on, then ./neap log collect wakeup --out DIR"
        )
    return found


def _of_core(log: CoreLog) -> list[Latency]:
    idle = log.idle
    if len(idle) < 2:
        return []
    sleep, wake = idle[:-1], idle[1:]
    causes = log.schema.form["idle"].by_name["cause"].choices
    unknown = [number for number in range(256) if name_of(causes, number) == "unknown"]
    pairs = np.isin(sleep["cause"], unknown) & np.isin(sleep["vector"], list(DOORBELLS)) & (sleep["tsc"] == wake["tsc_asleep"])
    pairs &= sleep["idle_state"] == wake["idle_state"]
    ticks = (wake["tsc"] - wake["tsc_asleep"])[pairs].astype(np.uint64)
    kinds = list(zip(sleep["idle_state"][pairs].tolist(), sleep["vector"][pairs].tolist(), strict=True))
    rows = []
    for state, doorbell in dict.fromkeys(kinds):
        own = sorted(int(ticks[at]) for at, kind in enumerate(kinds) if kind == (state, doorbell))
        figures = [own[0], _percentile(own, 50), _percentile(own, 99), own[-1]]
        nanoseconds = [(value * 1_000_000_000 + log.tsc_hz // 2) // log.tsc_hz for value in figures]
        rows.append(Latency(log.core, log.schema.idle_name(state), DOORBELLS[doorbell], len(own), *nanoseconds))
    return rows


def _percentile(ordered: Sequence[int], percent: int) -> int:
    return ordered[-(-len(ordered) * percent // 100) - 1]


def text(rows: Sequence[Latency]) -> str:
    cells = [HEAD, *(tuple(str(value) for value in dataclasses.astuple(row)) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
    names = range(1, 3)  # state and doorbell, aligned to the left
    aligned = (
        "  ".join(cell.ljust(width) if column in names else cell.rjust(width) for column, (cell, width) in enumerate(zip(line, widths)))
        for line in cells
    )
    return "\n".join(aligned)
