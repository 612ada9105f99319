# SPDX-License-Identifier: BSL-1.0
"""`./neap log summary RUN1 RUN2 ...`: mean and sample standard deviation over repeated runs, by phase.

Files of one run may lie in several places. So places are grouped by the run that their headers name. A folder that holds a core again which
its group has already is a repeat, because equal runs of the model machine have the same boot number.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path

from tools.errors import Failure, UsageError
from tools.foreign import shown
from tools.log import decode, load_results, phases, steady, study_reader
from tools.log.decode import RunLog
from tools.log.layout import read_header
from tools.log.load_results import LoadWindow

# Dictionaries of figures within a phase, and the text before their members' names.
GROUPS = {
    "asleep_seconds_by_state": "asleep_seconds",
    "sleeps_by_state": "sleeps",
    "residency_share": "residency_share",
    "wake_ups_by_cause": "wake_ups",
    "latency_us": "latency_us",
}
LEFT_OUT = ("phase", "begin", "generation", "in_load_window", "load_part", "settings")


@dataclasses.dataclass(frozen=True)
class Repeat:
    """One run, and the measured windows of the load that belongs to it."""

    name: str
    run: RunLog
    windows: list[LoadWindow]
    file: Path | None


def load(places: Sequence[str], files: Sequence[Path], steady_percent: float | None = None) -> list[Repeat]:
    """Reads one run or several. `files`: the result of a load for each run. Without them a result beside a run's folder is used. With
    `steady_percent`, the window of steady load is found in the log instead."""
    if files and steady_percent is not None:
        raise UsageError("--steady finds the load's window in the log, and --load reads it from a file", "give one of them")
    groups = group(places)
    if files and len(files) != len(groups):
        raise UsageError(f"--load names {len(files)} files for {len(groups)} runs", "give --load once for each run, in the same order")
    found = []
    for number, members in enumerate(groups):
        run = decode.load(members)
        if steady_percent is not None:
            found.append(Repeat(members[0], run, steady.windows(run, steady_percent), None))
            continue
        file = files[number] if files else load_results.beside(members)
        run.load = load_results.offered(file) or run.load
        found.append(Repeat(members[0], run, windows_in(file, run, asked=bool(files)) or list(run.windows), file))
    return found


def windows_in(file: Path | None, run: RunLog, *, asked: bool) -> list[LoadWindow]:
    if file is None:
        return []
    try:
        return load_results.read(file, run)
    except Failure:
        # A file that the user did not name may be anything.
        if asked:
            raise
        return []


def group(places: Sequence[str]) -> list[list[str]]:
    """Returns the places of each run. Raises UsageError if there are none."""
    groups: list[tuple[tuple, set[int], list[str]]] = []
    for place in places:
        if decode.is_published([place]):
            _add_published(groups, place)
            continue
        headers = [read_header(path) for path in decode.find_files([place])]
        identity, cores = headers[0].run_of, {header.core for header in headers}
        is_folder = Path(place).is_dir()
        for known, there, members in groups:
            if known == identity and not (is_folder and cores & there):
                there |= cores
                members.append(place)
                break
        else:
            groups.append((identity, cores, [place]))
    if not groups:
        raise UsageError("no log is named", "./neap log summary DIR")
    return [members for _, _, members in groups]


def _add_published(groups: list[tuple[tuple, set[int], list[str]]], place: str) -> None:
    """Adds a file of the published studies to its run's group. A folder is a run of its own."""
    key = (place,) if Path(place).is_dir() else study_reader.names([place])[0].key
    for known, _, members in groups:
        if known == key:
            members.append(place)
            return
    groups.append((key, set(), [place]))


def compare(found: Sequence[dict], names: Sequence[str]) -> dict:
    """Returns mean and sample standard deviation of each figure over runs, for each phase. Raises Failure if their settings differ."""
    chosen = [phases.chosen(each) for each in found]
    for name, rows in zip(names[1:], chosen[1:]):
        if [phase["settings"] for phase in rows] != [phase["settings"] for phase in chosen[0]]:
            raise Failure(
                f"{names[0]} and {name} are different runs with other settings or phases, so they have no common mean",
                f"./neap log diff {names[0]} {name} compares them",
            )
    compared = []
    for number, same in enumerate(zip(*chosen, strict=True), 1):
        rows = [figures(phase) for phase in same]
        order = list(dict.fromkeys(name for row in rows for name in row))
        compared.append({"phase": number, "settings": same[0]["settings"], "figures": {name: _spread(rows, name) for name in order}})
    return {
        "runs": [{"place": name, "boot_id": each["boot_id"], "run": each["run"], "load": each["load"]} for name, each in zip(names, found)],
        "phases": compared,
        "remarks": [
            *(
                f"{names[0]} and {name} differ in {what}"
                for name, each in zip(names[1:], found[1:])
                if (what := _differing(found[0], each))
            ),
            *(f"{name}: {remark}" for name, each in zip(names, found) for remark in [*each["phase_remarks"], *each["remarks"]]),
        ],
    }


def _differing(first: dict, second: dict) -> str:
    """Returns the names of the members in which the configurations of two runs differ, beside their settings. Each boot measures its
    tsc_hz anew."""
    headers = [{**each["configuration"]["header"], "tsc_hz": 0} for each in (first, second)]
    loads = [(each["configuration"]["load"] or {}).get("offered_per_second") for each in (first, second)]
    names = [name for name in dict.fromkeys([*headers[0], *headers[1]]) if headers[0].get(name) != headers[1].get(name)]
    return ", ".join(names + ["offered load"] * (loads[0] != loads[1]))


def figures(phase: dict) -> dict[str, float | None]:
    """Returns the numbers of a phase by name; members of dictionaries as "sleeps in c6"."""
    found = {name: value for name, value in phase.items() if name not in LEFT_OUT and name not in GROUPS}
    for name, text in GROUPS.items():
        found |= {f"{text} {member}": value for member, value in (phase[name] or {}).items()}
    return found


def _spread(rows: list[dict], name: str) -> dict:
    # A state or cause that a run's phase does not have occurred 0 times there. Another missing figure is unknown.
    counted = name.startswith(("asleep_seconds ", "sleeps ", "wake_ups "))
    values = [row.get(name, 0 if counted else None) for row in rows]
    known = None not in values
    return {
        "mean": statistics.fmean(values) if known else None,
        "standard_deviation": statistics.stdev(values) if known else None,
        "values": values,
    }


def text(table: dict) -> str:
    """Returns a table for each phase: a row for each figure with mean, deviation, and the runs' values."""
    said = [f"{len(table['runs'])} runs of equal settings"]
    said += [
        f"  {number}: {shown(row['place'])}" + (f", load from {shown(row['load'])}" if row["load"] else "")
        for number, row in enumerate(table["runs"], 1)
    ]
    for phase in table["phases"]:
        settings = ", ".join(f"{shown(name, 40)}={phases.setting_text(value)}" for name, value in phase["settings"].items())
        said += ["", f"phase {phase['phase']}: {settings or 'settings are not known'}"]
        rows = [["figure", "mean", "deviation", *(f"run {number}" for number in range(1, len(table["runs"]) + 1))]]
        for name, spread in phase["figures"].items():
            rows.append([shown(name, 60), *(_text(value) for value in (spread["mean"], spread["standard_deviation"], *spread["values"]))])
        widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
        said += [f"{row[0]:<{widths[0]}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:])) for row in rows]
    if table["remarks"]:
        said += ["", *(f"note: {shown(remark)}" for remark in table["remarks"])]
    return "\n".join(said)


def _text(value: float | int | None) -> str:
    if value is None:
        return "not known"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.5g}"
