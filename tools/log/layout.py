# SPDX-License-Identifier: BSL-1.0
"""The bytes of a log file and of the stream, for those who copy them without looking inside: docs/log-format.md, format version 1.

A file is a header of 4096 bytes and lines of 64 bytes. The stream carries the same in blocks of its own, each with a header of 64 bytes
and two checksums. Everything is little-endian.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterator
from pathlib import Path

from tools.errors import Failure
from tools.foreign import shown
from tools.log import about as about_text
from tools.log.about import MAX_CORES as MAX_CORES
from tools.log.crc32c import crc32c

MAGIC = b"NEAPLOG\n"
VERSION = 1
HEADER_BYTES = 4096
LINE_BYTES = 64
JSON_AT = 64
# Byte 4095 is a line feed.
MAX_JSON_BYTES = HEADER_BYTES - 1 - JSON_AT
# Positions of a run's lines lie below this, so that each has at most 17 digits in a file's name.
POSITIONS_END = 1 << 56

_HEADER = struct.Struct("<8sIIIIQQQQII")

BLOCK_MAGIC = 0x4B4C424E  # "NBLK" in memory
BLOCK_HEADER_BYTES = 64
MAX_BLOCK_LINES = 1024
MAX_PAYLOAD_BYTES = MAX_BLOCK_LINES * LINE_BYTES
_BLOCK = struct.Struct("<IBBHQQIIQIIQII")

BLOCK_TYPES = range(1, 7)
BLOCK_HEADER, BLOCK_LINES, BLOCK_GAP, BLOCK_CORE_END, BLOCK_END, BLOCK_ALIVE = BLOCK_TYPES

KIND_AT = 8
KIND_SETTINGS = 18
IDLE_STATES = ("halt", "c1", "c1e", "c3", "c6", "c7", "poll", "monitor")
SETTINGS = (
    *("idle", "itr", "pstate", "power_limit", "turbo", "poll_budget", "rx_ring", "tx_ring", "rx_budget", "pthresh", "hthresh", "wthresh"),
    *("head_write_back", "rsc", "promiscuous", "preset", "steer", "epp", "flow_control", "dca", "vlan", "tso"),
)
# What held when the run began.
CHANGED_AT_START = 255
TURBO = ("off", "on", "unknown")
_SETTINGS = struct.Struct("<QBBBBIIIQII")


class Damaged(Failure):
    """A file that is not, or not wholly, what the format says."""


@dataclasses.dataclass(frozen=True)
class Header:
    """The first 4096 bytes of a log file. `first` is the position of the first line that follows, in all lines of the run.

    `about` holds the fields of the header's JSON that tools/log/about.py knows and has checked.
    """

    core: int
    lines: int
    first: int
    unwritten: int
    tsc_hz: int
    about: dict
    raw: bytes

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
        return self.raw[JSON_AT : JSON_AT + _HEADER.unpack_from(self.raw)[-2]]

    @property
    def run_of(self) -> tuple:
        """What the headers of all cores of one run have in common."""
        return self.boot_id, self.run, self.cores, self.tsc_hz


def parse_header(raw: bytes, name: str) -> Header:
    """Raises Damaged, which says what is wrong with `name`."""
    if len(raw) < HEADER_BYTES:
        if raw.startswith(b"error:"):
            said = shown(raw.split(b"\n")[0].decode("ascii", "replace"), 200)
            raise Damaged(f"{name}: not a log but the machine's answer '{said}'")
        raise Damaged(f"{name}: cut off in its header, {len(raw)} of {HEADER_BYTES} bytes are there")
    magic, version, header_bytes, line_bytes, core, lines, first, unwritten, tsc_hz, json_bytes, crc = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise Damaged(f"{name}: not a Neap log, it begins with {bytes(raw[:8])!r}")
    if version != VERSION:
        raise Damaged(f"{name}: format version {version}, this Neap reads version {VERSION}")
    if header_bytes != HEADER_BYTES or line_bytes != LINE_BYTES or json_bytes > MAX_JSON_BYTES:
        raise Damaged(f"{name}: damaged header, it states {header_bytes} and {line_bytes} bytes with a text of {json_bytes}")
    text = bytes(raw[JSON_AT : JSON_AT + json_bytes])
    if crc32c(bytes(raw[: JSON_AT - 4]) + text) != crc:
        raise Damaged(f"{name}: damaged header, its checksum does not fit")
    try:
        about = about_text.parse(text)
        if tsc_hz == 0 or core >= about["cores"] or lines >= 1 << 48 or first + lines >= POSITIONS_END:
            raise ValueError("its numbers do not fit together")
    except ValueError as error:
        raise Damaged(f"{name}: damaged header, its text is not what the format says: {error}") from None
    return Header(core, lines, first, unwritten, tsc_hz, about, bytes(raw[:HEADER_BYTES]))


def build_header(core: int, lines: int, first: int, unwritten: int, tsc_hz: int, about: dict) -> bytes:
    """The header of a log file, as the machine makes it."""
    return _header_of(core, lines, first, unwritten, tsc_hz, json.dumps(about, separators=(",", ":")).encode("ascii"))


def _header_of(core: int, lines: int, first: int, unwritten: int, tsc_hz: int, text: bytes) -> bytes:
    assert len(text) <= MAX_JSON_BYTES
    head = _HEADER.pack(MAGIC, VERSION, HEADER_BYTES, LINE_BYTES, core, lines, first, unwritten, tsc_hz, len(text), 0)[:-4]
    raw = head + struct.pack("<I", crc32c(head + text)) + text
    return raw + b" " * (HEADER_BYTES - 1 - len(raw)) + b"\n"


def rebuild_header(header: Header, lines: int, first: int) -> bytes:
    """The header of a part of the lines that `header` is about.

    Its JSON is copied: written anew, a text close to 4 KB may come out longer than it came in.
    """
    return _header_of(header.core, lines, first, header.unwritten, header.tsc_hz, header.text)


def read_header(path: Path) -> Header:
    """The header of a file, whose size must be what the header says. Raises Damaged, or Failure if it cannot be read."""
    try:
        with open(path, "rb") as data:
            header = parse_header(data.read(HEADER_BYTES), str(path))
        there = path.stat().st_size - HEADER_BYTES
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
    if there != header.lines * LINE_BYTES:
        what = "cut off" if there < header.lines * LINE_BYTES else "longer than it should be"
        raise Damaged(f"{path}: {what}, {there / LINE_BYTES:g} lines are there of {header.lines}")
    return header


@dataclasses.dataclass(frozen=True)
class Block:
    """One block of the stream. `position` and `count` are in lines; what they mean depends on `type`, see docs/log-format.md."""

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
    """What came is not a block, or not the one that was sent."""


def parse_block(raw: bytes) -> Block:
    """A block's 64-byte header. Raises DamagedBlock."""
    magic, kind, _, core, number, position, payload_bytes, payload_crc, count, run, _, boot_id, _, crc = _BLOCK.unpack(raw)
    if magic != BLOCK_MAGIC:
        raise DamagedBlock("a block does not begin with its magic number")
    if crc32c(raw[:-4]) != crc:
        raise DamagedBlock("a block's header does not fit its checksum")
    block = Block(kind, core, number, position, payload_bytes, payload_crc, count, run, boot_id)
    expected = {BLOCK_HEADER: HEADER_BYTES, BLOCK_LINES: count * LINE_BYTES}.get(kind, 0)
    if payload_bytes > MAX_PAYLOAD_BYTES or payload_bytes != expected or core >= MAX_CORES:
        raise DamagedBlock("a block states a size that cannot be")
    if kind not in BLOCK_TYPES:
        raise DamagedBlock(f"a block has the unknown type {kind}")
    if position + (count if kind in (BLOCK_LINES, BLOCK_GAP) else 0) >= POSITIONS_END:
        raise DamagedBlock(f"a block states position {position} and {count} lines, which cannot be")
    return block


