# SPDX-License-Identifier: BSL-1.0
"""In a browser, the report page draws every choice, holds exactly the log's records, and makes no connection."""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tools.errors import UsageError
from tools.log import decode, layout, page_data, report, study, study_layout, synthetic
from tools.log.browser import Browser
from tools.log.decode import COUNTERS
from tools.log.trim import trim

HZ = 2_000_000_000
MARK_COLOUR = (0xB3, 0x00, 0x5E)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


@pytest.fixture
def page_of(tmp_path: Path) -> Callable[..., Path]:
    """Returns a function that makes a page of one synthetic run or of several."""

    def make(*shapes: synthetic.Shape) -> Path:
        folders = [tmp_path / f"run{number}" for number in range(len(shapes))]
        for folder, shape in zip(folders, shapes):
            synthetic.write(folder, shape)
        page = tmp_path / "report.html"
        report.write(report.load([str(folder) for folder in folders]), page)
        return page

    return make


def log_of(page: Path, number: int = 0) -> decode.RunLog:
    return decode.load([str(page.parent / f"run{number}")])


def column(browser: Browser, core: int, name: str) -> list[float]:
    return browser.evaluate(f"column(allCores[{core}], '{name}').then(found => Array.from(found))")


def values(browser: Browser, core: int, name: str, is_stretch: bool) -> np.ndarray:
    """Returns a quantity's values as the page draws them; nan: unknown."""
    text = f"valuesOf(allCores[{core}], '{name}', {json.dumps(is_stretch)}).then(all => Array.from(all, x => Number.isNaN(x) ? null : x))"
    return np.array([np.nan if value is None else value for value in browser.evaluate(text)])


def choose(browser: Browser, **choices: str) -> None:
    for name, value in choices.items():
        browser.evaluate(f"choose('{name}', '{value}')")


def panels(browser: Browser) -> list[dict]:
    """Returns the title and the number of points of each panel, in all runs."""
    return browser.evaluate(
        "shown.runs.flatMap(({panels}) => panels.map(({title, grid}) => ({title, inside: grid.inside, unknown: grid.unknown})))"
    )


# ---- the page's data ----


def test_the_pages_records_are_the_logs(browser: Browser, page_of: Callable[..., Path]) -> None:
    page = page_of(synthetic.Shape(cores=3, packages=2, records=2000, seconds=0.5, tsc_hz=HZ, idle_records=True))
    browser.show(page.as_uri())
    for number, core in enumerate(log_of(page).cores):
        run = trim(core)
        inside = run.inside
        for name in ("kind", "idle_state", "idle_ticks", *page_data.COUNTS):
            assert column(browser, number, name) == inside[name].tolist(), name
        ticks = np.cumsum(column(browser, number, "time")).astype(np.uint64) + np.uint64(run.begin_tsc)
        assert ticks.tolist() == inside["tsc"].tolist()
        assert values(browser, number, "generation", False).tolist() == inside["generation"].tolist()
        expected = run.interval_ticks[1:] * 1e6 / HZ
        np.testing.assert_allclose(values(browser, number, "interval", False), np.where(expected > 0, expected, np.nan), rtol=1e-6)
        by_generation = {row["generation"]: row["itr_us"] for row in core.settings}
        assert values(browser, number, "itr_us", False).tolist() == [by_generation[each] for each in inside["generation"].tolist()]


def test_stretches_between_samples_have_the_logs_sums_and_growths(browser: Browser, page_of: Callable[..., Path]) -> None:
    shape = synthetic.Shape(cores=2, records=1000, seconds=0.5, tsc_hz=HZ, watts=40.0, sample_every=10)
    page = page_of(shape)
    browser.show(page.as_uri())
    cores = [trim(core) for core in log_of(page).cores]
    interrupts = np.sort(np.concatenate([core.inside["tsc"][core.inside["kind"] == decode.INTERRUPT] for core in cores]))
    for number, core in enumerate(cores):
        at, instructions = core.sampled("instructions")
        if len(column(browser, number, "s_time")) < len(at) - 1:
            at, instructions = np.delete(at, -2), np.delete(instructions, -2)  # a short last stretch joins the one before
        assert column(browser, number, "s_instructions") == (np.diff(instructions) + np.uint64(1)).tolist()
        total = np.concatenate([[0], np.cumsum(core.records["rx_bytes"].astype(np.int64))])
        assert column(browser, number, "s_rx_bytes") == (total[at[1:] + 1] - total[at[:-1] + 1]).tolist()
        seconds = np.diff(core.tsc[at].astype(np.int64)) / HZ
        np.testing.assert_allclose(values(browser, number, "ipc", True), 1.2, rtol=1e-3)
        counted = np.diff(np.searchsorted(interrupts, core.tsc[at], side="right"))
        expected = np.where(counted > 0, 40e6 * seconds / np.maximum(counted, 1), np.nan)
        # The energy counter counts in units of 15 uJ.
        np.testing.assert_allclose(values(browser, number, "uj_interrupt", True), expected, atol=31, rtol=1e-3)


