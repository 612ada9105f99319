# SPDX-License-Identifier: BSL-1.0
"""The bytes of a log file and of the stream, for tools that copy entries without decoding them: docs/log-format.md, format version 1.

A file is a header, whose size it states, and entries of 64 bytes. The stream carries the same data in blocks, each with a header of
64 bytes and two checksums. Everything is little-endian. tools/log/schema.py has the types of the entries.
"""

import dataclasses
import json
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.errors import Failure
from tools.foreign import shown
from tools.log import about as about_text
from tools.log.about import CORES_MAX as CORES_MAX
from tools.log.crc32c import crc32c
from tools.log.schema import ENTRY_BYTES as ENTRY_BYTES
from tools.log.schema import Schema, parse

MAGIC = b"NEAPLOG\n"
VERSION = 1
# The size of a header: that of files which this version writes, and the bounds of those that it reads. Older builds wrote 4096 bytes.
HEADER_BYTES = 16384
HEADER_BYTES_MIN, HEADER_BYTES_MAX = 4096, 65536
HEADER_SIZES = range(HEADER_BYTES_MIN, HEADER_BYTES_MAX + 1, 4096)
JSON_OFFSET = 64
# Positions of a run's entries are below this, so that each position has at most 17 digits in a file's name.
POSITIONS_END = 1 << 56

_HEADER = struct.Struct("<8sIIIIQQQQII")

BLOCK_MAGIC = 0x4B4C424E  # "NBLK" in memory
BLOCK_HEADER_BYTES = 64
BLOCK_ENTRIES_MAX = 1024
PAYLOAD_BYTES_MAX = BLOCK_ENTRIES_MAX * ENTRY_BYTES
_BLOCK = struct.Struct("<IBBHQQIIQIIQII")

BLOCK_TYPES = range(1, 7)
BLOCK_HEADER, BLOCK_ENTRIES, BLOCK_GAP, BLOCK_CORE_END, BLOCK_END, BLOCK_ALIVE = BLOCK_TYPES

KIND_OFFSET = 8


class Damaged(Failure):
    """A file that does not have the format."""


@dataclasses.dataclass(frozen=True)
class Header:
    """The header of a log file. `first` is the position of the file's first entry among all entries of the core in this run.
    `about` holds the members of the header's JSON that tools/log/about.py knows and has checked; `schema` has the types of the entries."""

    core: int
    entries: int
    first: int
    unwritten: int
    tsc_hz: int
    about: dict
    schema: Schema
    raw: bytes

    @property
    def size(self) -> int:
        """The header's size. The entries follow it in the file."""
        return len(self.raw)

    @property
    def boot_id(self) -> str:
        return self.about["boot_id"]

    @property
    def run(self) -> int:
        return self.about["run"]

    @property
    def cores(self) -> int:
        return self.about["cores"]

    @property
    def text(self) -> bytes:
        """The JSON as the machine wrote it."""
        return self.raw[JSON_OFFSET : JSON_OFFSET + _HEADER.unpack_from(self.raw)[-2]]

    @property
    def run_of(self) -> tuple:
        """The values that are equal in the headers of all cores of one run."""
        return self.boot_id, self.run, self.cores, self.tsc_hz, self.schema


def json_bytes_max(header_bytes: int) -> int:
    """Returns the room for the JSON. It ends before the header's last byte, which is a line feed."""
    return header_bytes - 1 - JSON_OFFSET


def header_bytes(raw: bytes, name: str) -> int:
    """Returns the size of the header of which `raw` has the first HEADER_BYTES_MIN bytes or more. Raises Damaged like parse_header."""
    if len(raw) < HEADER_BYTES_MIN:
        if raw.startswith(b"error:"):
            said = shown(raw.split(b"\n")[0].decode("ascii", "replace"), 200)
            raise Damaged(f"{name}: not a log but the machine's answer '{said}'")
        raise Damaged(f"{name}: cut off in its header, {len(raw)} of at least {HEADER_BYTES_MIN} bytes are there")
    magic, version, size, entry_bytes, *_, json_bytes, _ = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise Damaged(f"{name}: not a Neap log, it begins with {bytes(raw[:8])!r}")
    if version != VERSION:
        raise Damaged(f"{name}: format version {version}, this Neap reads version {VERSION}")
    if size not in HEADER_SIZES or entry_bytes != ENTRY_BYTES or json_bytes > json_bytes_max(size):
        raise Damaged(f"{name}: damaged header, it states {size} and {entry_bytes} bytes with a text of {json_bytes}")
    return size


