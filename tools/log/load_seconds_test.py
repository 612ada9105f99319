# SPDX-License-Identifier: BSL-1.0
"""Requests and latencies of a part of a load's window are those of its seconds, and bad histograms give none."""

import random

import pytest

from tools.log.load_seconds import BUCKETS_MAX, Second, buckets_of, latency_between, requests_between

HZ = 1000
SECONDS = [
    Second(10_000, {"max": 9.0, "min": 1.0}, 100, ((1000, 60), (2000, 40))),
    Second(11_000, {"max": 2999.5, "min": 0.5}, 200, ((1000, 10), (3_000_000, 190))),
    Second(12_000, {"max": 4.0, "min": 2.0}, 50, ((4000, 50),)),
]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(10_000, 13_000, 350), (10_000, 11_000, 100), (10_500, 11_500, 150), (11_250, 11_750, 100), (12_990, 13_000, 0)],
)
def test_requests_within_a_second_count_in_proportion(low: int, high: int, expected: int) -> None:
    assert requests_between(SECONDS, low, high, HZ) == expected


@pytest.mark.parametrize(("low", "high"), [(9_999, 11_000), (12_000, 13_001)])
def test_time_outside_of_the_seconds_has_no_requests(low: int, high: int) -> None:
    assert requests_between(SECONDS, low, high, HZ) is None and requests_between([], low, high, HZ) is None


def test_latencies_are_those_of_the_whole_seconds_inside() -> None:
    found = latency_between(SECONDS, 10_000, 12_999, HZ)
    most = 2999.5  # less than the highest value of its bucket
    mean = (70 * 1 + 40 * 2 + 190 * 3000) / 300
    assert found == {"p50": most, "p90": most, "p95": most, "p99": most, "p99.9": most, "max": most, "min": 0.5, "mean": mean}
    assert latency_between(SECONDS, 10_001, 12_000, HZ) == latency_between(SECONDS[1:2], 0, 99_999, HZ)
    assert latency_between(SECONDS, 10_001, 11_999, HZ) is None, "no whole second"
    assert latency_between([*SECONDS, Second(13_000, {}, 7)], 10_000, 14_000, HZ) is None, "a second without a histogram"


def test_percentiles_are_of_nearest_rank() -> None:
    content = random.Random(7)
    values = sorted(content.randrange(1, 400) * 1000 for _ in range(997))
    half = [tuple((value, part.count(value)) for value in sorted(set(part))) for part in (values[::2], values[1::2])]
    seconds = [Second(at * HZ, {}, len(values), buckets) for at, buckets in enumerate(half)]
    found = latency_between(seconds, 0, 2 * HZ, HZ)
    assert found is not None
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert found[name] == values[-(-int(share * 1000) * len(values) // 1000) - 1] / 1000, name


@pytest.mark.parametrize(
    "value", [None, 7, [1, 2], "", "1", "1,2", "1 -2", "1 2.5", "1 2 3", " 1 2", "1  2", "1 " + 20 * "9", BUCKETS_MAX * "1 1 " + "1 1"]
)
def test_a_histogram_that_is_none_is_empty(value: object) -> None:
    assert buckets_of(value) == ()


def test_a_histogram_is_pairs_of_value_and_count() -> None:
    assert buckets_of("5 1 7 2") == ((5, 1), (7, 2))
