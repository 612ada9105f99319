# SPDX-License-Identifier: BSL-1.0
"""Latencies of the load that a run had: the results of `./neap load` and of the model machine's clients, on the log's time axis.

The files are beside the logs or in the folder above them, as `./neap run --load-out DIR` and `./neap run --model` leave them. They come
from other programs, so every member is checked. A member that is missing or wrong is left out.
"""

import dataclasses
from pathlib import Path

from tools.foreign import U64_MAX, is_whole, is_word, parse_json, read_bounded

LOAD, WORLD, RESULT = "load.json", "world.json", "result.json"
BYTES_MAX = 64 << 20
WINDOWS_MAX = 5000
# Percentiles by the names that the page uses, and their names in load.json and in world.json.
PERCENTILES = {"p50": ("p50_ns", "p50"), "p99": ("p99_ns", "p99"), "max": ("p100_ns", "max")}


@dataclasses.dataclass(frozen=True)
class Load:
    """The load of a run. `windows`: spans in seconds of the log's time axis, with latencies in microseconds. `note` says what they are."""

    windows: list[dict]
    note: str
    model: str | None = None
    whole: dict | None = None  # the latencies of the whole measured window, if the load had only one rate


@dataclasses.dataclass(frozen=True)
class TimeAxis:
    """The log's time axis. `begin_tsc`: second 0. `begin_unix_ns`: the machine's wall clock then; None: unknown."""

    begin_tsc: int
    tsc_hz: int
    seconds: float
    begin_unix_ns: int | None = None

    @classmethod
    def of(cls, about: dict, begin_tsc: int, tsc_hz: int, seconds: float) -> "TimeAxis":
        """Returns the axis of a run. `about`: the JSON of its log's header."""
        at_boot, booted_ns = about.get("tsc_at_boot"), about.get("wall_clock_at_boot_ns")
        unix_ns = booted_ns + (begin_tsc - at_boot) * 1_000_000_000 // tsc_hz if booted_ns and at_boot is not None else None
        return cls(begin_tsc, tsc_hz, seconds, unix_ns)


NONE = Load([], "no result of a load generator beside the log")


def read(folders: list[Path], axis: TimeAxis) -> Load:
    """Returns the load's latencies. `folders`: where the run's files are. A result of another time than the run's is left out."""
    places = list(dict.fromkeys(place for folder in folders for place in (folder, folder.resolve().parent)))
    model = next((found for place in places if (found := _model(place))), None)
    for place in places:
        for name, windows_of in ((LOAD, _load_windows), (WORLD, _world_windows)):
            if (document := _document(place / name)) is not None:
                windows, note, whole = windows_of(document, axis)
                if windows and not any(row["to"] > 0 and row["from"] < axis.seconds for row in windows):
                    windows, note, whole = [], f"{name} is of another time than this run", None
                return Load(windows[:WINDOWS_MAX], note, model, whole)
    return dataclasses.replace(NONE, model=model)


def _document(path: Path) -> dict | None:
    try:
        found = parse_json(read_bounded(path, BYTES_MAX))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _model(place: Path) -> str | None:
    found = (_document(place / RESULT) or {}).get("model")
    return found if is_word(found, 256) else None


def _window(begin: float, end: float, latencies: object, which: int) -> dict | None:
    if not isinstance(latencies, dict):
        return None
    row = {name: latencies.get(names[which]) for name, names in PERCENTILES.items()}
    if not all(is_whole(value, U64_MAX) for value in row.values()):
        return None
    return {"from": round(begin, 9), "to": round(end, 9), **{name: value / 1000 for name, value in row.items()}}


def _world_windows(document: dict, axis: TimeAxis) -> tuple[list[dict], str, dict | None]:
    """The world and the modelled CPUs have one clock: the TSC is its virtual time."""
    window = document.get("window")
    if not isinstance(window, dict) or not all(is_whole(window.get(name), U64_MAX) for name in ("from_ns", "to_ns")):
        return [], f"{WORLD} has no window", None
    begin, end = (window[name] / 1e9 - axis.begin_tsc / axis.tsc_hz for name in ("from_ns", "to_ns"))
    row = _window(begin, end, document.get("latency_ns"), 1)
    if row is None:
        return [], f"{WORLD} has no latencies", None
    note = f"latency of the measured window, from {WORLD}: one value for the whole window, because the file has no series over time"
    return [row], note, row


def _load_windows(document: dict, axis: TimeAxis) -> tuple[list[dict], str, dict | None]:
    runs = document.get("runs")
    windows, wholes, has_seconds, by_wall_clock = [], [], False, False
    for run in runs if isinstance(runs, list) else []:
        clock = (run.get("log") or {}).get("clock") if isinstance(run, dict) and isinstance(run.get("log"), dict) else None
        has_clock = isinstance(clock, dict) and all(is_whole(clock.get(name), U64_MAX) for name in ("tsc", "unix_ns"))
        if not isinstance(run, dict) or not (has_clock or axis.begin_unix_ns):
            continue
        began, length = run.get("began_unix_ns"), run.get("seconds")
        if not is_whole(began, U64_MAX) or not isinstance(length, int | float) or not 0 <= length < 1e9:
            continue
        if has_clock:
            # The TSC when the window began, by the reading of the machine's clock before the run.
            began_s = (clock["tsc"] - axis.begin_tsc) / axis.tsc_hz + (began - clock["unix_ns"]) / 1e9
        else:
            began_s, by_wall_clock = (began - axis.begin_unix_ns) / 1e9, True
        counted = run.get("measuring") if isinstance(run.get("measuring"), dict) else run.get("loading")
        whole = _window(began_s, began_s + length, counted.get("latency") if isinstance(counted, dict) else None, 0)
        wholes += [whole] if whole else []
        seconds = run.get("over_time")
        rows = [_second(row, began_s) for row in seconds] if isinstance(seconds, list) else []
        rows = [row for row in rows if row]
        has_seconds = has_seconds or bool(rows)
        windows += rows or ([whole] if whole else [])
    if not windows:
        return [], f"{LOAD} has no latencies with a known time", None
    each = "second, of all connections" if has_seconds else "measured window: the file has no series over time"
    note = f"latency by the load generator, from {LOAD}: percentiles of each {each}"
    if by_wall_clock:
        note += "; placed by the machine's wall clock, which is exact to about a second"
    return windows, note, wholes[0] if len(wholes) == 1 else None


def _second(row: object, began_s: float) -> dict | None:
    if not isinstance(row, dict) or not isinstance(row.get("from_s"), int | float) or not -1e9 < row["from_s"] < 1e9:
        return None
    return _window(began_s + row["from_s"], began_s + row["from_s"] + 1, row, 0) if row.get("answered") else None
