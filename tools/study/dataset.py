# SPDX-License-Identifier: BSL-1.0
"""Datasets in the published layout of the studies: read as a table of runs, and written from a study of Neap.

A dataset is a folder, with folders in it, of files `*.i_Core_ITR_DVFS_RAPL` and their relatives (tools/log/study_layout.py). A run is the
files of all its cores. Its energy, counters and latencies come from these files; what they lack is null. The clock, the unit of energy and
the packages are those that the studies' scripts assume (tools/log/study_reader.py).
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tools import progress
from tools.errors import Failure, UsageError
from tools.foreign import shown
from tools.log import repeats, study, study_reader, summary
from tools.log.decode import RunLog
from tools.log.load_results import LoadWindow
from tools.log.study_layout import LAYOUTS, Layout, Setting
from tools.log.study_reader import Name
from tools.log.trim import trim
from tools.study import published_runs, schema
from tools.study.published_runs import ADAPTIVE_ITR, GHZ_A_RATIO, GOVERNOR
from tools.study.view_source import Source

FILES_MAX = 2_000_000
NOTES = study_reader.NOTES
LATENCIES = {"mean": "mean_us", "p50": "p50_us", "p90": "p90_us", "p95": "p95_us", "p99": "p99_us"}
RAPL_OFF = "135"  # the limit of the studies' CPUs, which is no limit


# ---- reading ----


def runs_in(place: Path) -> list[list[Name]]:
    """Returns the published files below a folder, by run."""
    found: dict[tuple[str, ...], list[Name]] = {}
    count = 0
    for path in place.rglob("*"):
        if (name := study_reader.name_of(path)) and path.is_file():
            found.setdefault(name.key, []).append(name)
            count += 1
            if count > FILES_MAX:
                raise Failure(f"{shown(place)} has more than {FILES_MAX:,} files", "name one of its folders")
    return [sorted(found[key], key=lambda name: name.core) for key in sorted(found)]


def files_of(path: Path) -> list[str]:
    """Returns the files of the run to which a published file belongs. Raises Failure for another file."""
    one = study_reader.name_of(path)
    if one is None:
        raise Failure(f"{shown(path)} is no file of the published studies")
    found = [name for each in path.parent.iterdir() if (name := study_reader.name_of(each)) and name.key == one.key]
    return [str(name.path) for name in sorted(found, key=lambda name: name.core)]


def read(place: Path) -> pa.Table:
    """Returns the runs of a dataset. A run whose files cannot be understood has the status `failed`. Raises UsageError for a folder without
    published files."""
    runs = runs_in(place)
    if not runs:
        raise UsageError(f"{shown(place)} has neither a table of runs nor files of the published studies", "./neap view STUDY")
    rows = []
    with progress.step(f"reads {len(runs)} runs of the published studies"):
        for names in runs:
            rows.append(row_of(place, names))
    return schema.runs_table(rows)


def row_of(place: Path, names: Sequence[Name]) -> dict:
    """Returns the row of one run."""
    part = names[0].parts
    relative = names[0].path.relative_to(place)
    system = "EbbRT" if part["stem"] == "ebbrt" else "Linux" if (part["stem"] or "").startswith("linux") else "log"
    row = {
        **published_runs.settings(system, part["itr"] or "", part["dvfs"] or "", part["rapl"] or ""),
        "study": place.name,
        "run": hashlib.sha256("\n".join((str(relative.parent), *names[0].key[1:])).encode("utf-8", "surrogateescape")).hexdigest()[:16],
        "load": _load_of(part),
        "repeat": int(part["i"] or 0) + 1,
        "idle": part.get("sleep"),
        "rate_wanted": float(part["qps"]) if part.get("qps") else None,
        "log": str(relative),
    }
    try:
        return {**row, "status": schema.OK, **_figures(study_reader.load([str(name.path) for name in names]))}
    except Failure as failure:
        return {**row, "status": schema.FAILED, "failure": failure.message}


def _load_of(part: dict[str, str | None]) -> str:
    if part.get("message"):
        return f"netpipe {part['message']}"
    return part.get("application") or {"linux.node.server": "node", "ebbrt": "mcd"}.get(part["stem"] or "", "unknown")


def _figures(run: RunLog) -> dict:
    found = summary.summarise(run)
    total, windows = found["total"], run.windows
    window = windows[-1] if windows else None
    requests = window.requests if window else None
    seconds, joules = total["seconds"], total["joules"]
    latency = window.latency_us if window else {}
    return {
        "cores": found["cores"],
        "requests": requests,
        "window_s": seconds,
        "rate_reached": requests / seconds if requests and seconds else None,
        **{column: latency.get(name) for name, column in LATENCIES.items()},
        "energy_j": joules,
        "energy_uj": 1e6 * joules / requests if requests and joules is not None else None,
        "power_w": total["watts"],
        **{name: total[name] for name in ("instructions", "cycles", "llc_misses", "interrupts")},
        "ref_cycles": total["reference_cycles"],
        "wake_ups": summary.total_or_none([core["sleeps"] for core in found["cores_detail"]]),
        "bytes_in": total["rx_bytes"],
        "bytes_out": total["tx_bytes"],
        "c0": total["non_idle_ratio"],
    }


# ---- writing ----


def write(source: Source, layout: str, folder: Path) -> tuple[int, list[str]]:
    """Writes all runs of a study that have logs, a folder for each arm. Returns their number, and remarks. Raises UsageError for an unknown
    layout, Failure if no run has a log."""
    if layout not in LAYOUTS:
        raise UsageError(f"there is no layout '{shown(layout, 40)}'", f"layouts: {', '.join(LAYOUTS)}")
    rows = source.rows("SELECT rowid AS row, * FROM runs WHERE log IS NOT NULL ORDER BY rowid") if "log" in source.columns else []
    if not rows:
        raise Failure("no run of this study has a log, which the published layout consists of")
    remarks: list[str] = []
    taken: set[tuple] = set()
    with progress.step(f"writes {len(rows)} runs in the layout {layout}"):
        for row in rows:
            arm = folder / (re.sub(r"[^A-Za-z0-9_.-]+", "-", str(row.get("arm") or "")).strip("-.") or "runs")
            remarks += _write_run(source, row, LAYOUTS[layout], arm, taken)
    return len(rows), list(dict.fromkeys(remarks))


def _write_run(source: Source, row: dict, layout: Layout, folder: Path, taken: set[tuple]) -> list[str]:
    """Writes one run and returns remarks. `taken`: the names that earlier runs have; an equal name gets the next free repetition."""
    (found,) = repeats.load(source.log_places(row["row"]), [])
    windows = found.windows or _window_of(row, found.run)
    setting = _setting(row, found.run)
    rate = windows[-1].offered if windows and windows[-1].offered is not None else row.get("rate_wanted") or row.get("rate_reached") or 0
    qps = f"{rate:.0f}" if layout.other_files else None
    repetition = max(0, int(row.get("repeat") or 1) - 1)
    while (folder, str(setting).lower(), qps, repetition) in taken:
        repetition += 1
    taken.add((folder, str(setting).lower(), qps, repetition))
    if windows and windows[-1].offered is not None:
        qps = f"{windows[-1].offered:g}"
    _, remarks = study.write(found.run, study.Wanted(layout, setting, qps, repetition), folder, windows)
    return remarks


def _setting(row: dict, run: RunLog) -> Setting:
    """Returns the settings of the files' names: those of the log, and those of the table that the log does not know."""
    itr, ghz, rapl = row.get("itr_us"), row.get("frequency_ghz"), row.get("rapl_w")
    known = study.logged_settings([trim(core) for core in run.cores], may_change=True)
    of_table = {
        "itr": ADAPTIVE_ITR if itr is None else f"{itr:g}",
        "dvfs": f"0x{GOVERNOR:x}" if ghz is None else f"0x{round(ghz / GHZ_A_RATIO) << 8:x}",
        "rapl": RAPL_OFF if rapl is None else f"{rapl:g}",
    }
    return Setting(*(known[name] or of_table[name] for name in ("itr", "dvfs", "rapl")))


def _window_of(row: dict, run: RunLog) -> list[LoadWindow]:
    """Returns the window of a run whose load left no file, from the row's figures."""
    if row.get("requests") is None or not row.get("window_s"):
        return []
    cores = [trim(core) for core in run.cores]
    begin = min(core.begin_tsc for core in cores if len(core.records))
    latency = {name: row[column] for name, column in LATENCIES.items() if row.get(column) is not None}
    end = begin + int(row["window_s"] * cores[0].log.tsc_hz)
    return [LoadWindow(begin, end, int(row["requests"]), latency, offered=None)]
