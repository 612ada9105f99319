# SPDX-License-Identifier: BSL-1.0
"""`./neap bench hit-ratio`: a row is missed if stock memcached has more hits, or takes less memory for an item."""

import pytest

from tools import build
from tools.bench import hit_ratio
from tools.bench.rows import Selection
from tools.errors import UsageError


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Replaces the measurement. Neap has as many hits as stock with `zipf`, fewer with `scans`, and smaller items."""
    ran: list[tuple[str, int]] = []

    def measure(workload: str, mebibytes: int, _requests: int) -> tuple[dict[str, int], dict[str, int]]:
        ran.append((workload, mebibytes))
        ours = {"gets": 1000, "hits": 799 if workload == "scans" else 800, "items": 100, "memory_bytes": 9600}
        return ours, {"gets": 1000, "hits": 800, "items": 100, "memory_bytes": 9650}

    monkeypatch.setattr(build, "build", lambda *_: None)
    monkeypatch.setattr(hit_ratio, "measure", measure)
    return ran


def test_fewer_hits_than_stock_are_a_missed_row(measured: list[tuple[str, int]]) -> None:
    rows = hit_ratio.rows(Selection(("miss_ratio.zipf.*", "miss_ratio.scans.*", "item_bytes.10")))
    assert [row.name for row in rows if row.missed] == [f"miss_ratio.scans.{size}_MiB" for size in (8, 16, 32)]
    assert measured == [*(("zipf", size) for size in (8, 16, 32)), *(("scans", size) for size in (8, 16, 32)), ("fill_10", 2048)]
    text = hit_ratio.show(rows)
    assert text.count("MISSED") == 3 and "0.2010  0.2000" in text and "96.0    96.5" in text


def test_an_unknown_row_is_refused(measured: list[tuple[str, int]]) -> None:
    with pytest.raises(UsageError, match="no row is named zipf"):
        hit_ratio.rows(Selection(("zipf",)))
    assert measured == []


def test_each_workload_has_three_sizes_of_the_cache() -> None:
    assert all(len(load.mebibytes) == 3 for load in hit_ratio.LOADS)
