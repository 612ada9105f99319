# SPDX-License-Identifier: BSL-1.0
"""`./neap log summary`: the figures of a run by core and by package, and derived figures as in published studies.

An unknown figure is None, never 0. It is printed as "not on this CPU" in the text, and as null in JSON.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tools.foreign import shown
from tools.log import configuration, phases
from tools.log.about import system_text
from tools.log.decode import INTERRUPT, POLL, CoreLog, RunLog
from tools.log.load_results import LoadWindow
from tools.log.schema import name_of
from tools.log.shared_settings import change_text as change_text
from tools.log.shared_settings import folded
from tools.log.shared_settings import lines as settings_lines
from tools.log.trim import COUNTS, CoreRun, EnergySeries, package_energy, packages, trim

COUNTED = COUNTS[:10]
APPLICATION = tuple(f"{direction}_{unit}" for direction in ("rx", "tx") for unit in ("frames", "bytes"))
PERCENTILES = (1, 50, 99)
NOT_HERE = "not on this CPU"
TRANSACTION_COUNTS = ("committed", "rolled_back", "failed", "retries")


def summarise(run: RunLog, loads: Sequence[LoadWindow] = ()) -> dict:
    """Returns the whole summary, as --json prints it. Times are in seconds, energy in joules, power in watts, intervals in microseconds.
    `loads`: measured windows of a load, from which phases take requests and latencies."""
    cores = [trim(core) for core in run.cores]
    rows = [_core(core) | _events(run, [core]) for core in cores]
    package_rows = [_package(run, number, members, rows) for number, members in packages(cores).items()]
    about = run.about
    split = phases.split(run, cores, loads)
    total = _total(cores, rows, package_rows) | _events(run, cores) | _collections(cores) | _transactions(cores)
    for row in (total, *rows, *split["phases"]) if run.unknown else ():
        row |= {name: None for name in run.unknown if name in row}
    configured = configure(run)
    names = ("boot_id", "run", "application", "neap", "cores", "cpu", "sample_period_us", "when_full", "control_core")
    return {
        **{name: about.get(name) for name in names},
        "system": system_text(about),
        "tsc_hz": cores[0].log.tsc_hz,
        "total": total,
        "packages": package_rows,
        "cores_detail": rows,
        "configuration": configured,
        "settings": settings(run),
        **split,
        "remarks": [*remarks(run, cores, package_rows), *configuration.remarks(configured)],
    }


def _core(core: CoreRun) -> dict:
    inside = core.inside
    seconds = core.seconds
    ticks = core.ticks
    kinds = inside["kind"]
    instructions, cycles, reference, misses = (core.grown(name) for name in ("instructions", "cycles", "reference_cycles", "llc_misses"))
    shares = {core.log.schema.idle_name(state): spent / ticks for state, spent in idle_ticks(core).items()} if ticks else {}
    polling = core.inside["idle_state"] == core.log.schema.idle_poll
    row = {
        "core": core.log.core,
        "package": core.log.package,
        "seconds": seconds,
        "records": len(inside),
        "interrupts": int(np.count_nonzero(kinds == INTERRUPT)),
        "polls": int(np.count_nonzero(kinds == POLL)),
        **{name: core.sum(name) for name in COUNTED},
    }
    row |= {f"application_{name}": row[name] - row[f"control_{name}"] for name in APPLICATION}
    row |= {
        "interrupts_per_second": ratio(row["interrupts"], seconds),
        "interval_us": intervals(core),
        "sleeps": int(core.inside["idle_entries"][~polling].sum()),
        "asleep_share": ratio(asleep_ticks(core), ticks),
        "polling_in_vain_share": shares.get("poll", 0.0),
        "idle_share_by_state": shares,
        "requests": core.requests(),
        "instructions": instructions,
        "cycles": cycles,
        "reference_cycles": reference,
        "llc_misses": misses,
        "non_idle_ratio": ratio(reference, _sampled_ticks(core, "reference_cycles")),
        "ipc": ratio(instructions, cycles),
        "misses_per_1000_instructions": ratio(misses, instructions, 1000),
        "residency_share": {name: ratio(core.grown(f"core_{name}"), _sampled_ticks(core, f"core_{name}")) for name in ("c3", "c6", "c7")},
        "unwritten": core.log.header.unwritten,
        "lost": sum(count for _, count in core.log.gaps),
    }
    return row


def _events(run: RunLog, cores: list[CoreRun]) -> dict:
    """Returns the member `events`: the counts of the chosen events by their names; nothing if none were chosen."""
    if not run.events:
        return {}
    return {"events": {name: total_or_none([core.grown(counter) for core in cores]) for name, counter in run.events.items()}}


def _collections(cores: list[CoreRun]) -> dict:
    """Returns the member `collections`: the application's garbage collections within the run; nothing if there were none."""
    spent = [core.log.collections for core in cores]
    inside = [
        each[(each["tsc_begin"] >= core.begin_tsc) & (each["tsc_begin"] <= each["tsc"]) & (each["tsc"] <= core.end_tsc)]
        for each, core in zip(spent, cores)
    ]
    if not (count := sum(map(len, inside))):
        return {}
    ticks = [int((each["tsc"] - each["tsc_begin"]).sum()) for each in inside]
    seconds = sum(each / core.log.tsc_hz for each, core in zip(ticks, cores))
    return {"collections": {"count": count, "seconds": seconds, "share": ratio(sum(ticks), sum(core.ticks for core in cores))}}


