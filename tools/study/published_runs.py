# SPDX-License-Identifier: BSL-1.0
"""Tables of runs as the published studies' cleaners print them: a line for each run, with spaces between the columns.

The heading begins with `sys`. A cleaner may print a line before it, and a line for each core of a run, which has one column more; both are
passed over. A figure of 0 is that of a counter which was not read, so it is null.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from tools.errors import Failure
from tools.foreign import shown
from tools.log.study_layout import CLOCK_HZ, CORES
from tools.study import schema

# ixgbe takes an interval of 1 us as the request for adaptive moderation, and 0xffff stands for the governor.
ADAPTIVE_ITR, GOVERNOR = "1", 0xFFFF
GHZ_A_RATIO = 0.1  # PERF_CTL has the ratio to 100 MHz in bits 15:8
HEADING = "sys "
HEADING_LINES_MAX = 3
# NetPIPE's runs are so many round trips.
ROUND_TRIPS = 5000
SYSTEMS = {"linux": "Linux", "ebbrt": "EbbRT"}
TUNED, DEFAULT, POLLING = "tuned", "default", "poll"
# Names of one figure, of which a table has at most one.
LATENCIES = {
    "p50_us": ("read_50th", "lat50"),
    "p90_us": ("read_90th", "lat90"),
    "p95_us": ("read_95th",),
    "p99_us": ("read_99th", "lat99"),
}
COUNTERS = {
    "instructions": "instructions",
    "cycles": "cycles",
    "ref_cycles": "ref_cycles",
    "llc_misses": "llc_miss",
    "interrupts": "num_interrupts",
    "bytes_in": "rx_bytes",
    "bytes_out": "tx_bytes",
}
SLEEPS = ("c1", "c1e", "c3", "c6", "c7")


def settings(system: str, itr: str, dvfs: str, rapl: str) -> dict:
    """Returns the arm and the columns of the settings, by the spelling of the published names."""
    is_linux, ratio = system == "Linux", int(dvfs or "0", 16)
    is_adaptive = is_linux and itr == ADAPTIVE_ITR
    return {
        "arm": f"{system} dynamic" if is_adaptive or ratio == GOVERNOR else system,
        "system": system.lower(),
        "machine": "published",
        "modelled": False,
        "itr_us": None if is_adaptive else float(itr or 0),
        "frequency_ghz": None if ratio in (0, GOVERNOR) else round((ratio >> 8) * GHZ_A_RATIO, 3),
        "rapl_w": float(rapl or 0) or None,
    }


def _heading(path: Path) -> list[str] | None:
    try:
        with open(path, encoding="ascii", errors="replace") as lines:
            first = [lines.readline(4096) for _ in range(HEADING_LINES_MAX)]
    except OSError:
        return None
    names = next((line.split() for line in first if line.startswith(HEADING)), [])
    return names if {"i", "itr", "dvfs", "rapl", "time"} <= set(names) else None


def is_published(path: Path) -> bool:
    """True for a table of the published studies' cleaners."""
    return _heading(path) is not None


def read(path: Path) -> pa.Table:
    """Returns the runs of a table. Raises Failure if no line fits its heading, or a line has a text where a number belongs."""
    names = _heading(path) or []
    rows = []
    try:
        with open(path, encoding="ascii", errors="replace") as lines:
            for at, line in enumerate(lines, 1):
                words = line.split()
                if len(words) == len(names) and words[0] != "sys":
                    rows.append(_row(path, at, dict(zip(names, words))))
    except OSError as error:
        raise Failure(f"cannot read {shown(path)}: {error.strerror}") from None
    except ValueError as error:
        raise Failure(f"{shown(path)}, line {at}: {shown(error, 100)}", "a table of the published studies has numbers there") from None
    if not rows:
        raise Failure(f"{shown(path)}: no line has the {len(names)} columns of its heading")
    return schema.runs_table(rows)


def _row(path: Path, line: int, words: dict[str, str]) -> dict:
    def figure(*names: str) -> float | None:
        """The first of the columns that the table has; null for 0 and for nan."""
        value = next((float(words[name]) for name in names if name in words), 0.0)
        return value if value > 0 else None

    prefix, _, kind = words["sys"].partition("_")
    made = settings(SYSTEMS.get(prefix, prefix), words["itr"], words["dvfs"].lower(), words["rapl"])
    if kind == POLLING:
        made["arm"] += " polling"
    elif kind not in (TUNED, DEFAULT):
        made["arm"] = f"{SYSTEMS.get(prefix, prefix)} {kind}".strip()
    seconds, joules = figure("time"), figure("joules", "joule")
    load = _load(path, words, figure)
    requests, cores, reference = load["requests"], load["cores"], figure("ref_cycles")
    return {
        **load,
        **made,
        "study": path.stem,
        "run": f"line{line}",
        "repeat": int(words["i"]) + 1,
        "status": schema.OK,
        "window_s": seconds,
        "rate_reached": figure("measure_QPS") or (requests / seconds if requests and seconds else None),
        "energy_j": joules,
        "energy_uj": 1e6 * joules / requests if joules and requests else None,
        "power_w": joules / seconds if joules and seconds else None,
        **{column: figure(name) for column, name in COUNTERS.items()},
        "c0": min(1.0, reference / (CLOCK_HZ * seconds * cores)) if reference and seconds else None,
    }


def _load(path: Path, words: dict[str, str], figure: Callable[..., float | None]) -> dict:
    """Returns the load's columns. NetPIPE's and node's servers have one core. In NetPIPE's tables, c1 to c7 are no counts."""
    if message := words.get("msg_size") or words.get("msg"):
        seconds = figure("time")
        one_way = {"p50_us": 1e6 * seconds / ROUND_TRIPS / 2} if seconds else {}
        return {"load": f"netpipe {message}", "cores": 1, "requests": ROUND_TRIPS, **one_way}
    figures = {column: figure(*names) for column, names in LATENCIES.items()}
    figures["wake_ups"] = sum(figure(name) or 0.0 for name in SLEEPS) or None
    if "measure_QPS" in words:
        requests = (figure("measure_QPS") or 0) * (figure("time") or 0)
        load = "mcdsilo" if path.stem.startswith("mcdsilo") else "mcd"
        more = {"cores": CORES, "rate_wanted": figure("target_QPS")}
    else:
        requests, load, more = figure("requests") or 0, "node", {"cores": 1}
    return {"load": load, "requests": round(requests) or None, **more, **figures}
