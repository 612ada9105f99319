# SPDX-License-Identifier: BSL-1.0
"""Log files as arrays: each core's records, and the counters that were sampled with them.

A record is an entry of 64 bytes. It may be followed by entries with sampled counters and, at a run's start and stop, by an anchor entry
(clock, number of requests). This module joins these entries. `records` has one row per record. `counters` has arrays for each counter: its
value at each record, and whether the value was sampled. The log's header states the layout of the entries (schema.py).
"""

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tools.errors import Failure, UsageError
from tools.log import load_results
from tools.log import schema as schemas
from tools.log.configuration import MARKS_MAX, CoreEntries
from tools.log.folder import log_files
from tools.log.layout import ENTRY_BYTES, Damaged, Header, read_header
from tools.log.schema import Form, Schema

# The format fixes the numbers of the kinds of entries. The header states the form (layout) of each kind.
INTERRUPT, POLL, POLICY, START, STOP = 1, 2, 3, schemas.START, 5
SAMPLE, RESIDENCY, SETTINGS, ANCHOR, EVENT_COUNTS = 16, 17, 18, 19, 21
CONFIGURED = schemas.CONFIGURED
IDLE, MARK, COLLECTION = 32, schemas.MARK, 34
KIND_NAMES = {INTERRUPT: "interrupt", POLL: "poll", POLICY: "policy", START: "start", STOP: "stop"}
# The counters of chosen events. The header's member `events` names the events.
EVENTS = ("event1", "event2", "event3")
# The counters from which the tools compute figures. A log's header may name further counters.
COUNTERS = tuple(name for name in schemas.DEFAULTS["flags"] if name not in EVENTS)


@functools.lru_cache(maxsize=64)
def dtype(form: Form) -> np.dtype:
    """Returns a form (an entry's layout) as a numpy type of 64 bytes."""
    formats = [f"V{field.width * field.count}" if field.count else f"<u{field.width}" for field in form.fields]
    names, offsets = [field.name for field in form.fields], [field.offset for field in form.fields]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": ENTRY_BYTES})


# The figures that a log may lack. Of other names in a header's `unknown`, the figures are taken from the records.
UNKNOWN = (
    *("rx_frames", "tx_frames", "application_rx_frames", "application_tx_frames", "polls", "frames_per_interrupt"),
    *("control_rx_frames", "control_tx_frames", "control_rx_bytes", "control_tx_bytes", "load_variation"),
    *("asleep_share", "polling_in_vain_share", "idle_share_by_state", "asleep_seconds_by_state", "idle_ticks"),
)
# A log of another system than Neap may lack these, too. It may also lack `requests`, which a load's result can replace (CoreLog.lacks).
UNKNOWN_ELSEWHERE = ("rx_descriptors", "tx_descriptors")
# Largest number of settings entries per core. Each becomes a dictionary, which takes ten times the entry's memory.
SETTINGS_MAX = 100_000
# Decoding takes at least this many bytes of memory for each byte of a log.
MEMORY_FACTOR = 3
# Cores are read at the same time: most of the time is spent on copies by numpy, which other threads need not wait for.
THREADS = 4


@dataclasses.dataclass(frozen=True)
class Counter:
    """One counter's raw cumulative values, one for each record. A value is valid only where `present` is true."""

    values: np.ndarray
    present: np.ndarray


class Counters(Mapping[str, Counter]):
    """The counters of a core's log. Each is made when it is first asked for: it takes 9 bytes a record, and most readers need few counters.
    `samples`: for each counter, the indices of records and their values, in the order in which later values replace earlier ones."""

    def __init__(self, records: int, samples: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]]):
        self._records = records
        self._samples = samples
        self._made: dict[str, Counter] = {}

    def __getitem__(self, name: str) -> Counter:
        if name not in self._made:
            made = Counter(np.zeros(self._records, np.uint64), np.zeros(self._records, bool))
            for owner, values in self._samples[name]:
                made.values[owner] = values
                made.present[owner] = True
            self._made[name] = made
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._samples)

    def __len__(self) -> int:
        return len(self._samples)


