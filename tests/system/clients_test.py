# SPDX-License-Identifier: BSL-1.0
"""Real clients: pymemcache with fifty connections at once, and libmemcached's own capability tests."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest
from linux_guest import packages
from servers import DebianProgram, Server

CONNECTIONS = 50
OPERATIONS = 20_000
LARGE_VALUES = 100
LARGE_BYTES = 1 << 20
SMALL_BYTES_MAX = 8 << 10
CLIENT_SECONDS = 60
CAPABILITY_SECONDS = 120
TEXT_CAPABILITIES = 27
BINARY_CAPABILITIES = [
    "noop", "quit", "quitq", "set", "setq", "delete", "deleteq", "get", "getq", "getk", "getkq", "version",
]  # fmt: skip


@pytest.fixture(scope="module")
def pymemcache():
    """The client library, from Debian's packages (python3-six is what its older versions need)."""
    root = packages.unpacked("python3-pymemcache", "python3-six")
    sys.path.append(str(root / "usr/lib/python3/dist-packages"))
    try:
        import pymemcache
    finally:
        sys.path.pop()
    return pymemcache


@dataclass
class Stored:
    """What a key holds, as the seed and size that its value is made from."""

    seed: int
    size: int

    def value(self) -> bytes:
        return random.Random(self.seed).randbytes(self.size)


class Worker:
    """One client with keys of its own, and the record of what they must hold."""

    def __init__(self, number: int, pymemcache, server: Server) -> None:
        self.number = number
        self.stored: dict[str, Stored] = {}
        self.compared = 0
        self.failure: BaseException | None = None
        self._random = random.Random(number)
        self._client = pymemcache.Client(server.address, connect_timeout=CLIENT_SECONDS, timeout=CLIENT_SECONDS, no_delay=True)

    def run(self, everybody_connected: threading.Barrier) -> None:
        try:
            self._client.version()
            everybody_connected.wait(CLIENT_SECONDS)
            operations = OPERATIONS // CONNECTIONS
            large_at = set(self._random.sample(range(operations), LARGE_VALUES // CONNECTIONS))
            for step in range(operations):
                if step in large_at:
                    self._set(f"large-{self.number}-{step}", LARGE_BYTES)
                elif self._random.random() < 0.4 or not self.stored:
                    # Spread evenly over the orders of magnitude, so that one-byte values come as often as large ones.
                    size = min(SMALL_BYTES_MAX, int(2 ** self._random.uniform(0, 13.01)))
                    self._set(f"key-{self.number}-{self._random.randrange(120)}", size)
                else:
                    self._compare(self._random.choice(list(self.stored)))
        except BaseException as error:
            self.failure = error

    def compare_all(self) -> None:
        for key in self.stored:
            self._compare(key)
        self._client.close()

    def _set(self, key: str, size: int) -> None:
        record = Stored(self._random.getrandbits(48), size)
        assert self._client.set(key, record.value(), noreply=False), f"set {key} of {size} bytes was refused"
        self.stored[key] = record

    def _compare(self, key: str) -> None:
        got = self._client.get(key)
        wanted = self.stored[key].value()
        assert got == wanted, f"{key}: {'missing' if got is None else f'{len(got)} bytes that differ'}, {len(wanted)} bytes were stored"
        self.compared += 1


def test_fifty_connections_lose_and_mix_up_nothing(server: Server, pymemcache) -> None:
    workers = [Worker(number, pymemcache, server) for number in range(CONNECTIONS)]
    barrier = threading.Barrier(CONNECTIONS)
    threads = [threading.Thread(target=worker.run, args=(barrier,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
        assert not thread.is_alive(), "a client hangs"
    for worker in workers:
        if worker.failure is not None:
            raise AssertionError(f"client {worker.number}: {worker.failure}") from worker.failure
    for worker in workers:
        worker.compare_all()
    keys = [key for worker in workers for key in worker.stored]
    assert sum(key.startswith("large-") for key in keys) == LARGE_VALUES
    assert sum(worker.compared for worker in workers) > OPERATIONS // 2
    with server.connect() as wire:
        assert int(wire.statistics()["curr_items"]) >= len(keys)


def test_every_call_of_the_client_library(server: Server, pymemcache) -> None:
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
    """Runs memccapable (memcapable elsewhere); the outcome of each test by its name. It flushes the server."""
    host, port = server.address
    argv = [*DebianProgram("libmemcached-tools", "memccapable").argv, "-h", host, "-p", str(port), "-t", "20", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=CAPABILITY_SECONDS, check=False)
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
