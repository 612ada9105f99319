# SPDX-License-Identifier: BSL-1.0
"""Log files as arrays: the structs of kernel/log_record.hpp as numpy types, and each core's records with the counters that belong to them.

A record is one line; lines with samples follow the record that they belong to. Here they are put side by side again: `records` has one
entry a record, `counters` has for each counter a value and whether it was sampled, in the same order.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tools.errors import Failure, UsageError
from tools.log.folder import log_files
from tools.log.layout import HEADER_BYTES, IDLE_STATES, KIND_SETTINGS, LINE_BYTES, Damaged, Header, describe_settings, read_header

INTERRUPT, POLL, POLICY, START, STOP = 1, 2, 3, 4, 5
SAMPLE, RESIDENCY, SETTINGS, ANCHOR = 16, 17, KIND_SETTINGS, 19
IDLE = 32
KIND_NAMES = {INTERRUPT: "interrupt", POLL: "poll", POLICY: "policy", START: "start", STOP: "stop"}
WAKE_CAUSES = ("not_asleep", "interrupt", "memory", "timer", "wake_up", "unknown")


def _line(*fields: tuple[str, str]) -> np.dtype:
    """A little-endian struct without gaps; what is missing to a line's length is reserved."""
    used = sum(np.dtype(kind).itemsize for _, kind in fields)
    return np.dtype([*fields, *([("reserved_end", f"V{LINE_BYTES - used}")] if used < LINE_BYTES else [])])


RECORD_TYPE = _line(
    ("tsc", "<u8"),
    ("kind", "u1"),
    ("idle_state", "u1"),
    ("flags", "<u2"),
    ("generation", "<u4"),
    ("rx_descriptors", "<u4"),
    ("rx_frames", "<u4"),
    ("rx_bytes", "<u4"),
    ("tx_descriptors", "<u4"),
    ("tx_frames", "<u4"),
    ("tx_bytes", "<u4"),
    ("control_rx_frames", "<u2"),
    ("control_tx_frames", "<u2"),
    ("control_rx_bytes", "<u4"),
    ("control_tx_bytes", "<u4"),
    ("idle_entries", "<u4"),
    ("idle_ticks", "<u8"),
)
SAMPLE_TYPE = _line(
    ("tsc", "<u8"),
    ("kind", "u1"),
    ("reserved", "u1"),
    ("flags", "<u2"),
    ("package_energy", "<u4"),
    ("instructions", "<u8"),
    ("cycles", "<u8"),
    ("reference_cycles", "<u8"),
    ("llc_misses", "<u8"),
    ("dram_energy", "<u4"),
    ("reserved2", "<u4"),
    ("core_c3", "<u8"),
)
RESIDENCY_TYPE = _line(
    ("tsc", "<u8"),
    ("kind", "u1"),
    ("reserved", "u1"),
    ("flags", "<u2"),
    ("reserved2", "<u4"),
    ("core_c6", "<u8"),
    ("core_c7", "<u8"),
    ("package_c2", "<u8"),
    ("package_c3", "<u8"),
    ("package_c6", "<u8"),
    ("package_c7", "<u8"),
)
ANCHOR_TYPE = _line(
    ("tsc", "<u8"),
    ("kind", "u1"),
    ("reserved", "V3"),
    ("generation", "<u4"),
    ("wall_clock_ns", "<u8"),
    ("requests", "<u8"),
    ("package", "<u4"),
    ("run", "<u4"),
    ("sleeps", "<u8"),
    ("idle_ticks", "<u8"),
)
IDLE_TYPE = _line(
    ("tsc", "<u8"),
    ("kind", "u1"),
    ("idle_state", "u1"),
    ("cause", "u1"),
    ("vector", "u1"),
    ("generation", "<u4"),
    ("tsc_asleep", "<u8"),
)

# In the order of their bits in `flags`; the first seven stand in a Sample, the others in a Residency.
COUNTERS = (
    "instructions",
    "cycles",
    "reference_cycles",
    "llc_misses",
    "package_energy",
    "dram_energy",
    "core_c3",
    "core_c6",
    "core_c7",
    "package_c2",
    "package_c3",
    "package_c6",
    "package_c7",
)
IN_SAMPLE = COUNTERS[:7]

# Of one core: a line of settings becomes a dictionary, which takes ten times its memory.
MAX_SETTINGS = 100_000
# What decoding takes for each byte of a log, at least.
MEMORY_FACTOR = 3


@dataclasses.dataclass(frozen=True)
class Counter:
    """One counter at each record: raw and cumulative, where `present`."""

    values: np.ndarray
    present: np.ndarray


@dataclasses.dataclass
class CoreLog:
    """What one core wrote down in one run."""

    header: Header
    paths: list[Path]
    records: np.ndarray  # RECORD_TYPE, ordinary records alone
    follows_gap: np.ndarray  # whether lines are missing before this record
    counters: dict[str, Counter]
    anchors: np.ndarray  # ANCHOR_TYPE
    anchor_of: np.ndarray  # index of the record that each anchor belongs to
    settings: list[dict]
    idle: np.ndarray  # IDLE_TYPE
    gaps: list[tuple[int, int]]  # first missing line, how many
    unknown: int  # lines of kinds that this version does not know
    settings_left_out: int  # beyond MAX_SETTINGS

    @property
    def core(self) -> int:
        return self.header.core

    @property
    def package(self) -> int:
        return self.header.about.get("package", 0)

    @property
    def tsc_hz(self) -> int:
        return self.header.tsc_hz


