# SPDX-License-Identifier: BSL-1.0
"""The classic text protocol, byte by byte: the answers that memcached's doc/protocol.txt specifies for each command."""

import time

import pytest
from servers import Server
from wire import Wire

VALUE_BYTES_MAX = 1 << 20


@pytest.fixture
def wire(server: Server):
    with server.connect() as connection:
        connection.ask(b"flush_all\r\n", b"OK\r\n")
        yield connection


def wait_until_gone(wire: Wire, key: bytes, seconds: float) -> float:
    """Returns how long `key` still existed. Raises AssertionError after `seconds`."""
    start = time.monotonic()
    while wire.fetch(key) is not None:
        assert time.monotonic() - start < seconds, f"{key!r} is still there after {seconds} s"
        time.sleep(0.05)
    return time.monotonic() - start


# ---- storing and fetching ----


def test_each_storing_command_has_its_condition(wire: Wire) -> None:
    wire.ask(b"replace k 0 0 1\r\na\r\n", b"NOT_STORED\r\n")
    wire.ask(b"append k 0 0 1\r\na\r\n", b"NOT_STORED\r\n")
    wire.ask(b"prepend k 0 0 1\r\na\r\n", b"NOT_STORED\r\n")
    wire.ask(b"add k 7 0 2\r\nbb\r\n", b"STORED\r\n")
    wire.ask(b"add k 8 0 2\r\ncc\r\n", b"NOT_STORED\r\n")
    wire.ask(b"append k 9 0 1\r\nc\r\n", b"STORED\r\n")
    wire.ask(b"prepend k 9 0 1\r\na\r\n", b"STORED\r\n")
    # Append and prepend keep the existing flags.
    wire.ask(b"get k\r\n", b"VALUE k 7 4\r\nabbc\r\nEND\r\n")
    wire.ask(b"replace k 3 0 3\r\nxyz\r\n", b"STORED\r\n")
    wire.ask(b"get k\r\n", b"VALUE k 3 3\r\nxyz\r\nEND\r\n")


def test_get_of_many_keys_returns_the_stored_ones_in_order(wire: Wire) -> None:
    for number in range(0, 100, 2):
        wire.store(b"many-%d" % number, b"value %d" % number, flags=number)
    keys = [b"many-%d" % number for number in range(100)]
    wanted = b"".join(b"VALUE many-%d %d %d\r\nvalue %d\r\n" % (n, n, len(b"value %d" % n), n) for n in range(0, 100, 2))
    wire.ask(b"get " + b" ".join(keys) + b"\r\n", wanted + b"END\r\n")
    # A line may contain the same key twice.
    wire.ask(b"get many-2 many-2\r\n", b"VALUE many-2 2 7\r\nvalue 2\r\n" * 2 + b"END\r\n")


def test_keys_up_to_250_bytes(wire: Wire) -> None:
    for length in (1, 2, 249, 250):
        key = b"k" * length
        wire.store(key, b"%d" % length)
        assert wire.fetch(key) == b"%d" % length
        wire.ask(b"delete " + key + b"\r\n", b"DELETED\r\n")


