# SPDX-License-Identifier: BSL-1.0
"""Figures by phase. A phase is a time in which the settings of no core change.

A change reaches the cores at different moments. The time from its first core to its last is a transition, which belongs to no phase.
Phases are also cut at the marks of the load (load_marks.py), and if the result of a load is given, at the bounds of its measured windows.
So preload, warm-up and drain are phases of their own.

Interrupts, frames and sleeps belong to the phase in which their record was written. Counters are sampled about every millisecond: their
values at a phase's bounds are interpolated between two samples, and so is the time asleep of an interval that a bound divides. Requests
are known for a whole run (its anchors) and for a whole window of a load. In a part of a window they are interpolated between the load's
seconds, and latencies are those of the whole seconds inside of it (load_seconds.py). Otherwise they are None: they are not guessed.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tools.foreign import shown
from tools.log import configuration, load_marks, load_seconds
from tools.log.decode import INTERRUPT, POLL, RunLog
from tools.log.load_results import LoadWindow
from tools.log.schema import Schema, name_of
from tools.log.trim import CoreRun, package_energy, packages, ticks_since

PHASES_MAX = 100
# Received frames are compared over this number of equal parts of a phase.
PARTS = 10
# A counter's first and last sample may be this share of a phase inside of its bounds.
UNSAMPLED_SHARE_MAX = 0.01
POLICY = ("idle", "itr_us", "poll_budget_us", "pstate", "power_limit_mw", "turbo")
COUNTERS = ("instructions", "cycles", "reference_cycles", "llc_misses")
RESIDENCIES = ("c3", "c6", "c7")
SUMS = ("rx_frames", "tx_frames", "rx_bytes", "tx_bytes", "control_rx_frames", "control_tx_frames")


@dataclasses.dataclass(frozen=True)
class Piece:
    """Bounds of a phase in ticks since the run's begin. `part`: of the load, by the log's marks. `whole_run`: no change, no mark and no
    window's bound divides the run."""

    begin: int
    end: int
    generation: int
    load: LoadWindow | None = None
    covers_load: bool = False
    part: str | None = None
    whole_run: bool = False


def split(run: RunLog, cores: list[CoreRun], loads: Sequence[LoadWindow] = ()) -> dict:
    """Returns `phases`, `transitions` and `phase_remarks` of a run. Times are in seconds since the run's begin."""
    there = [core for core in cores if len(core.records)]
    if not there:
        return {"phases": [], "transitions": [], "phase_remarks": []}
    begin = min(core.begin_tsc for core in there)
    end = max(core.end_tsc for core in there) - begin
    moved = _transitions(there, begin, end)
    hz = there[0].log.tsc_hz
    windows = [window for window in loads if begin <= window.end_tsc and window.begin_tsc <= begin + end][:PHASES_MAX]
    parts = load_marks.spans([mark for core in there for mark in core.log.marks], begin, end)
    remarks = []
    if parts and windows and not windows[0].found:
        parts, remarks = load_marks.align(parts, windows, begin, end, hz)
    windows = windows or load_marks.windows(parts, begin)
    until = end
    if len(moved) >= PHASES_MAX:
        until = moved[PHASES_MAX - 1][0]
        remarks.append(f"settings change at {len(moved):,} times in the run; phases are given up to change {PHASES_MAX}")
        moved = moved[: PHASES_MAX - 1]
    pieces = _pieces(moved, until, _first_generation(there), windows, parts, begin)
    remarks += _remarks(loads, windows, pieces, hz)
    if any(core.log.settings_entries.is_preset_unknown for core in there):
        remarks.append("a preset was set in the run; the log does not say which values other settings got by it")
    energy = [package_energy(run, members, "package_energy") for members in packages(there).values()]
    series = None if any(each is None for each in energy) else [(ticks_since(each.tsc, begin), each.joules) for each in energy if each]
    phases = [
        {"phase": number, "begin": piece.begin / hz, **_figures(there, piece, begin, series)} for number, piece in enumerate(pieces, 1)
    ]
    transitions = [{"begin": first / hz, "seconds": (last - first) / hz, "generations": generations} for first, last, generations in moved]
    return {"phases": phases, "transitions": transitions, "phase_remarks": remarks}


