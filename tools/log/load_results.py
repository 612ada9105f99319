# SPDX-License-Identifier: BSL-1.0
"""The result of a load on a log's clock: `./neap load --json FILE`, or a model run's result.json.

A result says when its measured windows began and how long they were, how many requests were answered in them, and their latency
percentiles, also for each second. The load generator's window is in its own wall clock; `log.clock` in the result relates that clock to the
machine's TSC (docs/load.md). Without this reading the wall clock of the log's start anchor is used, so the two machines' clocks must agree.
The window of a model run is in virtual time, in which the modelled TSC counts from 0.

The files are beside the logs, as `./neap run --load-out DIR` and `./neap run --model` leave them. They come from other programs, so every
member is checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tools.errors import Failure
from tools.foreign import is_whole, is_word, parse_json, read_bounded
from tools.log.about import NEAP
from tools.log.load_seconds import Second, buckets_of

if TYPE_CHECKING:
    # The collector reads offered rates without numpy.
    from tools.log.decode import CoreLog, RunLog

BYTES_MAX = 64 << 20
WINDOWS_MAX = 1000
# The seconds of a load that a page draws.
SECONDS_MAX = 5000
NS_PER_S = 1_000_000_000
# A result's member, and the name of the figure here. A model run and the load generator spell them differently.
_PERCENTILES = {"p50": ("p50_ns", "p50"), "p90": ("p90_ns", "p90"), "p95": ("p95_ns", "p95"), "p99": ("p99_ns", "p99")}
_PERCENTILES |= {"p99.9": ("p99.9_ns", "p999"), "max": ("p100_ns", "max"), "mean": ("mean_ns", "mean"), "min": ("min_ns", "min")}
RESULT = "result.json"
# The model machine writes its result after its log. Before that, the clients' figures are in world.json.
NAMES = ("load.json", RESULT, "world.json")
# Percentiles that a page draws.
DRAWN = ("p50", "p99", "max")


@dataclasses.dataclass(frozen=True)
class LoadWindow:
    """A measured window of a load. `begin_tsc` and `end_tsc` are on the log's clock. `by_wall_clock`: only the two machines' wall clocks
    relate the window to the log. `offered`: requests/s that the load was to send; None for a closed loop. `found`: no result of a load
    says the window; it was found in the log (steady.py). `marked`: the window is that of the log's marks (load_marks.py). `over_time`: the
    window's seconds with replies, and those of its warm-up."""

    begin_tsc: int
    end_tsc: int
    requests: int | None
    latency_us: dict[str, float]
    by_wall_clock: bool = False
    offered: float | None = None
    found: bool = False
    marked: bool = False
    over_time: tuple[Second, ...] = ()


# ---- files ----


def beside(places: Iterable[str | Path]) -> Path | None:
    """Returns the result of a load in or beside folders of logs, or in the folder above them; None if there is none."""
    folders = [path for path in map(Path, places) if path.is_dir()]
    found = [path for folder in folders for path in (folder, *((folder.resolve().parent,) if not (folder / "log").is_dir() else ()))]
    return next((path for folder in found for name in NAMES if (path := folder / name).is_file()), None)


def offered(path: Path | None) -> dict | None:
    """Returns `file` and `offered_per_second` of a load's result: a rate for each measured window, None for a closed loop. Returns None if
    the file is no such result."""
    found = _document(path) if path is not None else None
    runs = _member(found, "runs")
    # A model run has `runs`, too, with other members.
    if world := _world(found):
        rates = [_rate(world.get("rate"))]
    elif isinstance(runs, list) and len(runs) <= WINDOWS_MAX:
        rates = [_rate(_member(each, "rate", "asked")) for each in runs]
    else:
        return None
    assert path is not None
    return {"file": path.name, "offered_per_second": rates}


def model_of(path: Path | None) -> str | None:
    """Returns the modelled CPU's name from a model run's result, which is beside `path`; None if there is none."""
    found = _member(_document(path.with_name(RESULT)), "model") if path is not None else None
    return found if isinstance(found, str) and is_word(found, 256) else None


def _document(path: Path) -> object:
    """Returns a file's JSON; None if it is none. The file may be anything."""
    try:
        return parse_json(read_bounded(path, BYTES_MAX))
    except (OSError, ValueError):
        return None


def _world(found: object) -> dict | None:
    """Returns the clients' figures of a model run, which are a part of its result or a file."""
    world = _member(found, "world") or found
    return world if isinstance(world, dict) and "window" in world else None


def read(path: Path, run: RunLog) -> list[LoadWindow]:
    """Returns the windows in a result, by time. Raises Failure if the file is no result of a load."""
    try:
        found = parse_json(read_bounded(path, BYTES_MAX))
        world = _world(found)
        windows = [_model(world, run)] if world is not None else list(_runs(found, run))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Failure(f"{path} is no result of a load: {why}", "./neap load ... --json FILE writes one") from None
    return sorted(windows, key=lambda window: window.begin_tsc)