@dataclasses.dataclass
class CoreLog:
    header: Header
    paths: list[Path]
    records: np.ndarray  # for each record its first entry, which has the form "record"
    follows_gap: np.ndarray  # for each record: true if entries are missing before it
    counters: Mapping[str, Counter]
    anchors: np.ndarray  # entries of the form "anchor"
    anchor_of: np.ndarray  # for each anchor: index of its record
    settings: list[dict]
    idle: np.ndarray  # entries of the form "idle"
    collections: np.ndarray  # entries of the form "collection", none in logs of older builds
    transactions: np.ndarray  # entries of the form "transactions", none in logs of older builds
    gaps: list[tuple[int, int]]  # position of the first missing entry, number of missing entries
    unknown: int  # entries of kinds that this version does not know
    settings_left_out: int  # number of settings entries beyond SETTINGS_MAX
    configured: list[dict] = dataclasses.field(default_factory=list)  # settings that entries state one by one
    marks: list[dict] = dataclasses.field(default_factory=list)  # marks of the load

    @property
    def core(self) -> int:
        return self.header.core

    @property
    def schema(self) -> Schema:
        return self.header.schema

    @property
    def package(self) -> int:
        return self.header.about.get("package", 0)

    @property
    def tsc_hz(self) -> int:
        return self.header.tsc_hz

    def lacks(self, figure: str) -> bool:
        """True if the header says that the log's writer does not count a figure. The figure's field is then 0."""
        return figure in self.header.about.get("unknown", ())

    @functools.cached_property
    def settings_entries(self) -> CoreEntries:
        """What the log says about settings. The begin of the run is not filled in (trim.py)."""
        return CoreEntries(self.core, None, self.settings, self.configured, self.marks)


@dataclasses.dataclass
class RunLog:
    """The logs of all cores of one run, in order. `load`: what load_results.offered says. Data of other origin lacks some figures:
    `unknown` names them, `notes` tells the reader, and `windows` has the measured windows of the load that came with the data."""

    cores: list[CoreLog]
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    windows: tuple = ()
    load: dict | None = None

    @property
    def about(self) -> dict:
        return self.cores[0].header.about

    @property
    def events(self) -> dict[str, str]:
        """Returns the chosen events: the counter of each event by the event's name."""
        return {name: counter for counter, name in zip(EVENTS, self.about.get("events", ())) if counter in self.cores[0].counters}

    def energy_unit(self, counter: str) -> float | None:
        """Returns the joules of one count; None if the CPU has no such counter."""
        exponent = self.about.get({"package_energy": "energy_unit_exponent", "dram_energy": "dram_energy_unit_exponent"}[counter])
        return None if exponent is None else 2.0**-exponent


def find_files(places: Sequence[str]) -> list[Path]:
    """Returns the log files that `places` name: single files, and all log files of folders."""
    if not places:
        raise UsageError("no log is named", "./neap log summary DIR")
    found = []
    for place in map(Path, places):
        if place.is_dir():
            # `--load-out DIR` and `--model` leave the logs in DIR/log.
            there = log_files(place) or (log_files(place / "log") if (place / "log").is_dir() else [])
            if not there:
                unfinished = any(place.glob("core*.part"))
                hint = "./neap log collect goes on with what is there" if unfinished else "./neap log collect or fetch brings them"
                raise Failure(f"{place} holds no whole log (core0.log, ...)", hint)
            found += there
        else:
            found.append(place)
    return found


def is_published(places: Sequence[str]) -> bool:
    """True if places name files of the published studies."""
    from tools.log import study_reader

    return bool(places) and all(study_reader.is_published(place) for place in places)


def load(places: Sequence[str]) -> RunLog:
    """Reads one run's files, also those of the published studies. Raises Damaged for a file that is no log, and Failure for files of
    different runs."""
    if is_published(places):
        from tools.log import study_reader

        return study_reader.load(places)
    by_core: dict[int, list[tuple[Header, Path]]] = {}
    first: tuple[Header, Path] | None = None
    for path in find_files(places):
        header = read_header(path)
        first = first or (header, path)
        if header.run_of != first[0].run_of:
            raise Failure(f"{path} and {first[1]} are of different runs", "give the files of one run")
        by_core.setdefault(header.core, []).append((header, path))
    _require_memory(sum(header.entries for files in by_core.values() for header, _ in files) * ENTRY_BYTES)
    load_there = load_results.offered(load_results.beside(places))
    unknown = tuple(name for name in first[0].about.get("unknown", ()) if name in (*UNKNOWN, *UNKNOWN_ELSEWHERE)) if first else ()
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        cores = list(threads.map(_load_core, [by_core[core] for core in sorted(by_core)]))
    return RunLog(cores, unknown=unknown, load=load_there)


