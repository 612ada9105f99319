# SPDX-License-Identifier: BSL-1.0
"""Requests that two servers in a row might read in two ways (RFC 9112, section 11.2), and requests beyond limits.

Each is refused with one response, and the connection ends. `SECOND` is what a smuggler hides: no response to it may ever come.
"""

from __future__ import annotations

import dataclasses

SECOND = b"GET /number?n=666 HTTP/1.1\r\nHost: hidden\r\n\r\n"
POST = b"POST /length HTTP/1.1\r\nHost: test\r\n"
GET = b"GET /hello HTTP/1.1\r\nHost: test\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclasses.dataclass(frozen=True)
class Refused:
    """`by_node`: the status of Node 20, if it is another one. 0: Node
    ends the connection without a response."""

    name: str
    sent: bytes
    status: int = 400
    by_node: int | None = None

    @property
    def node_status(self) -> int:
        return self.status if self.by_node is None else self.by_node


def length(*values: bytes) -> bytes:
    return POST + b"".join(b"Content-Length: %s\r\n" % value for value in values) + b"\r\n"


def coding(value: bytes, name: bytes = b"Transfer-Encoding:") -> bytes:
    return POST + name + value + b"\r\n\r\n0\r\n\r\n"


SMUGGLING = [
    # Two framings
    Refused("Content-Length and Transfer-Encoding", POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    Refused("Transfer-Encoding and Content-Length", POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"),
    Refused("two lengths", length(b"4", b"5") + b"body"),
    Refused("the same length twice", length(b"4", b"4") + b"body"),
    Refused("a list of lengths", length(b"4, 4") + b"body"),
    Refused("a list of one length", length(b"4,") + b"body"),
    Refused("a length with a sign", length(b"+4") + b"body"),
    Refused("a negative length", length(b"-4") + b"body"),
    Refused("a hexadecimal length", length(b"0x4") + b"body"),
    Refused("a length with a point", length(b"4.0") + b"body"),
    Refused("an empty length", length(b"") + b"body"),
    Refused("a length with a space", length(b"1 4") + b"body"),
    Refused("a length beyond 64 bits", length(b"18446744073709551620") + b"body"),
    Refused("two codings", coding(b" chunked, chunked")),
    Refused("identity", coding(b" identity")),
    Refused("chunked is not last", coding(b" chunked, identity")),
    Refused("gzip before chunked", coding(b" gzip, chunked"), 501, by_node=200),
    Refused("another coding", coding(b" xchunked")),
    Refused("a coding with a vertical tab", coding(b"\x0bchunked")),
    Refused("a coding in quotes", coding(b' "chunked"')),
    Refused("a space before the colon", coding(b" chunked", b"Transfer-Encoding :")),
    Refused("two fields of codings", POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    Refused("Transfer-Encoding in HTTP/1.0", CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n"),
    # Ends of lines
    Refused("LF after the request line", b"GET /hello HTTP/1.1\nHost: test\r\n\r\n"),
    Refused("LF after a field", GET + b"A: 1\nB: 2\r\n\r\n"),
    Refused("LF at the head's end", GET + b"A: 1\r\n\n"),
    Refused("CR within a value", GET + b"A: 1\rB: 2\r\n\r\n"),
    Refused("NUL within a value", GET + b"A: 1\x002\r\n\r\n"),
    Refused("a folded line", GET + b"A: 1\r\n 2\r\n\r\n"),
    Refused("a folded first line", b"GET /hello HTTP/1.1\r\n Host: test\r\n\r\n"),
    Refused("LF before the request", b"\n" + GET + b"\r\n", by_node=200),
    # Chunks
    Refused("a chunk size with a prefix", CHUNKED + b"0x4\r\nbody\r\n0\r\n\r\n"),
    Refused("a negative chunk", CHUNKED + b"-4\r\nbody\r\n0\r\n\r\n"),
    Refused("a space before the chunk size", CHUNKED + b" 4\r\nbody\r\n0\r\n\r\n"),
    Refused("no chunk size", CHUNKED + b"\r\nbody\r\n0\r\n\r\n"),
    Refused("a chunk size beyond 64 bits", CHUNKED + b"10000000000000004\r\nbody\r\n0\r\n\r\n"),
    Refused("LF after the chunk size", CHUNKED + b"4\nbody\r\n0\r\n\r\n"),
    Refused("LF after the chunk", CHUNKED + b"4\r\nbody\n0\r\n\r\n"),
    Refused("a chunk that is too long", CHUNKED + b"4\r\nbody!\r\n0\r\n\r\n"),
    Refused("CR in a chunk extension", CHUNKED + b"4;a\rb\r\nbody\r\n0\r\n\r\n"),
    Refused("LF in a chunk extension", CHUNKED + b"4;a\nb\r\nbody\r\n0\r\n\r\n"),
    Refused("a trailer with a space in its name", CHUNKED + b"0\r\nBad Name: 1\r\n\r\n"),
    # Fields
    Refused("no Host", b"GET /hello HTTP/1.1\r\n\r\n"),
    Refused("two Hosts", GET + b"Host: other\r\n\r\n", by_node=200),
    Refused("a Host with a space", b"GET /hello HTTP/1.1\r\nHost: a b\r\n\r\n", by_node=200),
    Refused("a field without colon", GET + b"Nothing\r\n\r\n"),
    Refused("a field without name", GET + b": 1\r\n\r\n"),
    Refused("a space in a name", GET + b"A B: 1\r\n\r\n"),
    Refused("a letter beyond ASCII in a name", GET + b"\xc3\xa4: 1\r\n\r\n"),
    # Request lines
    Refused("a target without slash", b"GET hello HTTP/1.1\r\nHost: test\r\n\r\n"),
    Refused("a target with a space", b"GET /hello /other HTTP/1.1\r\nHost: test\r\n\r\n"),
    Refused("a target with a control character", b"GET /he\x01llo HTTP/1.1\r\nHost: test\r\n\r\n"),
    Refused("tabs in the request line", b"GET\t/hello\tHTTP/1.1\r\nHost: test\r\n\r\n"),
    Refused("no version", b"GET /hello\r\nHost: test\r\n\r\n", 505, by_node=200),
    Refused("HTTP/0.9", b"GET /hello HTTP/0.9\r\nHost: test\r\n\r\n", 505, by_node=200),
    Refused("HTTP/2.0", b"GET /hello HTTP/2.0\r\nHost: test\r\n\r\n", 505, by_node=200),
    Refused("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, by_node=400),
    Refused("CONNECT", b"CONNECT test:443 HTTP/1.1\r\nHost: test:443\r\n\r\n", 501, by_node=0),
    Refused("a method that HTTP does not have", b"FROBNICATE /hello HTTP/1.1\r\nHost: test\r\n\r\n", 501, by_node=400),
    Refused("a method in small letters", b"get /hello HTTP/1.1\r\nHost: test\r\n\r\n", 501, by_node=400),
    Refused("an unknown expectation", GET + b"Expect: 200-ok\r\n\r\n", 417),
    Refused("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(1, 200)) + b"\r\n\r\n"),
]

LIMITS = [
    Refused("a long head", GET + b"X-Long: %s\r\n\r\n" % (b"l" * 17_000), 431),
    Refused("a head without end", GET + b"X-Long: " + b"l" * 40_000, 431),
    Refused("many fields", GET + b"a:\r\n" * 2100 + b"\r\n", 431, by_node=200),
    Refused("a long target", b"GET /%s HTTP/1.1\r\nHost: test\r\n\r\n" % (b"t" * 9000), 414, by_node=404),
    Refused("a target without end", b"GET /" + b"t" * 40_000, 414, by_node=431),
    Refused("empty lines without end", b"\r\n" * 40_000, 431, by_node=200),
    Refused("a flood of chunk extensions", CHUNKED + b"1;%s\r\nx\r\n" % (b"e" * 900) * 40 + b"0\r\n\r\n", 413, by_node=200),
    Refused("one long chunk extension", CHUNKED + b"1;" + b"e" * 40_000, 413),
    Refused("long trailers", CHUNKED + b"0\r\nX-Long: %s\r\n\r\n" % (b"l" * 17_000), 431),
    Refused("many trailers", CHUNKED + b"0\r\n" + b"a:\r\n" * 2100 + b"\r\n", 431, by_node=200),
]
