# SPDX-License-Identifier: BSL-1.0
"""`./neap log csv` and `parquet`: one table of a run, with the same content in both formats. It is made core by core.

A cell holds a number, a name of small letters, digits and underscores, or a value that begins with one of these (tools/log/schema.py). So
no spreadsheet takes it for a formula. The table `configuration` has texts from the header; where one begins like a formula, an apostrophe
is put in front.

A counter that was not sampled in a record, or that the CPU lacks, is an empty cell (CSV) or null (Parquet).
"""

import json
import sys
from collections.abc import Container, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from tools.errors import Failure
from tools.log import summary
from tools.log.configuration import flat
from tools.log.decode import COUNTERS, KIND_NAMES, RunLog
from tools.log.schema import name_of
from tools.log.shared_settings import numbers_text
from tools.log.trim import COUNTS, CoreRun, package_energy, packages, ticks_since, trim, whole

TABLES = ("records", "settings", "idle", "collections", "transactions", "configuration")
FIELDS = ("generation", *COUNTS)
# Fields of a Record that not each log has: the queue, and its interrupt moderation at the record.
FURTHER_FIELDS = ("queue", "itr_us")
RAW_COUNTERS = tuple(name for name in COUNTERS if not name.endswith("_energy"))
ENERGIES = {"package_energy": "package_joules", "dram_energy": "dram_joules"}


def tables(run: RunLog, which: str, untrimmed: bool) -> Iterator[pa.Table]:
    """Yields one table per core, all with the same columns. `seconds` count from the run's begin, `*_joules` from the first reading."""
    if which == "configuration":
        yield configuration_table(run)
        return
    cores = [whole(core) if untrimmed else trim(core) for core in run.cores]
    begin = min((core.begin_tsc for core in cores if len(core.records)), default=0)
    joules = _joules(run, cores) if which == "records" else {}
    for core in cores:
        if which == "records":
            yield _records(core, begin, joules, run)
        elif which == "idle":
            yield _idle(core, begin)
        elif which == "collections":
            yield _collections(core, begin)
        elif which == "transactions":
            yield _transactions(core, begin)
        else:
            yield _settings(core, begin)


def _names(numbers: np.ndarray, name) -> pa.Array:
    known = np.unique(numbers)
    return pa.array(np.array([name(int(number)) for number in known], object)[np.searchsorted(known, numbers)], pa.string())


def _joules(run: RunLog, cores: list[CoreRun]) -> dict:
    found = packages(cores).items()
    return {(counter, number): package_energy(run, members, counter) for counter in ENERGIES for number, members in found}


def _records(core: CoreRun, begin: int, joules: dict, run: RunLog) -> pa.Table:
    records = core.records
    log = core.log
    columns = {
        "core": pa.array(np.full(len(records), log.core, np.uint16)),
        "seconds": pa.array(ticks_since(records["tsc"], begin) / log.tsc_hz),
        "tsc": pa.array(records["tsc"]),
        "kind": _names(records["kind"], lambda number: KIND_NAMES.get(number, str(number))),
        "idle_state": _names(records["idle_state"], log.schema.idle_name),
        **{name: pa.array(np.ascontiguousarray(records[name]), mask=np.full(len(records), name in run.unknown)) for name in FIELDS},
    }
    # Linux's Record has further fields.
    columns |= {name: pa.array(np.ascontiguousarray(records[name])) for name in FURTHER_FIELDS if name in (records.dtype.names or ())}
    for name in RAW_COUNTERS:
        counter = core.counter(name)
        columns[name] = pa.array(counter.values, mask=~counter.present)
    for name, counter_name in run.events.items():
        counter = core.counter(counter_name)
        columns[event_column(name, columns)] = pa.array(counter.values, mask=~counter.present)
    for counter, name in ENERGIES.items():
        series = joules[counter, log.package]
        present = core.counter(counter).present & (series is not None)
        values = np.zeros(len(records))
        if series is not None:
            # If two cores read the counter at the same TSC time, either reading may be used.
            values = series.joules[np.minimum(np.searchsorted(series.tsc, records["tsc"]), len(series.tsc) - 1)]
        columns[name] = pa.array(values, mask=~present)
    return pa.table(columns)


