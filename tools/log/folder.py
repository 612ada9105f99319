# SPDX-License-Identifier: BSL-1.0
"""The folder of a collected log, with `core0.log`, `core1.log`, ..., `run.json`, and the parts of logs that are not complete yet.

A broken network, a full disk or a kill may interrupt a collection at any moment. So entries are kept in parts. A part is a file of entries
without a gap, like `core3.from-20480.room-16384.part`. The part's size gives its end, so no separate index is needed. Each part begins with
room for the header, whose size arrives only with the core's last entry. When a core's log is complete, its header is written to that room
and the part is renamed. If the header has another size than the room, the entries are copied.

The number of bytes and of parts that a machine can cause is limited. Positions are bounded too, because a position in a file's name has at
most 18 digits (PART).

If entries are missing between two parts, both become log files. The last part of the run is `core3.log`; earlier parts keep their positions
in their names. The files of one core, in order, hold all collected entries of that core.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools import cache
from tools.errors import DiskFull, Failure
from tools.foreign import parse_json, read_bounded
from tools.log import configuration, load_results
from tools.log.about import FIELDS
from tools.log.configuration import MARKS_MAX, CoreEntries
from tools.log.layout import (
    CORES_MAX,
    ENTRY_BYTES,
    HEADER_BYTES,
    HEADER_SIZES,
    KIND_OFFSET,
    Damaged,
    Header,
    entries_of,
    read_header,
    rebuild_header,
)
from tools.log.schema import START

RUN = "run.json"
UNFINISHED = "collecting.json"
CHUNK_BYTES = 1 << 20
# The maximum size of all headers and entries in a folder.
LIMIT_BYTES = 64 * 10**9
PARTS_MAX = 10_000
# Largest number of changes of settings in run.json.
SETTINGS_MAX = 100_000
# Largest number of entries of a core that state one setting each.
CONFIGURED_MAX = 1000
JSON_BYTES_MAX = 1 << 28
PART = re.compile(r"core([0-9]{1,3})\.from-([0-9]{1,18})(?:\.room-([0-9]{4,5}))?\.part")
# The room in the parts of older collectors, which do not name it.
ROOM_UNNAMED = 4096
LOG = re.compile(r"core([0-9]{1,3})(?:\.from-([0-9]{1,18}))?\.log")


@dataclasses.dataclass
class Part:
    """Entries of one core without a gap. `entries`: the number of entries that are complete on the disk."""

    path: Path
    core: int
    first: int
    room: int  # bytes before the entries
    entries: int = 0

    @property
    def end(self) -> int:
        return self.first + self.entries


@dataclasses.dataclass(frozen=True)
class Identity:
    """Identifies a run: `boot_id` names the machine's boot, and `run` is the run's number in that boot."""

    boot_id: str
    run: int


class Folder:
    """A folder that only one process may write: a context manager that holds its lock. `limit_bytes` limits the size of all logs."""

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES):
        self.path = path
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self.parts: dict[int, list[Part]] = {}
        self._lock: int | None = None
        self._open: dict[int, int] = {}  # core -> descriptor of its last part
        self._room = HEADER_BYTES  # of new parts: the size of the header that is expected

    def __enter__(self) -> Folder:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = cache.try_lock(self.path)
        except OSError as error:
            raise Failure(f"cannot write to {self.path}: {error.strerror}") from None
        if self._lock is None:
            raise Failure(f"another neap is writing to {self.path}", "choose another folder, or wait for it")
        for path in sorted(self.path.iterdir()):
            if LOG.fullmatch(path.name):
                self._used_bytes += path.stat().st_size
            if (match := PART.fullmatch(path.name)) and int(match[1]) < CORES_MAX and int(match[3] or ROOM_UNNAMED) in HEADER_SIZES:
                self._take_up(Part(path, int(match[1]), int(match[2]), int(match[3] or ROOM_UNNAMED)))
        for parts in self.parts.values():
            parts.sort(key=lambda part: part.first)
            for before, after in zip(parts, parts[1:]):
                # Two parts overlap if a process was killed while _split moved entries to a new part.
                if before.end > after.first:
                    self._truncate(before, after.first - before.first)
        return self

    def __exit__(self, *_exception) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()
        if self._lock is not None:
            os.close(self._lock)

    def _take_up(self, part: Part) -> None:
        self._truncate(part, max(0, part.path.stat().st_size - part.room) // ENTRY_BYTES)
        if self._is_copied(part):
            part.path.unlink()
            return
        self.parts.setdefault(part.core, []).append(part)
        self._used_bytes += part.room + part.entries * ENTRY_BYTES

    def _is_copied(self, part: Part) -> bool:
        """True if a process was killed between the copy of a part's entries to a log file and the removal of the part."""
        for path in (self.log_path(part.core), self.path / f"core{part.core}.from-{part.first}.log"):
            with contextlib.suppress(Failure):
                if path.exists() and (header := read_header(path)) and (header.first, header.entries) == (part.first, part.entries):
                    return True
        return False

    def claim(self, count: int) -> None:
        """Counts bytes before they are written. Raises Failure if the folder's limit would be exceeded."""
        if self._used_bytes + count > self._limit_bytes:
            raise Failure(
                f"the logs in {self.path} come to more than {self._limit_bytes / 1e9:g} GB",
                "what came is kept; --limit GB allows more, and the same command goes on",
            )
        self._used_bytes += count

    # ---- which run ----

    def finished(self) -> dict | None:
        return self._read_json(RUN)

    def unfinished(self) -> dict | None:
        return self._read_json(UNFINISHED)

    def _read_json(self, name: str) -> dict | None:
        try:
            found = parse_json(read_bounded(self.path / name, JSON_BYTES_MAX))
            if isinstance(found, dict) and all(FIELDS[key](found.get(key)) for key in ("boot_id", "run")):
                return found
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            pass
        raise Failure(f"{self.path / name} cannot be understood", "choose another folder, or remove it")

    def write_json(self, name: str, content: dict) -> None:
        making = self.path / f"{name}.new"
        with self._disk():
            try:
                making.write_text(json.dumps(content, indent=2) + "\n")
                making.rename(self.path / name)
            except BaseException:
                making.unlink(missing_ok=True)
                raise

    def finish(self, content: dict) -> None:
        self.write_json(RUN, content)
        (self.path / UNFINISHED).unlink(missing_ok=True)

    def require_same(self, found: dict, identity: Identity) -> None:
        if (found["boot_id"], found["run"]) != (identity.boot_id, identity.run):
            raise Failure(
                f"{self.path} holds run {found['run']} of boot {found['boot_id']}, "
                f"the machine has run {identity.run} of boot {identity.boot_id}",
                "choose another folder: --out",
            )

    # ---- entries ----

    def done(self, core: int) -> bool:
        return self.log_path(core).exists()

    def log_path(self, core: int) -> Path:
        return self.path / f"core{core}.log"

    def position(self, core: int) -> int:
        if self.done(core):
            header = read_header(self.log_path(core))
            return header.first + header.entries
        parts = self.parts.get(core)
        return parts[-1].end if parts else 0

    def kept_entries(self) -> int:
        """Returns the number of entries in the folder, in parts and in whole logs."""
        return sum(part.entries for parts in self.parts.values() for part in parts) + sum(
            read_header(path).entries for path in log_files(self.path)
        )

    def append(self, core: int, position: int, entries: bytes) -> None:
        """Writes entries from `position` on. A gap begins a new part. On a full disk, keeps the complete entries and raises DiskFull."""
        parts = self.parts.setdefault(core, [])
        if not parts or parts[-1].end != position:
            self._begin(core, position)
        part = parts[-1]
        self.claim(len(entries))
        with self._disk(part):
            if core not in self._open:
                self._open[core] = os.open(part.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            view = memoryview(entries)
            while view:
                view = view[os.write(self._open[core], view) :]
        part.entries += len(entries) // ENTRY_BYTES

    def _begin(self, core: int, position: int) -> None:
        if core in self._open:
            os.close(self._open.pop(core))
        parts = self.parts.setdefault(core, [])
        if parts and not parts[-1].entries:
            parts.pop().path.unlink(missing_ok=True)
        if len(parts) >= PARTS_MAX:
            raise Failure(f"core {core} has more than {PARTS_MAX} gaps", f"what came is kept in {self.path}")
        part = self._new_part(core, position, self._room)
        self.claim(part.room)
        with self._disk(part):
            part.path.write_bytes(bytes(part.room))
        parts.append(part)

    def _new_part(self, core: int, first: int, room: int, entries: int = 0) -> Part:
        return Part(self.path / f"core{core}.from-{first}.room-{room}.part", core, first, room, entries)

    def _truncate(self, part: Part, entries: int) -> None:
        part.entries = entries
        with contextlib.suppress(OSError):  # a full disk may lack room for an emptied file's header, which is written later
            if part.path.stat().st_size != part.room + entries * ENTRY_BYTES:
                os.truncate(part.path, part.room + entries * ENTRY_BYTES)

    @contextlib.contextmanager
    def _disk(self, part: Part | None = None) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if part is not None:
                self._truncate(part, part.entries)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(
                    f"no space left on the disk for {self.path}",
                    f"{self.kept_entries()} entries there are whole; make room, and the same command goes on",
                ) from None
            raise Failure(f"cannot write to {self.path}: {error.strerror}") from None

    # ---- complete logs ----

    def seal(self, header: Header) -> None:
        """Turns the parts of a core's complete log into log files."""
        core = header.core
        # The other cores' headers have this size, too.
        self._room = header.size
        if core in self._open:
            os.close(self._open.pop(core))
        parts = self.parts.setdefault(core, [])
        if not parts:
            self._begin(core, header.first)
        self._split(parts, header)
        if not parts[-1].entries and len(parts) > 1:
            parts.pop().path.unlink()
        if parts[-1].end != header.first + header.entries:
            raise Failure(f"core {core}: the stream brought entries up to {parts[-1].end}, its header says {header.first + header.entries}")
        for part in parts[:-1]:
            self._name(part, rebuild_header(header, part.entries, part.first), f"core{core}.from-{part.first}.log")
        last = parts[-1]
        whole = (last.first, last.entries) == (header.first, header.entries)
        self._name(last, header.raw if whole else rebuild_header(header, last.entries, last.first), f"core{core}.log")
        del self.parts[core]

    def _split(self, parts: list[Part], header: Header) -> None:
        """Moves entries to another file if the machine sent them live and overwrote them later. `core3.log` then equals the answer to
        `get,3`."""
        part = parts[-1]
        if not part.first < header.first < part.end:
            return
        tail = self._new_part(header.core, header.first, header.size, part.end - header.first)
        self._copy(part, header.first, bytes(tail.room), tail.path)
        self._truncate(part, header.first - part.first)
        parts.append(tail)

    def _copy(self, part: Part, first: int, head: bytes, target: Path) -> None:
        """Writes `head`, and a part's entries from `first` on, to a new file. Both files take space until the caller shortens the part."""
        self.claim(len(head))
        making = target.with_name(target.name + ".new")
        try:
            with self._disk(), open(part.path, "rb") as source, open(making, "wb") as copy:
                copy.write(head)
                source.seek(part.room + (first - part.first) * ENTRY_BYTES)
                left = (part.end - first) * ENTRY_BYTES
                while left:
                    data = source.read(min(left, CHUNK_BYTES))
                    if not data:
                        raise Failure(f"{part.path} became shorter while it was read")
                    copy.write(data)
                    left -= len(data)
                copy.flush()
                os.fsync(copy.fileno())
            making.rename(target)
        except BaseException:
            making.unlink(missing_ok=True)
            raise

    def _name(self, part: Part, header: bytes, name: str) -> None:
        if len(header) != part.room:
            self._copy(part, part.first, header, self.path / name)
            part.path.unlink()
            self._used_bytes -= part.room
            return
        with self._disk(), open(part.path, "r+b") as data:
            data.write(header)
            data.flush()
            os.fsync(data.fileno())
        part.path.rename(self.path / name)


def log_files(folder: Path) -> list[Path]:
    """Returns the log files in a folder, by core and position."""
    matches = ((LOG.fullmatch(path.name), path) for path in folder.iterdir())
    return [path for _, _, path in sorted((int(match.group(1)), int(match.group(2) or 1 << 62), path) for match, path in matches if match)]


def describe_run(paths: Sequence[Path], **more) -> dict:
    """Returns the content of run.json: the configuration, the changes of settings by time and core, and the gaps. The load's offered rate
    is known if the load's result lies beside the logs already."""
    headers = [(path, read_header(path)) for path in paths]
    last = headers[-1][1]
    cores: dict[int, dict] = {}
    settings: list[dict] = []
    left_out = 0
    gaps = []
    entries: dict[int, CoreEntries] = {}
    for path, header in headers:
        if header.run_of != last.run_of:
            raise Damaged(f"{path}: of another run or machine than {headers[-1][0].name}")
        row = cores.setdefault(header.core, {"core": header.core, "files": [], "lines": 0, "unwritten": header.unwritten, "next": 0})
        if header.first > row["next"]:
            gaps.append({"core": header.core, "first": row["next"], "lines": header.first - row["next"]})
        row["next"] = header.first + header.entries
        row["files"].append(path.name)
        row["lines"] += header.entries
        of_core = entries.setdefault(header.core, CoreEntries(header.core))
        for setting in _changes_of(path, header, of_core):
            if len(settings) < SETTINGS_MAX:
                settings.append({"core": header.core, **_when(setting, header), **setting})
                of_core.settings.append(setting)
            else:
                left_out += 1
    for row in cores.values():
        row.pop("next")
    about = {
        name: last.about.get(name) for name in ("boot_id", "run", "application", "neap", "cores", "cpu", "sample_period_us", "when_full")
    }
    if left_out:
        more["settings_left_out"] = left_out
    settings.sort(key=lambda setting: (setting["tsc"], setting["core"]))
    load = load_results.offered(load_results.beside([paths[0].parent]))
    first = headers[0][1]
    found = configuration.describe(first.about, first.tsc_hz, list(entries.values()), load)
    head = {"format": "neap-run", "version": 1, **about, **more, "files": list(cores.values()), "gaps": gaps}
    return {**head, "configuration": found, "settings": settings}


def _changes_of(path: Path, header: Header, into: CoreEntries) -> Iterator[dict]:
    """Yields the policy at the start, and each change. Adds the core's other entries about the configuration to `into`."""
    schema = header.schema
    marks, configured, changes = schema.kinds_of("mark"), schema.configured_kinds, schema.change_kinds
    starts = [START] if START in schema.kinds_of("record") else []
    tsc = schema.form["record"].by_name["tsc"]
    # A core whose log was overwritten has no start record. Its run begins with its first entry.
    is_started = into.begin_tsc is not None
    with open(path, "rb") as data:
        data.seek(header.size)
        while entries := data.read(CHUNK_BYTES):
            if into.begin_tsc is None:
                into.begin_tsc = tsc.read(entries[:ENTRY_BYTES])
            for entry in entries_of(entries, [*changes, *configured, *marks, *starts]):
                kind = entry[KIND_OFFSET]
                if kind in changes:
                    yield schema.describe_settings(entry)
                elif kind in marks:
                    into.marks += [schema.describe_mark(entry)] if len(into.marks) < MARKS_MAX else []
                elif kind in configured:
                    # Each setting of a core is stated once at the start, so a core of an honest machine stays far below this number.
                    into.configured += [schema.describe_settings(entry)] if len(into.configured) < CONFIGURED_MAX else []
                elif not is_started:
                    into.begin_tsc, is_started = tsc.read(entry), True


def _when(setting: dict, header: Header) -> dict:
    """Returns a change's time in seconds since boot, and as Unix time in ns. Both are None if the header lacks the clock's values."""
    try:
        ticks = setting["tsc"] - header.about["tsc_at_boot"]
        return {
            "seconds_since_boot": ticks / header.tsc_hz,
            "wall_clock_ns": header.about["wall_clock_at_boot_ns"] + ticks * 1_000_000_000 // header.tsc_hz,
        }
    except KeyError:
        return {"seconds_since_boot": None, "wall_clock_ns": None}
