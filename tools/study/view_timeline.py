# SPDX-License-Identifier: BSL-1.0
"""The timeline of one run: interrupts, sleep and power for each pixel column of a picture.

A run has millions of records, and a picture a thousand columns. A line through all records is a filled band that shows nothing. So DuckDB
gives for each column the least, mean and greatest value, and the number of interrupts by their distance to the interrupt before. Both show
structure at any zoom: at the whole run as an envelope and a density, in a millisecond as single records.
"""

import collections
import concurrent.futures
import dataclasses
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from tools.errors import Failure, UsageError
from tools.log import decode, page_series
from tools.log.decode import INTERRUPT, RunLog
from tools.log.trim import CoreRun, package_energy, packages, ticks_since, trim
from tools.study.view_source import Source

COLUMNS_MAX = 2000
INTERVAL_ROWS = 48
RUNS_KEPT = 3
# The axis of the intervals begins above this share of them, which is taken from a sample.
SHORTEST_SHARE = 0.001
GAPS_SAMPLED = 100_000
GAP_SECONDS_MIN = 1e-7
FILE_BYTES_MAX = 4 << 30
# With fewer records in a column, a part of a column has mostly one or none.
RECORDS_A_PART = 8
PARTS = 4


@dataclasses.dataclass(frozen=True)
class View:
    """`span`: seconds from the run's begin, None for all. `core`: one core, None for all."""

    columns: int = 800
    span: tuple[float, float] | None = None
    core: int | None = None


def parse(asked: Mapping[str, str]) -> View:
    columns, core = asked.get("columns", "800"), asked.get("core", "")
    if not columns.isdecimal() or not 1 <= int(columns[:6]) <= COLUMNS_MAX:
        raise UsageError(f"a timeline has 1 to {COLUMNS_MAX} columns")
    if core and not (core.isdecimal() and len(core) <= 3):
        raise UsageError("core is a core's number")
    span = None
    if text := asked.get("span"):
        try:
            low, high = (float(each) for each in text.split(","))
        except ValueError:
            raise UsageError("a span is two numbers") from None
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise UsageError("a span has a low end and a high end")
        span = low, high
    return View(int(columns), span, int(core) if core else None)


class Timelines:
    """The records of the last RUNS_KEPT runs that were asked for, in DuckDB."""

    def __init__(self, source: Source):
        self._source = source
        self._kept: collections.OrderedDict[int, _Run] = collections.OrderedDict()
        self._guard = threading.Lock()

    def answer(self, row: int, view: View) -> tuple[dict, dict[str, np.ndarray]]:
        with self._guard:
            if row not in self._kept:
                places = self._source.log_places(row)
                size = sum(each.stat().st_size for place in map(Path, places) for each in ([place] if place.is_file() else place.iterdir()))
                if size > FILE_BYTES_MAX:
                    raise Failure(f"the log of this run has {size >> 30} GB; a timeline reads at most {FILE_BYTES_MAX >> 30}")
                self._kept[row] = _Run(decode.load(places))
                while len(self._kept) > RUNS_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(row)
            return self._kept[row].answer(view)