def _remarks(loads: Sequence[LoadWindow], windows: list[LoadWindow], pieces: list[Piece], hz: int) -> list[str]:
    said = []
    if loads and all(window.marked for window in windows):
        said.append("no window of the load lies in the run, so phases have no latencies")
    if any(window.by_wall_clock for window in windows):
        said.append("the load's window was placed by the wall clocks of client and machine, which may differ")
    if any(window.found for window in windows):
        seconds = sum(piece.end - piece.begin for piece in pieces if piece.load) / hz
        said.append(f"steady load, by the frames received, was found in {seconds:.6f} s of the run")
    elif any(not window.marked for window in windows) and not any(piece.covers_load for piece in pieces):
        said.append("settings change within the load's windows, so no phase has the totals of the load")
        if any(window.over_time for window in windows):
            said.append(
                "requests of such a phase are interpolated between the load's seconds; its latencies are those of the whole seconds in it"
            )
    return said


# ---- bounds ----


def _applied(core: CoreRun) -> dict[int, int]:
    """Returns the TSC at which a core applied each generation within the run. A granted p-state is a later entry of the same generation."""
    found: dict[int, int] = {}
    for row in core.log.settings:
        if row["changed"] != "start" and core.begin_tsc <= row["tsc"] <= core.end_tsc:
            found.setdefault(row["generation"], row["tsc"])
    return found


def _transitions(cores: list[CoreRun], begin: int, end: int) -> list[tuple[int, int, list[int]]]:
    """Returns for each transition the ticks of its first and its last core, and the generations that it applies. None overlap."""
    times: dict[int, list[int]] = {}
    for core in cores:
        for generation, tsc in _applied(core).items():
            times.setdefault(generation, []).append(min(max(tsc - begin, 0), end))
    found: list[tuple[int, int, list[int]]] = []
    for first, last, generation in sorted((min(each), max(each), generation) for generation, each in times.items()):
        if found and first <= found[-1][1]:
            before = found.pop()
            found.append((before[0], max(before[1], last), sorted([*before[2], generation])))
        else:
            found.append((first, last, [generation]))
    return found


def _first_generation(cores: list[CoreRun]) -> int:
    rows = [row["generation"] for core in cores for row in core.log.settings if row["changed"] == "start"]
    return max(rows) if rows else min(int(core.inside["generation"][0]) if len(core.inside) else 0 for core in cores)


def _pieces(moved: list, end: int, generation: int, windows: list[LoadWindow], parts: list[load_marks.Span], begin: int) -> list[Piece]:
    bounds = [(0, 0, [generation]), *moved, (end, end, [])]
    found = []
    for before, after in zip(bounds, bounds[1:]):
        generation = max([generation, *before[2]])
        cuts = [(window.begin_tsc - begin, window.end_tsc - begin) for window in windows] + [(part.begin, part.end) for part in parts]
        edges = sorted({before[1], after[0], *(edge for pair in cuts for edge in pair if before[1] < edge < after[0])})
        for low, high in zip(edges, edges[1:]):
            load = next((each for each in windows if each.begin_tsc - begin <= low and high <= each.end_tsc - begin), None)
            covers = load is not None and (low, high) == (load.begin_tsc - begin, load.end_tsc - begin)
            part = load_marks.name_at(parts, low, high) if parts else load_marks.WINDOW if load and not load.found else None
            found.append(Piece(low, high, generation, load, covers, part, (low, high) == (0, end)))
    return found


# ---- figures ----


