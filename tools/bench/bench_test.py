# SPDX-License-Identifier: BSL-1.0
"""`./neap bench` with several names: one table or one list after the other, and no work before all names are known."""

import json

import pytest

from tools import bench, run
from tools.bench.rows import Row
from tools.errors import UsageError


@pytest.fixture(autouse=True)
def two_benchmarks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces the benchmarks. Returns the names of those that ran."""
    ran: list[str] = []

    def benchmark(name: str, value: float) -> bench.Benchmark:
        return bench.Benchmark(lambda: ran.append(name) or [Row(f"{name}.cost", "instructions", value, target=10)])

    monkeypatch.setattr(bench, "BENCHMARKS", {"cheap": benchmark("cheap", 3), "dear": benchmark("dear", 30)})
    monkeypatch.setattr(run, "require_build_packages", lambda: None)
    return ran


def test_each_benchmark_prints_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.bench(["cheap", "cheap"], as_json=False) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.rstrip() == second.rstrip() and "cheap.cost" in first


def test_a_missed_target_of_any_benchmark_is_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.bench(["dear", "cheap"], as_json=True) == 1
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["dear.cost", "cheap.cost"]


def test_an_unknown_name_is_refused_before_anything_runs(two_benchmarks: list[str]) -> None:
    with pytest.raises(UsageError, match="no benchmark 'fast'"):
        bench.bench(["cheap", "fast"], as_json=False)
    assert two_benchmarks == []
