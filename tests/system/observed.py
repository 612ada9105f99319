# SPDX-License-Identifier: BSL-1.0
"""A machine observed from both sides: by its own log and control connection, and by the soft card's trace and counters.

The log is parsed here with a few lines of struct, independently of tools/log, so that an error in either parser shows as a difference.
"""

import json
import re
import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from servers import CONTROL_PORT, CONTROL_SECONDS, NeapServer
from wire import Wire

from tools import control_client
from tools.machine import LOOPBACK

LOG_BYTES_MAX = 1 << 30
TRACE_ENTRIES = 1 << 21
CONNECT_TRIES = 60
LINE_BYTES = 64
# Kinds of log entries (kernel/log_record.hpp).
INTERRUPT, POLL, POLICY, START, STOP, IDLE = 1, 2, 3, 4, 5, 32
RECORDS = (INTERRUPT, POLL, POLICY, START, STOP)
_RECORD = struct.Struct("<QBBHIIIIIII")
_HEADER = struct.Struct("<8sIIIIQQQQII")


class Control(control_client.Control):
    """A connection to the guest's control port. Every answer must begin with `ok`."""

    def ok_answer(self, line: str) -> str:
        """Returns the answer after `ok`. Raises AssertionError for any other answer."""
        answer = self.ask(line)
        assert answer == "ok" or answer.startswith("ok "), f"{line}: {answer!r}"
        return answer[3:]

    def fetched(self, line: str) -> bytes:
        """Sends `line` and returns all bytes until the guest closes."""
        self.send(line)
        return self.read(LOG_BYTES_MAX, CONTROL_SECONDS)


@dataclass(frozen=True)
class Record:
    tsc: int
    kind: int
    rx_frames: int
    rx_bytes: int
    tx_frames: int
    tx_bytes: int


@dataclass(frozen=True)
class CoreLog:
    core: int
    unwritten: int
    tsc_hz: int
    records: list[Record]
    # For each sleep, the requested idle state and the cause of the wake-up, as numbers. Empty if the log has no sleeps.
    sleeps: list[tuple[int, int]]

    def sums(self) -> dict[str, int]:
        """Returns the sum of the records' traffic. Each record counts the traffic since the previous record, so the first record is left
        out."""
        assert self.records[0].kind == START and self.records[-1].kind == STOP, "a run begins and ends with an anchor"
        names = ("rx_frames", "rx_bytes", "tx_frames", "tx_bytes")
        return {name: sum(getattr(record, name) for record in self.records[1:]) for name in names}


def read_log(data: bytes) -> CoreLog:
    assert data.startswith(b"NEAPLOG\n"), f"no log: {data[:200]!r}"
    _magic, version, header_bytes, line_bytes, core, lines, first, unwritten, tsc_hz, json_bytes, _crc = _HEADER.unpack_from(data)
    assert (version, line_bytes, first) == (1, LINE_BYTES, 0)
    assert json.loads(data[64 : 64 + json_bytes])["core"] == core
    assert len(data) == header_bytes + lines * LINE_BYTES, f"{lines} lines announced, {len(data)} bytes came"
    records, sleeps = [], []
    for at in range(header_bytes, len(data), LINE_BYTES):
        tsc, kind, idle, flags, _generation, _rxd, rx_frames, rx_bytes, _txd, tx_frames, tx_bytes = _RECORD.unpack_from(data, at)
        if kind in RECORDS:
            records.append(Record(tsc, kind, rx_frames, rx_bytes, tx_frames, tx_bytes))
        elif kind == IDLE:
            sleeps.append((idle, flags & 0xFF))
    return CoreLog(core, unwritten, tsc_hz, records, sleeps)


class ObservedServer(NeapServer):
    """The memcached image with its control port."""

    def control(self) -> Control:
        return Control(LOOPBACK, self.machine.port(CONTROL_PORT), answer_seconds=CONTROL_SECONDS)

    def log(self, core: int) -> CoreLog:
        with self.control() as connection:
            return read_log(connection.fetched(f"get,{core}"))

    def start_trace(self) -> None:
        self.machine.card_command(f"trace start {TRACE_ENTRIES}")

    def stop_trace(self) -> dict[int, list[dict[str, int]]]:
        """Returns the card's interrupt messages since `start_trace`, by vector."""
        self.machine.card_command("trace stop")
        messages: dict[int, list[dict[str, int]]] = defaultdict(list)
        while True:
            piece = self.machine.card_command("trace read")
            assert piece["lost"] == 0, "the trace was too short"
            for entry in piece["entries"]:
                if "held" in entry:
                    messages[entry["vector"]].append(entry)
            if piece["left"] == 0:
                return messages

    def card_traffic(self) -> dict[int, dict[str, int]]:
        """Returns frames and bytes by queue since the card's last reset, from the card's counters."""
        queues: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(("rx_frames", "rx_bytes", "tx_frames", "tx_bytes"), 0))
        for name, value in self.machine.card_command("statistics").items():
            if match := re.fullmatch(r"([rt]x_(?:frames|bytes))\[(\d+)\]", name):
                queues[int(match[2])][match[1]] = value
        return queues

    def connect_to_each_core(self, cores: Sequence[int], connections: int = 1) -> list[Wire]:
        """Opens this many connections on each of `cores`, in turn. RSS uses the client's port, so several ports are tried."""
        found: dict[int, list[Wire]] = {core: [] for core in cores}
        for _ in range(CONNECT_TRIES):
            before = self.card_traffic()
            wire = self.connect(120)
            wire.ask_line(b"version\r\n")
            after = self.card_traffic()
            grown = {core: after[core]["rx_frames"] - before[core]["rx_frames"] for core in cores}
            wires = found[max(grown, key=grown.__getitem__)]
            if len(wires) == connections:
                wire.close()
                continue
            wires.append(wire)
            if all(len(wires) == connections for wires in found.values()):
                return [wire for row in zip(*found.values()) for wire in row]
        raise AssertionError(f"{CONNECT_TRIES} connections did not reach every core: {[len(wires) for wires in found.values()]}")
