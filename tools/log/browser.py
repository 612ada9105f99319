# SPDX-License-Identifier: BSL-1.0
"""Chromium as the judge of report pages, for tests: what it did not draw is not there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

# As root, without a GPU, without a word to anybody's server.
CHROMIUM = "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking".split()
CHROMIUM += "--disable-component-update --disable-sync --window-size=1200,3300 --virtual-time-budget=60000".split()
BROWSER_SECONDS = 180


def browse(tmp_path: Path, url: str, *options: str) -> str:
    """What chromium prints on standard output, here the page's final DOM if asked for."""
    argv = [*CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", *options, url]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=BROWSER_SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def plots(dom: str) -> dict[str, str]:
    """The drawn page by plot."""
    return {match.group(1): match.group(2) for match in re.finditer(r'<div id="([a-z]+)"(.*?)</section>', dom, re.DOTALL)}


def lines_in(plot: str) -> int:
    """How many traces have a line in them; one with unknown values has several pieces."""
    traces = plot.split('<g class="trace scatter')[1:]
    return sum(any(len(d) > 10 for d in re.findall(r'<path class="js-line" d="([^"]*)"', trace)) for trace in traces)


def marks_in(plot: str) -> int:
    return len(re.findall(r"<path[^>]*stroke: rgb\(214, 0, 143\)", plot))
