# SPDX-License-Identifier: BSL-1.0
"""Every call of aiomcache: Client and FlagClient. Arguments: host, port."""

import asyncio
import sys

import aiomcache
from aiomcache.exceptions import ClientException
from transcript import Transcript, has_names, list_methods, with_unique

HOST, PORT = sys.argv[1], int(sys.argv[2])
LARGE = b"x" * 300_000


async def to_flags(value: object) -> tuple[bytes, int]:
    return str(value).encode(), 3


async def from_flags(value: bytes, flags: int) -> object:
    return (int(value), flags)


def main() -> None:
    loop = asyncio.new_event_loop()
    for kind, handlers in ((aiomcache.Client, {}), (aiomcache.FlagClient, {"get_flag_handler": from_flags, "set_flag_handler": to_flags})):
        clients = [kind(HOST, PORT, pool_size=2, **handlers) for _ in range(4)]
        call = Transcript(clients, loop.run_until_complete)
        store_and_read(call)
        count_and_touch(call)
        if handlers:
            call(True, "set", b"flagged", 17)
            call((17, 3), "get", b"flagged")
            call(((17, 3), None), "multi_get", b"flagged", b"missing")
        at_once = loop.run_until_complete(many_at_once(clients))
        assert at_once == [b"%d" % n for n in range(40)], at_once
        call(has_names(b"pid", b"uptime", b"version", b"curr_items", b"limit_maxbytes", b"cmd_get"), "stats")
        call(has_names(b"maxbytes", b"item_size_max"), "stats", b"settings")
        call(is_version, "version")
        call(True, "set", b"flushed", b"1")
        call(None, "flush_all")
        call(None, "get", b"flushed")
        for client in clients:
            Transcript([client], loop.run_until_complete)(None, "close")
        list_methods(kind, [])
    loop.close()


async def many_at_once(clients: list) -> list[bytes]:
    """Stores on all connections of all clients at once, and returns what another client reads."""
    await asyncio.gather(*(clients[n % 4].set(b"once-%d" % n, b"%d" % n) for n in range(40)))
    return await asyncio.gather(*(clients[(n + 1) % 4].get(b"once-%d" % n) for n in range(40)))


def is_version(answer: object) -> bool:
    return answer.count(b".") >= 1


def store_and_read(call: Transcript) -> None:
    call(True, "set", b"a", b"1")
    call(b"1", "get", b"a")
    call(None, "get", b"missing")
    call(b"other", "get", b"missing", b"other")
    call(True, "set", b"large", LARGE, exptime=100)
    call(LARGE, "get", b"large")
    call(True, "set", b"empty", b"")
    call(b"", "get", b"empty")
    call(False, "add", b"a", b"2")
    call(True, "delete", b"a")
    call(False, "delete", b"a")
    call(True, "add", b"a", b"2", exptime=100)
    call(True, "replace", b"a", b"3")
    call(False, "replace", b"missing", b"3")
    call(True, "append", b"a", b"4")
    call(True, "prepend", b"a", b"2")
    call(False, "append", b"missing", b"4")
    call(False, "prepend", b"missing", b"4")
    call((b"234", None, b""), "multi_get", b"a", b"missing", b"empty")
    _value, unique = call(with_unique(b"234"), "gets", b"a")
    call((None, None), "gets", b"missing")
    call((b"other", None), "gets", b"missing", b"other")
    call(True, "cas", b"a", b"5", unique)
    call(False, "cas", b"a", b"6", unique)
    call(False, "cas", b"missing", b"6", unique, exptime=100)
    call(b"5", "get", b"a")


def count_and_touch(call: Transcript) -> None:
    call(True, "set", b"n", b"10")
    call(15, "incr", b"n", 5)
    call(16, "incr", b"n")
    call(0, "decr", b"n", 20)
    call(ClientException, "incr", b"missing")
    call(ClientException, "decr", b"missing")
    call(True, "set", b"word", b"abc")
    call(ClientException, "incr", b"word", 1)
    call(True, "touch", b"word", 100)
    call(False, "touch", b"missing", 100)
    call(True, "touch", b"word", -1)
    call(None, "get", b"word")


if __name__ == "__main__":
    main()
