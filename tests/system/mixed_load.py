# SPDX-License-Identifier: BSL-1.0
"""Sets and gets by pymemcache from many connections at once, every value compared with what was stored.

Each client has its own keys, and makes each value from a seed that no other client uses. So a lost update, a mixed-up key, a torn or stale
value, and a byte of another connection all show as a difference.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pymemcache
from servers import CONNECT_PAUSE_SECONDS, Server

SMALL_BYTES_MAX = 8 << 10
LARGE_BYTES = 1 << 20
CLIENT_SECONDS = 60.0
LOAD_SECONDS = 300.0
KEYS_PER_CLIENT = 120
SET_SHARE = 0.4


@dataclass(frozen=True)
class Stored:
    """The value of a key, as the seed and size that it is made from."""

    seed: int
    size: int

    def value(self) -> bytes:
        return random.Random(self.seed).randbytes(self.size)


class Worker:
    """One client on one connection, and the expected values of its keys."""

    def __init__(self, number: int, operations: int, large_values: int, server: Server) -> None:
        self.number = number
        self.stored: dict[str, Stored] = {}
        self.compared = 0
        self._random = random.Random(number)
        self._operations = operations
        self._large_at = set(self._random.sample(range(operations), large_values))
        self._client = pymemcache.Client(server.address, connect_timeout=CLIENT_SECONDS, timeout=CLIENT_SECONDS, no_delay=True)

    def connect(self) -> None:
        self._client.version()

    def run(self) -> None:
        for step in range(self._operations):
            if step in self._large_at:
                self._set(f"large-{self.number}-{step}", LARGE_BYTES)
            elif self._random.random() < SET_SHARE or not self.stored:
                # The sizes are spread evenly over the orders of magnitude, so that one-byte values are as frequent as large ones.
                size = min(SMALL_BYTES_MAX, int(2 ** self._random.uniform(0, 13.01)))
                self._set(f"key-{self.number}-{self._random.randrange(KEYS_PER_CLIENT)}", size)
            else:
                self._compare(self._random.choice(list(self.stored)))

    def compare_all(self) -> None:
        for key in self.stored:
            self._compare(key)

    def close(self) -> None:
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


def run_mixed_load(server: Server, *, connections: int, operations: int, large_values: int) -> list[Worker]:
    """Runs `operations` sets and gets over all connections, `large_values` of them sets of 1 MiB, then reads every key once more. Raises
    AssertionError at the first difference, error or hang."""
    workers = [Worker(number, operations // connections, large_values // connections, server) for number in range(connections)]
    try:
        # The workers connect one after the other, and all of them before the first request of the load.
        for worker in workers:
            worker.connect()
            time.sleep(CONNECT_PAUSE_SECONDS)
        with ThreadPoolExecutor(len(workers)) as together:
            for worker, running in [(worker, together.submit(worker.run)) for worker in workers]:
                if failure := running.exception(LOAD_SECONDS):
                    raise AssertionError(f"client {worker.number}: {type(failure).__name__}: {failure}") from failure
        for worker in workers:
            worker.compare_all()
    finally:
        for worker in workers:
            worker.close()
    return workers
