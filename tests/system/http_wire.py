# SPDX-License-Identifier: BSL-1.0
"""A client of HTTP/1.1 that shows every byte: for tests of framing, of connections, and of requests that no client library sends.

A response is read by the rules of RFC 9112, strictly. A server that breaks one of them fails the test: an AssertionError names the rule.
"""

from __future__ import annotations

import dataclasses
import re

from wire import Closed, Wire

HEAD_BYTES_MAX = 1 << 20
STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d) ([\t\x20-\x7e\x80-\xff]*)")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")


@dataclasses.dataclass
class Reply:
    """One response. `interim`: the 1xx responses before it, as status and fields. `until_close`: its body ended with the connection."""

    status: int
    reason: str
    fields: list[tuple[str, str]]
    body: bytes = b""
    trailers: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    interim: list[tuple[int, list[tuple[str, str]]]] = dataclasses.field(default_factory=list)
    until_close: bool = False

    def all(self, name: str) -> list[str]:
        """Returns the values of all fields with the name, in any case."""
        return [value for each, value in self.fields if each.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """Returns the value of the only field with the name; None without one."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} is repeated: {values}"
        return values[0] if values else None

    @property
    def closes(self) -> bool:
        """True if the response announces the connection's end."""
        return any("close" in value.lower().split(", ") for value in self.all("connection"))


class HttpWire(Wire):
    """One connection to a web server. A context manager."""

    def request(self, head: str | bytes, body: bytes = b"") -> None:
        """Sends a request whose lines are separated by line feeds in `head`, without the empty line at the end."""
        lines = head.encode("latin-1") if isinstance(head, str) else head
        self.send(lines.strip(b"\n").replace(b"\n", b"\r\n") + b"\r\n\r\n" + body)

    def get(self, target: str = "/", method: str = "GET", fields: str = "") -> Reply:
        """Sends a request without body, and returns its response."""
        self.request(f"{method} {target} HTTP/1.1\nHost: test\n{fields}")
        return self.reply(method)

    def post(self, target: str, body: bytes, fields: str = "") -> Reply:
        self.request(f"POST {target} HTTP/1.1\nHost: test\nContent-Length: {len(body)}\n{fields}", body)
        return self.reply("POST")

    def reply(self, method: str = "GET") -> Reply:
        """Reads the next response to a request with this method. Raises Closed if the connection ends before it is complete."""
        interim = []
        while True:
            reply = self._head()
            if reply.status >= 200 or reply.status == 101:
                break
            assert not reply.all("content-length") and not reply.all("transfer-encoding"), "an interim response has no body"
            interim.append((reply.status, reply.fields))
        reply.interim = interim
        self._body(reply, method)
        return reply

    def closed(self, more: int = 0) -> bool:
        """Waits for the connection's end. Raises AssertionError if more than `more` bytes arrive before it."""
        dropped = 0
        try:
            while True:
                dropped += len(self._received)
                assert dropped <= more, f"bytes after the last response: {bytes(self._received[:200])!r}"
                self._received.clear()
                self._read()
        except Closed:
            return True

    def serves_on(self) -> bool:
        """True if the connection serves another request; False if the server has ended it."""
        try:
            self.request("GET /hello HTTP/1.1\nHost: test")
            return self.reply().status < 500
        except Closed:
            return False

    def _head(self) -> Reply:
        line = self.read_line()
        match = STATUS_LINE.fullmatch(line)
        assert match, f"this is no status line: {line[:200]!r}"
        return Reply(int(match[2]), match[3].decode("latin-1"), self._fields())

    def _fields(self) -> list[tuple[str, str]]:
        fields = []
        total = 0
        while line := self.read_line():
            total += len(line)
            assert total <= HEAD_BYTES_MAX, "a head without end"
            match = FIELD.fullmatch(line)
            assert match, f"this is no field line: {line[:200]!r}"
            fields.append((match[1].decode(), match[2].decode("latin-1")))
        return fields

    def _body(self, reply: Reply, method: str) -> None:
        length, coding = reply.get("content-length"), reply.get("transfer-encoding")
        assert length is None or coding is None, "Content-Length and Transfer-Encoding"
        assert length is None or re.fullmatch(r"\d+", length), f"Content-Length: {length!r}"
        if reply.status in (101, 204, 304) or method == "HEAD":
            assert reply.status != 204 or (length is None and coding is None), "204 with a body's length"
        elif coding is not None:
            assert coding.lower() == "chunked", coding
            reply.body, reply.trailers = self._chunks()
        elif length is not None:
            reply.body = self.read_exactly(int(length))
        else:
            reply.until_close = True
            try:
                while True:
                    self._read()
            except Closed:
                reply.body = bytes(self._received)
                self._received.clear()

    def _chunks(self) -> tuple[bytes, list[tuple[str, str]]]:
        pieces = []
        while True:
            line = self.read_line()
            assert re.fullmatch(rb"[0-9A-Fa-f]{1,15}", line), f"this is no chunk size: {line[:80]!r}"
            size = int(line, 16)
            if size == 0:
                return b"".join(pieces), self._fields()
            pieces.append(self.read_exactly(size))
            assert self.read_exactly(2) == b"\r\n", "a chunk must end with CR LF"