def event_column(name: str, taken: Container[str]) -> str:
    """Returns the name of a chosen event's column. An event may have the name of another column: reference_cycles is a counter of every
    sample, and as an event it counts at another rate (SDM 3B, 20.2.1.2). The writer of CSV does not quote the names of columns."""
    found = name.replace(",", ":")
    return f"event_{found}" if found in taken or found in ENERGIES.values() else found


def _idle(core: CoreRun, begin: int) -> pa.Table:
    idle = core.log.idle
    idle = idle[(idle["tsc"] >= core.begin_tsc) & (idle["tsc"] <= core.end_tsc)]
    schema = core.log.schema
    causes = schema.form["idle"].by_name["cause"].choices
    return pa.table(
        {
            "core": pa.array(np.full(len(idle), core.log.core, np.uint16)),
            "seconds": pa.array(ticks_since(idle["tsc"], begin) / core.log.tsc_hz),
            "tsc_asleep": pa.array(np.ascontiguousarray(idle["tsc_asleep"])),
            "tsc_awake": pa.array(np.ascontiguousarray(idle["tsc"])),
            "idle_state": _names(idle["idle_state"], schema.idle_name),
            "cause": _names(idle["cause"], lambda number: name_of(causes, number)),
            "vector": pa.array(np.ascontiguousarray(idle["vector"])),
        }
    )


def _collections(core: CoreRun, begin: int) -> pa.Table:
    found = core.log.collections
    found = found[(found["tsc"] >= core.begin_tsc) & (found["tsc"] <= core.end_tsc)]
    return pa.table(
        {
            "core": pa.array(np.full(len(found), core.log.core, np.uint16)),
            "seconds": pa.array(ticks_since(found["tsc"], begin) / core.log.tsc_hz),
            **{name: pa.array(np.ascontiguousarray(found[name])) for name in ("tsc_begin", "tsc", "bytes_before", "bytes_after")},
        }
    )


def _transactions(core: CoreRun, begin: int) -> pa.Table:
    found = core.log.transactions
    found = found[(found["tsc"] >= core.begin_tsc) & (found["tsc"] <= core.end_tsc)]
    form = core.log.schema.form.get("transactions")
    types = form.by_name["type"].choices if form else ()
    counts = ("committed", "rolled_back", "failed", "retries", "ticks", "ticks_max")
    return pa.table(
        {
            "core": pa.array(np.full(len(found), core.log.core, np.uint16)),
            "seconds": pa.array(ticks_since(found["tsc"], begin) / core.log.tsc_hz),
            "type": _names(found["type"], lambda number: name_of(types, number)),
            **{name: pa.array(np.ascontiguousarray(found[name])) for name in ("tsc_begin", "tsc", *counts)},
        }
    )


_SETTINGS_SCHEMA = pa.schema(
    [
        ("core", pa.uint16()),
        ("seconds", pa.float64()),
        ("tsc", pa.uint64()),
        ("generation", pa.uint32()),
        ("changed", pa.string()),
        ("idle", pa.string()),
        ("itr_us", pa.uint32()),
        ("poll_budget_us", pa.uint32()),
        ("pstate", pa.string()),
        ("power_limit_mw", pa.uint32()),
        ("turbo", pa.string()),
        ("card_value", pa.uint32()),
        ("value", pa.string()),
        ("entry", pa.string()),
    ]
)


def _settings(core: CoreRun, begin: int) -> pa.Table:
    """Returns the policy at the start, then a row for each setting at the start, then the changes. `value`: of the setting `changed`, as
    control accepts it. `entry`: start, configured or change."""
    rows = [
        {
            **{"core": core.log.core, "seconds": (entry.row["tsc"] - begin) / core.log.tsc_hz, **entry.row},
            "entry": "change" if entry.is_change else "configured" if "value" in entry.row else "start",
        }
        for entry in core.log.settings_entries.in_order
        if core.begin_tsc <= entry.row["tsc"] <= core.end_tsc
    ]
    return pa.Table.from_pylist(rows, _SETTINGS_SCHEMA)


