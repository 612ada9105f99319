# SPDX-License-Identifier: BSL-1.0
"""The parts of a load, from the marks that its client left in the log: preload, warm-up, measured window, drain.

A client sends a mark over control when a part begins, so a mark is late by the time that this takes. The result of a load states the
window's bounds exactly. If both are known, the result's window is taken, and the marks beside its bounds are moved to them.
"""

import dataclasses
from collections.abc import Sequence

from tools.foreign import shown
from tools.log.load_results import LoadWindow

WINDOW, END = "window", "end"
# Parts of a load in which it is not steady, so that texts leave them out.
UNSTEADY = ("preload", "warm_up", "drain")
SPANS_MAX = 100
# A mark and a window's bound that are further apart contradict each other. Wall clocks of two machines may differ by more.
APART_SECONDS, APART_SHARE, APART_SECONDS_BY_WALL_CLOCK = 0.01, 0.01, 1.0


@dataclasses.dataclass(eq=False)
class Span:
    """A part of the load, in ticks since the run's begin. `what` is None before the first mark and behind the mark `end`."""

    begin: int
    end: int
    what: str | None


def spans(marks: Sequence[dict], begin_tsc: int, end: int) -> list[Span]:
    """Returns the parts of a run from `begin_tsc` that is `end` ticks long; an empty list if there are no marks. A mark from before the run
    names the part in which the run begins."""
    found = sorted(((min(max(row["tsc"] - begin_tsc, 0), end), row["what"]) for row in marks[:SPANS_MAX]), key=lambda mark: mark[0])
    if not found:
        return []
    bounds = [(0, None), *((tick, None if what == END else what) for tick, what in found), (end, None)]
    return [Span(low, high, what) for (low, what), (high, _) in zip(bounds, bounds[1:]) if low < high]


def windows(parts: Sequence[Span], begin_tsc: int) -> list[LoadWindow]:
    """Returns the marked windows. How many requests they had is not known."""
    return [LoadWindow(begin_tsc + part.begin, begin_tsc + part.end, None, {}, marked=True) for part in parts if part.what == WINDOW]


def align(parts: list[Span], loads: Sequence[LoadWindow], begin_tsc: int, end: int, tsc_hz: int) -> tuple[list[Span], list[str]]:
    """Returns the parts with the bounds of the windows of a load's result, and remarks about contradictions. No other part
    overlaps a window of the result."""

    def when(low: int, high: int) -> str:
        return f"from {low / tsc_hz:.6f} to {high / tsc_hz:.6f} s"

    said = []
    marked = [part for part in parts if part.what == WINDOW]
    matched: list[Span] = []
    for load in loads:
        low, high = max(load.begin_tsc - begin_tsc, 0), min(load.end_tsc - begin_tsc, end)
        best = max(marked, key=lambda part: min(part.end, high) - max(part.begin, low), default=None)
        if best is None or min(best.end, high) <= max(best.begin, low):
            said.append(f"the load's result has a window {when(low, high)}, and the log's marks have none there")
            continue
        slack = max(APART_SECONDS_BY_WALL_CLOCK if load.by_wall_clock else APART_SECONDS, APART_SHARE * (high - low) / tsc_hz) * tsc_hz
        if abs(best.begin - low) > slack or abs(best.end - high) > slack:
            said.append(
                f"the log's marks have a window {when(best.begin, best.end)}, the load's result {when(low, high)}: the result's is taken"
            )
        _move(parts, best, low, high, matched)
        matched.append(best)
    others = [part for part in marked if part not in matched]
    said += [f"the log's marks have a window {when(part.begin, part.end)}, which the load's result has not" for part in others]
    return [part for part in parts if part.begin < part.end], said


def _move(parts: list[Span], window: Span, low: int, high: int, matched: Sequence[Span]) -> None:
    """Makes `window` extend from `low` to `high`. Its neighbours end and begin there, unless they are windows of the result, too."""
    at = parts.index(window)
    for part in parts[:at]:
        part.end = min(part.end, low)
    for part in parts[at + 1 :]:
        part.begin = max(part.begin, high)
    if at and parts[at - 1] not in matched:
        parts[at - 1].end = low
    if at + 1 < len(parts):
        parts[at + 1].begin = high
    window.begin, window.end = low, high


def name_at(parts: Sequence[Span], low: int, high: int) -> str | None:
    """Returns the part in which the time from `low` to `high` lies."""
    return next((part.what for part in parts if part.begin <= low and high <= part.end), None)


def left_out_text(rows: Sequence[dict]) -> str:
    """Returns the names of phases' parts with their seconds, like 'preload 0.5 s, warm_up 2 s'."""
    seconds: dict[str, float] = {}
    for row in rows:
        if row["load_part"]:
            seconds[row["load_part"]] = seconds.get(row["load_part"], 0) + row["seconds"]
    return ", ".join(f"{shown(name, 40)} {each:.6g} s" for name, each in seconds.items())
