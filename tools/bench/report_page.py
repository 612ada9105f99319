# SPDX-License-Identifier: BSL-1.0
"""`./neap bench report-page`: the report page of a run with 16 cores and five million records, in headless Chromium.

The run is synthetic. The first picture shows all records as density. It counts when the browser has painted it, by the page's own clock,
which starts with the navigation. The page then reads all points; from then on axes, colour and spans can be chosen.
"""

from tools import packages, pythons
from tools.bench import apart
from tools.bench.rows import Row

FIRST_PICTURE_MS_MAX = 3000.0


def rows() -> list[Row]:
    """The measurement needs numpy, so it runs in the environment for logs."""
    packages.require("browser-tests")
    found = apart.measured(pythons.log_environment(), "tools.log.measure_page", "a page of five million records")
    return [
        Row(f"log records, on {found['cores']} cores", "records", found["records"]),
        Row("read the log, write the page", "s", found["write_s"]),
        Row("size of the page", "MB", found["page_mb"]),
        Row("first picture, slowest of 3", "ms since navigation", max(found["first_ms"]), FIRST_PICTURE_MS_MAX),
        Row("first picture, fastest of 3", "ms since navigation", min(found["first_ms"])),
        Row("all points drawn, slowest of 3", "ms since navigation", max(found["points_ms"])),
        Row("bytes received chosen, all points drawn", "ms since the choice", found["choose_ms"]),
        Row("20 ms of the run chosen, single points drawn", "ms since the choice", found["zoom_ms"]),
    ]