def configuration_table(run: RunLog) -> pa.Table:
    """Returns a row for each fact of the configuration. `part` is header, start, change, mark, card_counter or load. `cores`: like "0-3,6";
    null for a fact of the whole machine. `seconds`: since the run's begin; null for facts that have no moment."""
    found = summary.configure(run)
    members = [pair for name, value in found["header"].items() for pair in flat(name, value)]
    rows: list[tuple] = [("header", name, text, None, None) for name, text in members]
    rows += [("start", row["setting"], row["value"], numbers_text(row["cores"]), None) for row in found["settings_at_start"]]
    rows += [("change", row["setting"], row["value"], numbers_text(row["cores"]), row["seconds"]) for row in found["changes"]]
    rows += [("mark", "load", row["what"], None, row["seconds"]) for row in found["marks"]]
    rows += [("card_counter", name, str(value), None, None) for name, value in (found["card_counters"] or {}).items() if value is not None]
    if found["load"] is not None:
        rows += [("load", "file", found["load"]["file"], None, None)]
        rows += [("load", "offered_per_second", f"{rate:.15g}", None, None) for rate in found["load"]["offered_per_second"] if rate]
    columns = ("part", "name", "value", "cores", "seconds")
    types = (*[pa.string()] * 4, pa.float64())
    return pa.table({name: pa.array([_plain(row[at]) for row in rows], types[at]) for at, name in enumerate(columns)})


def _plain(cell: object) -> object:
    """Returns a cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if isinstance(cell, str) and not cell[:1].isalnum() else cell


def configuration_path(out: str) -> Path:
    """Returns the file for the configuration of a table that is written to the file `out`: records.configuration.csv for records.csv."""
    return Path(out).with_suffix(f".configuration{Path(out).suffix}")


def write_csv(pieces: Iterator[pa.Table], out: str) -> None:
    """Writes a file, or to standard output if `out` is '-'."""
    if out == "-":
        sys.stdout.flush()
        _csv(pieces, sys.stdout.buffer)
        return
    with Making(Path(out)) as making, open(making, "wb") as file:
        _csv(pieces, file)


def _csv(pieces: Iterator[pa.Table], file) -> None:
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    writer = None
    for piece in pieces:
        if writer is None:
            file.write((",".join(piece.column_names) + "\n").encode())
            writer = csv.CSVWriter(file, piece.schema, write_options=options)
        writer.write_table(piece)
    if writer:
        writer.close()


def write_parquet(pieces: Iterator[pa.Table], run: RunLog, out: str) -> None:
    """Writes a file. Its metadata `neap` has the headers' JSON, and `neap.configuration` the configuration as in run.json."""
    metadata = {
        "neap": json.dumps([core.header.about for core in run.cores]),
        "neap.configuration": json.dumps(summary.configure(run)),
    }
    with Making(Path(out)) as making:
        writer = None
        for piece in pieces:
            schema = piece.schema.with_metadata(metadata)
            writer = writer or parquet.ParquetWriter(making, schema, compression="zstd")
            writer.write_table(piece.cast(schema))
        if writer:
            writer.close()


class Making:
    """A file that gets its final name when it is complete: a context manager that gives a temporary path. Raises Failure for disk
    errors."""

    def __init__(self, path: Path):
        self._path = path
        self._new = path.with_name(path.name + ".new")

    def __enter__(self) -> Path:
        if self._path.is_dir():
            raise Failure(f"{self._path} is a directory", "--out names the file to write")
        return self._new

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            self._new.rename(self._path)
            return
        self._new.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise Failure(f"cannot write {self._path}: {error.strerror or error}") from None
