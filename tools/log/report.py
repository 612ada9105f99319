# SPDX-License-Identifier: BSL-1.0
"""`./neap log report`: one HTML page that contains all its data and scripts, so it opens without a network.

A browser cannot draw a million records. So the page holds the packed records, and report.js thins them for the visible span of time.
report.js draws the minimum and the maximum of each group of adjacent records, so that no peak is lost. In a short span it draws single
records. If a run has more than POINTS_MAX records, the page itself holds only the minimum and maximum of each group.

A content security policy in the page's head forbids all connections, also by the plot library (Plotly) or by text from a log.
"""

import base64
import html
import json
import zlib
from pathlib import Path

import numpy as np
from plotly.offline import get_plotlyjs

from tools.log import summary
from tools.log.decode import RunLog
from tools.log.tables import Making
from tools.log.trim import CoreRun, package_energy, packages, ticks_since, trim

HERE = Path(__file__).parent
POINTS_MAX = 2_000_000
TIME_BINS = 500
SERIES_POINTS = 2000
MARKS_MAX = 200
HISTOGRAM_BINS_PER_DECADE = 10
FIELDS = ("rx_bytes", "tx_bytes", "rx_descriptors", "tx_descriptors")


def write(run: RunLog, out: Path) -> int:
    """Writes the page. Returns its size in bytes. Raises Failure if it cannot be written."""
    page = build(run)
    with Making(out) as making, open(making, "w", encoding="utf-8") as file:
        file.write(page)
    return len(page)