@dataclasses.dataclass
class RunLog:
    """One run: all its cores, in order."""

    cores: list[CoreLog]

    @property
    def about(self) -> dict:
        return self.cores[0].header.about

    def energy_unit(self, counter: str) -> float | None:
        """Joules of one count; None if the CPU has no such counter."""
        name = {"package_energy": "energy_unit_exponent", "dram_energy": "dram_energy_unit_exponent"}[counter]
        exponent = self.about.get(name)
        return None if exponent is None else 2.0**-exponent


def find_files(places: Sequence[str]) -> list[Path]:
    """The log files that are meant: of each folder all that are there, and single files."""
    if not places:
        raise UsageError("no log is named", "./neap log summary DIR")
    found = []
    for place in map(Path, places):
        if place.is_dir():
            there = log_files(place)
            if not there:
                unfinished = any(place.glob("core*.part"))
                hint = "./neap log collect goes on with what is there" if unfinished else "./neap log collect or fetch brings them"
                raise Failure(f"{place} holds no whole log (core0.log, ...)", hint)
            found += there
        else:
            found.append(place)
    return found


def load(places: Sequence[str]) -> RunLog:
    """Reads one run's files. Raises Damaged for a file that is none, Failure if they do not belong together."""
    by_core: dict[int, list[tuple[Header, Path]]] = {}
    first: tuple[Header, Path] | None = None
    for path in find_files(places):
        header = read_header(path)
        first = first or (header, path)
        if header.run_of != first[0].run_of:
            raise Failure(f"{path} and {first[1]} are of different runs", "give the files of one run")
        by_core.setdefault(header.core, []).append((header, path))
    _require_memory(sum(header.lines for files in by_core.values() for header, _ in files) * LINE_BYTES)
    return RunLog([_load_core(by_core[core]) for core in sorted(by_core)])


def _require_memory(log_bytes: int) -> None:
    """Raises Failure for logs that this host cannot hold, before the attempt takes memory from everything else on it."""
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
        expected = header.first + header.lines
    pieces = [_read_lines(path, header.lines) for header, path in files]
    lines = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    starts = np.cumsum([0, *(len(piece) for piece in pieces[:-1])])
    return _assemble(files[-1][0], [path for _, path in files], lines, starts, gaps)


def _read_lines(path: Path, count: int) -> np.ndarray:
    try:
        with open(path, "rb") as data:
            lines = np.fromfile(data, RECORD_TYPE, count, offset=HEADER_BYTES)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
    if len(lines) != count:
        raise Damaged(f"{path}: became shorter while it was read")
    return lines


def _assemble(header: Header, paths: list[Path], lines: np.ndarray, starts: np.ndarray, gaps: list[tuple[int, int]]) -> CoreLog:
    kinds = lines["kind"]
    record_at = np.flatnonzero((kinds >= INTERRUPT) & (kinds <= STOP))
    records = lines[record_at]

    def followers(kind: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Lines of a kind, and the record that each follows, -1 for those whose record is missing."""
        at = np.flatnonzero(kinds == kind)
        return lines[at].view(dtype), np.searchsorted(record_at, at) - 1

    counters = {}
    for kind, dtype, names in ((SAMPLE, SAMPLE_TYPE, IN_SAMPLE), (RESIDENCY, RESIDENCY_TYPE, COUNTERS[len(IN_SAMPLE) :])):
        found, owner = followers(kind, dtype)
        # A sample whose record was overwritten stands in front of all records; one that names another moment belongs to nobody here.
        belongs = owner >= 0
        belongs[belongs] = records["tsc"][owner[belongs]] == found["tsc"][belongs]
        found, owner = found[belongs], owner[belongs]
        for name in names:
            sampled = (found["flags"] >> COUNTERS.index(name) & 1).astype(bool)
            values = np.zeros(len(records), np.uint64)
            present = np.zeros(len(records), bool)
            values[owner[sampled]] = found[name][sampled]
            present[owner[sampled]] = True
            counters[name] = Counter(values, present)

    anchors, anchor_of = followers(ANCHOR, ANCHOR_TYPE)
    follows_gap = np.zeros(len(records), bool)
    after = np.searchsorted(record_at, starts)
    follows_gap[after[after < len(records)]] = True
    settings_at = np.flatnonzero(kinds == SETTINGS)
    settings = [describe_settings(lines[at].tobytes()) for at in settings_at[:MAX_SETTINGS]]
    known = np.isin(kinds, [*KIND_NAMES, SAMPLE, RESIDENCY, SETTINGS, ANCHOR, IDLE])
    return CoreLog(
        header=header,
        paths=paths,
        records=records,
        follows_gap=follows_gap,
        counters=counters,
        anchors=anchors[anchor_of >= 0],
        anchor_of=anchor_of[anchor_of >= 0],
        settings=settings,
        idle=lines[kinds == IDLE].view(IDLE_TYPE),
        gaps=gaps,
        unknown=int(len(kinds) - np.count_nonzero(known)),
        settings_left_out=len(settings_at) - len(settings),
    )


def idle_name(state: int) -> str:
    return IDLE_STATES[state] if state < len(IDLE_STATES) else str(state)