class _Run:
    """One run's records and readings of power."""

    def __init__(self, log: RunLog):
        cores = [trim(core) for core in log.cores]
        begin, self.seconds = page_series.span_of(cores)
        self.seconds = max(self.seconds, 1e-9)
        self.cores = [core.log.core for core in cores]
        self.knows_sleep = "asleep_share" not in log.unknown
        with concurrent.futures.ThreadPoolExecutor(decode.THREADS) as threads:
            parts = list(threads.map(lambda core: _intervals(core, begin), cores))
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        gaps = joined["gap"][(joined["gap"] > 0) & joined["is_interrupt"]]
        # Two cores' messages, or a damaged record, may leave nanoseconds between two interrupts. They are drawn in the lowest row.
        some = gaps[:: 1 + len(gaps) // GAPS_SAMPLED]
        least = max(float(np.quantile(some, SHORTEST_SHARE)), GAP_SECONDS_MIN) if len(gaps) else 1e-6
        self.gap_bounds = (float(np.log10(least)), float(np.log10(max(gaps.max(), least))) + 1e-9) if len(gaps) else (-6.0, -3.0)
        if self.gap_bounds[1] - self.gap_bounds[0] < 0.3:
            self.gap_bounds = self.gap_bounds[0] - 0.3, self.gap_bounds[1] + 0.3
        power = [(number, *_watts(log, members, begin)) for number, members in packages(cores).items()]
        power = [(number, t, watts) for number, t, watts in power if len(t)]
        self.packages = [number for number, *_ in power]
        self._connection = duckdb.connect(":memory:")
        self._table("records", joined)
        of = [np.concatenate([np.full(len(t), number, np.int16) for number, t, _ in power])] if power else [np.zeros(0, np.int16)]
        times, watts = ([np.concatenate([each[at] for each in power])] if power else [np.zeros(0)] for at in (1, 2))
        self._table("power", {"package": of[0], "t": times[0], "watts": watts[0]})
        self._connection.execute("SET enable_external_access = false")

    def _table(self, name: str, columns: Mapping[str, np.ndarray]) -> None:
        arriving = pa.table(dict(columns))
        self._connection.register("arriving", arriving)
        self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM arriving")
        self._connection.unregister("arriving")

    def _arrays(self, query: str, values: list[Any]) -> dict[str, np.ndarray]:
        return self._connection.execute(query, values).fetchnumpy()

    def answer(self, view: View) -> tuple[dict, dict[str, np.ndarray]]:
        low, high = view.span or (0.0, self.seconds)
        low, high = max(0.0, low), min(self.seconds, high)
        if not high > low:
            raise UsageError("the span is outside of the run")
        if view.core is not None and view.core not in self.cores:
            raise UsageError(f"the run has no core {view.core}")
        one = f" AND core = {view.core}" if view.core is not None else ""
        scale = view.columns / (high - low)
        column = f"least(floor((t - ?) * ?)::INTEGER, {view.columns - 1})"
        arrays = self._density(view, low, high, scale, column, one)
        cores = [view.core] if view.core is not None else self.cores
        arrays |= _named("rate", self._rates(view, low, high, one, cores))
        if self.knows_sleep:
            arrays |= _named("asleep", self._sleep(view, low, high, scale, column, one, cores))
        for number in self.packages:
            arrays |= _named(f"watts{number}", self._power(view, low, high, scale, column, number))
        about = {
            "span": [low, high],
            "seconds": self.seconds,
            "columns": view.columns,
            "rows": INTERVAL_ROWS,
            "gap_span": [10**bound for bound in self.gap_bounds],
            "cores": self.cores,
            "packages": self.packages,
            "knows_sleep": self.knows_sleep,
            "records": int(
                self._connection.execute(f"SELECT count(*) FROM records WHERE t BETWEEN ? AND ?{one}", [low, high]).fetchall()[0][0]
            ),
        }
        return about, arrays

    def _density(self, view: View, low: float, high: float, scale: float, column: str, one: str) -> dict[str, np.ndarray]:
        gap_low, gap_high = self.gap_bounds
        found = self._arrays(
            f"SELECT {column} AS at, greatest(0, least(floor((log10(gap) - ?) * ?)::INTEGER, {INTERVAL_ROWS - 1})) AS up, "
            "count(*)::INTEGER AS n "
            f"FROM records WHERE is_interrupt AND gap > 0 AND t BETWEEN ? AND ?{one} GROUP BY 1, 2",
            [low, scale, gap_low, INTERVAL_ROWS / (gap_high - gap_low), low, high],
        )
        cell = np.asarray(found["up"], np.int32) * view.columns + np.asarray(found["at"], np.int32)
        return {"gap_cell": cell.astype(np.int32), "gap_n": np.asarray(found["n"], np.int32)}

    def _rates(self, view: View, low: float, high: float, one: str, cores: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns interrupts per second of a core: least, mean and greatest of all cores and parts of a column."""
        count = self._connection.execute(
            f"SELECT count(*) FROM records WHERE is_interrupt AND t BETWEEN ? AND ?{one}", [low, high]
        ).fetchall()
        parts = PARTS if count[0][0] >= RECORDS_A_PART * PARTS * view.columns * len(cores) else 1
        cells = view.columns * parts
        found = self._arrays(
            f"SELECT core, least(floor((t - ?) * ?)::INTEGER, {cells - 1}) AS at, count(*)::INTEGER AS n "
            f"FROM records WHERE is_interrupt AND t BETWEEN ? AND ?{one} GROUP BY 1, 2",
            [low, cells / (high - low), low, high],
        )
        counts = np.zeros((len(cores), cells), np.float32)
        counts[np.searchsorted(cores, np.asarray(found["core"])), np.asarray(found["at"])] = np.asarray(found["n"])
        rates = (counts * (cells / (high - low))).reshape(len(cores), view.columns, parts)
        return rates.min(axis=(0, 2)), rates.mean(axis=(0, 2)), rates.max(axis=(0, 2))

    def _sleep(self, view: View, low: float, high: float, scale: float, column: str, one: str, cores: list[int]) -> tuple:
        """Returns the share of time asleep in percent. A record's interval ends with it, so a column without a record of a core has the
        share of that core's next record."""
        found = self._arrays(
            f"SELECT core, {column} AS at, min(asleep / gap) AS low, sum(asleep) / sum(gap) AS mean, max(asleep / gap) AS high "
            f"FROM records WHERE gap > 0 AND t BETWEEN ? AND ?{one} GROUP BY 1, 2",
            [low, scale, low, high],
        )
        after = self._arrays(
            f"SELECT core, arg_min(asleep / gap, t) AS mean FROM records WHERE gap > 0 AND t > ? AND t - gap < ?{one} GROUP BY 1",
            [high, high],
        )
        return tuple(100 * each for each in _filled(found, "core", cores, view.columns, after))

    def _power(self, view: View, low: float, high: float, scale: float, column: str, number: int) -> tuple:
        found = self._arrays(
            f"SELECT package, {column} AS at, min(watts) AS low, avg(watts) AS mean, max(watts) AS high "
            f"FROM power WHERE package = {number} AND t BETWEEN ? AND ? GROUP BY 1, 2",
            [low, scale, low, high],
        )
        after = self._arrays(f"SELECT package, arg_min(watts, t) AS mean FROM power WHERE package = {number} AND t > ? GROUP BY 1", [high])
        return _filled(found, "package", [number], view.columns, after)


def _intervals(core: CoreRun, begin: int) -> dict[str, np.ndarray]:
    """Returns the columns of the table of records for one core. Only the fields in use are copied: a record has 64 bytes."""
    records = core.inside
    ticks = core.interval_ticks[1:] if core.started else core.interval_ticks
    chosen = records["kind"] != 0
    kinds, tsc, states, idle = (records[name][chosen] for name in ("kind", "tsc", "idle_state", "idle_ticks"))
    ticks = ticks[chosen]
    asleep = np.where(states == core.log.schema.idle_poll, 0, np.minimum(idle, ticks.astype(np.uint64)))
    return {
        "core": np.full(len(tsc), core.log.core, np.int16),
        "t": np.maximum(ticks_since(tsc, begin), 0) / core.log.tsc_hz,
        "gap": ticks / core.log.tsc_hz,
        "asleep": asleep / core.log.tsc_hz,
        "is_interrupt": kinds == INTERRUPT,
    }


def _watts(log: RunLog, members: list, begin: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the power of a package, and the ends of the spans to which the values belong."""
    series = package_energy(log, members, "package_energy")
    if series is None:
        return np.zeros(0), np.zeros(0)
    hz = members[0].log.tsc_hz
    chosen = page_series.apart(series.tsc, max(1, int(page_series.READINGS_APART_SECONDS * hz)))
    seconds = ticks_since(series.tsc[chosen], begin) / hz
    grown = np.diff(np.maximum.accumulate(series.joules)[chosen])
    return seconds[1:], grown / np.maximum(np.diff(seconds), 1e-9)


def _filled(found: dict[str, np.ndarray], key: str, keys: list[int], columns: int, after: dict[str, np.ndarray]) -> tuple:
    """Returns least, mean and greatest of all keys for each column. A column without a value has that of the next one; NaN: none."""
    made = {name: np.full((len(keys), columns + 1), np.nan) for name in ("low", "mean", "high")}
    row = np.searchsorted(keys, np.asarray(found[key]))
    for name, values in made.items():
        values[row, np.asarray(found["at"])] = np.ma.filled(np.ma.asarray(found[name], np.float64), np.nan)
        values[np.searchsorted(keys, np.asarray(after[key])), columns] = np.asarray(after["mean"], np.float64)
    known = np.where(np.isnan(made["mean"]), columns + 1, np.arange(columns + 1))
    following = np.minimum.accumulate(known[:, ::-1], axis=1)[:, ::-1]
    at = np.minimum(following, columns)
    for name, values in made.items():
        made[name] = np.where(following > columns, np.nan, np.take_along_axis(values, at, axis=1))[:, :columns]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column may have no value at all
        return np.nanmin(made["low"], axis=0), np.nanmean(made["mean"], axis=0), np.nanmax(made["high"], axis=0)


def _named(name: str, found: tuple) -> dict[str, np.ndarray]:
    return {f"{name}_{end}": np.asarray(values, np.float32) for end, values in zip(("low", "mean", "high"), found)}
