# SPDX-License-Identifier: BSL-1.0
"""A table of runs reads equally from Parquet, CSV and a study's folder; wrong tables end in one sentence."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from tools.errors import Failure, UsageError
from tools.study import runs_table, schema

ROWS = [
    {"arm": "Neap", "load": "etc", "itr_us": 50.0, "frequency_ghz": 1.2, "p99_us": 90.5, "requests": 7, "status": "ok", "set_rsc": "on"},
    {
        "arm": "Linux",
        "load": "etc",
        "itr_us": None,
        "frequency_ghz": None,
        "p99_us": 120.0,
        "requests": 8,
        "status": "ok",
        "set_rsc": "off",
    },
    {"arm": "Neap", "load": "etc", "itr_us": 100.0, "frequency_ghz": 2.9, "p99_us": None, "status": "failed", "set_rsc": "on"},
    {"arm": "Neap", "load": schema.IDLE_BASELINE, "itr_us": 50.0, "frequency_ghz": 1.2, "status": "ok", "set_rsc": "on"},
]


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    table = schema.runs_table(ROWS, ["rsc"])
    study = tmp_path / "study"
    study.mkdir()
    parquet.write_table(table, study / schema.RUNS)
    csv.write_csv(table, tmp_path / "runs.csv")
    return [study, study / schema.RUNS, tmp_path / "runs.csv"]


def test_the_three_kinds_of_places_are_equal(places: list[Path]) -> None:
    for place in places:
        runs = runs_table.read([place])
        assert len(runs) == 4
        np.testing.assert_equal(runs.numbers("p99_us"), [90.5, 120, np.nan, np.nan])
        np.testing.assert_equal(runs.numbers("requests"), [7, 8, np.nan, np.nan])
        assert runs.values("itr_us").tolist() == [50, None, 100, 50]
        assert runs.further_settings() == ["set_rsc"]


def test_tables_are_joined(places: list[Path], tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("arm,p99_us\nother,3\n")
    runs = runs_table.read([places[0], tmp_path / "short.csv"])
    assert len(runs) == 5 and runs.values("arm")[-1] == "other" and runs.values("load")[-1] is None


def test_failed_runs_and_baselines_are_counted(places: list[Path]) -> None:
    runs, excluded = runs_table.measured(runs_table.read(places[:1]))
    assert [(one.reason, one.rows) for one in excluded] == [("the run failed", 1), ("a baseline without requests", 1)]
    assert runs.values("arm").tolist() == ["Neap", "Linux"]


def test_conditions(places: list[Path]) -> None:
    assert runs_table.read(places[:1], "itr_us >= 100 or arm = 'Linux'").values("arm").tolist() == ["Linux", "Neap"]
    for bad in ("itr_us >", "no_such = 1", "1 = 1) UNION (SELECT 2", "arm in (SELECT content FROM read_text('/etc/passwd'))"):
        with pytest.raises(UsageError, match="^--where: "):
            runs_table.read(places[:1], bad)


def test_groups_are_sorted_as_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arm,rate_wanted,p99_us\nb,1000,1\na,200,2\na,1000,3\na,200,4\na,,5\n")
    runs = runs_table.read([tmp_path / "t.csv"])
    assert runs_table.grouping(runs, None) == ["arm", "rate_wanted"]
    found = [(runs_table.group_name(key), group.numbers("p99_us").tolist()) for key, group in runs.groups(["arm", "rate_wanted"])]
    assert found == [("a, 200 requests/s", [2, 4]), ("a, 1,000 requests/s", [3]), ("a, no rate_wanted", [5]), ("b, 1,000 requests/s", [1])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("arm,p99_us\na,fast\n", "column 'p99_us'.*fast"),
        ("p99_us,p99_us\n1,2\n", "two columns are named 'p99_us'"),
        ("arm,p99_us\na,1,2\n", "Expected 2 columns, got 3"),
        ("", "Empty CSV file"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(Failure, match=message) as caught:
        runs_table.read([path])
    assert str(path) in caught.value.message


def test_missing_columns_and_files_are_named(places: list[Path], tmp_path: Path) -> None:
    runs = runs_table.read(places[:1])
    with pytest.raises(Failure, match="the column 'energy_uj' has no value"):
        runs.require("p99_us", "energy_uj")
    with pytest.raises(Failure, match="the column 'nothing' is missing"):
        runs.require("nothing")
    with pytest.raises(Failure, match="the column 'arm' has texts"):
        runs.numbers("arm")
    with pytest.raises(Failure, match="no such file"):
        runs_table.read([tmp_path / "nowhere"])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(Failure, match="bad.parquet"):
        runs_table.read([tmp_path / "bad.parquet"])
    assert isinstance(runs.table, pa.Table)