def _transactions(cores: list[CoreRun]) -> dict:
    """Returns the member `transactions`: counts and times of each type within the run; nothing if there were none."""
    types: dict[str, dict] = {}
    for core in cores:
        each = core.log.transactions
        each = each[(each["tsc"] >= core.begin_tsc) & (each["tsc"] <= core.end_tsc)]
        for number in np.unique(each["type"]):
            rows = each[each["type"] == number]
            name = name_of(core.log.schema.form["transactions"].by_name["type"].choices, int(number))
            found = types.setdefault(name, dict.fromkeys((*TRANSACTION_COUNTS, "seconds", "longest_seconds"), 0))
            for count in TRANSACTION_COUNTS:
                found[count] += int(rows[count].sum(dtype=np.uint64))
            found["seconds"] += int(rows["ticks"].sum()) / core.log.tsc_hz
            found["longest_seconds"] = max(found["longest_seconds"], int(rows["ticks_max"].max()) / core.log.tsc_hz)
    return {"transactions": types} if types else {}


def _package(run: RunLog, number: int, cores: list[CoreRun], rows: list[dict]) -> dict:
    package = package_energy(run, cores, "package_energy")
    dram = package_energy(run, cores, "dram_energy")
    seconds = span_seconds(cores)
    joules, dram_joules = _total_of(package), _total_of(dram)
    watts = ratio(joules, _series_seconds(package, cores))
    instructions = total_or_none([row["instructions"] for row in rows if row["package"] == number])
    witness = next((core for core in cores if core.grown("package_c2") is not None), cores[0])
    names = ("c2", "c3", "c6", "c7")
    return {
        "package": number,
        "cores": [core.log.core for core in cores],
        "seconds": seconds,
        "joules": joules,
        "watts": watts,
        "dram_joules": dram_joules,
        "dram_watts": ratio(dram_joules, _series_seconds(dram, cores)),
        "energy_doubtful": bool(package and package.doubtful),
        "instructions_per_second_per_watt": ratio(ratio(instructions, seconds), watts),
        "energy_delay_product_joule_seconds": None if joules is None else joules * seconds,
        "residency_share": {name: ratio(witness.grown(f"package_{name}"), _sampled_ticks(witness, f"package_{name}")) for name in names},
    }


