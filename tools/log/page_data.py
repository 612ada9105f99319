# SPDX-License-Identifier: BSL-1.0
"""The columns of a report page: every record of a run, packed so that a browser can draw five million of them.

A column has one whole number for each record of a core. It is stored as byte planes (all lowest bytes first), deflated, in base64. The page
decodes a column when a plot needs it. There are two tables for each core:

  - records: one row per log record, that is one per interrupt or successful poll;
  - stretches: one row per pair of successive counter samples, with the growth of each counter and the sums over the records between them.

If a run has more records than the page may hold, every Nth record is kept, and each core's extremes (EXTREMES). The page says so. Sums over
stretches are computed here, so they are exact in any case.
"""

import base64
import dataclasses
import zlib

import numpy as np

from tools.log.decode import EVENTS, INTERRUPT, RunLog
from tools.log.study_reader import FURTHER_SLEEPS
from tools.log.trim import CoreRun, package_energy, packages, ticks_since

# All runs of a page together. A browser needs about 30 bytes of memory for each record that it draws.
RECORDS_MAX = 8_000_000
STRETCHES_MAX = 1_000_000
# Of each core, the records with the largest values of these columns are always kept.
EXTREMES = ("interval", "rx_bytes", "tx_bytes")
EXTREMES_EACH = 200
# JavaScript counts exactly up to 2^53.
WHOLE_BITS_MAX = 52
SETTINGS_MAX = 2000
DEFLATE_LEVEL = 5

COUNTS = ("rx_frames", "rx_bytes", "rx_descriptors", "tx_frames", "tx_bytes", "tx_descriptors", "idle_entries")
COUNTERS = ("instructions", "cycles", "reference_cycles", "llc_misses")
RESIDENCIES = tuple(f"core_{state}" for state in ("c3", "c6", "c7")) + tuple(f"package_{state}" for state in ("c2", "c3", "c6", "c7"))
ENERGY = ("package_energy", "dram_energy")


@dataclasses.dataclass
class Columns:
    """The part of the page that belongs to one core. `about` goes into the page's JSON; `texts` are the packed columns by name."""

    about: dict
    texts: dict[str, str]


def pack(values: np.ndarray, deflated: bool = True) -> tuple[dict, str]:
    """Returns a column's description and its packed text. `values`: whole numbers from 0 on; larger ones than 2^52 become 2^52. A column of
    equal numbers has no text. `deflated`: false for a small table that the page needs at once, because browsers inflate in the
    background."""
    whole = np.minimum(values.astype(np.uint64), np.uint64(1 << WHOLE_BITS_MAX))
    if not len(whole) or np.all(whole == whole[0]):
        return {"count": len(whole), "constant": int(whole[0]) if len(whole) else 0}, ""
    width = (int(whole.max()).bit_length() + 7) // 8
    planes = np.ascontiguousarray(whole.astype("<u8").view(np.uint8).reshape(-1, 8).T[:width])
    data = zlib.compress(planes, DEFLATE_LEVEL) if deflated else planes.tobytes()
    return {"count": len(whole), "width": width}, base64.b64encode(data).decode()


