# SPDX-License-Identifier: BSL-1.0
"""Requests and latencies of a part of a load's window, from the load's seconds.

If a setting changes within a window, the load's totals belong to no single setting. The load's result has the replies of each second, and
a histogram of their latencies. Percentiles of several seconds follow from their histograms alone, so results without them (those of older
load generators) give requests, but no latencies.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

# A load generator's histogram of two digits has at most 128 buckets for each doubling from 1 ns to an hour (42 doublings).
BUCKETS_MAX = 128 * 42
# Pairs of numbers of at most 19 digits, which fit 64 bits.
_NUMBERS = re.compile(r"[0-9]{1,19} [0-9]{1,19}(?: [0-9]{1,19} [0-9]{1,19})*", re.ASCII)
TEXT_MAX = 40 * BUCKETS_MAX
_SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


@dataclasses.dataclass(frozen=True)
class Second:
    """The replies of one second, on the log's clock. `buckets`: latencies in nanoseconds and their counts; empty if the result has none."""

    begin_tsc: int
    latency_us: dict[str, float]
    answered: int = 0
    buckets: tuple[tuple[int, int], ...] = ()


def buckets_of(value: object) -> tuple[tuple[int, int], ...]:
    """Returns a histogram of `over_time`: "value count value count ...". It comes from a file, so it is checked. Returns () if `value`
    is none."""
    if not isinstance(value, str) or len(value) > TEXT_MAX or not _NUMBERS.fullmatch(value):
        return ()
    numbers = [int(word) for word in value.split(" ")]
    return tuple(zip(numbers[::2], numbers[1::2])) if len(numbers) <= 2 * BUCKETS_MAX else ()


def requests_between(seconds: Sequence[Second], low: int, high: int, hz: int) -> int | None:
    """Returns the number of replies between two TSC values. Within a second, replies count in proportion. Returns None if the seconds do
    not cover this time."""
    if not seconds or low < seconds[0].begin_tsc or high > seconds[-1].begin_tsc + hz:
        return None
    shares = ((each.answered, min(high, each.begin_tsc + hz) - max(low, each.begin_tsc)) for each in seconds)
    return round(sum(answered * ticks / hz for answered, ticks in shares if ticks > 0))


def latency_between(seconds: Sequence[Second], low: int, high: int, hz: int) -> dict[str, float] | None:
    """Returns the latencies in microseconds of the whole seconds between two TSC values; None if there are none with a histogram."""
    inside = [each for each in seconds if low <= each.begin_tsc and each.begin_tsc + hz <= high]
    counts: Counter[int] = Counter()
    for each in inside:
        if not each.buckets:
            return None
        for value, count in each.buckets:
            counts[value] += count
    total = counts.total()
    return dict(_figures(inside, sorted(counts.items()), total)) if total else None


def _figures(inside: Sequence[Second], buckets: list[tuple[int, int]], total: int) -> Iterator[tuple[str, float]]:
    # A bucket's value is its highest, which may exceed the largest latency.
    most = max((each.latency_us["max"] for each in inside if "max" in each.latency_us), default=math.inf)
    for name, share in _SHARES.items():
        yield name, min(most, _at_rank(buckets, math.ceil(share * total)) / 1000)
    if most != math.inf:
        yield "max", most
    if least := [each.latency_us["min"] for each in inside if "min" in each.latency_us]:
        yield "min", min(least)
    yield "mean", sum(value * count for value, count in buckets) / total / 1000


def _at_rank(buckets: list[tuple[int, int]], rank: int) -> int:
    """Returns the value at a rank, counted from 1 (nearest rank)."""
    for value, count in buckets:
        rank -= count
        if rank <= 0:
            return value
    return buckets[-1][0]
