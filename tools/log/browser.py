# SPDX-License-Identifier: BSL-1.0
"""Lets Chromium render report pages, so that tests can check the elements that were drawn."""

import re
from pathlib import Path

from tools.process import finished

# Chromium's options to run as root, without a GPU, and without requests to the vendor's servers.
CHROMIUM = "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking".split()
CHROMIUM += "--disable-component-update --disable-sync --window-size=1200,3300 --virtual-time-budget=60000".split()
BROWSER_SECONDS = 180


def browse(tmp_path: Path, url: str, *options: str) -> str:
    """Returns Chromium's standard output; with --dump-dom, the page's final DOM."""
    done = finished([*CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", *options, url], BROWSER_SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def plots(dom: str) -> dict[str, str]:
    """Returns the part of the drawn page that belongs to each plot, by the plot's name."""
    return {match.group(1): match.group(2) for match in re.finditer(r'<div id="([a-z]+)"(.*?)</section>', dom, re.DOTALL)}


def lines_in(plot: str) -> int:
    """Returns the number of traces that have a line. The line of a trace with unknown values has several pieces."""
    traces = plot.split('<g class="trace scatter')[1:]
    return sum(any(len(d) > 10 for d in re.findall(r'<path class="js-line" d="([^"]*)"', trace)) for trace in traces)


def marks_in(plot: str) -> int:
    return len(re.findall(r"<path[^>]*stroke: rgb\(214, 0, 143\)", plot))
