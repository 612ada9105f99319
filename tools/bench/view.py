# SPDX-License-Identifier: BSL-1.0
"""`./neap bench view`: the page of `./neap view` over a study of a million runs, in headless Chromium.

The study is synthetic. The first picture counts when the browser has painted it, by the page's own clock, which starts with the navigation.
A zoom counts from the choice to the painted picture, which includes the server's answer. Zooms differ in place and size.
"""

from tools import packages, pythons
from tools.bench import apart
from tools.bench.rows import Row

FIRST_PICTURE_MS_MAX = 2000.0
ZOOM_MS_MAX = 100.0


def rows() -> list[Row]:
    """The measurement needs DuckDB, so it runs in the environment for studies."""
    packages.require("browser-tests")
    found = apart.measured(pythons.study_environment(), "tools.study.view_measure", "a study of a million runs")
    return [
        Row("runs of the study", "runs", found["runs"]),
        Row("size of runs.parquet", "MB", found["parquet_mb"]),
        Row("open the table", "s", found["open_s"]),
        Row("first picture, slowest of 3", "ms since navigation", max(found["first_ms"]), FIRST_PICTURE_MS_MAX),
        Row("first picture, fastest of 3", "ms since navigation", min(found["first_ms"])),
        Row(f"zoom, median of {len(found['zoom_ms'])}", "ms since the choice", found["zoom_median_ms"], ZOOM_MS_MAX),
        Row("zoom, slowest", "ms since the choice", max(found["zoom_ms"])),
        Row("other axes, all runs drawn", "ms since the choice", found["choose_ms"]),
        Row("one arm hidden, all others drawn", "ms since the choice", found["filter_ms"]),
        Row("a click finds its run", "ms since the click", found["click_ms"]),
        Row("timeline of a run with 4 million records, first", "ms since the click", found["timeline_ms"]),
        Row("zoom into the timeline, median", "ms since the choice", found["timeline_zoom_ms"]),
    ]
