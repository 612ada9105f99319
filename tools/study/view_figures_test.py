# SPDX-License-Identifier: BSL-1.0
"""Each ready figure is valid SVG with units, has the numbers of the rows, and says in one sentence what it lacks."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.errors import Failure, UsageError
from tools.study import synthetic, view, view_data, view_figures, view_filter, view_svg
from tools.study.view_columns import LINEAR, LOG
from tools.study.view_data import Options
from tools.study.view_picture import number_text
from tools.study.view_source import Source

GRID = synthetic.Grid(itr_us=(2, 50, 400), frequencies_ghz=(1.2, 2.9), repeats=3)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Source, list[dict]]:
    folder = tmp_path_factory.mktemp("study")
    rows = synthetic.write(folder, GRID, logs=1)
    return Source([str(folder)]), rows


def texts_of(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", view_figures.FIGURES)
def test_a_figure_is_valid_and_has_axes_notes_and_numbers(study: tuple[Source, list[dict]], name: str) -> None:
    made = view_figures.make(study[0], name, Options())
    svg = view_svg.draw(made)
    texts = texts_of(svg)
    assert made.title in texts and (not made.x_label or made.x_label in texts)
    assert any(text.startswith("Modelled (e5-2690)") for text in texts)
    drawn = re.sub('base64,[^"]*', "", svg)
    assert not re.search(r"\b(nan|inf)\b", drawn)
    lines = made.csv().splitlines()
    assert len(lines) == len(made.rows) + 1 > 1 and all(len(row) == len(made.header) for row in made.rows)
    assert made.title in view.page(made)


@pytest.mark.parametrize("name", view_figures.FIGURES)
def test_no_text_leaves_the_picture(study: tuple[Source, list[dict]], name: str) -> None:
    root = ElementTree.fromstring(view_svg.draw(view_figures.make(study[0], name, Options())))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        if text.get("transform"):
            continue
        wide = view_svg.LETTER * float(text.get("font-size", 0)) * len(text.text or "")
        x = float(text.get("x", 0)) - {"start": 0, "middle": wide / 2, "end": wide}[text.get("text-anchor", "start")]
        assert x >= -4 and x + wide <= width + 12 and 0 < float(text.get("y", 0)) <= height, text.text


def test_a_curves_point_is_the_mean_of_its_repeats(study: tuple[Source, list[dict]]) -> None:
    source, rows = study
    made = view_figures.make(source, "latency-itr", Options())
    at = {name: made.header.index(name) for name in made.header}
    found = [row for row in made.rows if row[at["arm"]] == "Neap" and row[at["itr_us"]] == 50 and row[at["frequency_ghz"]] == 1.2]
    for row in found:
        values = [
            each["p99_us"]
            for each in rows
            if (each["arm"], each["itr_us"], each["frequency_ghz"], str(each["rate_wanted"])) == ("Neap", 50, 1.2, row[at["rate_wanted"]])
        ]
        assert len(values) == row[at["runs"]] == 3 and row[at["p99_us"]] == pytest.approx(sum(values) / 3)
    assert len(found) == 2


def test_the_front_has_the_settings_that_nothing_beats(study: tuple[Source, list[dict]]) -> None:
    made = view_figures.make(study[0], "pareto", Options())
    at = {name: made.header.index(name) for name in made.header}
    groups: dict[tuple, list] = {}
    for row in made.rows:
        groups.setdefault((row[at["rate_wanted"]], row[at["arm"]]), []).append(row)
    assert len(groups) == 6
    for rows in groups.values():
        for row in rows:
            is_beaten = any(
                other is not row and other[at["energy_uj"]] <= row[at["energy_uj"]] and other[at["p99_us"]] <= row[at["p99_us"]]
                for other in rows
            )
            assert (row[at["on_front"]] == "yes") is not is_beaten


def test_equal_points_give_one_point_of_the_front() -> None:
    assert view_data.front([(1, 5), (1, 5), (2, 6), (2, 4), (0.5, 9)]) == [4, 0, 3]


def test_the_best_setting_meets_the_limit_with_the_least_energy(study: tuple[Source, list[dict]]) -> None:
    made = view_figures.make(study[0], "best-settings", Options(slas_us=(150.0,)))
    at = {name: made.header.index(name) for name in made.header}
    every = view_figures.make(study[0], "pareto", Options())
    of = {name: every.header.index(name) for name in every.header}
    for row in made.rows:
        others = [
            other[of["energy_uj"]]
            for other in every.rows
            if (other[of["arm"]], other[of["rate_wanted"]]) == (row[at["arm"]], row[at["rate_wanted"]]) and other[of["p99_us"]] <= 150
        ]
        assert row[at["p99_us"]] <= 150 and row[at["energy_uj"]] == min(others)


def test_a_distribution_ends_at_all_requests(study: tuple[Source, list[dict]]) -> None:
    for name, first, last in (("latency-cdf", 0.0, 100.0), ("latency-tail", 100.0, 0.0)):
        made = view_figures.make(study[0], name, Options())
        for panel in made.panels:
            for line in panel.layers:
                assert abs(line.y[0] - first) < 10 and abs(line.y[-1] - last) < 10
                assert list(line.y) == sorted(line.y, reverse=first > last)


def test_failed_runs_and_baselines_are_left_out(tmp_path: Path) -> None:
    rows = ["arm,load,status,itr_us,frequency_ghz,p99_us,energy_uj"]
    rows += ["Neap,etc,ok,2,1.2,100,10", "Neap,etc,failed,2,1.2,9999,10", "Neap,baseline.idle,ok,2,1.2,9999,10"]
    (tmp_path / "runs.csv").write_text("\n".join(rows) + "\n")
    made = view_figures.make(Source([str(tmp_path / "runs.csv")]), "latency-itr", Options())
    assert [row[-4:] for row in made.rows] == [[100, 100, 100, 1]]


def test_filters_and_their_text_are_in_the_figure(study: tuple[Source, list[dict]]) -> None:
    filters = tuple(view_filter.parse_words(["arm=Neap", "rate_wanted=200000.."]))
    made = view_figures.make(study[0], "energy-itr", Options(filters))
    assert len(made.panels) == 1 and any("arm Neap; rate_wanted from 200000" in note for note in made.notes)
    with pytest.raises(Failure, match="no good run is left"):
        view_figures.make(study[0], "energy-itr", Options(tuple(view_filter.parse_words(["arm=None"]))))


def test_what_a_figure_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("arm,p99_us,energy_uj,run\nNeap,5,2,a\n")
    source = Source([str(tmp_path / "runs.csv")])
    for name, said in (
        ("latency-itr", "no column itr_us"),
        ("latency-cdf", "no histograms.parquet"),
        ("sleep-states", "column c0 and rate"),
    ):
        with pytest.raises(UsageError, match=said):
            view_figures.make(source, name, Options())
    assert len(view_figures.make(source, "pareto", Options()).rows) == 1


def test_too_many_panels_are_refused_with_a_remedy(tmp_path: Path) -> None:
    rows = "\n".join(f"Neap,{rate},{itr},1.2,5" for rate in range(1, 20) for itr in (2, 4))
    (tmp_path / "runs.csv").write_text(f"arm,rate_wanted,itr_us,frequency_ghz,p99_us\n{rows}\n")
    with pytest.raises(Failure, match="19 values of rate_wanted are 19 panels") as error:
        view_figures.make(Source([str(tmp_path / "runs.csv")]), "latency-itr", Options())
    assert "--where" in str(error.value.hint)


def test_texts_of_a_table_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text('arm,itr_us,p99_us\n"<b>&""x",2,5\n"<b>&""x",4,6\n"other",4,6\n')
    made = view_figures.make(Source([str(tmp_path / "runs.csv")]), "latency-itr", Options())
    assert any('<b>&"x' in text for text in texts_of(view_svg.draw(made)))
    assert "<b>&" not in view.page(made)


@pytest.mark.parametrize(
    ("span", "scale"), [((0, 1), LINEAR), ((0, 412), LINEAR), ((-3.2, 4.1), LOG), ((1.9, 2.2), LOG), ((2.0, 2.01), LOG)]
)
def test_ticks_are_within_the_axis(span: tuple[float, float], scale: str) -> None:
    found = view_svg.ticks(span, scale, 6)
    at = [math.log10(value) if scale == LOG else value for value in found]
    assert 2 <= len(found) <= 14 and all(span[0] - 1e-6 <= value <= span[1] + 1e-6 for value in at) and at == sorted(at)


def test_numbers_are_short() -> None:
    given = (0, 5000, 12345, 100_000, 2.5e6, 3e9, 0.123456)
    assert [number_text(value) for value in given] == ["0", "5000", "12.3k", "100k", "2.5M", "3G", "0.1235"]