def _total(cores: list[CoreRun], rows: list[dict], package_rows: list[dict]) -> dict:
    seconds = span_seconds(cores)
    summed = ("records", "interrupts", "polls", *COUNTED, "unwritten", "lost", *(f"application_{name}" for name in APPLICATION))
    sums = {name: sum(row[name] for row in rows) for name in summed}
    instructions, cycles, reference, misses, requests = (
        total_or_none([row[name] for row in rows]) for name in ("instructions", "cycles", "reference_cycles", "llc_misses", "requests")
    )
    joules = total_or_none([row["joules"] for row in package_rows])
    watts = total_or_none([row["watts"] for row in package_rows])
    return {
        "seconds": seconds,
        **sums,
        "requests": requests,
        "requests_per_second": ratio(requests, seconds),
        "interrupts_per_second": ratio(sums["interrupts"], seconds),
        "asleep_share": ratio(sum(asleep_ticks(core) for core in cores), sum(core.ticks for core in cores)),
        "instructions": instructions,
        "cycles": cycles,
        "reference_cycles": reference,
        "llc_misses": misses,
        "non_idle_ratio": ratio(
            reference, None if reference is None else sum(_sampled_ticks(core, "reference_cycles") or 0 for core in cores)
        ),
        "ipc": ratio(instructions, cycles),
        "joules": joules,
        "watts": watts,
        "dram_joules": total_or_none([row["dram_joules"] for row in package_rows]),
        "joules_per_request": ratio(joules, requests),
        "instructions_per_second_per_watt": ratio(ratio(instructions, seconds), watts),
        "energy_delay_product_joule_seconds": None if joules is None else joules * seconds,
    }


def ratio(part: float | None, whole: float | None, factor: float = 1) -> float | None:
    """Returns `factor` * `part` / `whole`; None if a value is unknown or `whole` is 0."""
    return None if part is None or not whole else factor * part / whole


def total_or_none(values: list) -> float | int | None:
    """Returns the sum; None if any value is unknown, because a sum over some of the cores says nothing about the whole run."""
    return None if not values or any(value is None for value in values) else sum(values)


def span_seconds(cores: list[CoreRun]) -> float:
    """Returns seconds from the time at which the first core's run begins to the time at which the last core's run ends."""
    if not (there := [core for core in cores if core.count]):
        return 0.0
    return max(0, max(core.end_tsc for core in there) - min(core.begin_tsc for core in there)) / there[0].log.tsc_hz


def asleep_ticks(core: CoreRun) -> int:
    """Returns ticks asleep in the run. A core in the idle state `poll` does not sleep: its idle ticks are the time between empty polls."""
    return sum(spent for state, spent in idle_ticks(core).items() if state != core.log.schema.idle_poll)


def idle_ticks(core: CoreRun) -> dict[int, int]:
    """Returns idle ticks in the run, by requested idle state."""
    states = core.inside["idle_state"]
    return {
        int(state): int(core.inside["idle_ticks"][states == state].sum())
        for state in np.unique(states)
        if np.any(core.inside["idle_entries"][states == state])
    }


def intervals(core: CoreRun) -> dict[str, float] | None:
    """Returns percentiles of the time between records, in microseconds."""
    ticks = core.interval_ticks[core.interval_ticks > 0]
    if not len(ticks):
        return None
    return {f"p{percent}": float(value) for percent, value in zip(PERCENTILES, np.percentile(ticks, PERCENTILES) * 1e6 / core.log.tsc_hz)}


def _sampled_ticks(core: CoreRun, counter: str) -> int | None:
    """Returns the TSC ticks between a counter's first and last sample."""
    at, _ = core.sampled(counter)
    return int(core.tsc[at[-1]]) - int(core.tsc[at[0]]) if len(at) > 1 else None


def _total_of(series: EnergySeries | None) -> float | None:
    return series.total if series else None


def _series_seconds(series: EnergySeries | None, cores: list[CoreRun]) -> float | None:
    return (int(series.tsc[-1]) - int(series.tsc[0])) / cores[0].log.tsc_hz if series else None