def test_chosen_events_are_quantities_by_their_names(browser: Browser, page_of: Callable[..., Path]) -> None:
    """The two runs have one event in common, in different counters."""
    shape = synthetic.Shape(cores=1, records=1000, seconds=0.5, tsc_hz=HZ, events=("branch_misses", "event=0xd1,umask=0x20"))
    page = page_of(shape, dataclasses.replace(shape, run=2, events=("constructor", "branch_misses")))
    browser.show(f"{page.as_uri()}#layout=side")
    assert set(browser.evaluate("Object.keys(quantity).filter((name) => name.startsWith('event:'))")) == {
        "event:branch_misses",
        "event:event=0xd1,umask=0x20",
        "event:constructor",
    }
    shares = synthetic.EVENT_SHARES
    for number, (name, share) in enumerate([("branch_misses", shares[0]), ("branch_misses", shares[1])]):
        counter = log_of(page, number).events[name]
        run = trim(log_of(page, number).cores[0])
        at, counts = run.sampled(counter)
        found = values(browser, number, f"event:{name}", True)
        if len(found) < len(at) - 1:
            counts = np.delete(counts, -2)  # a short last stretch joins the one before
        np.testing.assert_array_equal(found, np.diff(counts).astype(float))
        assert found.sum() == pytest.approx(share * HZ * 0.5, rel=1e-3)
        # The instructions are 0.6 a tick.
        np.testing.assert_allclose(np.nanmean(values(browser, number, f"rate:{name}", True)), 1000 * share / 0.6, rtol=1e-2)
    assert np.isnan(values(browser, 1, "event:event=0xd1,umask=0x20", True)).all(), "this run did not count it"
    choose(browser, y="event:event=0xd1,umask=0x20", x="rate:branch_misses")
    first, second = panels(browser)
    assert first["inside"] > 50 and second["inside"] == 0
    assert "y=event%3Aevent%3D0xd1%2Cumask%3D0x20" in browser.evaluate("location.hash").replace(",", "%2C")
    options = browser.evaluate("[...document.getElementById('y').options].map(({textContent, disabled}) => disabled ? '' : textContent)")
    assert {"branch_misses", "branch_misses per 1000 instructions", "event=0xd1,umask=0x20"} <= set(options)