def _figures(cores: list[CoreRun], piece: Piece, begin: int, energy: list | None) -> dict:
    hz = cores[0].log.tsc_hz
    seconds = (piece.end - piece.begin) / hz
    parts = [_Core(core, piece, begin) for core in cores]
    sums = {name: sum(part.sum(name) for part in parts) for name in SUMS}
    interrupts = sum(part.count(INTERRUPT) for part in parts)
    requests, latency = _requests(cores, piece, begin), _latency(piece, begin, hz)
    counters = {name: _total([part.counter(name) for part in parts]) for name in COUNTERS}
    joules = _total([_grown(tsc, values, piece.begin, piece.end) for tsc, values in energy]) if energy is not None else None
    core_seconds = sum(part.ticks for part in parts) / hz
    asleep = _added([part.idle_ticks for part in parts])
    asleep_seconds = {state: ticks / hz for state, ticks in asleep.items() if state != "poll"}
    return {
        "seconds": seconds,
        "generation": piece.generation,
        "in_load_window": piece.load is not None,
        "load_part": piece.part,
        "settings": settings_in_force(cores, piece.end, begin),
        "interrupts": interrupts,
        "polls": sum(part.count(POLL) for part in parts),
        **sums,
        "requests": requests,
        "requests_per_second": _ratio(requests, seconds),
        "interrupts_per_second": _ratio(interrupts, seconds),
        "interrupts_per_request": _ratio(interrupts, requests),
        "frames_per_interrupt": _ratio(sums["rx_frames"], interrupts),
        "load_variation": _variation(parts, piece),
        "asleep_seconds_by_state": asleep_seconds,
        "asleep_share": _ratio(sum(asleep_seconds.values()), core_seconds),
        "polling_in_vain_share": _ratio(asleep.get("poll", 0) / hz, core_seconds),
        "sleeps_by_state": (sleeps := _added([part.sleeps for part in parts])),
        "sleeps": sum(sleeps.values()),
        "residency_share": {
            name: _ratio(_total([part.counter(f"core_{name}") for part in parts]), core_seconds * hz) for name in RESIDENCIES
        },
        "wake_ups_by_cause": _wake_ups(parts),
        **counters,
        "ipc": _ratio(counters["instructions"], counters["cycles"]),
        "misses_per_1000_instructions": _ratio(counters["llc_misses"], counters["instructions"], 1000),
        "non_idle_ratio": _ratio(counters["reference_cycles"], core_seconds * hz),
        "joules": joules,
        "watts": _ratio(joules, seconds),
        "joules_per_request": _ratio(joules, requests),
        "joules_per_interrupt": _ratio(joules, interrupts),
        "energy_delay_product_joule_seconds": None if joules is None else joules * seconds,
        "latency_us": latency,
    }


