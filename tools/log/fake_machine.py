# SPDX-License-Identifier: BSL-1.0
"""A machine's control port in Python, for tests of its clients. It answers lines, `get` and `stream`, and fails in the ways that a test
requests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import socket
import struct
import threading
import time
from collections.abc import Callable

from tools.log import layout

ENTRY = layout.ENTRY_BYTES


@dataclasses.dataclass(eq=False)
class FakeMachine:
    """Serves `files`, one per core, on 127.0.0.1. A context manager.

    cuts: for each connection in turn, the number of stream bytes after which the machine ends it; later ones are not cut.
    reset: cut connections end by a TCP reset, which discards data in flight.
    damage: called with the connection's number and its stream; returns the bytes to send instead.
    gaps: for each core, the (position, count) of entries that the stream leaves out and reports as a gap.
    forgetful: if True, the machine ignores the positions that a collector names, and sends all entries.
    early: by core, entries that the stream sends before the entries in `files`. Real machines overwrite such entries later.
    pause_seconds: the pause after each block.
    """

    files: list[bytes]
    block_entries: int = 8
    cuts: list[int] = dataclasses.field(default_factory=list)
    damage: Callable[[int, bytes], bytes] | None = None
    gaps: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    early: dict[int, bytes] = dataclasses.field(default_factory=dict)
    forgetful: bool = False
    reset: bool = False
    pause_seconds: float = 0.0
    token: str | None = None
    answers: dict[str, Callable[[], str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.requests: list[str] = []
        self._connections = 0
        self._guard = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.getsockname()[:2]

    def __enter__(self) -> FakeMachine:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            allowed = self.token is None
            for raw in lines:
                words = raw.decode().strip().split(",")
                with self._guard:
                    self.requests.append(",".join(words))
                if words[0] == "token":
                    allowed = allowed or words[1:] == [self.token]
                    connection.sendall(b"ok\n" if allowed else b"error: wrong token\n")
                elif not allowed:
                    connection.sendall(b"error: token needed: send token,...\n")
                elif words[0] == "get":
                    core = int(words[1])
                    connection.sendall(self.files[core] if core < len(self.files) else b"error: get takes a core from 0 on\n")
                    return
                elif words[0] == "stream":
                    self._stream(connection, words)
                    return
                else:
                    answer = self.answers.get(words[0])
                    connection.sendall((answer() if answer else f"error: no command {words[0]}").encode() + b"\n")

    def _stream(self, connection: socket.socket, words: list[str]) -> None:
        positions = {int(match.group(1)): int(match.group(2)) for word in words if (match := re.fullmatch(r"(\d+)=(\d+)", word))}
        connection.sendall(b"ok\n")
        data = self.stream({} if self.forgetful else positions)
        with self._guard:
            number = self._connections
            self._connections += 1
            cut = self.cuts.pop(0) if self.cuts else None
        if self.damage:
            data = self.damage(number, data)
        if self.pause_seconds:
            for block in split(data):
                connection.sendall(block)
                time.sleep(self.pause_seconds)
            return
        connection.sendall(data[:cut])
        if cut is not None and self.reset:
            # With a linger time of zero, closing the socket resets the connection.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def stream(self, positions: dict[int, int]) -> bytes:
        """Returns all blocks of the stream. The entries of each core begin at the core's position in `positions`."""
        blocks: list[tuple] = [(layout.BLOCK_ALIVE, 0, 0, b"", 0)]
        header = None
        for core, file in enumerate(self.files):
            header = layout.parse_header(file, "a fake")
            early = self.early.get(core, b"")
            lines = early + file[header.size :]
            first = header.first - len(early) // ENTRY
            end = header.first + header.entries
            at = max(positions.get(core, 0), first)
            if at > positions.get(core, 0):
                blocks.append((layout.BLOCK_GAP, core, positions.get(core, 0), b"", at - positions.get(core, 0)))
            gap_at, gap_count = self.gaps.get(core, (1 << 62, 0))
            while at < end:
                if at == gap_at:
                    blocks.append((layout.BLOCK_GAP, core, at, b"", gap_count))
                    at += gap_count
                    continue
                count = min(self.block_entries, end - at, gap_at - at if gap_at > at else 1 << 62)
                blocks.append((layout.BLOCK_ENTRIES, core, at, lines[(at - first) * ENTRY : (at - first + count) * ENTRY], count))
                at += count
            blocks.append((layout.BLOCK_HEADER, core, 0, header.raw, 0))
            blocks.append((layout.BLOCK_CORE_END, core, end, b"", end))
        assert header
        blocks.append((layout.BLOCK_END, 0, 0, b"", 0))
        return b"".join(
            layout.build_block(kind, core, number, position, payload, count, header.run, int(header.boot_id, 16))
            for number, (kind, core, position, payload, count) in enumerate(blocks)
        )


def split(data: bytes) -> list[bytes]:
    blocks = []
    while data:
        size = layout.BLOCK_HEADER_BYTES + layout.parse_block(data[: layout.BLOCK_HEADER_BYTES]).payload_bytes
        blocks.append(data[:size])
        data = data[size:]
    return blocks
