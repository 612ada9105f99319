# SPDX-License-Identifier: BSL-1.0
"""Makes a study of a million runs, serves its page, and measures the page in headless Chromium, for `./neap bench view`.

Prints one JSON object. With `--keep DIR` the study and screenshots stay in DIR.
"""

import json
import statistics
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from tools.log import synthetic as synthetic_log
from tools.log.browser import TIMED, Browser, print_measurement
from tools.study import schema, synthetic, view_server
from tools.study.view_source import Source

RUNS = 1_000_000
OPENINGS = 3
LOG_CORES, LOG_RECORDS = 8, 500_000  # of each core
# Parts of the picture at the zoom before, left to right and bottom to top.
ZOOMS = (((0.05, 0.5), (0.1, 0.6)), ((0.2, 0.7), (0.2, 0.8)), ((0.3, 0.6), (0.3, 0.6)))
ZOOM_ROUNDS = 4


def make(place: Path) -> None:
    """Writes the study. Its first run has a log."""
    synthetic.write_many(place / schema.RUNS, RUNS)
    shape = synthetic_log.Shape(cores=LOG_CORES, packages=2, records=LOG_RECORDS, seconds=20.0, sample_every=50, changes=0)
    synthetic_log.write(place / "log", shape)
    table = pyarrow.parquet.read_table(place / schema.RUNS)
    at = table.schema.get_field_index("log")
    logs = pa.array(["log"] + [None] * (RUNS - 1), pa.string())
    pyarrow.parquet.write_table(table.set_column(at, "log", logs), place / schema.RUNS, compression="zstd")


def measure(place: Path) -> dict:
    make(place)
    began = time.monotonic()
    source = Source([str(place)])
    found: dict = {"runs": source.count, "parquet_mb": (place / schema.RUNS).stat().st_size / 1e6, "open_s": time.monotonic() - began}
    found["first_ms"] = []
    with view_server.Server(source) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        for opening in range(OPENINGS):
            source.forget()
            with Browser(place / f"profile{opening}", width=1400, height=1200) as browser:
                browser.open(server.address)
                browser.wait("document.documentElement?.dataset.firstPictureMs || document.documentElement?.dataset.error")
                found["first_ms"].append(float(browser.evaluate("document.documentElement.dataset.firstPictureMs")))
                if opening == OPENINGS - 1:
                    _inside(browser, found, place)
        server.shutdown()
    return found


def _inside(browser: Browser, found: dict, place: Path) -> None:
    browser.screenshot(place / "whole.png", whole=False)
    found["zoom_ms"] = []
    for _ in range(ZOOM_ROUNDS):
        browser.evaluate("showAll()")
        for across, up in ZOOMS:
            found["zoom_ms"].append(browser.evaluate(TIMED.format(f"await look({list(across)}, {list(up)})")))
    found["zoom_median_ms"] = statistics.median(found["zoom_ms"])
    browser.screenshot(place / "zoomed.png", whole=False)
    browser.evaluate("showAll()")
    found["choose_ms"] = browser.evaluate(TIMED.format("await choose('x', 'power_w')"))
    others = json.dumps(list(synthetic.ARMS)[1:])
    found["filter_ms"] = browser.evaluate(TIMED.format(f"await allow('arm', {others}, {json.dumps(list(synthetic.ARMS))})"))
    found["click_ms"] = browser.evaluate(TIMED.format("await clicked({number: 0}, 0.3, 0.3)"))
    found["timeline_ms"] = browser.evaluate(TIMED.format("await (await ask('run', {row: 0})).json().then(showRun)"))
    spans = ([2, 8], [3, 4], [3.2, 3.3], [3.25, 3.2501])
    found["timeline_zoom_ms"] = statistics.median(browser.evaluate(TIMED.format(f"await lookAtSpan({span})")) for span in spans)
    browser.screenshot(place / "timeline.png")


if __name__ == "__main__":
    print_measurement(measure)
