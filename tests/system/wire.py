# SPDX-License-Identifier: BSL-1.0
"""Bytes on a connection to a memcached, for tests that compare them exactly. Every wait has a time-out.

Client libraries hide the subjects of these tests: the split of a request, the bytes after an error, the close of a connection. So class
Wire uses the socket. Every read has the connection's time-out. A wrong answer is shown with its request.
"""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

# On a busy host, a machine may get so little CPU time that it needs some seconds for 100 KB.
ANSWER_SECONDS = 60.0
LINE_BYTES_MAX = 1 << 20


class Closed(Exception):
    """The server closed or reset the connection."""


class Wire(contextlib.AbstractContextManager):
    """One TCP connection. A context manager. `source_port`: of this end; 0: the kernel chooses one. `receive_bytes`: size of the kernel's
    receive buffer; 0: it grows as needed, up to some MiB."""

    def __init__(self, address: tuple[str, int], seconds: float = ANSWER_SECONDS, source_port: int = 0, receive_bytes: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if receive_bytes:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            if source_port:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._socket.bind(("", source_port))
            self._socket.settimeout(seconds)
            self._socket.connect(address)
        except BaseException:
            self._socket.close()
            raise
        # With TCP_NODELAY, data sent in two pieces leaves in two segments.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Closes with a RST instead of a FIN."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def end_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def send(self, data: bytes) -> None:
        """Sends `data`. Raises Closed if the server has closed the connection."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed(str(error)) from None

    def send_pieces(self, pieces: Iterable[bytes], pause_seconds: float = 0.002) -> None:
        """Sends each piece as a segment of its own, as far as a TCP allows that."""
        for piece in pieces:
            self.send(piece)
            time.sleep(pause_seconds)

    def read_exactly(self, count: int) -> bytes:
        while len(self._received) < count:
            self._read()
        data = bytes(self._received[:count])
        del self._received[:count]
        return data

    def read_line(self) -> bytes:
        """Returns the next line without its CR LF."""
        while (end := self._received.find(b"\n")) < 0:
            assert len(self._received) < LINE_BYTES_MAX, f"a line without end: {bytes(self._received[:80])!r}…"
            self._read()
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        assert line.endswith(b"\r\n"), f"a line must end with CR LF: {line!r}"
        return line[:-2]

    def expect(self, answer: bytes, asked: bytes = b"") -> None:
        """Reads as many bytes as `answer` has and compares."""
        try:
            got = self.read_exactly(len(answer))
        except (TimeoutError, Closed) as error:
            raise AssertionError(_difference(asked, answer, bytes(self._received)) + f" ({type(error).__name__})") from None
        assert got == answer, _difference(asked, answer, got)

    def ask(self, request: bytes, answer: bytes) -> None:
        self.send(request)
        self.expect(answer, request)

    def ask_line(self, request: bytes) -> bytes:
        """Sends `request` and returns the first line of the answer, without CR LF."""
        self.send(request)
        return self.read_line()

    def expect_closed(self) -> None:
        """Passes if the server ends the connection, by FIN or RST. Data before the end is read and dropped."""
        with contextlib.suppress(Closed):
            while True:
                self._read()
                self._received.clear()

    def expect_silence(self, seconds: float) -> None:
        """Passes if no byte arrives for `seconds`."""
        assert not self._received, f"unexpected: {bytes(self._received[:200])!r}"
        before = self._socket.gettimeout()
        self._socket.settimeout(seconds)
        try:
            got = self._socket.recv(1 << 16)
        except TimeoutError:
            return
        finally:
            self._socket.settimeout(before)
        raise AssertionError(f"expected silence, got {got[:200]!r}" if got else "expected silence, the connection was closed")

    # ---- the text protocol ----

    def store(self, key: bytes, value: bytes, *, command: bytes = b"set", flags: int = 0, expires: int = 0) -> None:
        """Stores a value, which must be accepted."""
        request = b"%s %s %d %d %d\r\n%s\r\n" % (command, key, flags, expires, len(value), value)
        self.ask(request, b"STORED\r\n")

    def fetch(self, key: bytes) -> bytes | None:
        """Returns the value of a key, None if there is none."""
        head = self.ask_line(b"get %s\r\n" % key)
        if head == b"END":
            return None
        word, got_key, _flags, size = head.split(b" ")
        assert (word, got_key) == (b"VALUE", key), f"get {key!r} answered {head!r}"
        value = self.read_exactly(int(size))
        self.expect(b"\r\nEND\r\n", b"the end of " + head)
        return value

    def unique(self, key: bytes) -> int:
        """Returns the cas number of an existing key."""
        head = self.ask_line(b"gets %s\r\n" % key)
        _word, _key, _flags, size, unique = head.split(b" ")
        self.read_exactly(int(size))
        self.expect(b"\r\nEND\r\n", b"the end of " + head)
        return int(unique)

    def statistics(self, group: bytes = b"") -> dict[str, str]:
        """Returns the answer to `stats`, as names and values."""
        self.send(b"stats %s\r\n" % group if group else b"stats\r\n")
        found: dict[str, str] = {}
        while (line := self.read_line()) != b"END":
            word, name, value = line.decode().split(" ", 2)
            assert word == "STAT", f"stats answered {line!r}"
            found[name] = value
        return found

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 18)
        except ConnectionResetError as error:
            raise Closed(str(error)) from None
        if not data:
            raise Closed("end of the stream")
        self._received += data


def _difference(asked: bytes, wanted: bytes, got: bytes) -> str:
    at = len(os.path.commonprefix([wanted, got]))
    about = slice(max(0, at - 20), at + 60)
    return f"asked {asked[:120]!r}: wanted {wanted[about]!r}, got {got[about]!r} at byte {at} of {len(wanted)}"


# ---- the binary protocol (memcached's doc/protocol-binary.txt) ----

REQUEST_MAGIC, ANSWER_MAGIC = 0x80, 0x81
_HEADER = struct.Struct("!BBHBBHIIQ")


@dataclass(frozen=True)
class BinaryAnswer:
    opcode: int
    status: int
    opaque: int
    unique: int
    extras: bytes
    key: bytes
    value: bytes


def binary_request(opcode: int, key: bytes = b"", value: bytes = b"", extras: bytes = b"", *, opaque: int = 0, unique: int = 0) -> bytes:
    body = extras + key + value
    return _HEADER.pack(REQUEST_MAGIC, opcode, len(key), len(extras), 0, 0, len(body), opaque, unique) + body


def read_binary(wire: Wire) -> BinaryAnswer:
    magic, opcode, key_bytes, extras_bytes, _type, status, body_bytes, opaque, unique = _HEADER.unpack(wire.read_exactly(_HEADER.size))
    assert magic == ANSWER_MAGIC, f"an answer starts with {magic:#x}"
    body = wire.read_exactly(body_bytes)
    value_at = extras_bytes + key_bytes
    return BinaryAnswer(opcode, status, opaque, unique, body[:extras_bytes], body[extras_bytes:value_at], body[value_at:])
