# SPDX-License-Identifier: BSL-1.0
"""The curves of a report page over time (power, energy per interrupt, interrupts per second, sleep), and the first picture's density."""

from collections.abc import Sequence

import numpy as np

from tools.log import summary
from tools.log.decode import INTERRUPT, RunLog
from tools.log.page_data import Packages
from tools.log.trim import CoreRun, package_energy, packages, ticks_since

TIME_BINS_MAX = 400
# With fewer records in a span, a curve would show little but chance.
RECORDS_A_BIN = 40
SERIES_POINTS = 1000
# CPUs count energy about once a millisecond, and cores may record readings out of order. Closer readings give no power.
READINGS_APART_SECONDS = 0.002
MARKS_MAX = 200
# The cells of the first picture: time, and the logarithm of the interval.
FIRST_CELLS = (200, 70)


def span_of(cores: list[CoreRun]) -> tuple[int, float]:
    """Returns the TSC at which a run's first core begins, and the seconds until its last core ends."""
    there = [core for core in cores if core.count]
    return min((core.begin_tsc for core in there), default=0), summary.span_seconds(cores)


def _cell(share: np.ndarray, cells: int) -> np.ndarray:
    """Returns the numbers of the cells that hold these shares of the axis. Times of a damaged log may be far outside of the axis."""
    return np.clip(share * cells, 0, cells - 1).astype(np.int64)


def cores_over_time(cores: list[CoreRun], begin: int, seconds: float, unknown: Sequence[str] = ()) -> dict:
    """Returns, for equal spans of the run: interrupts per second of all cores, and each core's share of time asleep in percent.
    A record's interval belongs to the span of its end. A span without records has the value None. `unknown`: figures that the log does not
    have."""
    records = max((len(core.inside) for core in cores), default=0)
    bins = min(TIME_BINS_MAX, max(10, records // RECORDS_A_BIN))
    edges = np.linspace(0, max(seconds, 1e-9), bins + 1)
    interrupts = np.zeros(bins, np.int64)
    rows = []
    for core in cores:
        inside = core.inside
        at = ticks_since(inside["tsc"], begin) / core.log.tsc_hz
        place = _cell(at / edges[-1], bins)
        interrupts += np.bincount(place[inside["kind"] == INTERRUPT], minlength=bins)
        ticks = core.interval_ticks[1:] if core.started else core.interval_ticks
        asleep = np.where(inside["idle_state"] == core.log.schema.idle_poll, 0, inside["idle_ticks"])
        spent, slept = (np.bincount(place, weights=values, minlength=bins) for values in (ticks, asleep))
        share = np.round(100 * np.minimum(slept / np.maximum(spent, 1), 1)).astype(int)
        is_known = "asleep_share" not in unknown
        rows.append([int(value) if is_known and there else None for value, there in zip(share, spent > 0)])
    return {"span": float(edges[1]), "interrupts_per_second": short(interrupts / edges[1]), "asleep_percent": rows}


def package_series(run: RunLog, number: int, members: list[CoreRun], begin: int, shared: Packages) -> dict:
    """Returns a package's power, its memory's power, and its energy per interrupt, over time."""
    found: dict = {"number": number, "cores": [core.log.core for core in members], "watts": None, "memory_watts": None, "uj": None}
    for counter, name in (("package_energy", "watts"), ("dram_energy", "memory_watts")):
        series = package_energy(run, members, counter)
        if series is None:
            continue
        hz = members[0].log.tsc_hz
        chosen = apart(series.tsc, max(int(READINGS_APART_SECONDS * hz), int(series.tsc[-1] - series.tsc[0]) // SERIES_POINTS, 1))
        tsc = series.tsc
        seconds = ticks_since(tsc[chosen], begin) / hz
        grown = np.diff(np.maximum.accumulate(series.joules)[chosen])
        found[name] = {"x": short(seconds), "y": short(grown / np.maximum(np.diff(seconds), 1e-9))}
        if name == "watts":
            interrupts = np.diff(shared.interrupts(number, tsc[chosen]))
            each = [value if there else None for value, there in zip(short(1e6 * grown / np.maximum(interrupts, 1)), interrupts > 0)]
            found["uj"] = {"x": short(seconds), "y": each}
    return found


def apart(tsc: np.ndarray, distance: int) -> np.ndarray:
    """Returns indices of readings that are at least `distance` ticks apart, the first one and the last one among them."""
    found = [0]
    while (following := int(np.searchsorted(tsc, tsc[found[-1]] + np.uint64(distance)))) < len(tsc):
        found.append(following)
    if found[-1] != len(tsc) - 1:
        # The last span is longer rather than shorter than the others.
        found[-1 if len(found) > 1 else 1 :] = [len(tsc) - 1]
    return np.array(found)


def policy_marks(settings: list[dict]) -> list[dict]:
    """Returns one mark per change, at the time of the first core that made the change. Its text is like 'itr=8us', with the core's number
    if the change was for one core only."""
    marks: dict[int, dict] = {}
    for row in settings:
        if row["changed"] == "start" or row["seconds"] < 0:
            continue
        mark = marks.setdefault(row["generation"], {"x": round(row["seconds"], 9), "text": summary.change_text(row), "cores": []})
        mark["cores"].append(row["core"])
    for mark in marks.values():
        if len(mark["cores"]) == 1:
            mark["text"] += f" (core {mark['cores'][0]})"
    return list(marks.values())


def load_marks(marks: list[dict], seconds: float) -> list[dict]:
    """Returns the marks of the load within the run. Their text is like 'load: window'."""
    return [{"x": round(row["seconds"], 9), "text": f"load: {row['what']}", "cores": []} for row in marks if 0 <= row["seconds"] <= seconds]


# ---- the first picture ----


def interval_bounds(cores: list[CoreRun]) -> tuple[float, float] | None:
    """Returns a span in microseconds that holds all known intervals, with some room at both ends; None if there is none."""
    found = [core.interval_ticks[core.interval_ticks > 0] * (1e6 / core.log.tsc_hz) for core in cores]
    found = [values for values in found if len(values)]
    if not found:
        return None
    low, high = min(float(values.min()) for values in found), max(float(values.max()) for values in found)
    room = (high / low) ** 0.03
    return low / room, high * room


def first_density(core: CoreRun, begin: int, seconds: float, bounds: tuple[float, float] | None) -> np.ndarray:
    """Returns the number of records in each cell of time (linear) and interval (logarithmic), row by row from the shortest interval. The
    axis of time begins at the TSC `begin`, and has `seconds`."""
    columns, rows = FIRST_CELLS
    ticks = core.interval_ticks[1:] if core.started else core.interval_ticks
    known = ticks > 0
    if bounds is None or not known.any():
        return np.zeros(columns * rows, np.int64)
    at = ticks_since(core.inside["tsc"][known], begin) / core.log.tsc_hz
    low, high = np.log10(bounds[0]), np.log10(bounds[1])
    height = (np.log10(ticks[known] * (1e6 / core.log.tsc_hz)) - low) / max(high - low, 1e-9)
    column = _cell(at / max(seconds, 1e-9), columns)
    row = _cell(height, rows)
    return np.bincount(row * columns + column, minlength=columns * rows)


def by_package(run: RunLog, cores: list[CoreRun], begin: int, shared: Packages) -> list[dict]:
    return [package_series(run, number, members, begin, shared) for number, members in packages(cores).items()]


def short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.9g}") for value in values.tolist()]
