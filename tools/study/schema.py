# SPDX-License-Identifier: BSL-1.0
"""The tables of a study: one row for each run, and the latencies of each run as a histogram (docs/study.md).

A value that is not known is null. A column `set_NAME` exists for each swept setting NAME that has no column of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

RUNS, HISTOGRAMS = "runs.parquet", "histograms.parquet"
OK, FAILED = "ok", "failed"
SET = "set_"
# Loads of the runs that measure the power of a machine without requests.
IDLE_BASELINE, POLLING_BASELINE = "baseline.idle", "baseline.polling"
BASELINES = (IDLE_BASELINE, POLLING_BASELINE)

TEXT, WHOLE, NUMBER = pa.string(), pa.int64(), pa.float64()

# Name, type, meaning. docs/study.md has the same table (schema_test.py).
COLUMNS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("study", TEXT, "title of the study"),
    ("run", TEXT, "name of the run: a hash of all that it depends on, 16 hexadecimal digits"),
    ("arm", TEXT, "name of the arm"),
    ("system", TEXT, "neap, linux or linux-13"),
    ("machine", TEXT, "modelled CPU, or name of the real machine"),
    ("modelled", pa.bool_(), "true: figures of the model machine"),
    ("cores", WHOLE, "cores of the machine"),
    ("load", TEXT, "name of the load; `baseline.idle` and `baseline.polling`: runs without requests"),
    ("repeat", WHOLE, "number of the repeat, from 1"),
    ("seed", WHOLE, "seed of the run"),
    ("status", TEXT, "ok or failed"),
    ("failure", TEXT, "what failed"),
    ("started", pa.timestamp("us", "UTC"), "begin of the run, by the host's clock"),
    ("took_s", NUMBER, "duration of the run on the host"),
    ("itr_us", NUMBER, "interval between interrupts; null: adaptive, or the default"),
    ("frequency_ghz", NUMBER, "requested frequency; null: chosen by a governor, or the default"),
    ("idle", TEXT, "idle state, as requested"),
    ("rapl_w", NUMBER, "power limit of a package"),
    ("settings", TEXT, "all words of the run, as a JSON object"),
    ("rate_wanted", NUMBER, "requests/s that the load was to send"),
    ("rate_reached", NUMBER, "requests/s that were answered within the window"),
    ("requests", WHOLE, "answered requests of the window"),
    ("window_s", NUMBER, "length of the measured window"),
    ("failed_requests", WHOLE, "requests without a good answer"),
    ("lost_frames", WHOLE, "frames lost in the network and the card during the window"),
    ("mean_us", NUMBER, "mean latency"),
    ("p50_us", NUMBER, "median latency"),
    ("p90_us", NUMBER, "latency, 90th percentile"),
    ("p95_us", NUMBER, "latency, 95th percentile"),
    ("p99_us", NUMBER, "latency, 99th percentile"),
    ("p999_us", NUMBER, "latency, 99.9th percentile"),
    ("max_us", NUMBER, "largest latency"),
    ("energy_j", NUMBER, "energy of the packages in the window"),
    ("energy_uj", NUMBER, "energy per request"),
    ("power_w", NUMBER, "power of the packages"),
    ("idle_w", NUMBER, "power of the idle baseline with the same settings"),
    ("polling_w", NUMBER, "power of the polling baseline with the same settings"),
    ("instructions", NUMBER, "instructions of all cores in the window"),
    ("cycles", NUMBER, "core cycles while not halted"),
    ("ref_cycles", NUMBER, "reference cycles while not halted"),
    ("llc_misses", NUMBER, "misses of the last-level cache"),
    ("interrupts", NUMBER, "interrupts of the card"),
    ("wake_ups", NUMBER, "ends of a core's sleep"),
    ("frames_in", NUMBER, "frames to the machine"),
    ("frames_out", NUMBER, "frames from the machine"),
    ("bytes_in", NUMBER, "bytes of these frames"),
    ("bytes_out", NUMBER, "bytes of these frames"),
    ("c0", NUMBER, "share of the cores' time in C0"),
    ("c1", NUMBER, "share in C1"),
    ("c1e", NUMBER, "share in C1E"),
    ("c3", NUMBER, "share in C3"),
    ("c6", NUMBER, "share in C6"),
    ("c7", NUMBER, "share in C7"),
    ("mhz", NUMBER, "mean frequency while awake"),
    ("log", TEXT, "folder of the run's log, relative to the study's folder"),
)
TYPES: Mapping[str, pa.DataType] = {name: kind for name, kind, _ in COLUMNS}
NAMES = tuple(TYPES)
# The settings that have a column of their own.
OWN_SETTINGS = ("itr_us", "frequency_ghz", "idle", "rapl_w")
HISTOGRAM = pa.schema([("run", TEXT), ("upper_us", NUMBER), ("count", WHOLE)])


def runs_table(rows: Sequence[Mapping[str, Any]], swept: Iterable[str] = ()) -> pa.Table:
    """Returns the table of the rows; a member that a row lacks is null. `swept`: settings that get a column `set_NAME`, whose values are
    members of the rows under that name."""
    fields = [pa.field(name, kind) for name, kind in TYPES.items()]
    for name in swept:
        column = f"{SET}{name}"
        is_number = all(isinstance(row.get(column), (int, float, type(None))) for row in rows)
        fields.append(pa.field(column, NUMBER if is_number else TEXT))
    kinds = {field.name: field.type for field in fields}
    return pa.table(
        {name: pa.array([_cell(row.get(name), kind) for row in rows], kind) for name, kind in kinds.items()}, schema=pa.schema(fields)
    )


def _cell(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    return str(value) if kind == TEXT else float(value) if kind == NUMBER else value


def histograms_table(found: Mapping[str, Sequence[tuple[float, int]]]) -> pa.Table:
    """Returns the table of the runs' histograms: by the run's name, pairs of a bucket's highest latency in us and its number of answers."""
    lines = [(run, upper, count) for run, buckets in found.items() for upper, count in buckets]
    return pa.table({name: [line[at] for line in lines] for at, name in enumerate(HISTOGRAM.names)}, schema=HISTOGRAM)