@pytest.mark.parametrize("size", [0, 1, 2, 511, 512, 1023, 1024, 1459, 1460, 1461, 4095, 4096, 65535, 65536, 500_000, VALUE_BYTES_MAX])
def test_values_of_all_kinds_of_sizes_are_returned(wire: Wire, size: int) -> None:
    # The value contains CR, LF and "END", so a reader must count bytes to find the value's end.
    value = (b"\r\nEND\r\n\0\xff%d " % size * (size // 8 + 1))[:size]
    wire.store(b"sized", value)
    assert wire.fetch(b"sized") == value


@pytest.mark.parametrize("flags", [0, 1, 65535, 65536, 2**31, 2**32 - 1])
def test_flags_are_32_bits(wire: Wire, flags: int) -> None:
    wire.store(b"flagged", b"x", flags=flags)
    wire.ask(b"get flagged\r\n", b"VALUE flagged %d 1\r\nx\r\nEND\r\n" % flags)


def test_noreply_does_its_work_without_an_answer(wire: Wire) -> None:
    wire.send(b"set n 0 0 1 noreply\r\n1\r\nincr n 4 noreply\r\nappend n 0 0 1 noreply\r\n0\r\n")
    wire.send(b"decr n 1 noreply\r\nprepend n 0 0 1 noreply\r\n7\r\n")
    wire.ask(b"get n\r\n", b"VALUE n 0 3\r\n749\r\nEND\r\n")
    wire.send(b"touch n 100 noreply\r\nreplace n 0 0 1 noreply\r\nz\r\nadd n 0 0 1 noreply\r\ny\r\n")
    wire.ask(b"get n\r\n", b"VALUE n 0 1\r\nz\r\nEND\r\n")
    wire.send(b"delete n noreply\r\nverbosity 1 noreply\r\nflush_all noreply\r\n")
    wire.ask(b"get n\r\n", b"END\r\n")


def test_delete(wire: Wire) -> None:
    wire.ask(b"delete d\r\n", b"NOT_FOUND\r\n")
    wire.store(b"d", b"1")
    wire.ask(b"delete d\r\n", b"DELETED\r\n")
    wire.ask(b"get d\r\n", b"END\r\n")
    # Earlier versions of `delete` took a time as an argument, and some clients still send the time zero.
    wire.store(b"d", b"1")
    wire.ask(b"delete d 0\r\n", b"DELETED\r\n")


# ---- cas ----


def test_cas_stores_only_over_the_version_that_was_read(wire: Wire) -> None:
    wire.ask(b"cas c 0 0 1 1\r\nx\r\n", b"NOT_FOUND\r\n")
    wire.store(b"c", b"first")
    seen = wire.unique(b"c")
    wire.ask(b"cas c 5 0 6 %d\r\nsecond\r\n" % seen, b"STORED\r\n")
    wire.ask(b"cas c 5 0 5 %d\r\nthird\r\n" % seen, b"EXISTS\r\n")
    wire.ask(b"get c\r\n", b"VALUE c 5 6\r\nsecond\r\nEND\r\n")
    wire.send(b"cas c 0 0 5 %d noreply\r\nquiet\r\n" % wire.unique(b"c"))
    assert wire.fetch(b"c") == b"quiet"


@pytest.mark.parametrize("change", [b"set c 0 0 1\r\n9\r\n", b"append c 0 0 1\r\n9\r\n", b"replace c 0 0 1\r\n9\r\n", b"incr c 1\r\n"])
def test_every_change_changes_the_cas_number(wire: Wire, change: bytes) -> None:
    wire.store(b"c", b"1")
    before = wire.unique(b"c")
    assert wire.ask_line(change) in (b"STORED", b"2")
    assert wire.unique(b"c") != before


def test_of_two_racing_cas_one_wins(server: Server, wire: Wire) -> None:
    with server.connect() as other:
        for _ in range(50):
            wire.store(b"race", b"0")
            seen = wire.unique(b"race")
            wire.send(b"cas race 0 0 1 %d\r\na\r\n" % seen)
            other.send(b"cas race 0 0 1 %d\r\nb\r\n" % seen)
            assert sorted([wire.read_line(), other.read_line()]) == [b"EXISTS", b"STORED"]


# ---- incr and decr ----


def test_incr_wraps_at_64_bits_and_decr_stops_at_zero(wire: Wire) -> None:
    wire.store(b"n", b"18446744073709551614")
    wire.ask(b"incr n 1\r\n", b"18446744073709551615\r\n")
    wire.ask(b"incr n 1\r\n", b"0\r\n")
    wire.ask(b"incr n 18446744073709551615\r\n", b"18446744073709551615\r\n")
    wire.ask(b"incr n 10\r\n", b"9\r\n")
    wire.ask(b"decr n 4\r\n", b"5\r\n")
    wire.ask(b"decr n 6\r\n", b"0\r\n")


def test_incr_grows_the_value_and_keeps_flags(wire: Wire) -> None:
    wire.store(b"n", b"9", flags=77)
    wire.ask(b"incr n 1\r\n", b"10\r\n")
    wire.ask(b"get n\r\n", b"VALUE n 77 2\r\n10\r\nEND\r\n")
    wire.ask(b"incr n 999999999999\r\n", b"1000000000009\r\n")
    wire.ask(b"get n\r\n", b"VALUE n 77 13\r\n1000000000009\r\nEND\r\n")


def test_decr_may_leave_the_length_as_it_was(wire: Wire) -> None:
    # If the result has fewer digits than the old value, memcached may append blanks (protocol.txt). The test accepts both forms.
    wire.store(b"n", b"100")
    wire.ask(b"decr n 1\r\n", b"99\r\n")
    assert wire.fetch(b"n") in (b"99", b"99 ")


@pytest.mark.parametrize("value", [b"", b"abc", b"-1", b"1.5", b"12x", b"18446744073709551616", b"9" * 30])
def test_incr_of_a_value_that_is_no_number_is_refused(wire: Wire, value: bytes) -> None:
    wire.store(b"n", value)
    assert wire.ask_line(b"incr n 1\r\n") == b"CLIENT_ERROR cannot increment or decrement non-numeric value"
    assert wire.ask_line(b"decr n 1\r\n") == b"CLIENT_ERROR cannot increment or decrement non-numeric value"
    assert wire.fetch(b"n") == value


def test_incr_and_decr_of_a_missing_key(wire: Wire) -> None:
    wire.ask(b"incr missing 1\r\n", b"NOT_FOUND\r\n")
    wire.ask(b"decr missing 1\r\n", b"NOT_FOUND\r\n")


# ---- expiry ----


def test_an_item_expires(wire: Wire) -> None:
    wire.store(b"short", b"x", expires=2)
    assert wire.fetch(b"short") == b"x"
    # The server's clock counts whole seconds. So an item that expires after 2 s may exist for only a little more than 1 s.
    assert wait_until_gone(wire, b"short", 5) > 0.5
    wire.ask(b"add short 0 0 1\r\ny\r\n", b"STORED\r\n")


def test_a_negative_time_expires_at_once(wire: Wire) -> None:
    wire.store(b"gone", b"x", expires=-1)
    assert wire.fetch(b"gone") is None


def test_times_beyond_30_days_are_dates(wire: Wire) -> None:
    wire.store(b"past", b"x", expires=1_000_000_000)
    assert wire.fetch(b"past") is None
    wire.store(b"future", b"x", expires=int(time.time()) + 1000)
    assert wire.fetch(b"future") == b"x"
    # The machine sets its clock from the host's clock at boot, so an item must expire at a date of the host's clock.
    wire.store(b"soon", b"x", expires=int(time.time()) + 3)
    assert wire.fetch(b"soon") == b"x"
    wait_until_gone(wire, b"soon", 8)


def test_touch_gives_a_new_time(wire: Wire) -> None:
    wire.ask(b"touch t 10\r\n", b"NOT_FOUND\r\n")
    wire.store(b"t", b"x", expires=1)
    wire.store(b"u", b"x")
    wire.ask(b"touch t 100\r\n", b"TOUCHED\r\n")
    wire.ask(b"touch u 1\r\n", b"TOUCHED\r\n")
    wait_until_gone(wire, b"u", 4)
    time.sleep(0.5)
    assert wire.fetch(b"t") == b"x"
    wire.ask(b"touch t -1\r\n", b"TOUCHED\r\n")
    assert wire.fetch(b"t") is None


def test_append_keeps_the_time(wire: Wire) -> None:
    wire.store(b"a", b"x", expires=1)
    wire.ask(b"append a 0 0 1\r\ny\r\n", b"STORED\r\n")
    wait_until_gone(wire, b"a", 4)


# ---- flush_all ----


def test_flush_all_forgets_everything_before_and_nothing_after(wire: Wire) -> None:
    for number in range(100):
        wire.store(b"f%d" % number, b"x")
    # One write has all three commands, so that flush and set happen in the same second of the server's clock.
    wire.ask(b"flush_all\r\nset after 0 0 1\r\ny\r\nget f1 f2 after\r\n", b"OK\r\nSTORED\r\nVALUE after 0 1\r\ny\r\nEND\r\n")
    assert all(wire.fetch(b"f%d" % number) is None for number in range(100))


def test_flush_all_with_a_delay(wire: Wire) -> None:
    wire.store(b"before", b"x")
    wire.ask(b"flush_all 2\r\n", b"OK\r\n")
    assert wire.fetch(b"before") == b"x"
    wait_until_gone(wire, b"before", 6)
    # memcached works in whole seconds: an item stored in the same second as the flush may be flushed too.
    time.sleep(1.1)
    wire.store(b"later", b"x")
    time.sleep(1.2)
    assert wire.fetch(b"later") == b"x"


# ---- other commands ----


def test_version_verbosity_and_quit(server: Server, wire: Wire) -> None:
    assert wire.ask_line(b"version\r\n").startswith(b"VERSION ")
    wire.ask(b"verbosity 1\r\n", b"OK\r\n")
    wire.ask(b"verbosity 0\r\n", b"OK\r\n")
    with server.connect() as other:
        other.send(b"quit\r\n")
        other.expect_closed()


def test_statistics_have_the_names_that_clients_read_and_count(server: Server, wire: Wire) -> None:
    before = wire.statistics()
    names = {"pid", "uptime", "time", "version", "pointer_size", "curr_connections", "total_connections", "cmd_get", "cmd_set", "cmd_flush",
             "get_hits", "get_misses", "delete_hits", "delete_misses", "incr_hits", "incr_misses", "cas_hits", "cas_misses", "cas_badval",
             "bytes", "curr_items", "total_items", "evictions", "limit_maxbytes", "threads", "bytes_read", "bytes_written"}  # fmt: skip
    assert names <= before.keys(), f"missing: {', '.join(sorted(names - before.keys()))}"
    for _ in range(3):
        wire.store(b"counted", b"12345")
    for _ in range(5):
        wire.fetch(b"counted")
    for _ in range(2):
        wire.fetch(b"not-counted")
    wire.ask(b"incr counted 1\r\ndelete counted\r\ndelete counted\r\n", b"12346\r\nDELETED\r\nNOT_FOUND\r\n")
    wire.store(b"stays", b"x" * 1000)
    with server.connect():
        after = wire.statistics()
    wanted = {"cmd_set": 4, "cmd_get": 7, "get_hits": 5, "get_misses": 2, "incr_hits": 1, "delete_hits": 1, "delete_misses": 1}
    assert {name: int(after[name]) - int(before[name]) for name in wanted} == wanted
    assert int(after["total_items"]) - int(before["total_items"]) >= 4
    # Flushed and expired items may be counted until their memory is reused, so the exact values are unknown here.
    assert int(after["curr_items"]) >= 1 and int(after["bytes"]) >= 1000
    assert int(after["bytes_read"]) > int(before["bytes_read"]) and int(after["bytes_written"]) > int(before["bytes_written"])
    assert abs(int(after["time"]) - time.time()) < 5, "the server's wall clock"


def test_uptime_runs(wire: Wire) -> None:
    first = int(wire.statistics()["uptime"])
    time.sleep(2.1)
    assert 1 <= int(wire.statistics()["uptime"]) - first <= 4
