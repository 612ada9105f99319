# SPDX-License-Identifier: BSL-1.0
"""Several runs on one report page: each picture has all runs in looks that the legend names, at times that can be compared."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tools.conftest import neap
from tools.log import decode, page_runs, report, synthetic, synthetic_linux
from tools.log.browser import Browser
from tools.log.report_test import choose, panels, values
from tools.log.synthetic import Shape
from tools.log.trim import trim

NEAP = Shape(cores=2, records=1500, seconds=1.0, watts=30, changes=0, facts=True)
STATIC = Shape(cores=2, records=2500, seconds=2.0, watts=50, changes=0, seed=2)
DYNAMIC = Shape(cores=2, records=2000, seconds=1.5, watts=40, changes=0, seed=3)
NAMES = ["Neap", "Linux static", "Linux dynamic"]
# --run0 to --run2 in page.css, in light colours.
COLOURS = ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


@pytest.fixture
def arms(tmp_path: Path) -> Path:
    """Returns the page of Neap, Linux with static and Linux with dynamic settings."""
    synthetic.write(tmp_path / "neap", NEAP)
    synthetic_linux.write(tmp_path / "static", STATIC)
    synthetic_linux.write(tmp_path / "dynamic", DYNAMIC, synthetic_linux.Arm(True, synthetic_linux.SCHEDUTIL))
    return page_of(tmp_path, ("neap", "static", "dynamic"), NAMES)


def page_of(folder: Path, places: tuple[str, ...], names: list[str]) -> Path:
    report.write(report.load([str(folder / place) for place in places], names), folder / "report.html")
    return folder / "report.html"


def pixels(browser: Browser, path: Path) -> np.ndarray:
    browser.screenshot(path)
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def count(colour: tuple[int, int, int], of: np.ndarray) -> int:
    return int(np.count_nonzero(np.abs(of - colour).sum(axis=-1) < 60))


def strip_box(browser: Browser, title: str) -> tuple[int, int, int, int]:
    """Returns left, top, width and height of a strip in pixels of the whole page."""
    left, top, wide, tall = browser.evaluate(
        "(({top, height}, box) =>"
        " [box.left + scrollX + margin.left, box.top + scrollY + top, box.width - margin.left - margin.right, height])"
        f"(places[0].strip.find(({{title}}) => title.startsWith({json.dumps(title)})), places[0].strips.getBoundingClientRect())"
    )
    return int(left), int(top), int(wide), int(tall)


def hover(browser: Browser, x: float, y: float) -> None:
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


# ---- overlaid and side by side ----


def test_a_panel_has_the_points_of_all_runs_and_the_switch_sets_them_side_by_side(browser: Browser, arms: Path) -> None:
    assert browser.show(arms.as_uri())["drawn"] == "time interval run"
    records = NEAP.records + STATIC.records + DYNAMIC.records + 3
    assert [(each["title"], each["inside"] + each["unknown"]) for each in panels(browser)] == [(f"core {n}", records) for n in range(2)]
    assert browser.evaluate("shown.axes.x") == pytest.approx([0, 2]), "the longest run"
    choose(browser, layout="side")
    found = [each["inside"] + each["unknown"] for each in panels(browser)]
    assert found == [NEAP.records + 1] * 2 + [STATIC.records + 1] * 2 + [DYNAMIC.records + 1] * 2
    assert browser.evaluate("document.querySelectorAll('.run').length") == 3
    assert browser.evaluate("location.hash") == "#layout=side"
    choose(browser, layout="over", cores="together")
    assert [(each["title"], each["inside"] + each["unknown"]) for each in panels(browser)] == [("all 2 cores", 2 * records)]
    assert browser.evaluate("document.querySelectorAll('.run').length") == 1


def test_the_first_picture_has_the_points_of_all_runs_by_run(browser: Browser, arms: Path) -> None:
    browser.show(arms.as_uri())
    first = browser.evaluate(
        "(({runs, axes}) => ({axes: axes.x, panels: runs[0].panels.map(({grid}) => grid.of.map(sumOf))}))(firstPlan())"
    )
    assert first["axes"] == pytest.approx([0, 2])
    for panel in first["panels"]:
        assert panel == pytest.approx([NEAP.records, STATIC.records, DYNAMIC.records], abs=2)


def test_a_cell_with_points_of_several_runs_hides_none_of_them(browser: Browser, arms: Path) -> None:
    browser.show(arms.as_uri())
    cells = (
        "{columns: 4, counts: [9, 9, 9, 9, 9, 9, 9, 9], of: [[9, 9, 1, 1, 1, 1, 0, 1], [0, 0, 1, 1, 1, 1, 1, 0], [0, 0, 9, 9, 9, 9, 1, 0]]}"
    )
    drawn = browser.evaluate(f"[2, 3, 4, 5, 0, 6, 7].map((at) => colourOfCell({cells}, at, colouringByRun(theme()), theme(), 9))")
    assert {tuple(colour) for colour in drawn[:4]} == set(COLOURS), (
        "neighbours with all runs have all colours, however few points a run has"
    )
    assert tuple(drawn[4]) == tuple(drawn[6]) == COLOURS[0] and tuple(drawn[5]) in COLOURS[1:]


def test_the_legend_names_each_run_and_its_system(browser: Browser, arms: Path) -> None:
    browser.show(arms.as_uri())
    rows = browser.evaluate(
        "[...document.querySelectorAll('.run-legend tr')].slice(1).map((row) => [...row.cells].map((c) => c.textContent))"
    )
    linux = f"Linux {synthetic_linux.KERNEL} ixgbe"
    assert [row[1:3] for row in rows] == [["Neap", "Neap 0.1.0"], ["Linux static", linux], ["Linux dynamic", linux]]
    looks = browser.evaluate("page.runs.map(({dash, marker}) => [dash.join(), marker])")
    assert len({dash for dash, _ in looks}) == len({marker for _, marker in looks}) == 3, "no look depends on colours alone"
    drawn = browser.evaluate("[...document.querySelectorAll('.run-key')].map((key) => getComputedStyle(key.firstChild).stroke)")
    assert drawn == [f"rgb({red}, {green}, {blue})" for red, green, blue in COLOURS]
    assert len(page_runs.DASHES) == len(page_runs.MARKERS) == page_runs.RUNS_MAX


def test_each_strip_has_each_runs_curve_in_the_colour_of_the_legend(browser: Browser, arms: Path, tmp_path: Path) -> None:
    browser.show(f"{arms.as_uri()}#cores=0")
    picture = pixels(browser, tmp_path / "page.png")
    for title in ("power of each package", "package energy per interrupt", "interrupts per second"):
        left, top, wide, tall = strip_box(browser, title)
        strip = picture[top : top + tall, left : left + wide]
        counts = [count(colour, strip) for colour in COLOURS]
        assert min(counts) > 100, (title, counts)
    # Watts 30, 50 and 40 from bottom to top; the second line is dashed, the first one is not.
    left, top, wide, tall = strip_box(browser, "power of each package")
    strip = picture[top : top + tall, left : left + wide]
    rows = [np.flatnonzero(np.abs(strip - colour).sum(axis=-1).min(axis=1) < 60).mean() for colour in COLOURS]
    assert rows[1] < rows[2] < rows[0]
    assert count(COLOURS[0], strip) * STATIC.seconds > 1.2 * count(COLOURS[1], strip) * NEAP.seconds


def test_the_sleep_of_one_core_is_drawn_if_it_is_chosen(browser: Browser, arms: Path) -> None:
    browser.show(arms.as_uri())
    title = "places[0].strip.at(-1).title"
    assert browser.evaluate(title) == "share of time asleep (%), mean of all cores"
    lines = browser.evaluate("places[0].strip.at(-1).lines.map(({y}) => sumOf(y) / y.length)")
    assert lines == pytest.approx([60] * 3, abs=1)
    choose(browser, cores="1")
    assert browser.evaluate(title) == "share of time asleep (%), core 1"


# ---- histograms ----


def test_histograms_are_of_each_run(browser: Browser, arms: Path) -> None:
    """Shares and cumulative shares are of a run's points, so runs of different lengths can be compared."""
    browser.show(f"{arms.as_uri()}#x=rx_frames&y=count&cores=0")
    logs = [trim(decode.load([str(arms.parent / name)]).cores[0]) for name in ("neap", "static", "dynamic")]
    series = "shown.runs[0].panels[0].grid.series"
    for number, (core, bars) in enumerate(zip(logs, browser.evaluate(f"{series}.map(({{bars}}) => bars)"))):
        assert sum(bars) == len(core.inside) and max(bars) == np.bincount(core.inside["rx_frames"]).max(), number
    choose(browser, y="share")
    for bars in browser.evaluate(f"{series}.map(({{bars}}) => bars)"):
        assert sum(bars) == pytest.approx(100)
    choose(browser, y="cdf")
    for core, bars in zip(logs, browser.evaluate(f"{series}.map(({{bars}}) => bars)")):
        assert bars[-1] == pytest.approx(100) and bars == sorted(bars)
        # The axis begins a little below 0.
        assert next(filter(None, bars)) == pytest.approx(100 * np.count_nonzero(core.inside["rx_frames"] == 0) / len(core.inside))
    assert "Linux static" in browser.evaluate("document.getElementById('legend').textContent")