def configure(run: RunLog) -> dict:
    """Returns the configuration of a run, as configuration.describe does."""
    cores = [
        dataclasses.replace(core.log.settings_entries, begin_tsc=core.begin_tsc if len(core.records) else None)
        for core in map(trim, run.cores)
    ]
    return configuration.describe(run.about, run.cores[0].tsc_hz, cores, run.load)


def settings(run: RunLog) -> list[dict]:
    """Returns changes of settings by time, with seconds since the run's begin. A core's first row may be its policy at the start."""
    begin = min((trim(core).begin_tsc for core in run.cores), default=0)
    rows = [
        {"core": core.core, "seconds": (setting["tsc"] - begin) / core.tsc_hz, **setting} for core in run.cores for setting in core.settings
    ]
    return sorted(rows, key=lambda row: (row["tsc"], row["core"]))


def shared_settings(summary: dict) -> list[dict]:
    """Returns a summary's changes of settings, folded by cores that share them (shared_settings.folded)."""
    stated = summary["configuration"]["settings_at_start"]
    return folded(summary["settings"], [row["core"] for row in summary["cores_detail"]], stated)


def remarks(run: RunLog, cores: list[CoreRun], package_rows: list[dict]) -> list[str]:
    """Returns remarks on the log that a reader of the figures needs."""
    said = list(run.notes)
    expected = run.cores[0].header.cores
    missing = sorted(set(range(expected)) - {core.core for core in run.cores})
    if missing:
        said.append(f"{len(missing)} of {expected} cores are not among the files: {', '.join(map(str, missing))}")
    for core in cores:
        log: CoreLog = core.log
        if not core.started and not run.notes:
            said.append(f"core {log.core}: no start anchor, counted from its first record")
        if not core.stopped and not run.notes:
            said.append(f"core {log.core}: no stop anchor, counted to its last record")
        if log.header.unwritten:
            said.append(f"core {log.core}: {log.header.unwritten:,} entries found the log full and were not written")
        said += [f"core {log.core}: {count:,} entries from position {first:,} on are missing" for first, count in log.gaps]
        if log.unknown:
            said.append(f"core {log.core}: {log.unknown:,} entries are of kinds that this version does not know")
        if log.settings_left_out:
            said.append(f"core {log.core}: {log.settings_left_out:,} further changes of settings are not listed")
        if np.any(log.records["tsc"][1:] < log.records["tsc"][:-1]):
            said.append(f"core {log.core}: its records go back in time, so times are wrong")
    for row in package_rows:
        if row["energy_doubtful"]:
            said.append(f"package {row['package']}: between two energy readings the counter may have come around more than once")
    return said


def head(summary: dict) -> list[str]:
    """Returns the run and its main figures, in a few lines."""
    total = summary["total"]
    # A log of Neap has the version alone.
    system = f" {shown(summary['neap'])}" if summary["neap"] else f", {shown(summary['system'])},"
    polls = "unknown" if total["polls"] is None else _number(total["polls"])
    return [
        f"run {summary['run']} of {shown(summary['application'] or 'an application')}{system} on {summary['cores']} cores, "
        f"{shown(summary['cpu'])}, "
        f"TSC {summary['tsc_hz'] / 1e6:.1f} MHz",
        f"{total['seconds']:.6f} s, {total['interrupts']:,} interrupts, {polls} polls, "
        f"{'no' if total['requests'] is None else _number(total['requests'])} requests counted, asleep {_percent(total['asleep_share'])}",
        f"energy {_joules(total['joules'])}, power {_watts(total['watts'])}, memory {_joules(total['dram_joules'])}",
        f"non-idle ratio {_number(total['non_idle_ratio'])}, IPC {_number(total['ipc'])}, "
        f"instructions/s per watt {_number(total['instructions_per_second_per_watt'])}, "
        f"energy-delay product {_number(total['energy_delay_product_joule_seconds'], ' Js')}",
    ]


