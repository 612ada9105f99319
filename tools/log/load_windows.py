# SPDX-License-Identifier: BSL-1.0
"""The result of a load as windows on a log's clock: `./neap load --json FILE`, or a model run's result.json.

A result says when its measured window began and how long it was, how many requests were answered in it, and their latency percentiles. The
load generator's window is in its own wall clock; `log.clock` in the result relates that clock to the machine's TSC (docs/load.md). Without
this reading the wall clock of the log's start anchor is used, so the two machines' clocks must agree. The window of a model run is in
virtual time, in which the modelled TSC counts from 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tools.errors import Failure
from tools.foreign import is_whole, parse_json, read_bounded

if TYPE_CHECKING:
    # The collector reads offered rates without numpy.
    from tools.log.decode import CoreLog, RunLog

BYTES_MAX = 16 << 20
WINDOWS_MAX = 1000
NS_PER_S = 1_000_000_000
# A result's member, and the name of the figure here. A model run and the load generator spell them differently.
_PERCENTILES = {"p50": ("p50_ns", "p50"), "p90": ("p90_ns", "p90"), "p95": ("p95_ns", "p95"), "p99": ("p99_ns", "p99")}
_PERCENTILES |= {"p99.9": ("p99.9_ns", "p999"), "max": ("p100_ns", "max"), "mean": ("mean_ns", "mean"), "min": ("min_ns", "min")}
NAMES = ("load.json", "result.json")
WORLD = "world.json"


@dataclasses.dataclass(frozen=True)
class LoadWindow:
    """A measured window of a load. `begin_tsc` and `end_tsc` are on the log's clock. `by_wall_clock`: only the two machines' wall clocks
    relate the window to the log. `offered`: requests/s that the load was to send; None for a closed loop. `found`: no result of a load
    says the window; it was found in the log (steady.py). `marked`: the window is that of the log's marks (load_marks.py)."""

    begin_tsc: int
    end_tsc: int
    requests: int | None
    latency_us: dict[str, float]
    by_wall_clock: bool = False
    offered: float | None = None
    found: bool = False
    marked: bool = False


def beside(place: str) -> Path | None:
    """Returns the result of a load beside a folder of logs, as `--load-out` and model runs leave it; None if there is none. `place` may
    also be the folder above that folder."""
    return next((path for name in NAMES if (path := _above(Path(place)) / name).is_file()), None) if Path(place).is_dir() else None


def _above(place: Path) -> Path:
    """Returns the folder that holds a folder of logs. `place` may be either of them."""
    return (place / "log" if (place / "log").is_dir() else place).resolve().parent


def offered(place: Path) -> dict | None:
    """Returns `file` and `offered_per_second` of the load's result beside a folder of logs: a rate for each measured window, None for a
    closed loop. None if no result of a load is there."""
    # The model machine writes its result after its log. Before that, the clients' figures are in world.json.
    found = [path for path in (beside(str(place)), _above(place) / WORLD) if path is not None and path.is_file()]
    return offered_by(found[0]) if found else None


def offered_by(path: Path) -> dict | None:
    """Returns what `offered` does, for one file. The file may be anything; then None is returned."""
    try:
        found = parse_json(read_bounded(path, BYTES_MAX))
    except (OSError, ValueError):
        return None
    runs = _member(found, "runs")
    if isinstance(runs, list) and len(runs) <= WINDOWS_MAX:
        rates = [_rate(_member(each, "rate", "asked")) for each in runs]
    elif _member(found, "window") or _member(found, "world"):
        rates = [_rate(_member(_member(found, "world") or found, "rate"))]
    else:
        return None
    return {"file": path.name, "offered_per_second": rates}


def read(path: Path, run: RunLog) -> list[LoadWindow]:
    """Returns the windows in a result, by time. Raises Failure if the file is no result of a load."""
    try:
        found = parse_json(read_bounded(path, BYTES_MAX))
        windows = list(_model(found, run)) if isinstance(found, dict) and "world" in found else list(_runs(found, run))
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


def _model(result: dict, run: RunLog) -> Iterator[LoadWindow]:
    hz = run.cores[0].tsc_hz
    begin, end = (_whole(_member(result, "world", "window", name), f"world.window.{name}") for name in ("from_ns", "to_ns"))
    answered = _whole(_member(result, "world", "answered"), "world.answered")
    latency = _latency(_member(result, "world", "latency_ns"))
    rate = _rate(_member(result, "world", "rate"))
    yield LoadWindow(begin * hz // NS_PER_S, end * hz // NS_PER_S, answered, latency, offered=rate)


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
        yield LoadWindow(begin_tsc, begin_tsc + int(seconds * hz), requests, latency, clock is None, rate)


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
