# SPDX-License-Identifier: BSL-1.0
"""`./neap bench` with several names: one table or one list after the other, and no work before all names are known."""

import json

import pytest

from tools import bench, cli, run
from tools.bench.rows import Row, Selection
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


def test_options_of_the_command_line_reach_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    selections = []

    def measure(selection: Selection) -> list[Row]:
        selections.append(selection)
        return [Row("web.none", "instructions", 1)]

    for name in ("web", "network"):
        monkeypatch.setitem(bench.BENCHMARKS, name, bench.Benchmark(measure, has_selection=True))
    assert cli.main(["bench", "web", "--linux", "--rows", "hello.*"]) == 0
    assert cli.main(["bench", "network", "--megabytes", "3", "--seeds", "2", "--congestion", "reno", "--word", "a=b", "--word", "c=d"]) == 0
    assert selections == [
        Selection(["hello.*"], with_linux=True),
        Selection([], megabytes=3, seeds=2, congestion="reno", image_words=["a=b", "c=d"]),
    ]