def _member(value: object, *names: str) -> object:
    """Returns a member of nested objects; None if one of them is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _whole(value: object, what: str) -> int:
    if not is_whole(value):
        raise ValueError(f"it has no {what}")
    assert isinstance(value, int)
    return value


def _latency(of: object) -> dict[str, float]:
    found = {}
    for name, spellings in _PERCENTILES.items():
        value = next((_member(of, spelling) for spelling in spellings if _member(of, spelling) is not None), None)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            found[name] = value / 1000
    return found


def _model(world: dict, run: RunLog) -> LoadWindow:
    begin, end = (_modelled(_whole(_member(world, "window", name), f"world.window.{name}"), run) for name in ("from_ns", "to_ns"))
    answered = _whole(world.get("answered"), "world.answered")
    latency = _latency(world.get("latency_ns"))
    return LoadWindow(begin, end, answered, latency, offered=_rate(world.get("rate")))


def _modelled(ns: int, run: RunLog) -> int:
    """Returns a virtual time as ticks of the log's clock. The modelled TSC counts from 0. Neap's log has this TSC. The clock of a log of
    Linux began later, and its header relates both."""
    hz, about = run.cores[0].tsc_hz, run.about
    if about.get("system", NEAP) == NEAP:
        return ns * hz // NS_PER_S
    clock = about.get("raw_tsc")
    if not clock:
        raise ValueError("its window is in virtual time, and the log's header does not relate its clock to it")
    return ns * hz // NS_PER_S - clock["at_tick_0"] * hz // clock["hz"]


def _runs(result: object, run: RunLog) -> Iterator[LoadWindow]:
    runs = _member(result, "runs")
    if not isinstance(runs, list) or len(runs) > WINDOWS_MAX:
        raise ValueError(f"it has no list of at most {WINDOWS_MAX} runs")
    for each in runs:
        seconds = _member(each, "seconds")
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds < 1e9:
            raise ValueError("a run in it has no seconds")
        began = _whole(_member(each, "began_unix_ns"), "began_unix_ns")
        clock = _member(each, "log", "clock")
        if clock is None:
            tsc, unix_ns = _wall_clock(run.cores[0])
        else:
            tsc, unix_ns = (_whole(_member(clock, name), f"log.clock.{name}") for name in ("tsc", "unix_ns"))
        hz = run.cores[0].tsc_hz
        begin_tsc = tsc + (began - unix_ns) * hz // NS_PER_S
        measuring = _member(each, "measuring")
        latency = _latency(_member(measuring if measuring is not None else _member(each, "loading"), "latency"))
        clients = [client for client in (_member(each, "loading"), measuring) if client is not None]
        requests = sum(_whole(_member(client, "answered_in_window"), "answered_in_window") for client in clients)
        rate = _rate(_member(each, "rate", "asked"))
        over_time = tuple(_over_time(_member(each, "over_time"), begin_tsc, hz))
        yield LoadWindow(begin_tsc, begin_tsc + int(seconds * hz), requests, latency, clock is None, rate, over_time=over_time)


def _over_time(rows: object, begin_tsc: int, hz: int) -> Iterator[Second]:
    for row in rows[:SECONDS_MAX] if isinstance(rows, list) else ():
        since = _member(row, "from_s")
        if isinstance(since, int | float) and not isinstance(since, bool) and -1e9 < since < 1e9 and _member(row, "answered"):
            answered = _whole(_member(row, "answered"), "over_time.answered")
            yield Second(begin_tsc + int(since * hz), _latency(row), answered, buckets_of(_member(row, "histogram_ns")))


def _rate(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12 else None


def _wall_clock(core: CoreLog) -> tuple[int, int]:
    """Returns a TSC value of the machine, and the machine's wall clock at that time."""
    if len(core.anchors) and "wall_clock_ns" in core.schema.form["anchor"].by_name:
        return int(core.anchors["tsc"][0]), int(core.anchors["wall_clock_ns"][0])
    about = core.header.about
    if "tsc_at_boot" in about and "wall_clock_at_boot_ns" in about:
        return about["tsc_at_boot"], about["wall_clock_at_boot_ns"]
    raise ValueError("it has no reading of the machine's clock, and the log has no wall clock")


# ---- the curve of a page ----


@dataclasses.dataclass(frozen=True)
class Curve:
    """The latency of a run's load over time. `windows`: spans in seconds since the run's begin, with latencies in microseconds. `note` says
    what they are. `whole`: the latencies of the whole measured window, if the load had only one."""

    windows: list[dict]
    note: str
    whole: dict | None = None


def curve(path: Path | None, windows: Sequence[LoadWindow], begin_tsc: int, tsc_hz: int, seconds: float) -> Curve:
    """Returns the curve of a run that begins at `begin_tsc` and lasts `seconds`. `windows`: those that `path` has; none if it is no
    result."""
    if path is None:
        return Curve([], "no result of a load generator beside the log")

    def rows_of(low: int, high: int, latency: dict[str, float]) -> list[dict]:
        bounds = {"from": round((low - begin_tsc) / tsc_hz, 9), "to": round((high - begin_tsc) / tsc_hz, 9)}
        return [{**bounds, **{name: latency[name] for name in DRAWN}}] if all(name in latency for name in DRAWN) else []

    wholes = [row for window in windows for row in rows_of(window.begin_tsc, window.end_tsc, window.latency_us)]
    drawn = [
        row for each in windows for part in each.over_time for row in rows_of(part.begin_tsc, part.begin_tsc + tsc_hz, part.latency_us)
    ]
    has_seconds = bool(drawn)
    drawn = drawn or wholes
    if not drawn:
        return Curve([], f"{path.name} has no latencies with a known time")
    if not any(row["to"] > 0 and row["from"] < seconds for row in drawn):
        return Curve([], f"{path.name} is of another time than this run")
    each = "second, of all connections" if has_seconds else "measured window: the file has no series over time"
    note = f"latency by the load generator, from {path.name}: percentiles of each {each}"
    if any(window.by_wall_clock for window in windows):
        note += "; placed by the machine's wall clock, which is exact to about a second"
    return Curve(drawn[:SECONDS_MAX], note, wholes[0] if len(wholes) == 1 else None)
