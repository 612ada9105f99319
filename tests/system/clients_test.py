# SPDX-License-Identifier: BSL-1.0
"""Real clients: pymemcache with fifty connections at once, and libmemcached's own capability tests."""

import re

import pymemcache
import pytest
from mixed_load import CLIENT_SECONDS, run_mixed_load
from servers import DebianProgram, Server

from tools.process import finished

CONNECTIONS = 50
OPERATIONS = 20_000
LARGE_VALUES = 100
CAPABILITY_SECONDS = 120
TEXT_CAPABILITIES = 27
BINARY_CAPABILITIES = [
    "noop", "quit", "quitq", "set", "setq", "delete", "deleteq", "get", "getq", "getk", "getkq", "version",
]  # fmt: skip


def test_fifty_connections_lose_and_mix_up_nothing(server: Server) -> None:
    workers = run_mixed_load(server, connections=CONNECTIONS, operations=OPERATIONS, large_values=LARGE_VALUES)
    keys = [key for worker in workers for key in worker.stored]
    assert sum(key.startswith("large-") for key in keys) == LARGE_VALUES
    assert sum(worker.compared for worker in workers) > OPERATIONS // 2
    with server.connect() as wire:
        assert int(wire.statistics()["curr_items"]) >= len(keys)


def test_every_call_of_the_client_library(server: Server) -> None:
    with server.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
    client = pymemcache.Client(server.address, timeout=CLIENT_SECONDS, default_noreply=False)
    assert client.set_many({f"m{n}": b"%d" % n for n in range(50)}) == []
    assert client.get_many([f"m{n}" for n in range(60)]) == {f"m{n}": b"%d" % n for n in range(50)}
    value, unique = client.gets("m1")
    assert value == b"1" and client.cas("m1", b"one", unique) is True
    assert client.cas("m1", b"uno", unique) is False and client.cas("missing", b"x", unique) is None
    assert client.add("m1", b"x") is False and client.replace("m1", b"2") is True
    assert client.append("m1", b"3") and client.prepend("m1", b"1") and client.get("m1") == b"123"
    assert client.incr("m1", 7) == 130 and client.decr("m1", 1000) == 0 and client.incr("missing", 1) is None
    assert client.touch("m1", 100) is True and client.touch("missing", 1) is False
    assert client.delete("m1") is True and client.delete("m1") is False
    assert client.delete_many(["m2", "m3"]) is True and client.get("m2") is None
    assert b"version" in client.stats() and client.version()
    assert client.flush_all() is True and client.get("m4") is None
    client.close()


def capability_tests(server: Server, *options: str) -> dict[str, str]:
    """Runs memccapable (elsewhere named memcapable). Returns each test's result by its name. The program deletes all items of the
    server."""
    host, port = server.address
    argv = [*DebianProgram("libmemcached-tools", "memccapable").argv, "-h", host, "-p", str(port), "-t", "20", *options]
    done = finished(argv, CAPABILITY_SECONDS)
    outcomes = dict(re.findall(r"^((?:ascii|binary) [a-z ]+?)\s+\[(\w+)\]", done.stdout, re.MULTILINE))
    assert outcomes, f"memccapable printed no outcome:\n{done.stdout}{done.stderr}"
    return outcomes


def test_all_text_capabilities_of_libmemcached(server: Server) -> None:
    outcomes = capability_tests(server, "-a")
    assert len(outcomes) == TEXT_CAPABILITIES
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "pass"} == {}


@pytest.mark.parametrize("name", BINARY_CAPABILITIES)
def test_binary_capability_of_libmemcached(server: Server, name: str) -> None:
    assert capability_tests(server, "-b", "-T", f"binary {name}") == {f"binary {name}": "pass"}
