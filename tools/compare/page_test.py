# SPDX-License-Identifier: BSL-1.0
"""In a browser, the page of a comparison draws each arm's figure in its place, reads by keyboard, and makes no connection."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tools.compare import page
from tools.errors import UsageError
from tools.log.browser import Browser

ARMS = ("Neap", "Linux static", "Linux dynamic")
# The bars, without the keys in the sentence above them.
BARS = "[...document.querySelectorAll('#bars rect.column')].filter((each) => !each.closest('.key'))"
LAYERS = ("idle", "driver", "network stack", "application")


def cell(mean: float, half: float = 0.0) -> dict:
    return {"mean": mean, "low": mean - half, "high": mean + half}


def sample() -> dict:
    """Returns a comparison with two workloads on one core and one on four cores. Linux dynamic has no power under get.16."""
    cells: dict = {}
    for number, workload in enumerate(("get.1", "get.16", "get.16.cores_4"), 1):
        cells[workload] = {}
        for factor, arm in enumerate(ARMS, 1):
            found = {"instructions": cell(1000.0 * number * factor), "p99_us": cell(20.0 * factor, 15.0), "watts": cell(30.0 + factor, 0.1)}
            found |= {f"instructions: {name}": cell(250.0 * number * factor) for name in LAYERS}
            cells[workload][arm] = found
    cells["get.16"]["Linux dynamic"]["watts"] = {"mean": None, "low": None, "high": None}
    return {
        "title": "Neap beside Linux",
        "model": "e5-2690",
        "arms": [{"name": name, "about": f"about {name}"} for name in ARMS],
        "workloads": [
            {"name": "get.1", "about": "GET, 1 connection", "cores": 1, "unit": "request"},
            {"name": "get.16", "about": "GET, 16 connections", "cores": 1, "unit": "request"},
            {"name": "get.16.cores_4", "about": "GET, 16 connections", "cores": 4, "unit": "request"},
        ],
        "cells": cells,
        "figures": [
            {"name": "instructions", "title": "instructions", "unit": "a @", "better": "low"},
            {"name": "p99_us", "title": "p99", "unit": "us", "better": "low"},
            {"name": "watts", "title": "package", "unit": "W", "better": "low"},
        ],
        "layers": list(LAYERS),
        "machine_differences": [{"name": "kernel", "Neap": "none", "Linux static": "6.1"}, "a text"],
        "remarks": ["one round has no interval"],
        "logs": "report.html",
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


def show(browser: Browser, tmp_path: Path, table: dict, fragment: str = "") -> None:
    (tmp_path / "compare.html").write_text(page.build(table))
    browser.open("about:blank")
    browser.open((tmp_path / "compare.html").as_uri() + fragment)
    browser.wait("(d => d.drawn || d.error)({...document.documentElement?.dataset})")
    assert browser.evaluate("document.documentElement.dataset.error") is None


def heights(browser: Browser) -> list[float]:
    return browser.evaluate(f"{BARS}.map((each) => each.getBBox().height)")


def texts(browser: Browser, selector: str) -> list[str]:
    return browser.evaluate(f"[...document.querySelectorAll('{selector}')].map((each) => each.textContent)")


def with_units() -> dict:
    """Returns a comparison in which an idle second has 5,000 times as many instructions as a request, and Neap has none. A round trip has
    no layers."""
    table = sample()
    names = {"idle.cores_1": "second", "ping_pong.64.cores_1": "round trip"}
    table["workloads"] += [{"name": name, "about": name, "cores": 1, "unit": unit} for name, unit in names.items()]
    for name, factor in zip(names, (5e6, 1e4)):
        table["cells"][name] = {arm: {"instructions": cell(factor * number)} for number, arm in enumerate(ARMS)}
    table["cells"]["ping_pong.64.cores_1"]["Neap"]["instructions"] = cell(2e3)
    table["cells"]["idle.cores_1"]["Linux static"] |= {f"instructions: {name}": cell(1.25e6) for name in LAYERS}
    return table


def test_bars_have_the_heights_of_their_figures(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, sample(), "#shown=values")
    found = heights(browser)
    assert len(found) == 6, "two workloads of one core, three arms"
    assert found == pytest.approx([found[0] * factor for factor in (1, 2, 3, 2, 4, 6)], rel=1e-6)
    assert browser.evaluate("document.querySelector('#bars svg text.name').firstChild.data") == "get.1"
    browser.evaluate("choose('cores', 'all')")
    assert len(heights(browser)) == 9
    browser.evaluate("choose('shown', 'ratios')")
    found = heights(browser)
    assert found == pytest.approx([found[0] * factor for factor in (1, 2, 3)] * 3, rel=1e-6)
    assert "shown=ratios" in browser.evaluate("location.hash")


def test_error_bars_span_the_interval_and_unknown_values_have_no_bar(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, sample(), "#figure=p99_us&shown=values")
    assert browser.evaluate("state.figure") == "p99_us"
    spans = browser.evaluate(
        "[...document.querySelectorAll('#bars path.error')]"
        ".map((each) => each.getAttribute('d').match(/ ([0-9.]+)V([0-9.]+)/).slice(1).map(Number))"
    )
    assert len(spans) == 6
    # An interval of 30 us is one and a half times as high as the first bar, of 20 us.
    assert spans[0][0] - spans[0][1] == pytest.approx(1.5 * heights(browser)[0], rel=1e-3)
    browser.evaluate("choose('figure', 'watts')")
    assert len(heights(browser)) == 5
    assert "Not known: get.16 (Linux dynamic)." in texts(browser, "#bars .note p")


def test_an_interval_far_longer_than_the_bars_is_cut_off(browser: Browser, tmp_path: Path) -> None:
    table = sample()
    table["cells"]["get.1"]["Neap"]["p99_us"] = cell(20.0, 500.0)
    show(browser, tmp_path, table, "#figure=p99_us&shown=values")
    path = browser.evaluate("document.querySelector('#bars path.error').getAttribute('d')")
    assert path.count("h") == 0, "neither end is on the axis"
    top, bottom = browser.evaluate("(({y, height}) => [y, y + height])(document.querySelector('#bars path.error').getBBox())")
    assert top >= 0 and bottom <= 210 and max(heights(browser)) > 90
    assert "interval -480 to 520" in browser.evaluate("document.getElementById('bars').textContent")


def test_ratios_to_the_first_arm_are_what_a_reader_sees_first(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, sample())
    found = heights(browser)
    assert found == pytest.approx([found[0] * factor for factor in (1, 2, 3)] * 2, rel=1e-6)
    assert texts(browser, "#bars text.value") == ["1", "2.00", "3.00"] * 2
    assert texts(browser, "#bars .summary strong") == ["2.00 times Neap", "3.00 times Neap"]
    assert texts(browser, "#bars-title") == ["instructions: ratio to Neap, 1 core"]
    assert "divided by the value of Neap" in texts(browser, "#bars-readout")[0]


def test_the_mean_of_ratios_is_geometric(browser: Browser, tmp_path: Path) -> None:
    table = sample()
    table["cells"]["get.16"]["Linux static"]["instructions"] = cell(16_000.0)
    show(browser, tmp_path, table)
    assert texts(browser, "#bars .summary .sum")[0] == " Linux static: 4.00 times Neap (2.00 to 8.00, 2 rows)"


def test_each_unit_has_a_scale_of_its_own(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, with_units(), "#shown=values")
    assert texts(browser, "#bars h3") == ["for each request", "for each second", "for each round trip"]
    tallest = browser.evaluate(
        "[...document.querySelectorAll('#bars .part')].map((part) => Math.max(...[...part.querySelectorAll('rect.column')]"
        ".filter((each) => !each.closest('.key')).map((each) => each.getBBox().height)))"
    )
    assert len(tallest) == 3 and min(tallest) > 120, "no unit's bars are flat beside another's"
    browser.evaluate("choose('figure', 'p99_us')")
    assert texts(browser, "#bars h3") == [], "microseconds are the same for all rows"


def test_a_row_without_a_ratio_or_a_value_is_in_a_note_and_has_no_bar(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, with_units())
    assert texts(browser, "#bars h3") == ["for each request", "for each round trip"]
    (note,) = texts(browser, "#bars .note p")
    assert note.startswith("No ratio, because the value of Neap is 0 or not known: idle: Neap 0, Linux static 5,000,000, ")
    browser.evaluate("choose('figure', 'watts')")
    assert "Without this figure: idle, ping_pong.64." in texts(browser, "#bars .note p")


def test_an_arm_without_a_value_takes_no_room(browser: Browser, tmp_path: Path) -> None:
    table = sample()
    del table["cells"]["get.16"]["Linux static"]
    show(browser, tmp_path, table)
    boxes = browser.evaluate(f"{BARS}.map((each) => (({{x, width}}) => [x, width])(each.getBBox()))")
    assert len(boxes) == 5
    (first, width), (second, _) = boxes[3:]
    assert second - first == pytest.approx(width + 2, abs=0.1)


def test_pictures_have_the_pages_width(browser: Browser, tmp_path: Path) -> None:
    table = sample()
    table["workloads"] = [{"name": f"w{number}", "about": "", "cores": 1, "unit": "request"} for number in range(8)]
    table["cells"] = {f"w{number}": copy.deepcopy(table["cells"]["get.1"]) for number in range(8)}
    try:
        for width in (1000, 1500):
            browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
            show(browser, tmp_path, table)
            ends = browser.evaluate(
                "['bars', 'layers'].map((id) => Math.max(...[...document.querySelectorAll(`#${id} svg :is(text, rect)`)]"
                ".map((each) => each.getBoundingClientRect().right)))"
            )
            assert all(width - 100 < end <= width for end in ends), "neither narrow nor cut off"
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        browser.ask("Emulation.setDeviceMetricsOverride", width=1400, height=1000, deviceScaleFactor=1, mobile=False)


def test_layers_and_tables_follow_the_choice_of_cores(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, sample())
    shown = "[...document.querySelectorAll('details[data-cores]')].filter((each) => each.getBoundingClientRect().height > 0)"
    summaries = f"{shown}.map((each) => each.querySelector('summary').textContent)"
    assert browser.evaluate(summaries) == ["get.1", "get.16"]
    browser.evaluate("choose('cores', '4')")
    assert browser.evaluate(summaries) == ["get.16.cores_4"]
    assert texts(browser, "#layers text.name") == ["get.16 GET, 16 connections".replace(" ", "  ", 1)]
    browser.evaluate("choose('cores', 'all')")
    assert browser.evaluate(summaries) == ["get.1", "get.16", "get.16.cores_4"]


def test_paper_has_the_chosen_figure_without_the_choices(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, sample(), "#figure=p99_us")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    widths = browser.evaluate("[...document.querySelectorAll('#layers svg')].map((each) => each.viewBox.baseVal.width)")
    assert set(widths) == {720}
    browser.ask("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.evaluate("[...document.querySelectorAll('form')].every((each) => !each.getBoundingClientRect().height)")
        assert texts(browser, "#bars-title") == ["p99: ratio to Neap, 1 core"]
        browser.ask("Emulation.setDeviceMetricsOverride", width=720, height=1000, deviceScaleFactor=1, mobile=False)
        ends = "Math.max(...[...document.querySelectorAll('.values, svg')].map((each) => each.getBoundingClientRect().right))"
        assert browser.evaluate(ends) <= 720, "no column is cut off"
    finally:
        browser.ask("Emulation.setEmulatedMedia", media="")
        browser.ask("Emulation.setDeviceMetricsOverride", width=1400, height=1000, deviceScaleFactor=1, mobile=False)


def test_a_logarithmic_scale_draws_decades_of_equal_height(browser: Browser, tmp_path: Path) -> None:
    table = sample()
    for factor, arm in zip((1, 10, 100), ARMS):
        table["cells"]["get.1"][arm]["instructions"] = cell(1000.0 * factor)
    table["workloads"] = table["workloads"][:1]
    show(browser, tmp_path, table, "#scale=log&shown=values")
    first, second, third = heights(browser)
    assert second - first == pytest.approx(third - second, rel=1e-6)


def test_logarithmic_bars_of_ratios_begin_at_one(browser: Browser, tmp_path: Path) -> None:
    table = sample()
    table["workloads"] = table["workloads"][:1]
    for factor, arm in zip((1, 0.1, 10), ARMS):
        table["cells"]["get.1"][arm]["instructions"] = cell(1000.0 * factor)
    show(browser, tmp_path, table, "#scale=log")
    boxes = browser.evaluate(f"{BARS}.map((each) => (({{y, height}}) => [y, y + height])(each.getBBox()))")
    (less_top, less_bottom), (more_top, more_bottom) = boxes
    assert less_top == pytest.approx(more_bottom, abs=0.01), "a tenth goes down from 1, ten times goes up; the first arm has no length"
    assert less_bottom - less_top == pytest.approx(more_bottom - more_top, rel=1e-3)


def test_layers_are_stacked_and_named(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, sample())
    rows = browser.evaluate(
        "[...document.querySelectorAll('#layers rect.column')].map((each) => (({x, y, width}) => [x, y, width])(each.getBBox()))"
    )
    assert len(rows) == 2 * 3 * len(LAYERS)
    for at in range(0, len(rows), len(LAYERS)):
        group = rows[at : at + len(LAYERS)]
        assert len({y for _, y, _ in group}) == 1
        for (x, _, width), (following, _, _) in zip(group, group[1:]):
            assert x + width == pytest.approx(following)
    assert browser.evaluate("document.getElementById('layers-legend').textContent") == "".join(LAYERS)
    browser.evaluate("choose('cores', '4')")
    assert browser.evaluate("document.querySelectorAll('#layers rect.column').length") == 3 * len(LAYERS)
    without = sample()
    without["layers"] = []
    show(browser, tmp_path, without)
    assert browser.evaluate("document.getElementById('layers-part').hidden") is True


def test_the_bars_of_layers_are_scaled_to_the_row_the_arm_or_the_unit(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, with_units())
    ends = (
        "[...document.querySelectorAll('#layers svg')].map((each) => Math.max(...[...each.querySelectorAll('rect.column')]"
        ".map((one) => one.getBBox().x + one.getBBox().width)))"
    )
    get_1, get_16, idle = browser.evaluate(ends)
    assert get_1 == pytest.approx(get_16, rel=0.05), "3,000 and 6,000 instructions"
    assert idle > 0.8 * get_1
    assert texts(browser, "#layers svg:first-of-type text.total")[:3] == ["1,000", "2,000 (2.00 times Neap)", "3,000 (3.00 times Neap)"]
    assert texts(browser, "#layers h3") == ["for each request", "for each second"], "a round trip has no layers"
    browser.evaluate("choose('bars_of_layers', 'one')")
    get_1, get_16, _ = browser.evaluate(ends)
    left = browser.evaluate("document.querySelector('#layers rect.column').getBBox().x")
    assert (get_16 - left) / (get_1 - left) == pytest.approx(2, rel=0.05)
    browser.evaluate("choose('bars_of_layers', 'share')")
    widths = browser.evaluate(
        "[...document.querySelectorAll('#layers svg:first-of-type rect.column')].slice(0, 12).map((each) => each.getBBox().width)"
    )
    assert max(widths) == pytest.approx(min(widths)), "equal shares of all arms"


def test_arrow_keys_read_bars_one_by_one(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, sample(), "#figure=p99_us&shown=values")
    assert browser.evaluate("document.querySelectorAll('#bars [tabindex=\"0\"]').length") == 1, "one stop of the Tab key"
    browser.evaluate("document.querySelector('#bars [tabindex=\"0\"]').focus()")
    readout = "document.getElementById('bars-readout').textContent"
    assert browser.evaluate(readout) == "get.1, Neap: p99 20 us, 95 % interval 5 to 35"
    browser.key("ArrowRight")
    assert browser.evaluate(readout) == "get.1, Linux static: p99 40 us, 95 % interval 25 to 55"
    browser.key("End")
    assert browser.evaluate(readout).startswith("get.16, Linux dynamic: p99 60 us")
    assert browser.evaluate("document.activeElement.querySelector('title').textContent") == browser.evaluate(readout), "the tooltip"


def test_tables_have_values_ratios_and_overlaps_without_scripts() -> None:
    text = page.build(sample())
    assert "<td>instructions (a request)</td><td class=better>1,000</td><td>2,000</td><td>3,000</td><td>2</td><td>3</td>" in text
    assert text.count('<td class="close">(2)</td><td>3</td>') == 3, "5 to 35 and 25 to 55 overlap, 45 to 75 does not"
    assert "<td>package (W)</td><td>31 <small>(30.9 to 31.1)</small></td>" in text
    assert "modelled (e5-2690)" in text and "one round has no interval" in text and '<a href="./report.html">' in text
    assert "instructions a request, network stack" in text and "<td>kernel</td><td>none</td><td>6.1</td>" in text
    for name in ARMS:
        assert f"<strong>{name}</strong></td><td>about {name}</td>" in text


def test_the_arms_patterns_differ_without_colour(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, sample())
    browser.screenshot(tmp_path / "page.png")
    grey = np.asarray(Image.open(tmp_path / "page.png").convert("L")).astype(int)
    boxes = browser.evaluate(
        f"{BARS}.slice(3).map((each) => {{ const box = each.getBoundingClientRect();"
        " return [box.left + scrollX, box.top + scrollY, box.width, box.height].map(Math.round); })"
    )
    spreads = [grey[top + 3 : top + high - 3, left + 3 : left + wide - 3].std() for left, top, wide, high in boxes]
    assert spreads[0] < 1 < min(spreads[1:]), "the first arm's bars are plain, the others' have lines or dots"


def test_many_workloads_are_in_several_rows_of_equal_scale(browser: Browser, tmp_path: Path) -> None:
    table = sample()
    table["workloads"] = [{"name": f"w{number}", "about": "", "cores": 1, "unit": "request"} for number in range(20)]
    table["cells"] = {f"w{number}": copy.deepcopy(table["cells"]["get.1"]) for number in range(20)}
    show(browser, tmp_path, table)
    assert browser.evaluate("document.querySelectorAll('#bars svg:not(.key)').length") == 2
    found = heights(browser)
    assert found[:3] == found[-3:]
    widths = browser.evaluate(f"{BARS}.map((each) => each.getBBox().width)")
    assert max(widths) == pytest.approx(min(widths)) and min(widths) > 20


def test_the_page_makes_no_connection_and_takes_no_text_for_markup(browser: Browser, tmp_path: Path) -> None:
    nasty = "</script><script>document.title='taken'</script><b>&\"'@TABLES@"
    table = sample()
    table["title"] = table["remarks"][0] = table["arms"][0]["about"] = table["model"] = nasty
    table["arms"][1]["name"] = table["workloads"][1]["name"] = table["layers"][0] = table["figures"][1]["title"] = nasty
    table["machine_differences"] = [nasty, {"name": nasty}]
    table["cells"] = {
        nasty if name == "get.16" else name: {nasty if arm == ARMS[1] else arm: found for arm, found in arms.items()}
        for name, arms in table["cells"].items()
    }
    text = page.build(table)
    assert "<b>" not in text and "default-src 'none'" in text and "connect-src" not in text
    assert not re.search(r"src\s*=|@import|url\(['\"]?[a-z]+:|https?://(?!www\.w3\.org/2000/svg)", text)
    show(browser, tmp_path, table)
    assert nasty in browser.evaluate("document.title") and browser.evaluate("document.querySelectorAll('b').length") == 0


def test_a_comparison_without_a_needed_member_and_a_link_elsewhere_are_refused() -> None:
    table = sample()
    del table["cells"]
    with pytest.raises(UsageError, match="the comparison has no cells"):
        page.build(table)
    for link in ("https://example.org/x", "javascript:alert(1)", "/etc/passwd"):
        with pytest.raises(UsageError, match="must be relative"):
            page.build({**sample(), "logs": link})


def test_unknown_and_infinite_values_are_not_known(browser: Browser, tmp_path: Path) -> None:
    table = sample()
    table["cells"]["get.1"]["Neap"] = {"instructions": {"mean": float("nan"), "low": None, "high": float("inf")}}
    table["cells"].pop("get.16")
    show(browser, tmp_path, table, "#shown=values")
    assert len(heights(browser)) == 2
    browser.evaluate("choose('shown', 'ratios')")
    assert len(heights(browser)) == 0
    assert texts(browser, "#bars .note p") == [
        "No ratio, because the value of Neap is 0 or not known: get.1: Linux static 2,000, Linux dynamic 3,000 (a request).",
        "Not known: get.1 (Neap).",
        "Without this figure: get.16.",
    ]
    assert "<td>not known</td><td>2,000</td>" in page.build(table)
