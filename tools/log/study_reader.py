# SPDX-License-Identifier: BSL-1.0
"""Reads files of the published studies as a run, so that `./neap log summary`, `report` and `diff` show them.

A row becomes a record of an interrupt. The files lack what Neap's log has beside the rows: frames, time asleep, polls, control traffic,
the CPU, and most settings. These figures are None ("not known"), never 0. Cores alternate between two packages, as on the studies'
machines, and energy counts in 2^-16 J. Rows outside of the bounds in the `rdtsc` file are left out. The `out` file gives the latencies.
"""

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from tools.errors import Failure
from tools.foreign import read_bounded, shown
from tools.log import schema
from tools.log.about import SYSTEMS
from tools.log.decode import COUNTERS, INTERRUPT, UNKNOWN, CoreLog, Counter, RunLog, dtype
from tools.log.layout import Header
from tools.log.load_results import LoadWindow
from tools.log.study_layout import CLOCK_HZ, COLUMNS_BY_NUMBER, ENTRIES_IN_INTERVAL, PACKAGES

SMALL_BYTES_MAX = 1 << 20
FILE_BYTES_MAX = 4 << 30
CORES_MAX = 256
# A kind that no log has: a row's sleeps in further idle states, without interrupt, frames and time.
FURTHER_SLEEPS = 0
_SETTING = r"(?P<itr>\d{1,6})_(?P<dvfs>0[xX][0-9a-fA-F]{1,8})_(?P<rapl>\d{1,6})"
_CORE = r"(?P<i>\d{1,4})_(?P<core>\d{1,3})"
_QPS = r"(?P<qps>\d{1,9})"
_MESSAGE = r"(?P<message>\d{1,9}_\d{1,9})"
# Names of files with the rows of a core.
_NAMES = [
    re.compile(rf"(?P<stem>linux\.(?P<application>mcd|mcdsilo|flink))\.dmesg\.{_CORE}_{_SETTING}(?:_{_QPS})?"),
    re.compile(rf"(?P<stem>ebbrt)_dmesg\.{_CORE}_{_SETTING}(?:_{_QPS})?_(?P<sleep>c\d[a-z]?)\.csv"),
    re.compile(rf"(?P<stem>linux\.node\.server)\.log\.{_CORE}_{_SETTING}"),
    re.compile(rf"(?P<stem>linux\.np)\.log\.{_CORE}_{_MESSAGE}_{_SETTING}"),
    re.compile(rf"(?P<stem>ebbrt)\.dmesg\.(?P<i>\d{{1,4}})_{_MESSAGE}_{_SETTING}(?:\.csv)?"),
    re.compile(rf"(?P<stem>(?P<application>[A-Za-z0-9_.-]{{1,100}}?)\.log)\.{_CORE}_{_SETTING}"),
]
# Figures that the files do not have.
NOTES = (
    "published data: frames, time asleep, polls and control traffic are not in the files",
    "published data: assumed, as by the cleaners: TSC at 2,899,999 kHz, energy in 2^-16 J, cores that alternate between two packages",
)


@dataclasses.dataclass(frozen=True)
class Name:
    """The parts of a file's name. `key` is equal for all cores of a run."""

    path: Path
    key: tuple[str, ...]
    core: int
    parts: dict[str, str | None]

    def beside(self, what: str) -> Path | None:
        """Returns the run's other file of a kind, `rdtsc` or `out`; None if it does not exist."""
        part = self.parts
        tail = "_".join(each for each in (part["i"], part["itr"], part["dvfs"], part["rapl"], part.get("qps"), part.get("sleep")) if each)
        joint = "_" if part["stem"] == "ebbrt" else "."
        names = [f"{part['stem']}{joint}{what}.{tail}"]
        if part["stem"] == "linux.node.server":
            names.append(f"{part['stem']}.{what}.{tail.replace('_', '_1_', 1)}")
        return next((path for name in names if (path := self.path.with_name(name)).is_file()), None)