def parse_header(raw: bytes, name: str) -> Header:
    """Parses the header at the begin of `raw`. Raises Damaged with a text that says what is wrong with the file `name`."""
    size = header_bytes(raw, name)
    if len(raw) < size:
        raise Damaged(f"{name}: cut off in its header, {len(raw)} of {size} bytes are there")
    _, _, _, _, core, entries, first, unwritten, tsc_hz, json_bytes, crc = _HEADER.unpack_from(raw)
    text = bytes(raw[JSON_OFFSET : JSON_OFFSET + json_bytes])
    if crc32c(bytes(raw[: JSON_OFFSET - 4]) + text) != crc:
        raise Damaged(f"{name}: damaged header, its checksum does not fit")
    try:
        about = about_text.parse(text)
        if tsc_hz == 0 or core >= about["cores"] or entries >= 1 << 48 or first + entries >= POSITIONS_END:
            raise ValueError("its numbers do not fit together")
        schema = parse(about)
    except ValueError as error:
        raise Damaged(f"{name}: damaged header, its text is not what the format says: {error}") from None
    return Header(core, entries, first, unwritten, tsc_hz, about, schema, bytes(raw[:size]))


def build_header(core: int, entries: int, first: int, unwritten: int, tsc_hz: int, about: dict, size: int = HEADER_BYTES) -> bytes:
    """Returns the header of a log file, as the machine makes it, with `size` bytes."""
    return _header_of(core, entries, first, unwritten, tsc_hz, json.dumps(about, separators=(",", ":")).encode("ascii"), size)


def _header_of(core: int, entries: int, first: int, unwritten: int, tsc_hz: int, text: bytes, size: int) -> bytes:
    assert len(text) <= json_bytes_max(size)
    head = _HEADER.pack(MAGIC, VERSION, size, ENTRY_BYTES, core, entries, first, unwritten, tsc_hz, len(text), 0)[:-4]
    raw = head + struct.pack("<I", crc32c(head + text)) + text
    return raw + b" " * (size - 1 - len(raw)) + b"\n"


def rebuild_header(header: Header, entries: int, first: int) -> bytes:
    """Returns the header of a file that has only a part of the entries of `header`. The JSON is copied as text. If Python wrote it again,
    it could get longer, and a text that fills its header would not fit."""
    return _header_of(header.core, entries, first, header.unwritten, header.tsc_hz, header.text, header.size)


def read_header(path: Path) -> Header:
    """Returns a file's header. Raises Damaged, also if the file's size contradicts the header, and Failure if the file is unreadable."""
    try:
        with open(path, "rb") as data:
            header = parse_header(data.read(HEADER_BYTES_MAX), str(path))
        there = path.stat().st_size - header.size
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
    if there != header.entries * ENTRY_BYTES:
        what = "cut off" if there < header.entries * ENTRY_BYTES else "longer than it should be"
        raise Damaged(f"{path}: {what}, {there / ENTRY_BYTES:g} entries are there of {header.entries}")
    return header


@dataclasses.dataclass(frozen=True)
class Block:
    """One block of the stream. `position` and `count` are numbers of entries; their meaning depends on `type`, see docs/log-format.md."""

    type: int
    core: int
    number: int
    position: int
    payload_bytes: int
    payload_crc: int
    count: int
    run: int
    boot_id: int

    @property
    def boot(self) -> str:
        return f"{self.boot_id:016x}"


class DamagedBlock(Exception):
    """The received bytes are not a block, or not the block that was sent."""


def parse_block(raw: bytes) -> Block:
    """Parses a block's 64-byte header. Raises DamagedBlock."""
    magic, kind, _, core, number, position, payload_bytes, payload_crc, count, run, _, boot_id, _, crc = _BLOCK.unpack(raw)
    if magic != BLOCK_MAGIC:
        raise DamagedBlock("a block does not begin with its magic number")
    if crc32c(raw[:-4]) != crc:
        raise DamagedBlock("a block's header does not fit its checksum")
    block = Block(kind, core, number, position, payload_bytes, payload_crc, count, run, boot_id)
    expected = HEADER_SIZES if kind == BLOCK_HEADER else (count * ENTRY_BYTES if kind == BLOCK_ENTRIES else 0,)
    if payload_bytes > PAYLOAD_BYTES_MAX or payload_bytes not in expected or core >= CORES_MAX:
        raise DamagedBlock("a block states a size that cannot be")
    if kind not in BLOCK_TYPES:
        raise DamagedBlock(f"a block has the unknown type {kind}")
    if position + (count if kind in (BLOCK_ENTRIES, BLOCK_GAP) else 0) >= POSITIONS_END:
        raise DamagedBlock(f"a block states position {position} and {count} entries, which cannot be")
    return block


def build_block(kind: int, core: int, number: int, position: int, payload: bytes, count: int, run: int, boot_id: int) -> bytes:
    """Returns header and payload, as the machine sends them."""
    head = _BLOCK.pack(BLOCK_MAGIC, kind, 0, core, number, position, len(payload), crc32c(payload), count, run, 0, boot_id, 0, 0)[:-4]
    return head + struct.pack("<I", crc32c(head)) + payload


def entries_of(entries: bytes, kinds: Sequence[int]) -> Iterator[bytes]:
    """Yields each entry among `entries` that has one of `kinds`."""
    found = entries[KIND_OFFSET::ENTRY_BYTES]
    for match in re.finditer(b"[" + re.escape(bytes(kinds)) + b"]", found) if kinds else ():
        at = match.start() * ENTRY_BYTES
        yield entries[at : at + ENTRY_BYTES]
