# SPDX-License-Identifier: BSL-1.0
"""The table of runs, filters, and answers to a picture's questions are those of the rows; bad input is one sentence."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tools.conftest import neap
from tools.errors import Failure, UsageError
from tools.study import schema, synthetic, view_filter, view_query, view_table, view_timeline
from tools.study.view_source import Source

GRID = synthetic.Grid(itr_us=(2, 50, 400), frequencies_ghz=(1.2, 2.9), repeats=2)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict]]:
    folder = tmp_path_factory.mktemp("study") / "a study [1]"
    return folder, synthetic.write(folder, GRID, logs=2)


@pytest.fixture(scope="module")
def source(study: tuple[Path, list[dict]]) -> Source:
    return Source([str(study[0])])


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Source:
    path = tmp_path_factory.mktemp("many") / "runs.parquet"
    synthetic.write_many(path, 20_000)
    return Source([str(path)])


def answer(source: Source, **asked: str) -> tuple[dict, dict[str, np.ndarray]]:
    return view_query.answer(source, view_query.parse({"x": "energy_uj", "y": "p99_us", **asked}, source))


# ---- pictures ----


def test_single_points_are_the_rows(source: Source, study: tuple[Path, list[dict]]) -> None:
    about, columns = answer(source, y_scale="log", colour="arm", group="rate_wanted")
    rows = study[1]
    assert about["kind"] == "points" and about["inside"] == len(rows) == len(columns["x"])
    for at, row in enumerate(columns["r"]):
        assert columns["x"][at] == rows[row]["energy_uj"] and 10 ** columns["y"][at] == pytest.approx(rows[row]["p99_us"])
        assert about["categories"][columns["c"][at]] == rows[row]["arm"] and about["panels"][columns["g"][at]] == rows[row]["rate_wanted"]


def test_every_run_is_in_one_cell_and_cells_have_the_colours_mean(many: Source) -> None:
    wanted = {"x_cells": "60", "y_cells": "40", "y_scale": "log", "group": "arm"}
    about, columns = answer(many, colour="power_w", **wanted)
    assert about["kind"] == "cells" and columns["n"].sum() == about["inside"] == many.count
    assert np.unique(columns["cell"].astype(np.int64) * 3 + columns["g"]).size == len(columns["cell"])
    mean = many.one("SELECT avg(power_w) FROM runs")[0]
    assert np.sum(columns["t"] * columns["n"]) / many.count == pytest.approx(mean, rel=1e-5)
    # A cell's run is in the cell.
    picture = view_query.parse({"x": "energy_uj", "y": "p99_us", **wanted}, many)
    low, high = about["x"]
    for at in range(0, len(columns["r"]), 97):
        x = many.one("SELECT energy_uj FROM runs WHERE rowid = ?", [int(columns["r"][at])])[0]
        assert int((x - low) * picture.x.cells / (high - low)) == columns["cell"][at] % picture.x.cells


def test_dense_and_sparse_counts_agree(many: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"x_cells": "60", "y_cells": "40", "colour": "arm"}
    dense = answer(many, **wanted)[1]
    monkeypatch.setattr(view_query, "DENSE_MAX", 0)
    sparse = answer(many, **wanted)[1]
    assert all(np.array_equal(dense[name], sparse[name]) for name in ("g", "c", "cell", "n"))


def test_a_zoom_has_the_runs_of_its_span(many: Source) -> None:
    about, columns = answer(many, x_span="50,60", y_span="80,120", y_scale="log")
    expected = many.one("SELECT count(*) FROM runs WHERE energy_uj BETWEEN 50 AND 60 AND p99_us BETWEEN 80 AND 120")[0]
    assert about["inside"] == expected > 0
    assert about["kind"] == "points" and set(np.unique(columns["c"])) == {0}


def test_the_nearest_run_is_found_at_any_density(many: Source) -> None:
    x, y, row = many.one("SELECT energy_uj, log10(p99_us), rowid FROM runs ORDER BY p99_us DESC LIMIT 1")
    picture = view_query.parse({"x": "energy_uj", "y": "p99_us", "y_scale": "log"}, many)
    assert view_query.nearest(many, picture, 0, (x, y)) == row
    assert view_query.nearest(many, picture, 0, (1e9, 1e9)) is None


def test_means_are_over_the_runs_with_equal_x(source: Source, study: tuple[Path, list[dict]]) -> None:
    about, columns = answer(source, x="itr_us", mode="means", colour="arm", y_scale="log")
    rows = [row for row in study[1] if row["arm"] == "Neap" and row["itr_us"] == 50]
    at = np.flatnonzero((columns["x"] == 50) & (columns["c"] == about["categories"].index("Neap")))
    values = [row["p99_us"] for row in rows]
    assert len(at) == 1 and columns["n"][at[0]] == len(rows)
    assert 10 ** columns["y"][at[0]] == pytest.approx(np.mean(values)) and 10 ** columns["high"][at[0]] == pytest.approx(max(values))


def test_histograms_count_all_runs(many: Source) -> None:
    about, columns = answer(many, x="p99_us", x_scale="log", mode="cumulative", colour="arm")
    assert columns["n"].sum() == many.count and about["inside"] <= many.count


def test_unknown_values_are_no_points(source: Source) -> None:
    about, _ = answer(source, x="itr_us")
    assert about["inside"] == source.one("SELECT count(itr_us) FROM runs")[0] < source.count


# ---- filters ----


def test_filters_choose_values_ranges_and_unset_values(source: Source) -> None:
    def count(*words: str) -> int:
        where, values = view_filter.condition(view_filter.parse_words(words), source)
        return source.one(f"SELECT count(*) FROM runs WHERE {where}", values)[0]

    assert count("arm=Neap") == source.one("SELECT count(*) FROM runs WHERE arm = 'Neap'")[0]
    assert count("itr_us=not set") == 4 and count("itr_us=not set,2") == 4 + 2 * 2 * 2 * 2
    assert count("frequency_ghz=1.2", "rate_wanted=200000..") == 3 * 2 * 2
    assert count("arm=Nobody") == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["arm"], "--where takes NAME=VALUE"),
        (["colour=red"], "there is no quantity 'colour'"),
        (["itr_us=fast"], "itr_us is a number, not 'fast'"),
        (["arm=1..2"], "arm is a text, so a range does not apply"),
        (["itr_us=nan.."], "itr_us is a finite number"),
    ],
)
def test_a_bad_filter_is_one_sentence(source: Source, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        view_filter.condition(view_filter.parse_words(words), source)


@pytest.mark.parametrize("text", ["{", "1", '[{"values": []}]', '[{"name": 1}]', '[{"name": "arm", "values": [[]]}]', "[" * 5000])
def test_filters_of_a_page_are_checked(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be understood"):
        view_filter.parse_json(text)


@pytest.mark.parametrize(
    "asked",
    [
        {"x": "nothing"},
        {"mode": "pie"},
        {"x_scale": "cubic"},
        {"x_cells": "0"},
        {"x_cells": "1000000000000"},
        {"x_span": "2,1"},
        {"x_span": "nan,1"},
        {"x_span": "-1,1", "x_scale": "log"},
        {"group": "p99_us"},
    ],
)
def test_a_bad_question_is_refused(source: Source, asked: dict) -> None:
    with pytest.raises(UsageError):
        answer(source, **asked)


# ---- tables ----


def test_several_studies_and_csv_are_one_table(study: tuple[Path, list[dict]], tmp_path: Path) -> None:
    rows = "arm,itr_us,p99_us,energy_uj,note\nHand,5,100.5,20,first\nHand,,,,\n"
    (tmp_path / "by hand*.csv").write_text(rows)
    both = Source([str(study[0]), str(tmp_path / "by hand*.csv")])
    assert both.count == len(study[1]) + 2 and "note" in both.quantities
    assert both.one("SELECT p99_us FROM runs WHERE arm = 'Hand' AND itr_us = 5")[0] == 100.5
    assert both.kind("arm").values == ("Hand", "Linux dynamic", "Linux static", "Neap")


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("arm,p99_us\nNeap,5\n")
    with pytest.raises(UsageError, match="has no column interrupts and requests, which interrupts per request needs"):
        Source([str(tmp_path / "runs.csv")]).quantity("interrupts_per_request")


def test_places_that_are_no_study_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.parquet").write_text("PAR1 nothing")
    with pytest.raises(UsageError, match="neither a table of runs nor files"):
        Source([str(tmp_path / "empty")])
    with pytest.raises(UsageError, match="is no study"):
        Source([str(tmp_path / "missing")])
    with pytest.raises(Failure, match="cannot be read"):
        Source([str(tmp_path / "bad.parquet")])
    with pytest.raises(UsageError, match="no study is named"):
        Source([])


def test_the_table_opens_no_further_file(source: Source) -> None:
    import duckdb

    with pytest.raises(duckdb.PermissionException):
        source.all("SELECT * FROM read_csv('/etc/passwd')")


def test_the_written_table_is_the_read_one(source: Source, tmp_path: Path) -> None:
    view_table.write(source, tmp_path / "all.parquet")
    again = Source([str(tmp_path / "all.parquet")])
    query = "SELECT run, arm::VARCHAR, itr_us, energy_uj, modelled::VARCHAR FROM runs ORDER BY run"
    assert again.all(query) == source.all(query)
    view_table.write(source, tmp_path / "all.csv")
    assert Source([str(tmp_path / "all.csv")]).all("SELECT sum(energy_uj) FROM runs")[0][0] == pytest.approx(
        source.one("SELECT sum(energy_uj) FROM runs")[0]
    )
    with pytest.raises(UsageError, match="names a .parquet or .csv file"):
        view_table.write(source, tmp_path / "all.xls")


def test_a_text_from_a_table_is_no_formula(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"arm": ["=cmd()", "x"], "p99_us": [1.0, -2.0]}), tmp_path / "runs.parquet")
    view_table.write(Source([str(tmp_path)]), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "arm,p99_us\n'=cmd(),1.0\nx,-2.0\n"


def test_a_log_outside_of_the_study_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    synthetic.write(tmp_path / "other", synthetic.Grid(repeats=1), logs=1)
    logs = [str(tmp_path / "other"), "../other", "/etc", None]
    table = {"run": list("abcd"), "log": logs, "p99_us": [1.0] * 4}
    parquet.write_table(pa.table(table), tmp_path / "study" / schema.RUNS)
    source = Source([str(tmp_path / "study")])
    for row in range(4):
        with pytest.raises(Failure, match="is not in|has no log"):
            source.log_places(row)


# ---- timelines ----


def test_a_timeline_counts_every_interrupt_at_any_zoom(source: Source) -> None:
    timelines = view_timeline.Timelines(source)
    about, columns = timelines.answer(0, view_timeline.View(500))
    whole = columns["gap_n"].sum()
    assert whole == pytest.approx(2 * 3000, rel=0.01) and about["cores"] == [0, 1]
    middle = about["seconds"] / 3
    parts = [timelines.answer(0, view_timeline.View(300, span))[1]["gap_n"].sum() for span in ((0.0, middle), (middle, about["seconds"]))]
    # An interrupt at the border is in both.
    assert whole <= sum(parts) <= whole + 2
    rates = columns["rate_mean"].mean() * about["seconds"] * 2
    assert rates == pytest.approx(whole, rel=0.01)
    for name in ("rate", "asleep", "watts0"):
        assert np.all(columns[f"{name}_low"] <= columns[f"{name}_mean"] + 1e-3) and np.all(
            columns[f"{name}_mean"] <= columns[f"{name}_high"] + 1e-3
        )
    power = source.one("SELECT power_w FROM runs WHERE rowid = 0")[0]
    assert np.median(columns["watts0_mean"]) == pytest.approx(power, rel=0.02)


def test_a_timeline_of_one_core_and_bad_questions(source: Source) -> None:
    timelines = view_timeline.Timelines(source)
    both = timelines.answer(0, view_timeline.View(100))[1]["gap_n"].sum()
    assert sum(timelines.answer(0, view_timeline.View(100, core=core))[1]["gap_n"].sum() for core in (0, 1)) == both
    for asked in ({"columns": "0"}, {"columns": "9999"}, {"span": "1"}, {"span": "inf,nan"}, {"core": "x"}):
        with pytest.raises(UsageError):
            view_timeline.parse(asked)
    with pytest.raises(UsageError, match="outside of the run"):
        timelines.answer(0, view_timeline.View(100, (7.0, 8.0)))
    with pytest.raises(Failure, match="has no log"):
        timelines.answer(5, view_timeline.View(100))


# ---- the command ----


def test_the_command_refuses_bad_words(study: tuple[Path, list[dict]], tmp_path: Path) -> None:
    place = str(study[0])
    for words, said in (
        ([], "no study is named"),
        ([place, "--figure", "pie", "--out", "x.svg"], "there is no figure 'pie'"),
        ([place, "--figure", "pareto"], "--out is missing"),
        ([place, "--figure", "pareto", "--out", str(tmp_path / "x.png")], "names a .svg, .html or .csv file"),
        ([place, "--where", "arm=Neap"], "belong to --figure"),
        ([place, "--layout", "freebsd", "--out", str(tmp_path / "o")], "there is no layout 'freebsd'"),
        ([place, "--figure", "timeline", "--run", "none", "--out", str(tmp_path / "x.svg")], "the study has no run none"),
    ):
        done = neap("view", *words)
        assert done.returncode != 0 and said in done.stderr and "Traceback" not in done.stderr, words


def test_the_command_makes_figures_and_tables(study: tuple[Path, list[dict]], tmp_path: Path) -> None:
    words = ["--figure", "pareto", "--where", "rate_wanted=300000"]
    for suffix in ("svg", "html", "csv"):
        done = neap("view", str(study[0]), *words, "--out", str(tmp_path / f"pareto.{suffix}"))
        assert done.returncode == 0, done.stderr
    assert "rate_wanted 300000" in (tmp_path / "pareto.svg").read_text()
    assert "Content-Security-Policy" in (tmp_path / "pareto.html").read_text()
    assert json.dumps("on_front") in json.dumps((tmp_path / "pareto.csv").read_text().splitlines()[0].split(","))