def name_of(path: Path) -> Name | None:
    """Returns the parts of a name; None if it is not that of a published file with rows."""
    for pattern in _NAMES:
        if match := pattern.fullmatch(path.name):
            parts = match.groupdict()
            core = int(parts.get("core") or 0)
            key = tuple(f"{name}={value}" for name, value in sorted(parts.items()) if name != "core" and value is not None)
            return Name(path, (str(path.parent.resolve()), *key), core, parts) if core < CORES_MAX else None
    return None


def names(places: Sequence[str]) -> list[Name]:
    """Returns the published files that places name: single files, and all such files of folders."""
    found = []
    for place in map(Path, places):
        there = sorted(place.iterdir()) if place.is_dir() else [place]
        found += [name for path in there if (name := name_of(path)) and path.is_file()]
    return found


def is_published(place: str) -> bool:
    """True for a published file, and for a folder with published files and without a log of Neap."""
    path = Path(place)
    try:
        if path.is_dir():
            return not any(path.glob("core*.log")) and bool(names([place]))
        return path.is_file() and name_of(path) is not None
    except OSError:
        return False


def load(places: Sequence[str]) -> RunLog:
    """Reads the files of one run. Raises Failure if the files are of several runs, or cannot be understood."""
    found = names(places)
    runs = list(dict.fromkeys(name.key for name in found))
    if len(runs) != 1:
        first = next(name.path.name for name in found)
        raise Failure(f"{shown(places[0])} holds {len(runs)} runs of the published studies", f"give the files of one run, like {first}")
    by_core = {name.core: name for name in found}
    bounds = _bounds(found[0])
    cores = []
    for core in sorted(by_core):
        columns = _read(by_core[core].path)
        columns = _trimmed(columns, bounds)
        # A file without a core, as the writer makes it for the cleaners, has times only.
        if any(columns[name].any() for name in columns if name not in ("i", "tsc")):
            cores.append((by_core[core], columns))
    if not cores:
        raise Failure(f"{shown(places[0])}: no row with data lies within the run's bounds")
    count = max(name.core for name, _ in cores) + 1
    packages = _packages(found[0])
    logs = [_core(name, columns, count, packages.get(name.core, name.core % PACKAGES)) for name, columns in cores]
    run = RunLog(logs, unknown=UNKNOWN, notes=NOTES + _left_out(by_core, cores), windows=())
    return dataclasses.replace(run, windows=tuple(_windows(found[0], run)))


def _left_out(by_core: dict[int, Name], cores: list) -> tuple[str, ...]:
    empty = sorted(set(by_core) - {name.core for name, _ in cores})
    return (f"published data: core {', '.join(map(str, empty))} has no row with data in the run",) if empty else ()


# ---- files ----


def _read(path: Path) -> dict[str, np.ndarray]:
    """Returns a file's columns as unsigned integers. The number of columns tells their names."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ValueError(f"it has more than {FILE_BYTES_MAX >> 30} GB")
        with open(path, "rb") as data:
            first = data.readline(4096)
            second = data.readline(4096)
        # A heading is the columns' names, or the line of counts of the studies' converter.
        heading = not first[:1].isdigit()
        width = len((second if heading else first).split())
        columns = COLUMNS_BY_NUMBER.get(width)
        if columns is None:
            raise ValueError(f"a row has {width} columns, and published files have {', '.join(map(str, sorted(COLUMNS_BY_NUMBER)))}")
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(column_names=list(columns), skip_rows=int(heading)),
            parse_options=csv.ParseOptions(delimiter=" "),
            convert_options=csv.ConvertOptions(column_types={name: pa.uint64() for name in columns}),
        )
    except (OSError, ValueError, pa.ArrowException) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        raise Failure(f"{shown(path)} is no file of the published studies: {shown(why, 200)}") from None
    return {name: table[name].fill_null(0).to_numpy() for name in columns}


def _small(path: Path) -> list[list[str]]:
    try:
        return [line.split() for line in read_bounded(path, SMALL_BYTES_MAX).decode("ascii", "replace").splitlines()]
    except (OSError, ValueError) as error:
        raise Failure(f"cannot read {shown(path)}: {shown(error, 200)}") from None


def _bounds(name: Name) -> tuple[int, int] | None:
    """Returns the run's bounds from its rdtsc file: the latest begin and the latest end of its lines, as the cleaners do."""
    path = name.beside("rdtsc")
    if path is None:
        return None
    places = (0, 1) if name.parts["stem"] == "ebbrt" else (2, 3)
    try:
        lines = [[int(words[place]) for place in places] for words in _small(path) if words]
    except (ValueError, IndexError):
        raise Failure(f"{shown(path)} is no rdtsc file of the published studies") from None
    return (max(begin for begin, _ in lines), max(end for _, end in lines)) if lines else None