@pytest.mark.parametrize("maximum", [0, 1, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32, (1 << 52) - 1])
def test_packed_numbers_come_back(browser: Browser, page_of: Callable[..., Path], maximum: int) -> None:
    browser.show(page_of(synthetic.Shape(cores=1, records=50)).as_uri())
    about, text = page_data.pack(np.array([0, maximum // 2, maximum], np.int64))
    found = browser.evaluate(f"unpack({json.dumps(about)}, {json.dumps(text)}).then(all => Array.from(all))")
    assert found == [0, maximum // 2, maximum]


def test_a_page_with_fewer_records_than_the_log_keeps_the_extremes_and_says_so(
    browser: Browser, page_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_data, "RECORDS_MAX", 1000)
    monkeypatch.setattr(page_data, "STRETCHES_MAX", 100)
    monkeypatch.setattr(page_data, "EXTREMES_EACH", 10)
    page = page_of(synthetic.Shape(cores=2, records=5000, tsc_hz=HZ))
    browser.show(page.as_uri())
    for number, core in enumerate(log_of(page).cores):
        run = trim(core)
        kept = column(browser, number, "rx_bytes")
        assert 5000 // 11 <= len(kept) <= 5000 // 11 + 32 and max(kept) == run.inside["rx_bytes"].max()
        assert np.nanmax(values(browser, number, "interval", False)) == pytest.approx(run.interval_ticks.max() * 1e6 / HZ)
        # Stretches cover the whole run, however few they are.
        assert sum(column(browser, number, "s_rx_bytes")) == run.sum("rx_bytes") and len(column(browser, number, "s_time")) <= 60
    assert "the log has 10,002 records; the page holds one in 11" in browser.evaluate("document.getElementById('notes').textContent")


def test_the_first_picture_counts_every_record(page_of: Callable[..., Path]) -> None:
    text = page_of(synthetic.Shape(cores=2, records=3000)).read_text()
    run = json.loads(re.search(r'id="data">\n(.*)\n</script>', text).group(1))["runs"][0]
    for core in run["cores"]:
        import base64

        about = core["first_about"]
        planes = np.frombuffer(base64.b64decode(core["first_text"]), np.uint8).reshape(about["width"], -1)
        counts = sum(planes[plane].astype(np.int64) << 8 * plane for plane in range(about["width"]))
        assert 2999 <= int(counts.sum()) <= 3001, "all but intervals of 0"
    # The table comes before the records, so that the browser need not wait for them.
    assert text.index('id="data"') < text.index("begin();") < text.index('id="column-0-0-time"')


# ---- choices ----


def test_every_choice_is_drawn(browser: Browser, page_of: Callable[..., Path]) -> None:
    page = page_of(synthetic.Shape(cores=4, packages=2, records=4000, sample_every=10))
    assert browser.show(page.as_uri())["drawn"] == "time interval density"
    assert [(panel["title"], panel["inside"] + panel["unknown"]) for panel in panels(browser)] == [(f"core {n}", 4001) for n in range(4)]
    names = browser.evaluate("Object.keys(quantity)")
    assert len(names) > 30
    for name in names:
        choose(browser, y=name)
        found = panels(browser)
        assert len(found) == 4 and all(panel["inside"] > 300 for panel in found), (name, found)
    choose(browser, y="interval")
    for name in ("core", "kind", "generation", "itr_us", "rx_bytes", "ipc"):
        choose(browser, colour=name)
        assert browser.evaluate("document.documentElement.dataset.drawn") == f"time interval {name}"
    choose(browser, colour="core")
    assert [f"core {n}" in browser.evaluate("document.getElementById('legend').textContent") for n in range(4)] == [True] * 4
    choose(browser, colour="density", cores="together")
    assert [panel["title"] for panel in panels(browser)] == ["all 4 cores"]
    choose(browser, cores="2", x="rx_bytes", y="count")
    assert panels(browser) == [{"title": "core 2", "inside": 4001, "unknown": 0}]
    assert browser.evaluate("location.hash") == "#x=rx_bytes&y=count&cores=2"
    assert "error" not in browser.evaluate("({...document.documentElement.dataset})")


def test_mouse_keys_and_address_choose_a_span_of_time_with_single_points(browser: Browser, page_of: Callable[..., Path]) -> None:
    page = page_of(synthetic.Shape(cores=2, records=20_000, seconds=10, tsc_hz=HZ, changes=0))
    browser.show(f"{page.as_uri()}#time=5,5.01")
    expected = []
    for core in log_of(page).cores:
        run = trim(core)
        seconds = (run.inside["tsc"].astype(np.int64) - run.begin_tsc) / HZ
        expected.append(int(np.count_nonzero((seconds >= 5.0) & (seconds <= 5.01))))
    assert [panel["inside"] for panel in panels(browser)] == expected
    assert browser.evaluate("document.getElementById('legend').textContent") == "each dot is one point"
    choose(browser, x="rx_bytes")
    assert [panel["inside"] + panel["unknown"] for panel in panels(browser)] == expected, "the span of time holds for other axes, too"
    choose(browser, x="time")
    left, top, wide, tall = browser.evaluate(
        "(box => { const {place} = shown.runs[0].panels[0];"
        " return [box.left + place.left, box.top + place.top, place.width, place.height]; })(places[0].points.getBoundingClientRect())"
    )
    browser.drag((left + 0.25 * wide, top + 0.5 * tall), (left + 0.75 * wide, top + 0.5 * tall))
    low, high = browser.wait("!drawing && state.time[0] > 5 && state.time")
    assert (low, high) == (pytest.approx(5.0025, abs=1e-4), pytest.approx(5.0075, abs=1e-4))
    browser.evaluate("places[0].points.focus()")
    browser.key("-")
    low, high = browser.wait("!drawing && state.time[0] < 5.001 && state.time")
    assert high - low == pytest.approx(0.01, abs=2e-4)
    browser.key("0")
    browser.wait("!drawing && state.time === null")
    assert all(panel["inside"] > 19_900 for panel in panels(browser))


def test_two_runs_have_equal_scales_and_their_figures_side_by_side(browser: Browser, page_of: Callable[..., Path]) -> None:
    one = synthetic.Shape(cores=2, records=1000, seconds=2, run=1)
    page = page_of(one, synthetic.Shape(cores=4, records=3000, seconds=1, watts=20, run=2, seed=5, application="netpipe"))
    browser.show(f"{page.as_uri()}#layout=side")
    assert [len(each) for each in browser.evaluate("shown.runs.map(({panels}) => panels.map(({title}) => title))")] == [2, 4]
    assert browser.evaluate("document.querySelectorAll('.run').length") == 2
    assert browser.evaluate("shown.axes.x") == pytest.approx([0, 2]), "the longer run"
    text = page.read_text()
    assert "run0: run 1 of memcached and run1: run 2 of netpipe" in text
    assert "<td>power (W)</td><td>40</td><td>20</td><td>0.5</td>" in text


def test_folders_of_one_run_are_one_run_and_folders_with_the_same_cores_are_two(tmp_path: Path) -> None:
    shape = synthetic.Shape(cores=2, records=100)
    for name in ("whole", "again", "part0", "part1"):
        synthetic.write(tmp_path / name, shape)
    (tmp_path / "part0/core1.log").unlink()
    (tmp_path / "part1/core0.log").unlink()
    assert [len(run.log.cores) for run in report.load([str(tmp_path / name) for name in ("part0", "part1")])] == [2]
    # Equal seeds give two runs of a model equal names.
    assert [run.name for run in report.load([str(tmp_path / name) for name in ("whole", "again")])] == ["whole", "again"]
    with pytest.raises(UsageError, match="7 runs, a page shows at most 6"):
        report.load([str(tmp_path / name) for name in ["whole", "again", "whole", "again", "whole", "again", "whole"]])
    named = report.load([str(tmp_path / name) for name in ("whole", "again")], ["Neap", "Linux\x1b[2J"])
    assert [run.name for run in named] == ["Neap", "Linux\\x1b[2J"]
    with pytest.raises(UsageError, match="--name names 1 runs, but there are 2"):
        report.load([str(tmp_path / name) for name in ("whole", "again")], ["Neap"])


def test_published_data_has_its_rows_as_points_and_lacks_what_its_files_lack(browser: Browser, tmp_path: Path) -> None:
    synthetic.write(tmp_path / "log", synthetic.Shape(cores=2, records=500, changes=0, tsc_hz=study_layout.CLOCK_HZ))
    wanted = study.Wanted(study_layout.LAYOUTS["linux"], study_layout.Setting("8", "0x1800", "135"), "200000")
    study.write(decode.load([str(tmp_path / "log")]), wanted, tmp_path / "published")
    runs = report.load([str(tmp_path / "published")])
    report.write(runs, tmp_path / "report.html")
    browser.show((tmp_path / "report.html").as_uri())
    rows = [int(np.count_nonzero(core.records["kind"] == decode.INTERRUPT)) for core in runs[0].log.cores]
    assert [panel["inside"] + panel["unknown"] for panel in panels(browser)] == rows
    disabled = browser.evaluate("[...document.getElementById('y').options].filter(each => each.disabled).map(each => each.value)")
    assert {"rx_frames", "tx_frames", "asleep"} <= set(disabled) and "rx_bytes" not in disabled and "uj_interrupt" not in disabled
    assert "published data: frames, time asleep" in browser.evaluate("document.body.textContent")


# ---- the picture ----


def test_the_picture_shows_points_curves_and_marks(browser: Browser, page_of: Callable[..., Path], tmp_path: Path) -> None:
    browser.show(page_of(synthetic.Shape(cores=16, packages=2, records=3000, seconds=2, changes=2)).as_uri())
    browser.screenshot(tmp_path / "picture.png")
    pixels = np.asarray(Image.open(tmp_path / "picture.png").convert("RGB")).astype(int)

    def count(colour: tuple[int, int, int], of: np.ndarray) -> int:
        # Anti-aliasing changes a thin line's colour, so similar colours count as well.
        return int(np.count_nonzero(np.abs(of - colour).sum(axis=-1) < 60))

    assert count(MARK_COLOUR, pixels) > 1000
    boxes = browser.evaluate(
        "(box => shown.runs[0].panels.map(({place}) => [box.left + place.left, box.top + place.top, place.width, place.height]))"
        "(places[0].points.getBoundingClientRect())"
    )
    for left, top, wide, tall in (map(int, box) for box in boxes):
        panel = pixels[top : top + tall, left : left + wide]
        blue = np.count_nonzero(panel[..., 2] - panel[..., 0] > 60)
        assert 0.02 * wide * tall < blue < 0.9 * wide * tall, "points, and not only points"
        assert wide >= 135 and tall >= 100


def test_paper_has_the_pictures_without_the_choices_and_hints(browser: Browser, page_of: Callable[..., Path]) -> None:
    browser.show(page_of(synthetic.Shape(cores=1, records=50)).as_uri())
    heights = "['form', '.hint', '#runs'].map((each) => document.querySelector(each).getBoundingClientRect().height > 0)"
    assert browser.evaluate(heights) == [True, True, True]
    browser.ask("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.evaluate(heights) == [False, False, True]
    finally:
        browser.ask("Emulation.setEmulatedMedia", media="")


def test_a_cpu_without_counters_is_said_to_have_none(browser: Browser, page_of: Callable[..., Path]) -> None:
    page = page_of(synthetic.Shape(cores=1, records=50, counters=("instructions",)))
    text = page.read_text()
    assert "This CPU has no energy counter: energy and power are not drawn." in text and "energy not on this CPU" in text
    browser.show(f"{page.as_uri()}#y=watts")
    assert browser.evaluate("state.y") == "interval", "a quantity that the log lacks is not drawn"
    assert browser.evaluate("[...document.getElementById('y').options].filter(each => each.disabled).length") > 10
    assert len(COUNTERS) == 13


def test_a_run_without_records_gives_a_page(browser: Browser, tmp_path: Path) -> None:
    about = {**synthetic.about(synthetic.Shape(cores=1), 0)}
    (tmp_path / "core0.log").write_bytes(layout.build_header(0, 0, 0, 0, HZ, about))
    report.write(report.load([str(tmp_path)]), tmp_path / "report.html")
    browser.show((tmp_path / "report.html").as_uri())
    assert panels(browser) == [{"title": "core 0", "inside": 0, "unknown": 0}]


# ---- hostile text ----


def test_the_page_refers_to_nothing_outside_and_forbids_itself_to(page_of: Callable[..., Path]) -> None:
    text = page_of(synthetic.Shape(cores=1, records=50)).read_text()
    assert "default-src 'none'" in text and "connect-src" not in text
    assert not re.search(r"(src|href)\s*=|@import|url\(|https?:", text)


def test_text_from_a_log_or_a_folder_is_not_taken_for_markup(browser: Browser, tmp_path: Path) -> None:
    nasty = "</script><script>document.title='taken'</script><b>&"
    files, _ = synthetic.make(synthetic.Shape(cores=1, records=20))
    header = layout.parse_header(files[0][: layout.HEADER_BYTES], "a test")
    about = {**header.about, "application": nasty, "cpu": f"modelled {nasty}"}
    folders = [tmp_path / name for name in ("<b>one", "<b>two")]
    for folder in folders:
        folder.mkdir()
        (folder / "core0.log").write_bytes(
            layout.build_header(0, header.entries, 0, 0, header.tsc_hz, about) + files[0][layout.HEADER_BYTES :]
        )
        (folder / "result.json").write_text(json.dumps({"model": nasty}))
    report.write(report.load([str(folder) for folder in folders]), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert nasty not in text and "<b>" not in text
    browser.show((tmp_path / "report.html").as_uri())
    assert nasty in browser.evaluate("document.title") and browser.evaluate("document.querySelectorAll('b').length") == 0
    assert f"modelled ({nasty}" in browser.evaluate("document.body.textContent")