def core_columns(core: CoreRun, begin: int, step: int) -> Columns:
    """Returns the table of records of one core. `begin`: the TSC that is second 0 of the page. `step`: every `step`th record is kept."""
    records = core.inside
    ticks = core.interval_ticks[1:] if core.started else core.interval_ticks
    if not (is_point := records["kind"] != FURTHER_SLEEPS).all():
        records, ticks = records[is_point], ticks[is_point]
    offsets = np.maximum.accumulate(np.maximum(ticks_since(records["tsc"], begin), 0)) if len(records) else np.zeros(0, np.int64)
    unit = _time_unit(core, begin)
    kept = _kept(records, ticks, step)
    chosen = records[kept]
    generations = chosen["generation"].astype(np.int64)
    base = int(generations.min()) if len(generations) else 0
    columns = {
        "time": np.diff(offsets[kept] // unit, prepend=0),
        "kind": chosen["kind"],
        "idle_state": chosen["idle_state"],
        "generation": generations - base,
        "idle_ticks": chosen["idle_ticks"],
        **{name: chosen[name] for name in COUNTS},
    }
    if "itr_us" in (chosen.dtype.names or ()):
        columns["itr_us"] = chosen["itr_us"]  # Linux changes it by itself, and its records have the present value
    if step > 1:
        columns["interval"] = ticks[kept] // unit
    about = {
        "core": core.log.core,
        "package": core.log.package,
        "records": len(records),
        "step": step,
        "seconds_a_unit": unit / core.log.tsc_hz,
        "start": max(0, int(ticks_since(core.tsc[:1], begin)[0])) // unit if core.started else None,
        # In these rows the interval is unknown, because entries before them are missing.
        "unknown_intervals": np.flatnonzero(ticks[kept] == 0).tolist() if step == 1 else [],
        "generation_base": base,
        "settings": _settings(core),
    }
    if len(about["unknown_intervals"]) > len(kept) // 2:
        # Most records have the TSC of the record before, or follow a gap. A column is shorter than the list.
        columns["interval"], about["unknown_intervals"] = ticks[kept] // unit, []
    return _packed(about, columns, "")


def _time_unit(core: CoreRun, begin: int) -> int:
    """Returns the ticks of one unit of the page's times: 1, unless a damaged log has times that JavaScript cannot count."""
    latest = int(np.maximum(ticks_since(core.tsc, begin), 0).max(initial=0))
    return 1 + (latest >> WHOLE_BITS_MAX)


def _kept(records: np.ndarray, ticks: np.ndarray, step: int) -> np.ndarray:
    """Returns the indices of the records that the page holds."""
    each = min(EXTREMES_EACH, len(records))
    if step == 1 or not each:
        return np.arange(len(records))
    extremes = [np.argpartition(ticks if name == "interval" else records[name], -each)[-each:] for name in EXTREMES]
    return np.unique(np.concatenate([np.arange(0, len(records), step), *extremes]))


def _settings(core: CoreRun) -> list[dict]:
    names = ("generation", "itr_us", "idle", "pstate", "poll_budget_us")
    return [{name: row[name] for name in names} for row in core.log.settings[:SETTINGS_MAX]]


def _packed(about: dict, columns: dict[str, np.ndarray], prefix: str) -> Columns:
    described: dict[str, dict] = {}
    texts: dict[str, str] = {}
    for name, values in columns.items():
        # Many runs have one descriptor for each frame, so some columns are equal.
        same = next((other for other in described if len(values) and np.array_equal(values, columns[other])), None)
        if same is not None and "same" not in described[same] and "constant" not in described[same]:
            described[name] = {"count": len(values), "same": prefix + same}
            continue
        described[name], text = pack(values)
        if text:
            texts[prefix + name] = text
    return Columns({**about, "columns": {prefix + name: row for name, row in described.items()}}, texts)


def steps(cores: list[CoreRun]) -> tuple[int, int]:
    """Returns the distance of the records that the page keeps, and of the samples that end a stretch, for all cores of all runs."""
    records = sum(len(core.records) for core in cores)
    samples = sum(max((int(np.count_nonzero(core.counter(name).present)) for name in core.log.counters), default=0) for core in cores)
    return max(1, -(-records // RECORDS_MAX)), max(1, -(-samples // STRETCHES_MAX))


# ---- stretches between samples ----


class Packages:
    """Energy readings and interrupts of each package's cores, for the stretches of its cores."""

    def __init__(self, run: RunLog, cores: list[CoreRun]):
        self.run = run
        self._energy = {}
        self._interrupts: dict[int, list[np.ndarray]] = {}
        for number, members in packages(cores).items():
            self._energy[number] = {name: package_energy(run, members, name) for name in ENERGY}
            self._interrupts[number] = [np.sort(core.inside["tsc"][core.inside["kind"] == INTERRUPT]) for core in members]

    def counts(self, package: int, name: str, tsc: np.ndarray) -> np.ndarray | None:
        """Returns a package's energy at these times, in the counter's units since the first reading; None if it is unknown."""
        series, unit = self._energy[package][name], self.run.energy_unit(name)
        if series is None or unit is None:
            return None
        at = np.maximum(np.searchsorted(series.tsc, tsc, side="right") - 1, 0)
        return np.round(series.joules[at] / unit).astype(np.int64)

    def interrupts(self, package: int, tsc: np.ndarray) -> np.ndarray:
        """Returns the interrupts of all of a package's cores up to these times."""
        found = np.zeros(len(tsc), np.int64)
        for times in self._interrupts[package]:
            found += np.searchsorted(times, tsc, side="right")
        return found


def stretch_columns(core: CoreRun, shared: Packages, begin: int, merged: int) -> Columns:
    """Returns the table of stretches of one core. A counter's column is its growth plus 1; 0 means unknown. `merged`: a stretch ends at
    every `merged`th sample, and at the last one. If the last stretch would be shorter than half of the median, it joins the one before,
    because figures of a few ticks are mostly chance."""
    names = [name for name in (*COUNTERS, *EVENTS, *RESIDENCIES, *ENERGY) if name in core.log.counters]
    present = {name: found for name in names if (found := core.counter(name).present).any()}
    sampled = np.logical_or.reduce(list(present.values())) if present else np.zeros(len(core.records), bool)
    samples = np.flatnonzero(sampled)
    at = np.unique(np.concatenate([samples[::merged], samples[-1:]]))
    if len(at) > 2 and 2 * (lengths := np.diff(core.tsc[at].astype(np.float64)))[-1] < np.median(lengths):
        at = np.delete(at, -2)
    about: dict = {"stretches": max(0, len(at) - 1), "samples_a_stretch": merged, "across_gaps": 0}
    if len(at) < 2:
        return Columns({**about, "stretches": 0, "stretch_columns": {}}, {})
    gaps = np.concatenate([[0], np.cumsum(core.log.follows_gap[core.first : core.end])])
    # The records of a stretch follow its first sample, up to and with its second sample.
    whole = gaps[at[1:] + 1] == gaps[at[:-1] + 1]
    first, last = at[:-1][whole], at[1:][whole]
    records, tsc = core.records, np.maximum.accumulate(core.tsc)
    ends = np.maximum(ticks_since(tsc[last], begin), 0) // _time_unit(core, begin)

    def summed(values: np.ndarray) -> np.ndarray:
        total = np.concatenate([[0], np.cumsum(values.astype(np.uint64), dtype=np.uint64)])
        return total[last + 1] - total[first + 1]

    asleep = np.where(records["idle_state"] == core.log.schema.idle_poll, 0, records["idle_ticks"])
    columns = {
        "time": np.diff(ends, prepend=0),
        "ticks": tsc[last] - tsc[first],
        "records": summed(records["kind"] != FURTHER_SLEEPS),
        "interrupts": summed(records["kind"] == INTERRUPT),
        "generation": records["generation"][last],
        "idle_state": records["idle_state"][last],
        "kind": records["kind"][last],
        "idle_ticks": summed(asleep),
        **{name: summed(records[name]) for name in COUNTS},
        "package_interrupts": np.diff(shared.interrupts(core.log.package, tsc[np.stack([first, last])].ravel()).reshape(2, -1), axis=0)[0],
    }
    for name in (*COUNTERS, *EVENTS, *RESIDENCIES):
        if name in present:
            columns[name] = _growth(core, name, first, last)
    for name in ENERGY:
        counts = shared.counts(core.log.package, name, tsc[np.stack([first, last])].ravel())
        if counts is not None and name in present:
            known = present[name][first] & present[name][last]
            columns[name] = np.where(known, np.maximum(np.diff(counts.reshape(2, -1), axis=0)[0], 0) + 1, 0)
    made = _packed(about, columns, "s_")
    made.about["stretch_columns"] = made.about.pop("columns")
    return dataclasses.replace(made, about={**made.about, "stretches": len(first), "across_gaps": int(np.count_nonzero(~whole))})


def _growth(core: CoreRun, name: str, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    at, total = core.sampled(name)
    values = np.zeros(len(core.records), np.uint64)
    values[at] = total
    known = np.zeros(len(core.records), bool)
    known[at] = True
    return np.where(known[first] & known[last], values[last] - values[first] + np.uint64(1), np.uint64(0))
