# SPDX-License-Identifier: BSL-1.0
"""A full memory: what was used least recently goes, what is used stays, a request that cannot be met is refused, not lost in silence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import NeapServer, Server, StockServer

LIMIT_BYTES = 8 << 20
VALUE = b"v" * 10_000
STORES = 4 * LIMIT_BYTES // len(VALUE)


@pytest.fixture(scope="module")
def small(stock: bool) -> Iterator[Server]:
    """A memcached with 8 MiB, on one core: there, order is one order."""
    # Without its background threads stock memcached keeps one plain list for each size of item.
    server: Server = StockServer("-m", "8", "-o", "no_modern") if stock else NeapServer(memory="256M", arguments=["memory=8M"])
    with server:
        yield server
        server.check()


def test_the_least_recently_stored_goes_first(small: Server) -> None:
    with small.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
        for number in range(STORES):
            wire.store(b"item-%d" % number, VALUE)
        present = [number for number in range(STORES) if wire.fetch(b"item-%d" % number) is not None]
        statistics = wire.statistics()
    assert present, "nothing is left"
    assert present == list(range(present[0], STORES)), "what is left are not the most recent ones"
    assert len(present) * len(VALUE) > LIMIT_BYTES // 2, f"only {len(present)} items were kept in {LIMIT_BYTES} bytes"
    assert len(present) * len(VALUE) <= LIMIT_BYTES, f"{len(present)} items are more than the limit"
    assert int(statistics["limit_maxbytes"]) == LIMIT_BYTES
    assert int(statistics["evictions"]) >= STORES - len(present) - 1
    assert int(statistics["curr_items"]) == len(present)


@pytest.mark.image_only  # stock memcached moves an item at most once a minute
def test_what_is_read_stays(small: Server) -> None:
    with small.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
        wire.store(b"hot", b"still here")
        wire.store(b"cold", b"not read")
        for number in range(STORES):
            wire.store(b"item-%d" % number, VALUE)
            if number % 100 == 0:
                assert wire.fetch(b"hot") == b"still here"
        assert wire.fetch(b"hot") == b"still here"
        assert wire.fetch(b"cold") is None


@pytest.mark.image_only  # stock memcached's slab pages of a megabyte each overshoot so small a limit
def test_values_of_mixed_sizes_never_exceed_the_limit(small: Server) -> None:
    sizes = [100, 1_000_000, 10, 50_000, 3_000, 300_000, 1, 700_000]
    with small.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
        for number in range(400):
            size = sizes[number % len(sizes)] + number
            answer = wire.ask_line(b"set mixed-%d 0 0 %d\r\n" % (number, size) + b"m" * size + b"\r\n")
            assert answer == b"STORED" or answer.startswith(b"SERVER_ERROR out of memory"), answer
        assert int(wire.statistics()["bytes"]) <= LIMIT_BYTES
        # The one just stored is there, whole.
        wire.store(b"last", b"l" * 900_000)
        assert wire.fetch(b"last") == b"l" * 900_000