def test_a_cumulative_share_counts_the_points_below_the_axis(browser: Browser, arms: Path) -> None:
    browser.show(f"{arms.as_uri()}#x=interval&y=cdf&cores=0")
    core = trim(decode.load([str(arms.parent / "neap")]).cores[0])
    us = core.interval_ticks[1:] * 1e6 / core.log.tsc_hz
    us = us[us > 0]
    low = float(np.percentile(us, 30))
    browser.evaluate(f"state.view.x = [{low}, {us.max()}]; redraw()")
    browser.wait("!drawing")
    bars = browser.evaluate("shown.runs[0].panels[0].grid.series[0].bars")
    assert 30 <= bars[0] < 32 and bars[-1] == pytest.approx(100, abs=0.2)


def test_the_mean_time_of_a_sleep_is_a_quantity(browser: Browser, arms: Path) -> None:
    browser.show(arms.as_uri())
    core = trim(decode.load([str(arms.parent / "neap")]).cores[1])
    inside = core.inside
    expected = np.where(
        inside["idle_entries"] > 0, inside["idle_ticks"] / np.maximum(inside["idle_entries"], 1) * 1e6 / core.log.tsc_hz, np.nan
    )
    np.testing.assert_allclose(values(browser, 1, "sleep", False), expected, rtol=1e-6)


