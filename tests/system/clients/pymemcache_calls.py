# SPDX-License-Identifier: BSL-1.0
"""Every call of pymemcache: Client, PooledClient, HashClient and RetryingClient. Arguments: host, port."""

import sys

from pymemcache import Client, HashClient, PooledClient
from pymemcache.client.retrying import RetryingClient
from pymemcache.exceptions import MemcacheClientError, MemcacheUnknownCommandError
from transcript import Transcript, a_unique, has_names, list_methods, with_unique

ADDRESS = (sys.argv[1], int(sys.argv[2]))
SECONDS = 30
LARGE = b"x" * 300_000


def main() -> None:
    for kind, clients in (
        (Client, [Client(ADDRESS, timeout=SECONDS, default_noreply=False) for _ in range(4)]),
        (PooledClient, [PooledClient(ADDRESS, timeout=SECONDS, default_noreply=False, max_pool_size=2) for _ in range(4)]),
        (HashClient, [HashClient([ADDRESS], timeout=SECONDS, default_noreply=False, use_pooling=True) for _ in range(4)]),
    ):
        call_everything(kind, clients)
    plain = [Client(ADDRESS, timeout=SECONDS, default_noreply=False) for _ in range(4)]
    call_everything(RetryingClient, [RetryingClient(client, attempts=2) for client in plain], of=Client)


def call_everything(kind: type, clients: list, of: type | None = None) -> None:
    call = Transcript(clients)
    is_hash = kind is HashClient
    store_and_read(call)
    count_and_touch(call)
    read_many(call, is_hash)
    without_reply(clients, is_hash)
    if not is_hash:
        dictionary(clients)
    local = ["check_key", "client_class"]
    if is_hash:
        local = ["client_class", "remove_server"]  # only a server that has failed can be removed
        for client in clients[1:] + clients[:1]:
            Transcript([client])(None, "add_server", ADDRESS)
    else:
        call(has_names(b"pid", b"uptime", b"version", b"curr_items", b"limit_maxbytes", b"cmd_get"), "stats")
        call(has_names(b"maxbytes", b"item_size_max"), "stats", "settings")
        call(is_version, "version")
        call(is_raw_version, "raw_command", b"version")
        if kind is not PooledClient:
            call(True, "cache_memlimit", 256)
        call(MemcacheUnknownCommandError, "shutdown")  # off without an option of the server
        call(MemcacheUnknownCommandError, "shutdown", graceful=True)
        call(b"STORED", "raw_command", "set raw 5 0 3\r\nabc")
        call(b"VALUE raw 5 3\r\nabc\r\n", "raw_command", b"get raw", end_tokens=b"END\r\n")
    call(True, "set", "flushed", b"1")
    call(None if is_hash else True, "flush_all")
    call(None, "get", "flushed")
    for client in clients:
        alone = Transcript([client])
        alone(None, "quit")
        alone(True, "set", "after-quit", b"1")  # the client connects again
        alone(None, "disconnect_all" if kind is not PooledClient else "close")
        alone(b"1", "get", "after-quit")
        alone(None, "close")
        if kind is PooledClient:
            alone(None, "disconnect_all")
    list_methods(of or kind, local)


def is_version(answer: object) -> bool:
    return isinstance(answer, bytes) and answer.count(b".") >= 1


def is_raw_version(answer: object) -> bool:
    return answer.startswith(b"VERSION ")


def store_and_read(call: Transcript) -> None:
    call(True, "set", "a", b"1", expire=0, flags=7)
    call(b"1", "get", "a")
    call(None, "get", "missing")
    call(b"other", "get", "missing", default=b"other")
    call(False, "add", "a", b"2")
    call(True, "add", "b", b"2", expire=100)
    call(True, "replace", "b", b"3")
    call(False, "replace", "missing", b"3")
    call(True, "append", "b", b"4")
    call(True, "prepend", "b", b"2")
    call(b"234", "get", "b")
    call(False, "append", "missing", b"4")
    call(False, "prepend", "missing", b"4")
    _value, unique = call(with_unique(b"234"), "gets", "b")
    call((None, None), "gets", "missing")
    call(True, "cas", "b", b"five", unique)
    call(False, "cas", "b", b"six", unique)
    call(None, "cas", "missing", b"six", unique)
    call(b"five", "get", "b")
    call(True, "set", "large", LARGE)
    call(LARGE, "get", "large")
    call(True, "set", "empty", b"")
    call(b"", "get", "empty")
    call(True, "delete", "b")
    call(False, "delete", "b")
    call(None, "get", "b")


def count_and_touch(call: Transcript) -> None:
    call(True, "set", "n", b"10")
    call(15, "incr", "n", 5)
    call(0, "decr", "n", 20)
    call(None, "incr", "missing", 1)
    call(None, "decr", "missing", 1)
    call(True, "set", "n", b"18446744073709551615")
    call(0, "incr", "n", 1)
    call(True, "set", "word", b"abc")
    call(MemcacheClientError, "incr", "word", 1)
    call(True, "touch", "word", 100)
    call(False, "touch", "missing", 100)
    call(True, "touch", "word", -1)
    call(None, "get", "word")


def read_many(call: Transcript, is_hash: bool) -> None:
    values = {f"m{n}": b"%d" % n for n in range(50)}
    names = [*values, "missing"]
    call([], "set_many", values)
    call([], "set_multi", {"m50": b"50"})
    call(values, "get_many", names)
    call(values, "get_multi", names)
    call(all_with_uniques(values), "gets_many", names)
    if is_hash:
        call(all_with_uniques(values), "gets_multi", names)
    call(True, "delete_many", ["m0", "m1"])
    call(True, "delete_multi", ["m2", "missing"])
    call({"m3": b"3"}, "get_many", ["m0", "m1", "m2", "m3"])


def all_with_uniques(values: dict):
    def has_all_with_uniques(answer: dict) -> bool:
        return {name: value for name, (value, _) in answer.items()} == values and all(a_unique(unique) for _, unique in answer.values())

    return has_all_with_uniques


def without_reply(clients: list, is_hash: bool) -> None:
    # A later call sees the effect only on the same connection.
    call = Transcript(clients[:1])
    call(True, "set", "q", b"1", noreply=True)
    call(b"1", "get", "q")
    call(True, "add", "q", b"2", noreply=True)
    call(True, "replace", "q", b"3", noreply=True)
    call(True, "append", "q", b"4", noreply=True)
    call(True, "prepend", "q", b"2", noreply=True)
    call(b"234", "get", "q")
    _value, unique = call(with_unique(b"234"), "gets", "q")
    call(True, "cas", "q", b"10", unique, noreply=True)
    call(None, "incr", "q", 5, noreply=True)
    call(None, "decr", "q", 1, noreply=True)
    call(b"14", "get", "q")
    call(True, "touch", "q", 100, noreply=True)
    call([], "set_many", {"q1": b"1", "q2": b"2"}, noreply=True)
    call({"q1": b"1", "q2": b"2"}, "get_many", ["q1", "q2"])
    call(True, "delete_many", ["q1", "q2"], noreply=True)
    call(True, "delete", "q", noreply=True)
    call({}, "get_many", ["q", "q1", "q2"])
    call(None if is_hash else True, "flush_all", noreply=True)


def dictionary(clients: list) -> None:
    call = Transcript(clients[:1])  # these calls do not wait for a reply
    call(None, "__setitem__", "d", b"1")
    call(b"1", "__getitem__", "d")
    call(None, "__delitem__", "d")
    call(KeyError, "__getitem__", "d")


if __name__ == "__main__":
    main()
