# SPDX-License-Identifier: BSL-1.0
"""A full memory: the least recently used item is evicted, used items stay, and a request that does not fit is refused with an error."""

import time
from collections.abc import Iterator

import pytest
from servers import NeapServer, Server, StockServer

LIMIT_BYTES = 8 << 20
VALUE = b"v" * 10_000
STORES = 2 * LIMIT_BYTES // len(VALUE)


@pytest.fixture(scope="module")
def small(stock: bool) -> Iterator[Server]:
    """A memcached with 8 MiB on one core, so that there is one eviction order."""
    # Without its background threads, stock memcached keeps one plain LRU list for each item size.
    server: Server = StockServer("-m", "8", "-o", "no_modern") if stock else NeapServer(cores=1, memory="256M", arguments=["memory=8M"])
    with server:
        yield server
        server.check()


def test_the_least_recently_stored_goes_first(small: Server) -> None:
    """Three generations of items take 1.8 times the limit. They are stored more than a second apart, because use times are in seconds."""
    generation = LIMIT_BYTES * 6 // 10 // len(VALUE)
    with small.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
        for name in (b"old", b"middle", b"new"):
            for number in range(generation):
                wire.store(b"%s-%d" % (name, number), VALUE)
            time.sleep(2.1)
        left = {}
        for name in (b"old", b"middle", b"new"):
            left[name] = sum(wire.fetch(b"%s-%d" % (name, number)) is not None for number in range(generation))
        statistics = wire.statistics()
    assert left[b"old"] == 0 < left[b"middle"] < generation == left[b"new"], left
    kept_bytes = sum(left.values()) * len(VALUE)
    assert LIMIT_BYTES * 3 // 4 < kept_bytes <= LIMIT_BYTES, f"{kept_bytes} bytes of values were kept in {LIMIT_BYTES}"
    assert int(statistics["limit_maxbytes"]) == LIMIT_BYTES
    assert int(statistics["evictions"]) >= 3 * generation - sum(left.values())
    assert int(statistics["curr_items"]) == sum(left.values())


@pytest.mark.image_only  # stock memcached updates the time of an item's last use at most once a minute
def test_an_item_that_is_read_stays(small: Server) -> None:
    """The store compares the times of last uses in whole seconds. So the values are stored over several seconds."""
    with small.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
        wire.store(b"hot", b"still here")
        wire.store(b"cold", b"not read")
        for number in range(STORES):
            wire.store(b"item-%d" % number, VALUE)
            if number % 100 == 0:
                assert wire.fetch(b"hot") == b"still here"
            if number % 300 == 299:
                time.sleep(1.1)
        assert wire.fetch(b"hot") == b"still here"
        assert wire.fetch(b"cold") is None


@pytest.mark.image_only  # stock memcached's slab pages have a megabyte each, so it exceeds so small a limit
def test_values_of_mixed_sizes_never_exceed_the_limit(small: Server) -> None:
    sizes = [100, 1_000_000, 10, 50_000, 3_000, 300_000, 1, 700_000]
    with small.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
        for number in range(400):
            size = sizes[number % len(sizes)] + number
            answer = wire.ask_line(b"set mixed-%d 0 0 %d\r\n" % (number, size) + b"m" * size + b"\r\n")
            assert answer == b"STORED" or answer.startswith(b"SERVER_ERROR out of memory"), answer
        assert int(wire.statistics()["bytes"]) <= LIMIT_BYTES
        # A value that was just stored is complete.
        wire.store(b"last", b"l" * 900_000)
        assert wire.fetch(b"last") == b"l" * 900_000


@pytest.mark.image_only  # stock memcached runs without its crawler here
def test_expired_items_are_freed_without_a_request(small: Server) -> None:
    """The flushed items of earlier tests still fill the memory. Items of this test that are as old as they are, in whole seconds, could be
    evicted before them."""
    with small.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
        time.sleep(1.1)
        wire.store(b"stays", VALUE)
        items = int(wire.statistics()["curr_items"])
        for number in range(100):
            wire.store(b"expires-%d" % number, VALUE, expires=1)
        for _ in range(100):
            if int(wire.statistics()["curr_items"]) <= items:
                break
            time.sleep(0.1)
        # The flushed items may be freed, too.
        assert 1 <= int(wire.statistics()["curr_items"]) <= items
        assert wire.fetch(b"stays") == VALUE
