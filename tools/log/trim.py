# SPDX-License-Identifier: BSL-1.0
"""Computes quantities from records: a run's bounds, seconds, joules, and counts without wraps and without double counting.

A run extends from its start anchor to its stop anchor. These are the entries behind the run's start record and stop record. The start
record begins the first interval; the start record's counts are from before the run. The stop record ends the last interval. The cores of a
package share an energy counter.
"""

import dataclasses
import functools

import numpy as np

from tools.log.decode import START, STOP, CoreLog, Counter, RunLog

# The members of a record that count from the previous record on.
COUNTS = (
    *("rx_descriptors", "rx_frames", "rx_bytes", "tx_descriptors", "tx_frames", "tx_bytes"),
    *("control_rx_frames", "control_rx_bytes", "control_tx_frames", "control_tx_bytes", "idle_entries", "idle_ticks"),
)
# Performance counters have 48 bits on the CPUs for which this code is written (CPUID 0x0A; SDM volume 3, "Architectural Performance
# Monitoring"), residencies 64 bits, and energy counters 32 bits (SDM volume 3, "RAPL Interfaces").
COUNTER_BITS = 48
ENERGY_BITS = 32
# Two cores that read one energy counter at the same time may record their readings in either order. So a decrease of up to this number of
# counts is no wrap.
ENERGY_DISORDER_COUNTS = 1 << 16
# More power than any package draws. If two readings are so far apart that the counter could wrap twice at this power, the energy is
# doubtful.
WATTS_MAX = 500.0


@dataclasses.dataclass
class CoreRun:
    """One core's records between its anchors. Index 0 of all arrays is the run's first record, whose counts are from before the run."""

    log: CoreLog
    first: int  # index of the first record in log.records
    end: int
    started: bool  # the log has the start anchor
    stopped: bool

    @property
    def count(self) -> int:
        """The number of records, without a copy of them."""
        return self.end - self.first

    @functools.cached_property
    def records(self) -> np.ndarray:
        """The records from the start record on, with the start record's counts set to 0."""
        records = self.log.records[self.first : self.end]
        if self.started:
            records = records.copy()
            for name in COUNTS:
                records[name][0] = 0
        return records

    @property
    def inside(self) -> np.ndarray:
        """The records that end an interval of the run."""
        return self.log.records[self.first + self.started : self.end]

    @property
    def tsc(self) -> np.ndarray:
        return self.log.records["tsc"][self.first : self.end]

    @property
    def begin_tsc(self) -> int:
        return int(self.tsc[0]) if self.count else 0

    @property
    def end_tsc(self) -> int:
        return int(self.tsc[-1]) if self.count else 0

    @property
    def ticks(self) -> int:
        return max(0, self.end_tsc - self.begin_tsc)

    @property
    def seconds(self) -> float:
        return self.ticks / self.log.tsc_hz

    @functools.cached_property
    def interval_ticks(self) -> np.ndarray:
        """Ticks from the previous record to each record; 0 for the first record and after a gap, because the time is unknown."""
        tsc = self.tsc.astype(np.int64)
        ticks = np.zeros(len(tsc), np.int64)
        if len(tsc) > 1:
            ticks[1:] = np.maximum(np.diff(tsc), 0)
        ticks[self.log.follows_gap[self.first : self.end]] = 0
        return ticks

    def sum(self, field: str) -> int:
        return int(self.inside[field].astype(np.uint64).sum())

    def counter(self, name: str) -> Counter:
        """Returns the values of a counter at the run's records."""
        found = self.log.counters[name]
        return Counter(found.values[self.first : self.end], found.present[self.first : self.end])

    def sampled(self, counter: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the indices of the records with a sample of the counter, and the counter's increase since the first sample."""
        found = self.counter(counter)
        at = np.flatnonzero(found.present)
        values = found.values[at]
        if not len(at):
            return at, np.zeros(0, np.uint64)
        bits = 64 if counter.startswith(("core_", "package_c")) else COUNTER_BITS
        steps = np.diff(values) & np.uint64((1 << bits) - 1)
        return at, np.concatenate([[np.uint64(0)], np.cumsum(steps, dtype=np.uint64)])

    def grown(self, counter: str) -> int | None:
        """Returns a counter's increase in the run; None if the CPU does not have it or there are fewer than two samples."""
        at, total = self.sampled(counter)
        return int(total[-1]) if len(at) > 1 else None

    def requests(self) -> int | None:
        """Returns the requests that the application counted between the anchors; None if they are not known."""
        if self.log.lacks("requests"):
            return None
        inside = (self.log.anchor_of >= self.first) & (self.log.anchor_of < self.end)
        counts = self.log.anchors["requests"][inside]
        return int(counts[-1]) - int(counts[0]) if len(counts) > 1 and self.started and self.stopped else None


def ticks_since(tsc: np.ndarray, begin: int) -> np.ndarray:
    """Returns ticks since `begin`, as signed numbers, also if the TSC's highest bit is set."""
    return (tsc - np.uint64(begin)).astype(np.int64)


def trim(core: CoreLog) -> CoreRun:
    """Returns the records from the start anchor to the stop anchor. The log's first or last record replaces a missing anchor."""
    kinds = core.records["kind"]
    starts = np.flatnonzero(kinds == START)
    first = int(starts[0]) if len(starts) else 0
    stops = np.flatnonzero(kinds[first:] == STOP)
    end = first + int(stops[0]) + 1 if len(stops) else len(kinds)
    return CoreRun(core, first, end, bool(len(starts)), bool(len(stops)))


def whole(core: CoreLog) -> CoreRun:
    """Returns all records, also the records before the run."""
    return CoreRun(core, 0, len(core.records), False, False)


@dataclasses.dataclass
class EnergySeries:
    """A package's energy in joules since its first reading in the run, at the TSC times of the readings. `doubtful`: a wrap may have been
    missed."""

    tsc: np.ndarray
    joules: np.ndarray
    doubtful: bool

    @property
    def total(self) -> float | None:
        return float(self.joules[-1] - self.joules[0]) if len(self.joules) > 1 else None


def package_energy(run: RunLog, cores: list[CoreRun], counter: str) -> EnergySeries | None:
    """Returns the readings of one package's cores as one series. None if the CPU lacks the counter or there are fewer than two readings."""
    unit = run.energy_unit(counter)
    if unit is None:
        return None
    tsc_of, counts_of = [], []
    for core in cores:
        found = core.counter(counter)
        tsc_of.append(core.tsc[found.present])
        counts_of.append(found.values[found.present])
    tsc = np.concatenate(tsc_of)
    order = np.argsort(tsc, kind="stable")
    tsc, counts = tsc[order], np.concatenate(counts_of)[order].astype(np.int64)
    if len(tsc) < 2:
        return None
    steps = np.diff(counts) % (1 << ENERGY_BITS)
    steps = np.where(steps >= (1 << ENERGY_BITS) - ENERGY_DISORDER_COUNTS, steps - (1 << ENERGY_BITS), steps)
    joules = np.concatenate([[0.0], np.cumsum(steps) * unit])
    longest_seconds = float(np.diff(tsc).max()) / cores[0].log.tsc_hz
    return EnergySeries(tsc, joules, longest_seconds * WATTS_MAX > (1 << ENERGY_BITS) * unit)


def packages(cores: list[CoreRun]) -> dict[int, list[CoreRun]]:
    found: dict[int, list[CoreRun]] = {}
    for core in cores:
        found.setdefault(core.log.package, []).append(core)
    return dict(sorted(found.items()))
