# SPDX-License-Identifier: BSL-1.0
"""Damaged streams of HTTP for `./neap soak web`: requests, valid and hostile, joined and then changed at random. The same for the same
seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

STREAM_BYTES_MAX = 60_000
TOKENS = (
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\0", b" ", b"\t", b":", b";", b",", b"\xff", b"0\r\n\r\n", b"Content-Length: 5\r\n",
    b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Host: a\r\n",
    b"Connection: close\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"Expect: 100-continue\r\n", b"HTTP/1.0", b"HTTP/1.1",
    b"HTTP/2.0", b"ffffffffffffffff\r\n", b"-1", b"0x", b'1;a="b\r\nc"\r\n', b"GET / HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"%00", b"*",
)  # fmt: skip


def stream(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Returns up to STREAM_BYTES_MAX bytes: some requests in a row, most of them with a few changes."""
    data = bytearray()
    for _ in range(chance.choice((1, 1, 2, 5, 20, 60))):
        data += chance.choice(corpus)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4, 10))):
        if data:
            chance.choice(CHANGES)(chance, data)
    return bytes(data[:STREAM_BYTES_MAX])


def pieces(chance: random.Random, data: bytes) -> list[bytes]:
    """Returns the stream in the pieces in which it is sent: mostly one."""
    count = chance.choice((0, 0, 0, 1, 2, 5))
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(count))
    return [data[first:end] for first, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if first < end]


def _flip(chance: random.Random, data: bytearray) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _replace(chance: random.Random, data: bytearray) -> None:
    data[chance.randrange(len(data))] = chance.randrange(256)


def _insert(chance: random.Random, data: bytearray) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = chance.choice(TOKENS)


def _insert_line(chance: random.Random, data: bytearray) -> None:
    """Inserts a token where a line begins, which the parser reads further than a token anywhere."""
    starts = [at + 2 for at in range(len(data)) if data[at : at + 2] == b"\r\n"] or [0]
    at = chance.choice(starts)
    data[at:at] = chance.choice(TOKENS)


def _remove(chance: random.Random, data: bytearray) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.choice((1, 1, 2, 10, 100))]


def _repeat(chance: random.Random, data: bytearray) -> None:
    at = chance.randrange(len(data))
    part = data[at : at + chance.choice((1, 4, 30, 200))]
    data[at:at] = part * chance.choice((1, 2, 50))


def _end(chance: random.Random, data: bytearray) -> None:
    del data[chance.randrange(len(data)) :]


def _move(chance: random.Random, data: bytearray) -> None:
    at = chance.randrange(len(data))
    part = data[at : at + 40]
    del data[at : at + 40]
    to = chance.randrange(len(data) + 1)
    data[to:to] = part


CHANGES: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _flip, _replace, _insert, _insert_line, _insert_line, _remove, _repeat, _end, _move,
)  # fmt: skip