class _Core:
    """One core's records within a phase."""

    def __init__(self, core: CoreRun, piece: Piece, begin: int):
        self._core = core
        self._tsc = ticks_since(core.tsc, begin)
        # A run's first and last records belong to the run even if its cores began and ended at slightly different moments.
        self._low = max(piece.begin, int(self._tsc[0]))
        self._high = min(piece.end, int(self._tsc[-1]))
        self.ticks = max(0, self._high - self._low)
        first = 0 if piece.begin == 0 else int(np.searchsorted(self._tsc, piece.begin, "right"))
        self._first = max(first, 1 if core.started else 0)
        self._end = max(self._first, int(np.searchsorted(self._tsc, piece.end, "right")))
        self._records = core.records[self._first : self._end]
        self._begin_tsc = begin

    def count(self, kind: int) -> int:
        return int(np.count_nonzero(self._records["kind"] == kind))

    def sum(self, name: str) -> int:
        return int(self._records[name].sum(dtype=np.uint64))

    def received(self, edges: np.ndarray) -> np.ndarray:
        return np.histogram(self._tsc[self._first : self._end], edges, weights=self._records["rx_frames"])[0]

    @property
    def idle_ticks(self) -> dict[str, float]:
        """Returns idle ticks by state. Of an interval that a bound divides, the part inside of the phase counts, in proportion."""
        records = self._core.records
        low, high = self._first, min(self._end + 1, len(records))
        if low >= high:
            return {}
        ends = self._tsc[low:high]
        starts = self._tsc[low - 1 : high - 1] if low else np.concatenate([ends[:1], ends[:-1]])
        overlap = np.minimum(ends, self._high) - np.maximum(starts, self._low)
        share = np.clip(np.divide(overlap, ends - starts, out=np.ones(len(ends)), where=ends > starts), 0, 1)
        # Without its predecessor, the first record's interval is unknown; its whole count belongs to the run.
        return self._by_state(records[low:high], records["idle_ticks"][low:high] * share)

    @property
    def sleeps(self) -> dict[str, int]:
        found = self._by_state(self._records, self._records["idle_entries"])
        return {state: int(count) for state, count in found.items() if state != "poll"}

    def _by_state(self, records: np.ndarray, weights: np.ndarray) -> dict[str, float]:
        counts = np.bincount(records["idle_state"], weights)
        return {self._core.log.schema.idle_name(int(state)): float(counts[state]) for state in np.flatnonzero(counts)}

    def counter(self, name: str) -> float | None:
        at, total = self._core.sampled(name)
        return _grown(self._tsc[at], total, self._low, self._high) if len(at) > 1 else None

    @property
    def wake_ups(self) -> dict[str, int] | None:
        """Returns the number of sleeps by the cause of their end; None if the log has no Idle entries."""
        idle = self._core.log.idle
        if not len(idle):
            return None
        tsc = ticks_since(idle["tsc"], self._begin_tsc)
        causes = self._core.log.schema.form["idle"].by_name["cause"].choices
        numbers, counts = np.unique(idle["cause"][(tsc > self._low) & (tsc <= self._high)], return_counts=True)
        return {name_of(causes, int(number)): int(count) for number, count in zip(numbers, counts)}


def _grown(tsc: np.ndarray, total: np.ndarray, low: int, high: int) -> float | None:
    """Returns a series' increase from `low` to `high`, interpolated between samples. None if the samples do not reach the bounds."""
    slack = UNSAMPLED_SHARE_MAX * (high - low)
    if len(tsc) < 2 or tsc[0] > low + slack or tsc[-1] < high - slack or high < low:
        return None
    values = np.interp([low, high], tsc, total.astype(np.float64))
    return float(values[1] - values[0])


def _requests(cores: list[CoreRun], piece: Piece, begin: int) -> int | None:
    if piece.load is not None and piece.covers_load:
        return piece.load.requests
    if piece.load is not None:
        return load_seconds.requests_between(piece.load.over_time, piece.begin + begin, piece.end + begin, cores[0].log.tsc_hz)
    return _total([core.requests() for core in cores]) if piece.whole_run else None


def _latency(piece: Piece, begin: int, hz: int) -> dict[str, float] | None:
    """Returns the load's latencies in microseconds; None if they are not known."""
    if piece.load is None:
        return None
    if piece.covers_load:
        return piece.load.latency_us or None
    return load_seconds.latency_between(piece.load.over_time, piece.begin + begin, piece.end + begin, hz)


def _variation(parts: list[_Core], piece: Piece) -> float | None:
    """Returns the standard deviation of the frames received in equal parts of a phase, divided by their mean."""
    edges = np.linspace(piece.begin, piece.end, PARTS + 1)
    frames = np.sum([part.received(edges) for part in parts], axis=0)
    return _ratio(float(frames.std()), float(frames.mean()))


def _wake_ups(parts: list[_Core]) -> dict[str, int] | None:
    known = [found for part in parts if (found := part.wake_ups) is not None]
    return _added(known) if known else None


def _added(rows: list[dict]) -> dict:
    names = sorted({name for row in rows for name in row})
    return {name: sum(row.get(name, 0) for row in rows) for name in names}


