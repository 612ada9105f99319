# SPDX-License-Identifier: BSL-1.0
"""`./neap bench hit-ratio`: Neap's store beside stock memcached under the same requests and the same `memory=` (stock: `-m`).

A program of the host (apps/memcached/hit_ratio.cpp) has Neap's store on the kernel's heap, and sends the same requests to a stock memcached
on loopback: a get for each, and a set after a miss. Both see the same clock. Stock runs with its defaults: a segmented LRU with maintainer
and crawler. Rows are miss ratios, because a row's value should be below its target, stock's value. Memory is counted as pages of items: for
Neap those of the heap beyond an empty store's, for stock `total_malloced`. Neither includes the hash table.
"""

import dataclasses
import subprocess
from collections.abc import Sequence

from tools import build
from tools.bench.programs import memcached
from tools.bench.rows import Row, Selection, aligned
from tools.errors import Failure

PROGRAM = build.BUILD / "host/apps/memcached/memcached_hit_ratio"
PATIENCE_SECONDS = 1200.0
MEBIBYTE = 1 << 20
REQUESTS = 2_000_000
ITEMS = 1_000_000
STOCK = "memcached 1.6, segmented LRU"


@dataclasses.dataclass(frozen=True)
class Load:
    """A workload of the program, and the sizes of the cache with which it runs."""

    name: str
    about: str
    mebibytes: Sequence[int]


LOADS = [
    Load("zipf", "Zipf 0.99 over 1 M keys of 16 + 100 bytes", (8, 16, 32)),
    Load("scans", "the same, with a scan of 50,000 keys after each 100,000 requests", (8, 16, 32)),
    Load("etc", "Zipf 0.99 over 1 M keys with the sizes of Facebook's ETC", (32, 64, 128)),
    Load("twitter", "Twitter's cluster 34: Zipf 1.1401, 6 % sets, keys of 33 bytes, values of 322 on average", (16, 32, 64)),
]
VALUES = (10, 100, 1000)


def rows(selection: Selection) -> list[Row]:
    build.build("host", ["memcached_hit_ratio"])
    found = []
    for load in LOADS:
        for mebibytes in load.mebibytes:
            name = f"miss_ratio.{load.name}.{mebibytes}_MiB"
            if selection.has(name):
                neap, stock = measure(load.name, mebibytes, REQUESTS)
                found.append(Row(name, f"misses a get; {load.about}", *_misses(neap, stock), STOCK))
    for value_bytes in VALUES:
        name = f"item_bytes.{value_bytes}"
        if selection.has(name):
            neap, stock = measure(f"fill_{value_bytes}", 2048, ITEMS)
            # Below the target means at most stock memcached's bytes, to a tenth.
            ours, theirs = (side["memory_bytes"] / side["items"] for side in (neap, stock))
            found.append(Row(name, f"bytes an item, 1 M items, values of {value_bytes}", ours, theirs + 0.1, theirs, STOCK))
    return found


def _misses(neap: dict[str, int], stock: dict[str, int]) -> tuple[float, float, float]:
    ours, theirs = (1 - side["hits"] / side["gets"] for side in (neap, stock))
    return ours, theirs, theirs


def measure(workload: str, mebibytes: int, requests: int) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the program's numbers for Neap and for stock memcached."""
    with memcached(mebibytes) as address:
        argv = [str(PROGRAM), workload, str(mebibytes * MEBIBYTE), str(requests), address.rpartition(":")[2]]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    if done.returncode != 0:
        raise Failure(f"{PROGRAM.name} {workload} ended with status {done.returncode}", details=done.stderr.splitlines()[-10:])
    numbers = [line.split() for line in done.stdout.splitlines()]
    return {name: int(neap) for name, neap, _ in numbers}, {name: int(stock) for name, _, stock in numbers}


def show(found: Sequence[Row]) -> str:
    cells = [("name", "Neap", "stock", "what")]
    for row in found:
        is_ratio = row.name.startswith("miss_ratio.")
        values = [f"{value:.4f}" if is_ratio else f"{value:.1f}" for value in (row.value, row.peer) if value is not None]
        cells.append((row.name, *values, row.unit + (", MISSED" if row.missed else "")))
    return aligned(cells)
