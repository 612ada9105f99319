# SPDX-License-Identifier: BSL-1.0
"""In a browser, the page of plots draws every plot and makes no connection."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tools.log import decode, layout, report, synthetic
from tools.log.browser import browse, lines_in, marks_in, plots
from tools.log.decode import COUNTERS

CORE_COLOURS = [(0x1F, 0x77, 0xB4), (0xFF, 0x7F, 0x0E), (0x2C, 0xA0, 0x2C), (0x94, 0x67, 0xBD)]
MARK_COLOUR = (0xD6, 0x00, 0x8F)


def page_of(tmp_path: Path, shape: synthetic.Shape) -> Path:
    synthetic.write(tmp_path / "log", shape)
    page = tmp_path / "report.html"
    report.write(decode.load([str(tmp_path / "log")]), page)
    return page


def test_a_million_records_are_drawn_with_every_plot_and_every_mark(tmp_path: Path) -> None:
    page = page_of(tmp_path, synthetic.Shape(cores=4, packages=2, records=250_000, seconds=10, sample_every=25, changes=3))
    assert page.stat().st_size < 25_000_000
    dom = browse(tmp_path, page.as_uri(), "--dump-dom")
    assert 'data-drawn="bytes descriptors interval histogram power energy asleep residency shares"' in dom, dom[:300]
    drawn = plots(dom)
    for name in ("bytes", "descriptors", "interval", "histogram", "power", "energy"):
        assert lines_in(drawn[name]) == 4, name
    assert lines_in(drawn["asleep"]) == 4 + 4
    assert lines_in(drawn["residency"]) == 4 * 3 + 2 * 4
    # A change that all cores make is one mark.
    for name in ("bytes", "interval", "power", "residency"):
        assert marks_in(drawn[name]) == 3, name
    assert len(re.findall(r'class="point"><path', drawn["shares"])) == 4 * 2
    assert 'data-title="Share' not in dom, "nothing offers to send it away"


def test_the_picture_shows_each_core_and_the_marks(tmp_path: Path) -> None:
    page = page_of(tmp_path, synthetic.Shape(cores=4, records=3000, seconds=2, changes=2))
    browse(tmp_path, page.as_uri(), f"--screenshot={tmp_path / 'picture.png'}")
    pixels = np.asarray(Image.open(tmp_path / "picture.png").convert("RGB")).reshape(-1, 3)
    for colour in [*CORE_COLOURS, MARK_COLOUR]:
        # Anti-aliasing changes a thin line's colour, so similar colours count as well.
        assert np.count_nonzero(np.abs(pixels.astype(int) - colour).sum(axis=1) < 90) > 200, colour
    assert np.count_nonzero((pixels == 255).all(axis=1)) < 0.98 * len(pixels), "it is not a blank page"


def test_a_stretch_of_time_opens_with_single_records(tmp_path: Path) -> None:
    page = page_of(tmp_path, synthetic.Shape(cores=2, records=20_000, seconds=10, changes=0))
    dom = browse(tmp_path, f"{page.as_uri()}#5.0,5.01", "--dump-dom")
    tsc = [core.records["tsc"] for core in decode.load([str(tmp_path / "log")]).cores]
    seconds = [(each.astype(np.int64) - 5_000_000_000) / 2e9 for each in tsc]
    inside = sum(int(np.count_nonzero((each >= 5.0) & (each <= 5.01))) for each in seconds)
    points = len(re.findall(r'<path class="point"', plots(dom)["bytes"]))
    assert inside <= points <= inside + 4, "those inside, and the next one on each side"


def test_a_cpu_without_counters_is_said_to_have_none(tmp_path: Path) -> None:
    text = page_of(tmp_path, synthetic.Shape(cores=1, records=50, counters=("instructions",))).read_text()
    assert "This CPU has no energy counter: energy and power are not drawn." in text and "energy not on this CPU" in text
    data = json.loads(re.search(r'id="data">\n(.*)\n</script>', text).group(1))
    assert data["packages"][0]["package"] is None and data["cores"][0]["residency"] == {"c3": None, "c6": None, "c7": None}
    assert len(COUNTERS) == 13


def test_the_page_refers_to_nothing_outside_and_forbids_itself_to(tmp_path: Path) -> None:
    text = page_of(tmp_path, synthetic.Shape(cores=1, records=50)).read_text().replace(report.get_plotlyjs(), "")
    assert "default-src 'none'" in text and "connect-src" not in text
    assert not re.search(r"(src|href)\s*=|@import|url\(", text)


def test_text_from_a_log_is_not_taken_for_markup(tmp_path: Path) -> None:
    nasty = "</script><script>alert(1)</script><b>&"
    files, _ = synthetic.make(synthetic.Shape(cores=1, records=20))
    header = layout.parse_header(files[0][: layout.HEADER_BYTES], "a test")
    about = {**header.about, "application": nasty, "cpu": nasty}
    path = tmp_path / "core0.log"
    path.write_bytes(layout.build_header(0, header.entries, 0, 0, header.tsc_hz, about) + files[0][layout.HEADER_BYTES :])
    text = report.build(decode.load([str(path)]))
    assert nasty not in text and "<b>" not in text.replace(report.get_plotlyjs(), "")


@pytest.mark.parametrize("maximum", [0, 1, 255, 256, 65535, 65536, (1 << 32) - 1])
def test_packed_numbers_come_back(maximum: int) -> None:
    import base64
    import zlib

    values = np.array([0, maximum // 2, maximum], np.int64)
    packed = report.pack(values)
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8).reshape(packed["width"], -1)
    assert sum(planes[plane].astype(np.int64) << 8 * plane for plane in range(packed["width"])).tolist() == values.tolist()


def test_more_records_than_the_page_may_hold_keep_their_peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "POINTS_MAX", 100)
    synthetic.write(tmp_path, synthetic.Shape(cores=1, records=1000))
    run = decode.load([str(tmp_path)])
    core = report._core(report.trim(run.cores[0]), int(run.cores[0].records["tsc"][0]), 100)
    assert core["step"] == 11 and core["max"]["rx_bytes"]["count"] == 91 and "min" in core
