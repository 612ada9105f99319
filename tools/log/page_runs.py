# SPDX-License-Identifier: BSL-1.0
"""Several runs on one report page: the look of each, a legend, a table of main figures with ratios, and the common axis of time.

The runs must be distinct in every picture, also in a print without colours and for colour-blind readers. So a run has a colour, a dash for
lines and a marker for points. The colours are in page.css (--run0 to --run5).
"""

import html
from collections.abc import Callable, Sequence
from typing import Any

from tools.foreign import shown
from tools.log import summary
from tools.log.about import system_text

RUNS_MAX = 6
# Lengths of dashes and gaps in pixels, for each run.
DASHES = ([], [8, 3], [2, 3], [9, 3, 2, 3], [15, 4], [4, 2, 1, 2])
# Outlines of the markers, in a square from -1 to 1: circle, square, triangle, diamond, cross, star of three.
MARKERS = (
    "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z",
    "M-.9 -.9H.9V.9H-.9Z",
    "M0 -1.15L1.1 .85H-1.1Z",
    "M0 -1.3L1.3 0L0 1.3L-1.3 0Z",
    "M-.4 -1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z",
    "M0 1.15L-1.1 -.85H1.1Z",
)
FIGURES = (
    ("seconds", lambda each: each.summary["total"]["seconds"]),
    ("requests per second", lambda each: each.summary["total"]["requests_per_second"]),
    ("interrupts per second", lambda each: each.summary["total"]["interrupts_per_second"]),
    ("frames received per interrupt", lambda each: _of_total(each, "rx_frames", "interrupts")),
    ("share of time asleep", lambda each: each.summary["total"]["asleep_share"]),
    ("instructions per cycle", lambda each: each.summary["total"]["ipc"]),
    ("power (W)", lambda each: each.summary["total"]["watts"]),
    ("energy per request (uJ)", lambda each: _micro(each.summary["total"]["joules_per_request"])),
    ("package energy per interrupt (uJ)", lambda each: _micro(_of_total(each, "joules", "interrupts"))),
    ("latency p50 (us)", lambda each: (each.load.whole or {}).get("p50")),
    ("latency p99 (us)", lambda each: (each.load.whole or {}).get("p99")),
)


def _micro(value: float | None) -> float | None:
    return None if value is None else value * 1e6


def _of_total(each: Any, part: str, whole: str) -> float | None:
    return summary.ratio(each.summary["total"][part], each.summary["total"][whole])


def window_of(marks: Sequence[dict], windows: Sequence, begin_tsc: int, tsc_hz: int, seconds: float) -> list[float] | None:
    """Returns begin and end of a run's first measured window in seconds since the run's begin; None if no result and no mark says it.
    `marks`: those of the load, with seconds. `windows`: those of the load's result."""
    for window in windows:
        begin, end = ((tsc - begin_tsc) / tsc_hz for tsc in (window.begin_tsc, window.end_tsc))
        if 0 <= begin < seconds and end > begin:
            return [round(begin, 9), round(end, 9)]
    begins = [row["seconds"] for row in marks if row["what"] == "window" and 0 <= row["seconds"] < seconds]
    if not begins:
        return None
    ends = [row["seconds"] for row in marks if row["seconds"] > begins[0]]
    return [round(begins[0], 9), round(min(ends, default=seconds), 9)]


def time_axis(windows: Sequence[list[float] | None], seconds: Sequence[float]) -> tuple[str, list[float]]:
    """Returns what second 0 of the page is, "window" or "run", and second 0 of each run in seconds since the run's begin. Runs are compared
    from the begin of their measured windows, if all have one."""
    if len(windows) > 1 and all(window is not None for window in windows):
        return "window", [window[0] for window in windows if window is not None]
    return "run", [0.0] * len(seconds)


def name_of(each: Any) -> str:
    return each.named.name or each.title


def legend(prepared: Sequence[Any]) -> str:
    """Returns the legend: colour, dash and marker of each run, its name, and the system that it ran on."""
    rows = []
    for number, each in enumerate(prepared):
        colour = f"var(--run{number})"
        dash = " ".join(map(str, DASHES[number]))
        line = f'<line x1="1" x2="53" y1="8" y2="8" stroke="{colour}" stroke-width="2.4" stroke-dasharray="{dash}"/>'
        marker = f'<path d="{MARKERS[number]}" transform="translate(27 8) scale(4.5)" fill="{colour}"/>'
        rows.append(
            f'<tr><td><svg class="run-key" viewBox="0 0 54 16" width="54" height="16" aria-hidden="true">{line}{marker}</svg></td>'
            f"<td><strong>{html.escape(name_of(each))}</strong></td>"
            f"<td>{html.escape(shown(system_text(each.log.about)))}</td>"
            f"<td>{html.escape(each.title)}</td></tr>"
        )
    return f'<table class="run-legend"><tr><th></th><th>run</th><th>system</th><th></th></tr>{"".join(rows)}</table>'


def comparison(prepared: Sequence[Any], table: Callable[[Sequence[str], Sequence[Sequence[object]]], str]) -> str:
    """Returns a table of the main figures of all runs, with each run as a multiple of the first one."""
    rows = []
    for name, of in FIGURES:
        values = [of(each) for each in prepared]
        if any(value is not None for value in values):
            rows.append((name, *map(_figure, values), *(_figure(summary.ratio(value, values[0])) for value in values[1:])))
    names = [name_of(each) for each in prepared]
    return table(("", *names, *(f"{name} / {names[0]}" for name in names[1:])), rows)


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