def _require_memory(log_bytes: int) -> None:
    """Raises Failure for logs that are too large for this host's memory."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if MEMORY_FACTOR * log_bytes > there:
        raise Failure(f"logs of {log_bytes / 1e9:.1f} GB are too large to decode in this host's memory of {there / 1e9:.1f} GB")


def _load_core(files: list[tuple[Header, Path]]) -> CoreLog:
    files.sort(key=lambda pair: pair[0].first)
    gaps = []
    expected = 0
    for header, path in files:
        if header.first < expected:
            raise Failure(f"core {header.core} is there twice: {', '.join(str(each) for _, each in files)}", f"leave {path} out")
        if header.first > expected:
            gaps.append((expected, header.first - expected))
        expected = header.first + header.entries
    pieces = [_read_entries(path, header) for header, path in files]
    entries = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    starts = np.cumsum([0, *(len(piece) for piece in pieces[:-1])])
    return _assemble(files[-1][0], [path for _, path in files], entries, starts, gaps)


def _read_entries(path: Path, header: Header) -> np.ndarray:
    """Returns all entries, read as if each had the form "record". All forms have `tsc` and `kind` at the same offsets."""
    count = header.entries
    try:
        with open(path, "rb") as data:
            entries = np.fromfile(data, dtype(header.schema.form["record"]), count, offset=header.size)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
    if len(entries) != count:
        raise Damaged(f"{path}: became shorter while it was read")
    return entries


def _among(kinds: np.ndarray, chosen: list[int]) -> np.ndarray:
    """Returns for each entry whether its kind is a chosen one."""
    table = np.zeros(1 << 8 * kinds.itemsize, bool)
    table[chosen] = True
    return table[kinds]


def _assemble(header: Header, paths: list[Path], entries: np.ndarray, starts: np.ndarray, gaps: list[tuple[int, int]]) -> CoreLog:
    schema = header.schema
    kinds = np.ascontiguousarray(entries["kind"])

    def of_kinds(chosen: list[int]) -> np.ndarray:
        return np.flatnonzero(_among(kinds, chosen))

    def of_form(name: str) -> np.ndarray:
        return of_kinds(schema.kinds_of(name))

    record_at = of_form("record")
    # take() copies whole entries; an index copies them field by field, which takes ten times as long.
    records = entries.take(record_at)

    def followers(name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the entries of a form, and for each the index of the record before it; -1 if there is none."""
        at = of_form(name)
        return entries.take(at).view(dtype(schema.form[name])), np.searchsorted(record_at, at) - 1

    samples: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in (*COUNTERS, *schema.flags)}
    # Older logs have no form for events.
    for form in (form for form in ("sample", "residency", "events") if form in schema.form):
        found, owner = followers(form)
        # The record of a sample may have been overwritten. Then no record precedes the sample, or the preceding record has another TSC.
        belongs = owner >= 0
        belongs[belongs] = records["tsc"][owner[belongs]] == found["tsc"][belongs]
        found, owner = found[belongs], owner[belongs]
        for bit, name in enumerate(schema.flags):
            field = schema.form[form].by_name.get(name)
            if field is None or field.count:
                continue
            sampled = (found["flags"] >> bit & 1).astype(bool)
            samples[name].append((owner[sampled], found[name][sampled]))

    anchors, anchor_of = followers("anchor")
    follows_gap = np.zeros(len(records), bool)
    after = np.searchsorted(record_at, starts)
    follows_gap[after[after < len(records)]] = True
    settings_at = of_kinds(schema.change_kinds)
    settings = [schema.describe_settings(entries[at].tobytes()) for at in settings_at[:SETTINGS_MAX]]
    configured_at = of_kinds(schema.configured_kinds)
    known = _among(kinds, [number for number, _ in schema.kinds])
    return CoreLog(
        header=header,
        paths=paths,
        records=records,
        follows_gap=follows_gap,
        counters=Counters(len(records), samples),
        anchors=anchors[anchor_of >= 0],
        anchor_of=anchor_of[anchor_of >= 0],
        settings=settings,
        idle=entries[of_form("idle")].view(dtype(schema.form["idle"])),
        collections=entries[of_form("collection")].view(dtype(schema.form.get("collection", schemas.parse({}).form["collection"]))),
        transactions=entries[of_form("transactions")].view(dtype(schema.form.get("transactions", schemas.parse({}).form["transactions"]))),
        gaps=gaps,
        unknown=int(len(kinds) - np.count_nonzero(known)),
        settings_left_out=len(settings_at) - len(settings),
        configured=[schema.describe_settings(entries[at].tobytes()) for at in configured_at[:SETTINGS_MAX]],
        marks=[schema.describe_mark(entries[at].tobytes()) for at in of_form("mark")[:MARKS_MAX]],
    )
