# SPDX-License-Identifier: BSL-1.0
"""Every call of python-binary-memcached, which uses the binary protocol: ReplicatingClient and DistributedClient. Arguments: host, port."""

import sys

import bmemcached
from transcript import Transcript, a_unique, has_names, list_methods, with_unique

SERVER = f"{sys.argv[1]}:{sys.argv[2]}"
LARGE = "x" * 300_000
LOCAL = ["set_servers", "enable_retry_delay"]


def main() -> None:
    for kind in (bmemcached.ReplicatingClient, bmemcached.DistributedClient):
        clients = [kind((SERVER,), socket_timeout=30) for _ in range(4)]
        call = Transcript(clients)
        store_and_read(call)
        unique_numbers(call)
        count(call)
        many(call)
        call(of_server("pid", "uptime", "version", "curr_items", "limit_maxbytes", "cmd_get"), "stats")
        call(of_server("maxbytes", "item_size_max"), "stats", "settings")
        call(True, "set", "flushed", "1")
        call(True, "flush_all")
        call(None, "get", "flushed")
        for client in clients:
            alone = Transcript([client])
            alone(None, "disconnect_all")
            alone(True, "set", "again", "1")
            alone(None, "disconnect_all")
        list_methods(kind, LOCAL)


def of_server(*names: str):
    fits = has_names(*(name.encode() for name in names))
    return lambda answer: list(answer) == [SERVER] and fits({name.encode() if isinstance(name, str) else name for name in answer[SERVER]})


def store_and_read(call: Transcript) -> None:
    for value in ("text", b"bytes", 17, ("a", [1, {"b": None}])):
        call(True, "set", "a", value)
        call(value, "get", "a")
    call(None, "get", "missing")
    call("other", "get", "missing", "other")
    call(True, "set", "large", LARGE, compress_level=0)
    call(LARGE, "get", "large")
    call(True, "set", "large", LARGE, time=100, compress_level=9)
    call(LARGE, "get", "large")
    call(True, "set", "empty", "")
    call("", "get", "empty")
    call(False, "add", "a", "2")
    call(True, "delete", "a")
    call(True, "add", "a", "2", time=100)
    call(True, "replace", "a", "3")
    call(False, "replace", "missing", "3")
    call("3", "get", "a")
    call(True, "delete", "a")
    call(True, "delete", "a")  # True also if there was no item


def unique_numbers(call: Transcript) -> None:
    call(succeeded_with_unique, "set", "u", "1", get_cas=True)
    _value, unique = call(with_unique("1"), "gets", "u")
    call(("1", unique), "get", "u", get_cas=True)
    call((None, None), "gets", "missing")
    call(True, "cas", "u", "2", unique)
    call(False, "cas", "u", "3", unique)
    call(False, "cas", "missing", "3", unique)
    _value, unique = call(with_unique("2"), "gets", "u")
    call(succeeded_with_unique, "cas", "u", "3", unique, get_cas=True)
    call((False, None), "cas", "u", "4", unique, get_cas=True)
    call(succeeded_with_unique, "replace", "u", "4", get_cas=True)
    call((False, None), "add", "u", "5", get_cas=True)
    call(False, "delete", "u", cas=unique)
    _value, unique = call(with_unique("4"), "gets", "u")
    call(True, "delete", "u", cas=unique)
    call(succeeded_with_unique, "add", "u", "5", get_cas=True)


def succeeded_with_unique(answer: object) -> bool:
    return answer[0] is True and a_unique(answer[1])


def count(call: Transcript) -> None:
    call(True, "delete", "n")
    call(10, "incr", "n", 5, default=10, time=100)
    call(15, "incr", "n", 5)
    call(0, "decr", "n", 20)
    call(True, "delete", "n")
    call(7, "decr", "n", 1, default=7)
    call(18446744073709551615, "incr", "big", 1, default=18446744073709551615)
    call(0, "incr", "big", 1)
    call(True, "set", "word", "abc")
    call(bmemcached.exceptions.MemcachedException, "incr", "word", 1)


def many(call: Transcript) -> None:
    values = {f"m{n}": n for n in range(50)}
    call([], "set_multi", values, time=100)
    call(values, "get_multi", [*values, "missing"])
    found = call(all_with_uniques(values), "get_multi", [*values, "missing"], get_cas=True)
    call([("m1", 0)], "set_multi", {("m0", found["m0"][1]): 1, ("m1", found["m1"][1] + 1_000_000): 2})
    call(are_uniques, "set_multi_cas", {"m2": "2", "m3": "3"})
    call(True, "delete_multi", ["m0", "m1", "m2"])
    call({"m3": "3"}, "get_multi", ["m0", "m1", "m2", "m3"])
    call({}, "get_multi", [])


def all_with_uniques(values: dict):
    def has_all_with_uniques(answer: dict) -> bool:
        return {name: value for name, (value, _) in answer.items()} == values and all(a_unique(unique) for _, unique in answer.values())

    return has_all_with_uniques


def are_uniques(answer: dict) -> bool:
    return set(answer) == {"m2", "m3"} and all(map(a_unique, answer.values()))


if __name__ == "__main__":
    main()
