# SPDX-License-Identifier: BSL-1.0
"""Every call of pylibmc, which is libmemcached for Python, in the text and in the binary protocol. Arguments: host, port."""

import sys

import pylibmc
from transcript import Transcript, list_methods, with_unique

SERVER = f"{sys.argv[1]}:{sys.argv[2]}"
LARGE = "x" * 300_000
LOCAL = ["get_behaviors", "set_behaviors", "serialize", "deserialize", "hash"]


def main() -> None:
    for binary in (False, True):
        first = pylibmc.Client([SERVER], binary=binary, behaviors={"cas": True, "tcp_nodelay": True})
        clients = [first, first.clone(), first.clone(), first.clone()]
        call = Transcript(clients)
        store_and_read(call, binary)
        count_and_touch(call)
        many(call)
        dictionary(call)
        pools(first)
        call(has_statistics, "get_stats")
        call(is_of_one_server, "get_stats", "settings")  # the library keeps only the names of the general statistics
        call(True, "set", "flushed", "1")
        call(True, "flush_all")
        call(None, "get", "flushed")
        for client in clients:
            alone = Transcript([client])
            alone(None, "disconnect_all")
            alone(True, "set", "again", "1")
            alone(is_client, "clone")
        list_methods(pylibmc.Client, LOCAL)


def store_and_read(call: Transcript, binary: bool) -> None:
    for value in ("text", b"bytes", 17, 1.5, ("a", [1, {"b": None}])):
        call(True, "set", "a", value)
        call(value, "get", "a")
    call(None, "get", "missing")
    call("other", "get", "missing", "other")
    call(True, "set", "large", LARGE, time=100, min_compress_len=1000)  # with zlib
    call(LARGE, "get", "large")
    call(True, "set", "empty", "")
    call("", "get", "empty")
    call(False, "add", "a", "2")
    call(True, "delete", "a")
    call(True, "add", "a", "b", time=100)
    call(True, "replace", "a", "b")
    call(pylibmc.NotFound if binary else False, "replace", "missing", "b")
    call(True, "append", "a", "c")
    call(True, "prepend", "a", "a")
    call(False, "append", "missing", "c")
    call(False, "prepend", "missing", "c")
    call("abc", "get", "a")
    _value, unique = call(with_unique("abc"), "gets", "a")
    call((None, None), "gets", "missing")
    call(True, "cas", "a", "new", unique)
    call(False, "cas", "a", "newer", unique)
    call(pylibmc.NotFound, "cas", "missing", "newer", unique)
    call("new", "get", "a")
    call(True, "delete", "a")
    call(False, "delete", "a")


def count_and_touch(call: Transcript) -> None:
    call(True, "set", "n", 10)
    call(15, "incr", "n", 5)
    call(16, "incr", "n")
    call(0, "decr", "n", 20)
    call(pylibmc.NotFound, "incr", "missing")
    call(pylibmc.NotFound, "decr", "missing")
    call([], "set_multi", {"n1": 1, "n2": 2})
    call(None, "incr_multi", ["n1", "n2"], delta=5)
    call({"n1": 6, "n2": 7}, "get_multi", ["n1", "n2"])
    call(True, "touch", "n1", 100)
    call(False, "touch", "missing", 100)


def many(call: Transcript) -> None:
    values = {f"m{n}": n for n in range(50)}
    call([], "set_multi", values, time=100, key_prefix="p-")
    call(values, "get_multi", [*values, "missing"], key_prefix="p-")
    call(["m1"], "add_multi", {"m1": 1}, key_prefix="p-")
    call([], "add_multi", {"m50": 50}, key_prefix="p-")
    call(True, "delete_multi", list(values), key_prefix="p-")
    call(False, "delete_multi", ["m50", "missing"], key_prefix="p-")
    call({}, "get_multi", [*values, "m50"], key_prefix="p-")


def dictionary(call: Transcript) -> None:
    call(None, "__setitem__", "d", "1")
    call(True, "__contains__", "d")
    call("1", "__getitem__", "d")
    call(None, "__delitem__", "d")
    call(False, "__contains__", "d")
    call(KeyError, "__getitem__", "d")
    call(KeyError, "__delitem__", "d")


def pools(client: pylibmc.Client) -> None:
    with pylibmc.ClientPool(client, 2).reserve() as pooled:
        Transcript([pooled])(True, "set", "pooled", 1)
    threads = pylibmc.ThreadMappedPool(client)
    with threads.reserve() as mapped:
        Transcript([mapped])(1, "get", "pooled")
    threads.relinquish()


def is_client(answer: object) -> bool:
    return isinstance(answer, pylibmc.Client)


def is_of_one_server(answer: object) -> bool:
    return len(answer) == 1


def has_statistics(answer: object) -> bool:
    return is_of_one_server(answer) and {"pid", "uptime", "version", "curr_items", "limit_maxbytes", "cmd_get"} <= set(answer[0][1])


if __name__ == "__main__":
    main()
