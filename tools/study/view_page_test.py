# SPDX-License-Identifier: BSL-1.0
"""The server of `./neap view` answers only its own page, within bounds; in a browser the page draws every choice and opens runs."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

import pytest

from tools.log.browser import Browser
from tools.study import synthetic, view_server
from tools.study.view_source import Source

GRID = synthetic.Grid(itr_us=(2, 50, 400), frequencies_ghz=(1.2, 2.9), repeats=2)
RUNS_OF_MANY = 30_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[view_server.Server]:
    folder = tmp_path_factory.mktemp("study")
    synthetic.write(folder, GRID, logs=2)
    yield from serving(Source([str(folder)]))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[view_server.Server]:
    path = tmp_path_factory.mktemp("many") / "runs.parquet"
    synthetic.write_many(path, RUNS_OF_MANY)
    yield from serving(Source([str(path)]))


def serving(source: Source) -> Iterator[view_server.Server]:
    with view_server.Server(source) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "profile", width=1200, height=900) as found:
        yield found


def get(server: view_server.Server, path: str, host: str | None = None, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request(method, path, headers={"Host": host or parts.netloc})
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def of(server: view_server.Server, name: str, /, **asked: str) -> str:
    return f"/{server.token}/{name}" + (f"?{urlencode(asked)}" if asked else "")


# ---- the server ----


def test_it_listens_on_the_loopback_address_only(served: view_server.Server) -> None:
    assert served.socket.getsockname()[0] == "127.0.0.1"


def test_without_the_token_or_with_another_host_nothing_is_answered(served: view_server.Server) -> None:
    other = "x" * len(served.token)
    for path in (
        "/",
        f"/{other}/",
        f"/{served.token}",
        f"/{served.token}/../",
        "/etc/passwd",
        f"/{served.token}/etc/passwd",
        f"/{other}/run?row=0",
    ):
        assert get(served, path)[0] == 404, path
    assert get(served, of(served, ""), host="evil.example")[0] == 403
    assert get(served, of(served, ""), host="localhost:1")[0] == 403
    assert get(served, of(served, ""))[0] == 200


def test_other_methods_and_long_addresses_are_refused(served: view_server.Server) -> None:
    assert get(served, of(served, ""), method="POST")[0] == 501
    assert get(served, of(served, "run", row="0" * 20_000))[0] == 414
    assert get(served, of(served, "run", **{f"n{number}": "" for number in range(100)}))[0] == 400


@pytest.mark.parametrize("row", ["", "-1", "x", "1e3", "9" * 30, "123456"])
def test_a_bad_row_is_one_sentence(served: view_server.Server, row: str) -> None:
    for name in ("run", "timeline", "report.html"):
        status, text, _ = get(served, of(served, name, row=row))
        assert status in (400, 422) and b"Traceback" not in text and text.count(b"\n") == 0


def test_more_connections_than_the_limit_are_closed(served: view_server.Server) -> None:
    held = [socket.create_connection(served.server_address[:2], 10) for _ in range(view_server.CONNECTIONS_MAX + 5)]
    try:
        # The connections beyond the limit are closed at once; the others wait for a request.
        ends = time.monotonic() + 20
        closed: set[int] = set()
        while len(closed) < 5 and time.monotonic() < ends:
            for number, each in enumerate(held):
                each.settimeout(0.05)
                try:
                    if number not in closed and each.recv(1) == b"":
                        closed.add(number)
                except TimeoutError:
                    continue
                except ConnectionError:
                    closed.add(number)
        assert len(closed) >= 5
    finally:
        for each in held:
            each.close()
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        try:
            assert get(served, of(served, ""))[0] == 200
            return
        except (ConnectionError, http.client.HTTPException):
            time.sleep(0.1)
    raise AssertionError("the server does not answer after its connections ended")


def test_the_policy_allows_no_other_host_and_no_foreign_script(served: view_server.Server) -> None:
    _, text, headers = get(served, of(served, ""))
    policy = headers["Content-Security-Policy"]
    nonce = policy.split("'nonce-")[1].split("'")[0]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert text.count(f'nonce="{nonce}"'.encode()) == 3
    assert nonce.encode() not in get(served, of(served, ""))[1]
    for name in ("run", "picture"):
        assert "script-src" not in get(served, of(served, name))[2].get("Content-Security-Policy", "")


def test_a_report_is_that_of_the_runs_log(served: view_server.Server) -> None:
    status, text, _ = get(served, of(served, "report.html", row="0"))
    assert status == 200 and b"<title>run 1 of memcached</title>" in text and b"Content-Security-Policy" in text
    assert get(served, of(served, "report.html", row="5"))[:2] == (422, b"this run has no log")


def test_the_shown_rows_are_a_table(served: view_server.Server) -> None:
    filters = json.dumps([{"name": "arm", "values": ["Neap"]}])
    status, text, headers = get(served, of(served, "rows.csv", x="energy_uj", y="p99_us", filters=filters))
    lines = text.decode().splitlines()
    assert status == 200 and headers["Content-Disposition"] == 'attachment; filename="runs.csv"'
    assert len(lines) == 1 + 3 * 2 * 2 * 2 and lines[0].endswith("energy_uj,p99_us") and all(",Neap," in line for line in lines[1:])


def test_figures_are_made_for_the_page(served: view_server.Server) -> None:
    status, text, headers = get(served, of(served, "figure", name="pareto"))
    assert status == 200 and headers["Content-Type"].startswith("image/svg+xml") and ElementTree.fromstring(text) is not None
    assert get(served, of(served, "figure", name="pareto", **{"as": "csv"}))[1].startswith(b"rate_wanted,arm,setting")
    assert get(served, of(served, "figure", name="pie"))[0] == 400


# ---- the page ----


def opened(browser: Browser, server: view_server.Server, hash_: str = "") -> None:
    browser.open("about:blank")
    browser.open(server.address + hash_)
    browser.wait("document.documentElement?.dataset.drawn || document.documentElement?.dataset.error")
    assert browser.evaluate("document.documentElement.dataset.error || ''") == ""


def in_view(browser: Browser) -> int:
    return browser.evaluate("shown.found.about.inside")


def pixels(browser: Browser, colour: list[int]) -> int:
    """Returns the number of pixels of the picture that have about this colour."""
    return browser.evaluate(
        "(() => { const c = byId('plot'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;"
        f"const w = {colour}; for (let i = 0; i < d.length; i += 4) if ([0, 1, 2].every((k) => Math.abs(d[i + k] - w[k]) < 45)) n++;"
        "return n; })()"
    )


def test_every_choice_draws(browser: Browser, served: view_server.Server) -> None:
    opened(browser, served)
    for mode in ("points", "means", "count", "cumulative"):
        for x in ("itr_us", "arm", "interrupts_per_request"):
            for colour in ("", "arm", "frequency_ghz", "power_w"):
                browser.evaluate(f"choose('mode', '{mode}').then(() => choose('x', '{x}')).then(() => choose('colour', '{colour}'))")
                assert browser.evaluate("document.documentElement.dataset.error || ''") == "", (mode, x, colour)
                assert browser.evaluate("shown.asked.x") == x and in_view(browser) > 0
    browser.evaluate("choose('mode', 'points').then(() => choose('x', 'energy_uj')).then(() => choose('group', 'arm'))")
    assert browser.evaluate("shown.places.length") == 3


def test_a_click_on_a_point_opens_its_run(browser: Browser, served: view_server.Server) -> None:
    opened(browser, served)
    place = browser.evaluate(
        "(() => { const p = shown.places[0], a = shown.found.about, c = shown.found.columns, b = byId('plot').getBoundingClientRect();"
        "const x = b.left + p.left + partOf(a.x, c.x[0]) * p.width, y = b.top + p.top + (1 - partOf(a.y, c.y[0])) * p.height;"
        "return { x, y, r: c.r[0] }; })()"
    )
    browser.drag((place["x"], place["y"]), (place["x"], place["y"]))
    row = int(browser.wait("byId('run').dataset.row"))
    found = served.source.all("SELECT p99_us, energy_uj FROM runs WHERE rowid IN (?, ?)", [row, place["r"]])
    assert row == place["r"] or abs(found[0][0] - found[1][0]) < 3  # another run may be under the same pixel


def test_a_run_with_a_log_has_its_report_and_a_timeline_with_structure_at_each_zoom(browser: Browser, served: view_server.Server) -> None:
    opened(browser, served)
    browser.evaluate("ask('run', {row: 0}).then((found) => found.json()).then(showRun)")
    whole = browser.evaluate("timeline.found.about.records")
    assert browser.evaluate("byId('run-links').querySelector('a').textContent") == "report of this run"
    browser.evaluate("lookAtSpan([0.1, 0.11])")
    part = browser.evaluate("timeline.found.about.records")
    assert 0 < part < whole / 10 and browser.evaluate("timeline.found.columns.gap_n.length") > part / 2
    svg = browser.evaluate(
        "(() => { const height = timelineHeight(), made = new SvgContext(900, height, '#fff');"
        "paintTimeline(made, 900, height, theme()); return made.text(); })()"
    )
    assert ElementTree.fromstring(svg) is not None and browser.evaluate("timelineCsv().split('\\n').length") > 100
    browser.evaluate("ask('run', {row: 7}).then((found) => found.json()).then(showRun)")
    assert browser.evaluate("byId('timeline-part').hidden")


def test_an_arm_can_be_hidden_and_the_address_keeps_it(browser: Browser, served: view_server.Server) -> None:
    opened(browser, served)
    colour = browser.evaluate("shown.painted.colouring.colours[shown.found.about.categories.indexOf('Neap')]")
    before, all_runs = pixels(browser, colour), in_view(browser)
    browser.evaluate("[...byId('legend').querySelectorAll('button')].find((each) => each.textContent === 'Neap').click()")
    browser.wait(f"shown.found.about.inside < {all_runs}")
    assert pixels(browser, colour) < before / 5
    hidden = in_view(browser)
    browser.evaluate("allow('frequency_ghz', [1.2], [1.2, 2.9, null])")
    assert in_view(browser) < hidden
    address = browser.evaluate("location.hash")
    left = in_view(browser)
    opened(browser, served, address)
    assert in_view(browser) == left < all_runs


def test_a_density_counts_all_runs_and_shows_those_that_stand_alone(browser: Browser, many: view_server.Server) -> None:
    opened(browser, many, "#x=itr_us&x_scale=log")
    assert browser.evaluate("shown.found.about.kind") == "cells" and in_view(browser) == RUNS_OF_MANY
    assert browser.evaluate("shown.found.columns.n.reduce((sum, each) => sum + each, 0)") == RUNS_OF_MANY
    box = browser.evaluate("(() => { const b = byId('plot').getBoundingClientRect(); return [b.left, b.top, b.width]; })()")
    browser.drag((box[0] + 300, box[1] + 100), (box[0] + 700, box[1] + 300))
    browser.wait(f"shown.found.about.inside < {RUNS_OF_MANY}")
    low, high = browser.evaluate("state.view.x")
    y_low, y_high = browser.evaluate("state.view.y")
    count = many.source.one(
        "SELECT count(*) FROM runs WHERE itr_us BETWEEN ? AND ? AND p99_us BETWEEN ? AND ?", [low, high, y_low, y_high]
    )[0]
    assert in_view(browser) == pytest.approx(count, abs=2) and count > 0
    browser.evaluate("showAll()")
    assert in_view(browser) == RUNS_OF_MANY


def test_the_picture_is_exported_as_vectors_with_its_density(browser: Browser, many: view_server.Server, tmp_path: Path) -> None:
    opened(browser, many)
    svg = browser.evaluate("pictureAsSvg()")
    root = ElementTree.fromstring(svg)
    names = [element.tag.rsplit("}", 1)[1] for element in root.iter()]
    assert "image" in names and names.count("text") > 10 and "energy per request (uJ)" in svg


def test_a_figure_is_shown_and_the_page_makes_no_other_connection(browser: Browser, served: view_server.Server) -> None:
    opened(browser, served)
    browser.evaluate("(byId('figure').value = 'pareto', showFigure())")
    browser.wait("byId('figure-place').querySelector('img')?.naturalWidth === 1000")
    hosts = browser.evaluate("[...new Set(performance.getEntriesByType('resource').map((each) => new URL(each.name).host))]")
    assert hosts == [urlsplit(served.address).netloc]
    assert browser.evaluate("fetch('http://127.0.0.1:1/').then(() => 'open', () => 'refused')") == "refused"


def test_runs_that_a_sweep_has_added_are_loaded(browser: Browser, tmp_path: Path) -> None:
    """The page says how many there are, shows them after a click, and keeps its choices."""
    synthetic.write(tmp_path, synthetic.Grid(itr_us=(2,), frequencies_ghz=(1.2,), repeats=1))
    for server in serving(Source([str(tmp_path)])):
        browser.open(f"{server.address}#y=power_w")
        browser.wait("document.documentElement?.dataset.drawn")
        before = browser.evaluate("page.count")
        browser.evaluate("askNews()")
        assert browser.evaluate("byId('reload').hidden") and browser.evaluate("byId('news').textContent") == ""
        added = len(synthetic.write(tmp_path, synthetic.Grid(itr_us=(2, 50), frequencies_ghz=(1.2,), repeats=2))) - before
        browser.evaluate("askNews()")
        assert browser.evaluate("byId('news').textContent") == f"{added} new runs."
        browser.evaluate("window.isOld = true")
        browser.evaluate("byId('reload').click()")
        browser.wait("!window.isOld && document.documentElement?.dataset.drawn")
        assert browser.evaluate("page.count") == before + added and browser.evaluate("state.y") == "power_w"
        assert browser.evaluate("byId('reload').hidden")
        # A table that cannot be read leaves the page as it is.
        (tmp_path / "runs.parquet").write_bytes(b"no table")
        assert get(server, of(server, "reload"))[0] == 422 and json.loads(get(server, of(server, "news"))[1])["changed"]
        assert server.source.count == before + added