def build(run: RunLog) -> str:
    found = summary.summarise(run)
    cores = [trim(core) for core in run.cores]
    begin = min((core.begin_tsc for core in cores if len(core.records)), default=0)
    marks = policy_marks(found["settings"])
    if len(marks) > MARKS_MAX:
        found["remarks"].append(f"{len(marks)} policy changes; the first {MARKS_MAX} are marked in the plots")
    data = {
        "seconds": found["total"]["seconds"],
        "cores": [_core(core, begin, POINTS_MAX // max(1, len(cores))) for core in cores],
        "histogram": _histogram(cores),
        "packages": [_package(run, number, members, begin) for number, members in packages(cores).items()],
        "marks": marks[:MARKS_MAX],
    }
    replacements = {
        "@TITLE@": html.escape(f"run {found['run']} of {found['application']}"),
        "@STYLE@": (HERE / "report.css").read_text(),
        "@SUMMARY@": _summary_html(found),
        "@PLOTLY@": get_plotlyjs(),
        "@DATA@": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        "@SCRIPT@": (HERE / "report.js").read_text(),
    }
    page = (HERE / "report.html").read_text()
    # All placeholders are replaced in one pass over the page's own text, because the inserted texts may contain placeholders, too.
    parts = []
    for line in page.splitlines():
        name = line.strip()
        parts.append(replacements.get(name) or line.replace("@TITLE@", replacements["@TITLE@"]))
    return "\n".join(parts) + "\n"


# ---- records ----


def pack(values: np.ndarray) -> dict:
    """Packs unsigned integers: base64 of deflated byte planes, the lowest bytes first. Planes compress better than whole numbers."""
    maximum = int(values.max()) if len(values) else 0
    width = next(width for width in (1, 2, 4) if maximum < 1 << 8 * width or width == 4)
    plain = np.minimum(values, (1 << 32) - 1).astype(f"<u{width}")
    planes = np.ascontiguousarray(plain.view(np.uint8).reshape(-1, width).T)
    return {"width": width, "count": len(plain), "data": base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()}


def _core(core: CoreRun, begin: int, points_max: int) -> dict:
    records = core.inside
    ticks = core.interval_ticks[1:] if core.started else core.interval_ticks
    hz = core.log.tsc_hz
    offsets = ticks_since(records["tsc"], begin)
    step = max(1, -(-len(records) // points_max))
    groups = np.arange(0, len(records), step)
    # Times are stored as differences, in a unit in which the longest difference fits into 32 bits.
    moments = offsets[groups] if len(records) else offsets
    deltas = np.diff(moments, prepend=0)
    unit = max(1, -(-int(deltas.max(initial=1)) // ((1 << 32) - 1)))
    rounded = np.diff(np.maximum(moments, 0) // unit, prepend=0)
    interval_unit = max(1, -(-int(ticks.max(initial=1)) // ((1 << 32) - 1)))
    columns = {name: records[name].astype(np.int64) for name in FIELDS} | {"interval": ticks // interval_unit}
    found = {
        "core": core.log.core,
        "records": len(records),
        "step": step,
        "time_unit": unit / hz,
        "interval_unit": interval_unit * 1e6 / hz,
        "time": pack(rounded),
        "max": {name: pack(np.maximum.reduceat(values, groups) if len(values) else values) for name, values in columns.items()},
        "asleep": _asleep(core, ticks, offsets / hz),
        "non_idle": _ratio_over_time(core, "reference_cycles", begin),
        "residency": {state: _ratio_over_time(core, f"core_{state}", begin) for state in ("c3", "c6", "c7")},
        "idle_by_state": {
            core.log.schema.idle_name(state): count / max(1, core.ticks) for state, count in summary.idle_ticks(core).items()
        },
    }
    if step > 1:
        found["min"] = {name: pack(np.minimum.reduceat(values, groups)) for name, values in columns.items()}
    return found


def _asleep(core: CoreRun, ticks: np.ndarray, seconds: np.ndarray) -> dict:
    """Returns the share of time asleep in each of TIME_BINS spans of time. A record's interval belongs to the span of its end."""
    if not len(seconds):
        return {"x": [], "y": []}
    edges = np.linspace(0, max(float(seconds[-1]), 1e-9), TIME_BINS + 1)
    spent, _ = np.histogram(seconds, edges, weights=ticks)
    asleep = np.where(core.inside["idle_state"] == core.log.schema.idle_poll, 0, core.inside["idle_ticks"])
    slept, _ = np.histogram(seconds, edges, weights=asleep)
    there = spent > 0
    middle = (edges[:-1] + edges[1:]) / 2
    return {"x": _short(middle[there]), "y": _short(np.minimum(slept[there] / spent[there], 1))}


def _ratio_over_time(core: CoreRun, counter: str, begin: int) -> dict | None:
    """Returns a counter's increase per TSC tick between samples; None if there are fewer than two samples."""
    at, total = core.sampled(counter)
    if len(at) < 2:
        return None
    chosen = np.unique(np.linspace(0, len(at) - 1, min(len(at), TIME_BINS + 1)).astype(int))
    tsc = ticks_since(core.tsc[at[chosen]], begin)
    grown = np.diff(total[chosen].astype(np.float64))
    return {"x": _short(tsc[1:] / core.log.tsc_hz), "y": _short(grown / np.maximum(np.diff(tsc), 1))}


def _histogram(cores: list[CoreRun]) -> list[dict]:
    """Returns a histogram of each core's intervals in microseconds. The ratio of upper to lower bound is the same for all bins."""
    found = []
    for core in cores:
        ticks = core.interval_ticks[core.interval_ticks > 0]
        places = np.floor(np.log10(ticks * 1e6 / core.log.tsc_hz) * HISTOGRAM_BINS_PER_DECADE).astype(int)
        bins, counts = np.unique(places, return_counts=True)
        spread = np.arange(bins[0], bins[-1] + 1) if len(bins) else bins
        filled = np.zeros(len(spread), int)
        filled[bins - (bins[0] if len(bins) else 0)] = counts
        found.append({"core": core.log.core, "x": _short(10 ** ((spread + 0.5) / HISTOGRAM_BINS_PER_DECADE)), "y": filled.tolist()})
    return found


# ---- packages and policy ----


def _package(run: RunLog, number: int, members: list[CoreRun], begin: int) -> dict:
    found: dict = {"number": number, "cores": [core.log.core for core in members]}
    for counter, name in (("package_energy", "package"), ("dram_energy", "memory")):
        series = package_energy(run, members, counter)
        if series is None:
            found[name] = None
            continue
        # Of several readings at the same time, only the last is kept: power is energy divided by a time, which must not be 0.
        tsc, last = np.unique(series.tsc[::-1], return_index=True)
        joules = series.joules[::-1][last]
        chosen = np.unique(np.linspace(0, len(tsc) - 1, min(len(tsc), SERIES_POINTS)).astype(int))
        seconds = ticks_since(tsc[chosen], begin) / members[0].log.tsc_hz
        watts = np.diff(joules[chosen]) / np.maximum(np.diff(seconds), 1e-9)
        found[name] = {"x": _short(seconds), "joules": _short(joules[chosen]), "watts": _short(watts)}
    found["residency"] = {state: _ratio_over_time(members[0], f"package_{state}", begin) for state in ("c2", "c3", "c6", "c7")}
    return found


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


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.9g}") for value in values.tolist()]


# ---- text ----


def _summary_html(found: dict) -> str:
    total = found["total"]
    parts = [f"<p>{html.escape(line)}</p>" for line in summary.head(found)]
    parts.append(_table_html(found["cores_detail"], summary.CORE_COLUMNS))
    parts.append(_table_html(found["packages"], summary.PACKAGE_COLUMNS))
    if total["joules"] is None:
        parts.append("<p>This CPU has no energy counter: energy and power are not drawn.</p>")
    parts += [f'<p class="remark">{html.escape(remark)}</p>' for remark in found["remarks"]]
    return "\n".join(parts)


def _table_html(rows: list[dict], columns: tuple) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name, _ in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell(row))}</td>" for _, cell in columns) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