def _trimmed(columns: dict[str, np.ndarray], bounds: tuple[int, int] | None) -> dict[str, np.ndarray]:
    if bounds is None:
        return columns
    kept = (columns["tsc"] >= bounds[0]) & (columns["tsc"] <= bounds[1])
    return {name: values[kept] for name, values in columns.items()}


def _windows(name: Name, run: RunLog) -> list[LoadWindow]:
    """Returns the run as the window of its load, with the latencies in its `out` file."""
    path = name.beside("out")
    if path is None:
        return []
    latency: dict[str, float] = {}
    requests = None
    for words in _small(path):
        line = " ".join(words)
        try:
            if words and words[0] == "read" and len(words) > 9:
                figures = zip(("mean", "", "min", "p5", "p10", "p50", "p90", "p95", "p99"), map(float, words[1:10]))
                latency = {figure: value for figure, value in figures if figure and value == value and 0 <= value < 1e12}
            elif match := re.match(r"Total QPS = [0-9.]{1,20} \(([0-9]{1,15}) /", line):
                requests = int(match[1])
        except ValueError:
            raise Failure(f"{shown(path)} is no table of the studies' load generator") from None
    begin = min(int(core.records["tsc"][0]) for core in run.cores)
    end = max(int(core.records["tsc"][-1]) for core in run.cores)
    offered = float(name.parts["qps"]) if name.parts.get("qps") else None
    return [LoadWindow(begin, end, requests, latency, offered=offered)]


# ---- a core ----


def _packages(name: Name) -> dict[int, int]:
    """Returns the package of each core, if the writer left a file of them."""
    path = name.beside("packages")
    if path is None:
        return {}
    try:
        return {int(core): int(package) for core, package in _small(path)}
    except ValueError:
        raise Failure(f"{shown(path)} has no lines of a core and its package") from None


def _core(name: Name, columns: dict[str, np.ndarray], cores: int, package: int) -> CoreLog:
    parsed = schema.parse({})
    sampled = (columns["joules"] > 0) & (columns["instructions"] > 0)
    states = _entries(columns, sampled)
    # A record has one idle state. So a row with sleeps in several states gets further records.
    order = np.argsort(-np.array(list(states.values())), axis=0, kind="stable") if states else np.zeros((0, 0), int)
    stacked = np.array(list(states.values()))
    numbers = np.array([parsed.idle_states.index(state) for state in states])
    records = np.zeros(len(columns["tsc"]), dtype(parsed.form["record"]))
    records["kind"] = INTERRUPT
    for field, column in (("rx_descriptors", "rx_desc"), ("rx_bytes", "rx_bytes"), ("tx_descriptors", "tx_desc"), ("tx_bytes", "tx_bytes")):
        records[field] = np.minimum(columns[column], (1 << 32) - 1)
    records["tsc"] = columns["tsc"]
    further, owners = [], []
    for rank, chosen in enumerate(order):
        counts = stacked[chosen, np.arange(len(records))]
        if rank == 0:
            records["idle_state"], records["idle_entries"] = numbers[chosen], counts
            continue
        at = np.flatnonzero(counts)
        more = np.zeros(len(at), records.dtype)
        more["tsc"], more["kind"] = records["tsc"][at], FURTHER_SLEEPS
        more["idle_state"], more["idle_entries"] = numbers[chosen[at]], counts[at]
        further.append(more)
        owners.append(at)
    rows = np.concatenate([np.arange(len(records)), *owners])
    joined = np.argsort(rows, kind="stable")
    is_row = (np.arange(len(rows)) < len(records))[joined]
    all_records = np.concatenate([records, *further])[joined]
    counters = {each: Counter(np.zeros(len(rows), np.uint64), np.zeros(len(rows), bool)) for each in COUNTERS}
    for column, counter in _COUNTERS.items():
        values = columns.get(column)
        # A column that is never above 1 is that of a counter which the CPU lacks.
        if values is None or not np.any(values > 1):
            continue
        counters[counter].values[is_row] = values
        counters[counter].present[is_row] = sampled & (values > 0)
    empty = {form: np.zeros(0, dtype(parsed.form[form])) for form in ("anchor", "idle", "collection", "transactions")}
    return CoreLog(
        header=_header(name, package, len(all_records), cores, parsed, [each for each in COUNTERS if counters[each].present.any()]),
        paths=[name.path],
        records=all_records,
        follows_gap=np.concatenate([[True], np.zeros(len(all_records) - 1, bool)]),
        counters=counters,
        anchors=empty["anchor"],
        anchor_of=np.zeros(0, int),
        settings=[_settings(name, int(columns["tsc"][0]))],
        idle=empty["idle"],
        collections=empty["collection"],
        transactions=empty["transactions"],
        gaps=[],
        unknown=0,
        settings_left_out=0,
    )


