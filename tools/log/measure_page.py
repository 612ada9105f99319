# SPDX-License-Identifier: BSL-1.0
"""Makes a large synthetic run and its report page, and measures the page in headless Chromium, for `./neap bench report-page`.

Prints one JSON object. With `--keep DIR` the page and its screenshots stay in DIR.
"""

import time
from pathlib import Path

from tools.log import report, synthetic
from tools.log.browser import TIMED, Browser, print_measurement

CORES = 16
RECORDS = 5_000_000
OPENINGS = 3


def measure(place: Path) -> dict:
    shape = synthetic.Shape(cores=CORES, packages=2, records=RECORDS // CORES, seconds=20.0, sample_every=25, changes=3)
    synthetic.write(place / "log", shape)
    page = place / "report.html"
    began = time.monotonic()
    runs = report.load([str(place / "log")])
    size = report.write(runs, page)
    seconds = time.monotonic() - began
    records = sum(len(core.records) for core in runs[0].log.cores)
    del runs
    first_ms, points_ms = [], []
    for opening in range(OPENINGS):
        with Browser(place / f"profile{opening}", height=1500) as browser:
            marks = browser.show(page.as_uri())
            first_ms.append(float(marks["firstPictureMs"]))
            points_ms.append(float(marks["pointsMs"]))
            if opening == OPENINGS - 1:
                browser.screenshot(place / "whole.png", whole=False)
                choose_ms = browser.evaluate(TIMED.format("await choose('y', 'rx_bytes')"))
                zoom_ms = browser.evaluate(TIMED.format("state.time = [5, 5.02]; await redraw()"))
                browser.screenshot(place / "zoomed.png", whole=False)
    return {
        **{"cores": CORES, "records": records, "write_s": seconds, "page_mb": size / 1e6},
        **{"first_ms": first_ms, "points_ms": points_ms, "choose_ms": choose_ms, "zoom_ms": zoom_ms},
    }


if __name__ == "__main__":
    print_measurement(measure)