# ---- time ----


def shifted(shape: Shape, window: float) -> Callable[[Path], None]:
    """Returns a function that writes a log whose window is marked at this share of the run."""

    def write(folder: Path) -> None:
        before = synthetic.MARKS
        synthetic.MARKS = tuple((what, window if what == 2 else at) for what, at in before)  # type: ignore[misc]
        try:
            synthetic.write(folder, shape)
        finally:
            synthetic.MARKS = before  # type: ignore[misc]

    return write


def test_runs_whose_windows_are_known_begin_at_their_windows(browser: Browser, tmp_path: Path) -> None:
    shifted(NEAP, 0.2)(tmp_path / "a")
    shifted(dataclasses.replace(NEAP, seconds=2.0, seed=7), 0.4)(tmp_path / "b")
    page = page_of(tmp_path, ("a", "b"), ["A", "B"])
    browser.show(page.as_uri())
    assert browser.evaluate("shown.axes.x") == pytest.approx([-0.8, 1.2])
    for number, window in ((0, 0.2), (2, 0.8)):
        run = trim(decode.load([str(tmp_path / "ab"[number // 2])]).cores[0])
        seconds = (run.inside["tsc"].astype(np.int64) - run.begin_tsc) / run.log.tsc_hz - window
        np.testing.assert_allclose(values(browser, number, "time", False), seconds, atol=1e-7)
    assert "begin of each run's measured window" in browser.evaluate("document.getElementById('notes').textContent")
    # The table of the first picture has the same axis of time.
    columns = browser.evaluate("(({grid}) => Array.from(grid.of[0]))(firstPlan().runs[0].panels[0])")
    used = np.flatnonzero(np.array(columns).reshape(report.page_series.FIRST_CELLS[::-1]).sum(axis=0))
    width = 2.0 / report.page_series.FIRST_CELLS[0]
    assert -0.8 + used[0] * width == pytest.approx(-0.2, abs=0.03) and -0.8 + (used[-1] + 1) * width == pytest.approx(0.8, abs=0.03)
    choose(browser, zero="run")
    assert browser.evaluate("shown.axes.x") == pytest.approx([0, 2])
    assert values(browser, 0, "time", False).min() >= 0


def test_a_run_without_a_window_begins_at_its_begin_and_the_page_says_so(browser: Browser, arms: Path) -> None:
    browser.show(arms.as_uri())
    notes = "document.getElementById('notes').textContent"
    assert browser.evaluate("state.zero") == "run" and "Second 0 is the begin of each run." in browser.evaluate(notes)
    choose(browser, zero="window")
    assert values(browser, 0, "time", False).min() == pytest.approx(-0.2, abs=0.01)
    assert values(browser, 2, "time", False).min() >= 0
    assert "the begin of Linux static, Linux dynamic, whose window is not known" in browser.evaluate(notes)


# ---- logs of Linux ----


def test_the_present_itr_of_linux_and_the_idle_states_of_both_systems_are_drawn(browser: Browser, arms: Path) -> None:
    browser.show(arms.as_uri())
    assert set(values(browser, 4, "itr_us", False)) == set(synthetic_linux.ADAPTIVE_US)
    assert set(values(browser, 2, "itr_us", False)) == {8} and set(values(browser, 0, "itr_us", False)) == {8}
    choose(browser, colour="idle_state")
    assert browser.evaluate("shown.colour.names") == ["c7", "c7s"], "state 5 has another name on each system"
    states = [set(values(browser, number, "idle_state", False)) for number in (0, 2)]
    assert len(states[0] | states[1]) == 2


def test_a_log_of_linux_alone_has_a_page_without_neaps_settings(browser: Browser, tmp_path: Path) -> None:
    synthetic_linux.write(tmp_path / "linux", Shape(cores=1, records=300, counters=()))
    page = page_of(tmp_path, ("linux",), [])
    browser.show(page.as_uri())
    assert browser.evaluate("document.querySelector('label.several').hidden") is True
    disabled = set(browser.evaluate("[...document.getElementById('y').options].filter((each) => each.disabled).map((each) => each.value)"))
    assert {"pstate", "poll_budget_us", "rx_descriptors", "watts"} <= disabled and not {"itr_us", "asleep", "rx_frames"} & disabled
    text = browser.evaluate("document.body.textContent")
    assert f"Linux {synthetic_linux.KERNEL} ixgbe" in text and "None" not in text and "poll_budget=" not in text


# ---- what is under the mouse ----


def test_the_mouse_reads_points_and_curves_of_each_run(browser: Browser, arms: Path) -> None:
    browser.show(f"{arms.as_uri()}#cores=0")
    left, top, wide, _ = strip_box(browser, "power of each package")
    browser.evaluate("places[0].strips.scrollIntoView()")
    at = browser.evaluate("[scrollX, scrollY]")
    hover(browser, left + wide / 4 - at[0], top + 20 - at[1])
    said = browser.wait("places[0].stripsReadout.textContent")
    assert (
        said.startswith(("0.49", "0.5"))
        and "Neap package 0 30" in said
        and "Linux static package 0 50" in said
        and "Linux dynamic package 0 40" in said
    )
    hover(browser, left + 0.9 * wide - at[0], top + 20 - at[1])
    browser.wait("places[0].stripsReadout.textContent.startsWith('1.')")
    assert "Neap" not in browser.evaluate("places[0].stripsReadout.textContent"), "this run has ended"
    browser.evaluate("places[0].points.scrollIntoView()")
    x, y, wide, tall = browser.evaluate(
        "(({left, top}, {place}) => [left + place.left, top + place.top, place.width, place.height])"
        "(places[0].points.getBoundingClientRect(), shown.runs[0].panels[0])"
    )
    hover(browser, x + wide / 4, y + 0.4 * tall)
    said = browser.wait("places[0].readout.textContent")
    assert "core 0" in said and all(f"{name} " in said for name in NAMES)


def test_a_point_under_the_mouse_names_its_run(browser: Browser, arms: Path) -> None:
    browser.show(f"{arms.as_uri()}#cores=0&time=0.3,0.31")
    x, y, run = browser.evaluate(
        "(({left, top}, {place, layers}, {x, y}) => { const layer = layers[1], i = layer.begin;"
        " return [left + place.left + (layer.x[i] - x[0]) / (x[1] - x[0]) * place.width,"
        " top + place.top + (1 - (layer.y[i] - y[0]) / (y[1] - y[0])) * place.height, page.runs[layer.core.run].short]; })"
        "(places[0].points.getBoundingClientRect(), shown.runs[0].panels[0], shown.axes)"
    )
    hover(browser, x, y)
    assert run == "Linux static" and browser.wait("places[0].readout.textContent").startswith("Linux static, core 0   point at 0.3")


# ---- text and the command ----


def test_the_command_names_the_runs_and_the_table_has_ratios_to_the_first(arms: Path, tmp_path: Path) -> None:
    out = tmp_path / "named.html"
    words = [word for name in ("A & B", "L1", "L2") for word in ("--name", name)]
    done = neap("log", "report", *words, *(str(tmp_path / name) for name in ("neap", "static", "dynamic")), "--out", str(out))
    assert done.returncode == 0, done.stderr
    text = out.read_text()
    assert "<th>A &amp; B</th><th>L1</th><th>L2</th><th>L1 / A &amp; B</th><th>L2 / A &amp; B</th>" in text
    assert "<td>power (W)</td><td>30</td><td>50</td><td>40</td><td>1.667</td><td>1.333</td>" in text
    assert "<td>requests per second</td><td>3,000</td><td>unknown</td><td>unknown</td><td>unknown</td><td>unknown</td>" in text
    refused = neap("log", "report", "--name", "A", *(str(tmp_path / name) for name in ("neap", "static")), "--out", str(out))
    assert refused.returncode != 0 and "--name names 1 runs, but there are 2" in refused.stderr


def test_every_choice_is_drawn_in_both_layouts(browser: Browser, arms: Path) -> None:
    browser.show(arms.as_uri())
    for layout in ("over", "side"):
        choose(browser, layout=layout)
        for name in (*browser.evaluate("Object.keys(quantity)"), "count", "share", "cdf"):
            choose(browser, y=name)
            assert browser.evaluate("document.documentElement.dataset.drawn") == f"time {name} run", (layout, name)
        for name in ("density", "core", "kind", "rx_bytes", "ipc", "run"):
            choose(browser, y="interval", colour=name)
            assert browser.evaluate("document.documentElement.dataset.drawn") == f"time interval {name}"
    assert "error" not in browser.evaluate("({...document.documentElement.dataset})")