def text(summary: dict) -> str:
    events = [f"{shown(name)}: {_number(count)}" for name, count in summary["total"].get("events", {}).items()]
    if found := summary["total"].get("collections"):
        events.append(f"garbage collections: {found['count']:,}, {_percent(found['share'])} of the cores' time")
    for name, found in summary["total"].get("transactions", {}).items():
        count = sum(found[each] for each in TRANSACTION_COUNTS[:3])
        retries = ratio(found["retries"], count + found["retries"])
        events.append(
            f"transactions {name}: {count:,}, {found['rolled_back']:,} rolled back, {found['failed']:,} failed, "
            f"{_percent(retries)} of the attempts had conflicts, {found['seconds'] / max(count, 1) * 1e6:.1f} us each, "
            f"at most {found['longest_seconds'] * 1e6:.0f} us"
        )
    lines = [*head(summary), *events, "", *_table(summary["cores_detail"], CORE_COLUMNS), "", *_table(summary["packages"], PACKAGE_COLUMNS)]
    lines += phases.lines(summary)
    if configured := configuration.lines(summary["configuration"]):
        lines += ["", "configuration:", *configured]
    if summary["settings"]:
        lines += ["", "set:", *settings_lines(shared_settings(summary))]
    if summary["remarks"]:
        lines += ["", *(f"note: {remark}" for remark in summary["remarks"])]
    return "\n".join(lines)


def _number(value: float | int | None, unit: str = "") -> str:
    if value is None:
        return NOT_HERE
    return (f"{value:,}" if isinstance(value, int) else f"{value:,.4g}") + unit


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def _joules(value: float | None) -> str:
    return NOT_HERE if value is None else f"{value:.3f} J"


def _watts(value: float | None) -> str:
    return NOT_HERE if value is None else f"{value:.2f} W"


def _short(value: float | int | None) -> str:
    return "n/a" if value is None else _number(value)


CORE_COLUMNS = (
    ("core", lambda row: str(row["core"])),
    ("seconds", lambda row: f"{row['seconds']:.3f}"),
    ("interrupts", lambda row: f"{row['interrupts']:,}"),
    ("polls", lambda row: _short(row["polls"])),
    ("p50 us", lambda row: f"{row['interval_us']['p50']:.1f}" if row["interval_us"] else "-"),
    ("rx frames", lambda row: _short(row["application_rx_frames"])),
    ("rx bytes", lambda row: f"{row['application_rx_bytes']:,}"),
    ("tx frames", lambda row: _short(row["application_tx_frames"])),
    ("tx bytes", lambda row: f"{row['application_tx_bytes']:,}"),
    ("control", lambda row: _short(total_or_none([row["control_rx_frames"], row["control_tx_frames"]]))),
    ("asleep", lambda row: _percent(row["asleep_share"])),
    ("polling", lambda row: _percent(row["polling_in_vain_share"])),
    ("non-idle", lambda row: _short(row["non_idle_ratio"])),
    ("IPC", lambda row: _short(row["ipc"])),
    ("misses", lambda row: _short(row["llc_misses"])),
)
PACKAGE_COLUMNS = (
    ("package", lambda row: str(row["package"])),
    ("seconds", lambda row: f"{row['seconds']:.3f}"),
    ("energy", lambda row: _joules(row["joules"])),
    ("power", lambda row: _watts(row["watts"])),
    ("memory", lambda row: _joules(row["dram_joules"])),
    ("ins/s/W", lambda row: _short(row["instructions_per_second_per_watt"])),
    ("EDP", lambda row: _short(row["energy_delay_product_joule_seconds"])),
)


def _table(rows: list[dict], columns: tuple) -> list[str]:
    cells = [[name for name, _ in columns]] + [[cell(row) for _, cell in columns] for row in rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    return ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths)) for row in cells]