_COUNTERS = {
    "instructions": "instructions",
    "cycles": "cycles",
    "ref_cycles": "reference_cycles",
    "llc_miss": "llc_misses",
    "joules": "package_energy",
}


def _entries(columns: dict[str, np.ndarray], sampled: np.ndarray) -> dict[str, np.ndarray]:
    """Returns for each idle state its entries in the rows with samples. Linux's columns are cumulative, EbbRT's are of the interval."""
    found = {}
    at = np.flatnonzero(sampled)
    in_interval = tuple(columns) in ENTRIES_IN_INTERVAL
    for state in ("c1", "c1e", "c3", "c6", "c7"):
        if state not in columns or not len(at):
            continue
        counts = np.zeros(len(sampled), np.int64)
        values = columns[state][at].astype(np.int64)
        counts[at] = values if in_interval else np.maximum(np.diff(values, prepend=values[:1]), 0)
        found[state] = counts
    return found


def _settings(name: Name, tsc: int) -> dict:
    part = name.parts
    return {
        "tsc": tsc,
        "generation": 0,
        "changed": "start",
        "idle": part.get("sleep") or "unknown",
        "itr_us": int(part["itr"] or 0),
        "poll_budget_us": None,
        "pstate": (part["dvfs"] or "").lower(),
        "power_limit_mw": 1000 * int(part["rapl"] or 0),
        "turbo": "unknown",
        "card_value": 0,
    }


def _header(name: Name, package: int, entries: int, cores: int, parsed: schema.Schema, counters: list[str]) -> Header:
    part = name.parts
    system = "EbbRT" if part["stem"] == "ebbrt" else "Linux" if (part["stem"] or "").startswith("linux") else "a written log"
    offered = {"offered_rate": int(part["qps"] or 0)} if part.get("qps") else {}
    about = {
        "format": "published",
        "version": 1,
        "boot_id": hashlib.sha256("\n".join(name.key).encode("utf-8", "surrogateescape")).hexdigest()[:16],
        "run": int(part["i"] or 0),
        "application": part.get("application") or ("netpipe" if part.get("message") else "memcached or another"),
        "neap": f"(published data of {system})",
        **({"system": system.lower()} if system in SYSTEMS.values() else {}),
        "core": name.core,
        "cores": cores,
        "package": package,
        "packages": PACKAGES,
        "cpu": "a CPU that the files do not name",
        "tsc_hz": CLOCK_HZ,
        "energy_unit_exponent": 16,
        "dram_energy_unit_exponent": None,
        "counters": counters,
        **offered,
    }
    return Header(name.core, entries, 0, 0, CLOCK_HZ, about, parsed, b"")
