# SPDX-License-Identifier: BSL-1.0
"""The largest value that memcached's options allow, stored and fetched on a machine with four cores."""

import pytest
from servers import NeapServer

pytestmark = pytest.mark.image_only

VALUE_BYTES = 128 << 20
PIECE_BYTES = 1 << 20
WORDS = ["max-item-size=128m", "memory-limit=600"]
SECONDS = 120.0


def block(number: int) -> bytes:
    """Blocks differ, and repeat after a prime number of bytes, so exchanged or shifted pieces are noticed."""
    pattern = b"%09d" % number + bytes(range(256))[: 251 - 9]
    return (pattern * (PIECE_BYTES // len(pattern) + 1))[:PIECE_BYTES]


def test_the_largest_value_comes_back_whole() -> None:
    with NeapServer(cores=4, memory="1G", arguments=WORDS) as server, server.connect(SECONDS) as wire:
        wire.send(b"set large 7 0 %d\r\n" % VALUE_BYTES)
        for number in range(VALUE_BYTES // PIECE_BYTES):
            wire.send(block(number))
        wire.ask(b"\r\n", b"STORED\r\n")
        with server.connect() as other:  # another core may serve this connection
            other.store(b"small", b"x")
        wire.send(b"get large\r\n")
        assert wire.read_line() == b"VALUE large 7 %d" % VALUE_BYTES
        for number in range(VALUE_BYTES // PIECE_BYTES):
            assert wire.read_exactly(PIECE_BYTES) == block(number), f"piece {number} differs"
        wire.expect(b"\r\nEND\r\n")
        wire.ask(b"append large 0 0 1\r\nx\r\n", b"SERVER_ERROR object too large for cache\r\n")
        wire.ask(b"delete large\r\n", b"DELETED\r\n")
        assert wire.fetch(b"small") == b"x"