def build_block(kind: int, core: int, number: int, position: int, payload: bytes, count: int, run: int, boot_id: int) -> bytes:
    """Header and payload, as the machine sends them."""
    head = _BLOCK.pack(BLOCK_MAGIC, kind, 0, core, number, position, len(payload), crc32c(payload), count, run, 0, boot_id, 0, 0)[:-4]
    return head + struct.pack("<I", crc32c(head)) + payload


def settings_lines(lines: bytes) -> Iterator[dict]:
    """What was set, from the `Settings` among whole lines: raw TSC and the policy that holds from there on."""
    kinds = lines[KIND_AT::LINE_BYTES]
    at = kinds.find(KIND_SETTINGS)
    while at >= 0:
        yield describe_settings(lines[at * LINE_BYTES : (at + 1) * LINE_BYTES])
        at = kinds.find(KIND_SETTINGS, at + 1)


def describe_settings(line: bytes) -> dict:
    tsc, _, idle, changed, turbo, generation, itr_us, poll_budget_us, performance, power_limit_mw, card_value = _SETTINGS.unpack_from(line)
    return {
        "tsc": tsc,
        "generation": generation,
        "changed": "start" if changed == CHANGED_AT_START else name_of(SETTINGS, changed),
        "idle": name_of(IDLE_STATES, idle),
        "itr_us": itr_us,
        "poll_budget_us": poll_budget_us,
        "pstate": f"0x{performance:x}",
        "power_limit_mw": power_limit_mw,
        "turbo": name_of(TURBO, turbo),
        "card_value": card_value,
    }


def name_of(names: tuple[str, ...], number: int) -> str:
    """A number's name; the number itself where this version knows none."""
    return names[number] if number < len(names) else str(number)