def _total(values: list):
    return None if not values or any(value is None for value in values) else sum(values)


def _ratio(part: float | None, whole: float | None, factor: float = 1) -> float | None:
    return None if part is None or not whole else factor * part / whole


def settings_in_force(cores: list[CoreRun], until: int, begin: int) -> dict:
    """Returns the settings that the log's entries show for the time before `until`. A value is common to all cores, or a dictionary by
    core. In a log that does not state all settings at its start, a setting of the card is known from its first change on. A value that a
    preset may have changed is None."""
    by_name: dict[str, dict[int, object]] = {}
    for core in cores:
        found: dict[str, object] = {}
        for entry in core.log.settings_entries.in_order:
            row = entry.row
            if row["tsc"] - begin >= until and not entry.at_start:
                break
            found.update({name: _in_force(core.log.schema, name, row[name]) for name in POLICY if name in core.log.schema.policy})
            if row["changed"] == configuration.PRESET and entry.is_change:
                found |= dict.fromkeys([name for name in found if name not in POLICY])
            if "value" in row and row["changed"] not in configuration.POLICY:
                found[row["changed"]] = row["value"]
        for name, value in found.items():
            by_name.setdefault(name, {})[core.log.core] = value
    return {name: common(values, len(cores)) for name, values in by_name.items()}


def _in_force(schema: Schema, name: str, value: object) -> object:
    """Returns a setting's value as phases show it. Linux has an `itr` that is no time: adaptive."""
    setting = schema.policy[name]
    return dict(setting.choices).get(value, value) if name == "itr_us" else value  # type: ignore[call-overload]


def common(values: Mapping, cores: int) -> object:
    """Returns the value that all cores have, or a dictionary by core."""
    same = len(values) == cores and len(set(map(str, values.values()))) == 1
    return next(iter(values.values())) if same else {str(core): value for core, value in values.items()}


# ---- text ----


def _text(value: object, factor: float = 1, unit: str = "") -> str:
    if value is None:
        return "not known"
    if isinstance(value, int | float):
        value *= factor
        return (f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}") + unit
    return shown(value, 40)


ROWS = (
    ("seconds", "seconds", 1, ""),
    ("requests", "requests", 1, ""),
    ("requests/s", "requests_per_second", 1, ""),
    ("interrupts", "interrupts", 1, ""),
    ("polls with work", "polls", 1, ""),
    ("interrupts/s", "interrupts_per_second", 1, ""),
    ("interrupts/request", "interrupts_per_request", 1, ""),
    ("frames/interrupt", "frames_per_interrupt", 1, ""),
    ("variation of load", "load_variation", 100, " %"),
    ("asleep", "asleep_share", 100, " %"),
    ("polling in vain", "polling_in_vain_share", 100, " %"),
    ("sleeps", "sleeps", 1, ""),
    ("instructions", "instructions", 1, ""),
    ("IPC", "ipc", 1, ""),
    ("misses/1000 ins.", "misses_per_1000_instructions", 1, ""),
    ("non-idle", "non_idle_ratio", 100, " %"),
    ("power", "watts", 1, " W"),
    ("energy", "joules", 1, " J"),
    ("energy/request", "joules_per_request", 1e6, " uJ"),
    ("energy/interrupt", "joules_per_interrupt", 1e6, " uJ"),
    ("energy-delay", "energy_delay_product_joule_seconds", 1, " Js"),
)
# Groups of figures: the member, the text of a row, and the group's name.
GROUPS = (
    ("asleep_seconds_by_state", "asleep in {}", "time asleep by state", 1, " s"),
    ("sleeps_by_state", "sleeps in {}", "sleeps by state", 1, ""),
    ("residency_share", "in {} (CPU's count)", "C-states by the CPU's count", 100, " %"),
    ("wake_ups_by_cause", "woken by {}", "wake-ups by cause", 1, ""),
    ("latency_us", "latency {}", "latency", 1, " us"),
)
COLUMNS_AT_ONCE = 6


def chosen(found: dict) -> list[dict]:
    """Returns the phases within windows of a load. If no window is known, all phases but those that the log marks as unsteady, or all."""
    within = [row for row in found["phases"] if row["in_load_window"]]
    return within or [row for row in found["phases"] if row["load_part"] not in load_marks.UNSTEADY] or found["phases"]


def lines(found: dict) -> list[str]:
    """Returns the phases as text: a row for each figure, a column for each phase. Parts outside of a load's window are left out."""
    phases, listed = found["phases"], chosen(found)
    said = []
    for at in range(0, len(listed), COLUMNS_AT_ONCE):
        said += ["", *_columns(listed[at : at + COLUMNS_AT_ONCE], {row["changed"] for row in found["settings"]})]
    if found.get("load"):
        is_placed = any(row["in_load_window"] for row in phases)
        said.append(
            f"note: {'requests and latencies of phases are from' if is_placed else 'no phase lies in a window of'} {shown(found['load'])}"
        )
    if len(listed) < len(phases):
        left_out = [row for row in phases if all(row is not each for each in listed)]
        seconds, names = sum(row["seconds"] for row in left_out), load_marks.left_out_text(left_out)
        said.append(f"note: {seconds:.6f} s outside of the load's windows are left out{names and f' ({names})'}; --json has them")
    if found["transitions"]:
        seconds = sum(row["seconds"] for row in found["transitions"])
        said.append(f"note: {len(found['transitions'])} changes took {seconds:.6f} s to reach all cores; this time belongs to no phase")
    return said + [f"note: {remark}" for remark in found["phase_remarks"]]


def _columns(phases: list[dict], changed: set[str]) -> list[str]:
    """Returns the lines of some phases. Of the settings without figures of their own, those that the run changed are listed."""
    rows = [["phase", *(f"{row['phase']} (gen. {row['generation']})" for row in phases)]]
    rows.append(["from", *(f"{row['begin']:.6f} s" for row in phases)])
    names = list(dict.fromkeys(name for row in phases for name in row["settings"] if name in POLICY or name in changed))
    if any(row["load_part"] not in (None, load_marks.WINDOW) for row in phases):
        rows.append(["part of load", *(_text(row["load_part"] or "-") for row in phases)])
    rows += [[shown(name, 40), *(setting_text(row["settings"].get(name)) for row in phases)] for name in names]
    unknown = []
    for label, name, factor, unit in ROWS:
        if all(row[name] is None for row in phases):
            unknown.append(label)
        else:
            rows.append([label, *(_text(row[name], factor, unit) for row in phases)])
    for member, label, what, factor, unit in GROUPS:
        found = list(dict.fromkeys(name for row in phases for name, value in (row[member] or {}).items() if value is not None))
        if not found and all(not row[member] or None in row[member].values() for row in phases):
            unknown.append(what)
        for name in found:
            absent = None if member in ("latency_us", "residency_share") else 0
            values = [None if row[member] is None else row[member].get(name, absent) for row in phases]
            rows.append([label.format(shown(name, 40)), *(_text(value, factor, unit) for value in values)])
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    table = [f"{row[0]:<{widths[0]}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:])) for row in rows]
    return table + ([f"not known: {', '.join(unknown)}"] if unknown else [])


def setting_text(value: object) -> str:
    """Returns a setting's value, or the different values with the first of their cores, like "8 (core 0), 16 (core 1...)"."""
    if not isinstance(value, dict):
        return "not known" if value is None else shown(value, 40)
    cores: dict[str, list[str]] = {}
    for core, each in value.items():
        cores.setdefault(shown(each, 40), []).append(core)
    return ", ".join(f"{text} (core {of[0]}{'...' * (len(of) > 1)})" for text, of in cores.items())
