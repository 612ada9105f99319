# SPDX-License-Identifier: BSL-1.0
"""`./neap log diff RUN RUN`: the differences of two runs in configuration and in figures.

The configuration consists of the members of the log's header, also those that this version does not know, of the settings at the start, and
of the changes with their moments. Members that identify a run, such as its boot number, are no configuration.
"""

import json
import math

from tools.errors import Failure
from tools.foreign import parse_json, shown
from tools.log import configuration, decode, load_results, phases, repeats, summary
from tools.log.decode import RunLog
from tools.log.trim import trim

IDENTITY = ("boot_id", "run", "core", "wall_clock_at_boot_ns", "tsc_at_boot", "format", "version")
# Counters are figures.
FIGURES = ("card_counters_start", "card_counters_stop")
# Members whose text is long and which follow from the build.
TYPES = ("lines", "fields", "settings", "idle_states", "flags")
MEMBERS_MAX = 4096
ABSENT = "absent"
SWAPPED = ("second", "first")


def command(first: str, second: str, as_json: bool) -> int:
    found = compare(first, second)
    print(json.dumps(found, indent=2) if as_json else text(found))
    return 0


def compare(first: str, second: str) -> dict:
    """Returns the differences of the runs at two places, and all figures of both. Differences are second minus first."""
    runs = [decode.load([place]) for place in (first, second)]
    found = [summary.summarise(run, _windows(place, run)) for place, run in zip((first, second), runs)]
    settings = [_settings(run) for run in runs]
    about = [_configuration(run) for run in runs]
    changes = [_changes(each["settings"]) for each in found]
    figures = [_figures(each) for each in found]
    result = {
        "runs": [
            {"place": place, **{name: each[name] for name in ("boot_id", "run", "system")}} for place, each in zip((first, second), found)
        ],
        "configuration": _differing(*about),
        "settings_at_start": _differing(*settings),
        "changes": _changes_differing(*changes),
        "figures": [_figure(name, *[each.get(name) for each in figures]) for name in dict.fromkeys([*figures[0], *figures[1]])],
        "remarks": [f"{place}: {remark}" for place, each in zip((first, second), found) for remark in each["remarks"]],
    }
    counts = [len(phases.chosen(each)) for each in found]
    if counts[0] != counts[1]:
        result["remarks"].append(f"the runs have {counts[0]} and {counts[1]} phases, so figures of phases are not compared")
    differing = any(row["first"] != row["second"] for row in result["figures"])
    result["equal"] = not (result["configuration"] or result["settings_at_start"] or result["changes"] or differing)
    return result


def _windows(place: str, run: RunLog) -> list:
    file = load_results.beside([place])
    if run.windows:
        return list(run.windows)
    try:
        return load_results.read(file, run) if file else []
    except Failure:
        return []  # a file beside the log that is no load's result


def _configuration(run: RunLog) -> dict[str, object]:
    """Returns the header's members, with those of nested objects as "outer.inner"."""
    header = run.cores[0].header
    try:
        whole = parse_json(header.text) if header.raw else header.about
    except ValueError:
        whole = header.about
    found: dict[str, object] = {}
    if isinstance(whole, dict):
        for name, value in whole.items():
            if name not in (*IDENTITY, *FIGURES):
                _flatten(name, value, found)
    for number, rate in enumerate((run.load or {}).get("offered_per_second", ()), 1):
        found[f"load.offered_per_second.{number}"] = "closed loop" if rate is None else rate
    return found


def _flatten(name: str, value: object, found: dict[str, object]) -> None:
    members = value.items() if isinstance(value, dict) else None
    if members is None or not value:
        if len(found) < MEMBERS_MAX:
            found[name] = value
        return
    for inner, each in members:
        _flatten(f"{name}.{inner}", each, found)


def _settings(run: RunLog) -> dict[str, object]:
    """Returns the settings at the start. A value is common to all cores, or a dictionary by core."""
    cores = [core for core in map(trim, run.cores) if len(core.records)]
    if not any(core.log.configured for core in cores):
        # A log of an older build. The time before which its start's entries apply is the first tick.
        return phases.settings_in_force(cores, 0, min((core.begin_tsc for core in cores), default=0))
    found: dict[str, dict[str, object]] = {}
    entries = [core.log.settings_entries for core in cores]
    for row in configuration.describe(run.about, run.cores[0].tsc_hz, entries)["settings_at_start"]:
        found.setdefault(row["setting"], {}).update({str(core): row["value"] for core in row["cores"]})
    return {name: phases.common(values, len(cores)) for name, values in found.items()}


def _changes(settings: list[dict]) -> list[dict]:
    """Returns each change once, at the moment of its first core."""
    found: dict[tuple[int, str], dict] = {}
    for row in settings:
        if row["changed"] == "start" or row["seconds"] < 0:
            continue
        text = summary.change_text(row)
        change = found.setdefault((row["generation"], text), {"seconds": row["seconds"], "change": text, "cores": []})
        if row["core"] not in change["cores"]:
            change["cores"].append(row["core"])
    for change in found.values():
        change["cores"].sort()
    return sorted(found.values(), key=lambda change: change["seconds"])


def _changes_differing(first: list[dict], second: list[dict]) -> list[dict]:
    rows = []
    for number in range(max(len(first), len(second))):
        pair = [each[number] if number < len(each) else None for each in (first, second)]
        if pair[0] != pair[1]:
            rows.append({"number": number + 1, "first": pair[0], "second": pair[1]})
    return rows


def _differing(first: dict, second: dict) -> list[dict]:
    names = dict.fromkeys([*first, *second])
    rows = [{"name": name, "first": first.get(name, ABSENT), "second": second.get(name, ABSENT)} for name in names]
    return [row for row in rows if row["first"] != row["second"]]


def _figures(found: dict) -> dict[str, float | None]:
    """Returns the numbers of the whole run, then those of its phases, by name. Parts outside of a load's windows are left out."""
    figures = dict(found["total"])
    figures |= {f"card: {name}": value for name, value in (found["configuration"]["card_counters"] or {}).items()}
    for number, phase in enumerate(phases.chosen(found), 1):
        figures |= {f"phase {number}: {name}": value for name, value in repeats.figures(phase).items()}
    return figures


def _figure(name: str, first: float | None, second: float | None) -> dict:
    known = first is not None and second is not None
    difference = second - first if known else None  # type: ignore[operator]
    relative = difference / abs(first) if difference is not None and first else None
    return {
        "name": name,
        "first": first,
        "second": second,
        "difference": difference,
        "relative": relative if relative is None or math.isfinite(relative) else None,
    }


# ---- text ----


def text(found: dict) -> str:
    places = [shown(row["place"]) for row in found["runs"]]
    if found["equal"]:
        return f"{places[0]} and {places[1]} are equal in configuration, changes of settings and all {len(found['figures'])} figures"
    said = [
        f"{which}: {place}, run {row['run']}, {shown(row['system'])}"
        for which, place, row in zip(("first", "second"), places, found["runs"])
    ]
    said += _section("configuration", _configuration_rows(found["configuration"]))
    of_one = {name: [row for row in found["settings_at_start"] if row[other] == ABSENT] for name, other in (("first", "second"), SWAPPED)}
    rows = [
        (row["name"], _value(row, "first"), _value(row, "second"))
        for row in found["settings_at_start"]
        if ABSENT not in (row["first"], row["second"])
    ]
    said += _section("settings at the start", rows)
    for name, only in of_one.items():
        if only:
            said.append(f"settings of the {name} only: {' '.join(_setting(row, name) for row in only)}")
    said += _section("changes", [(str(row["number"]), _change(row["first"]), _change(row["second"])) for row in found["changes"]])
    comparable = not any("figures of phases are not compared" in remark for remark in found["remarks"])
    figures = [row for row in found["figures"] if row["first"] != row["second"] and (comparable or not row["name"].startswith("phase "))]
    if figures:
        cells = [("figure", "first", "second", "difference", "relative")]
        cells += [
            (shown(row["name"], 80), *(_number(row[name]) for name in ("first", "second", "difference")), _percent(row["relative"]))
            for row in figures
        ]
        said += ["", *_aligned(cells)]
    else:
        said += ["", "all figures are equal"]
    return "\n".join([*said, *(f"note: {shown(remark)}" for remark in found["remarks"])])


def _configuration_rows(rows: list[dict]) -> list[tuple[str, str, str]]:
    """Returns a line for each member. The types of entries, which are long and follow from the build, have one line together."""
    found = [(row["name"], _value(row, "first"), _value(row, "second")) for row in rows if row["name"].split(".")[0] not in TYPES]
    types = len(rows) - len(found)
    return found + ([("types of entries", f"{types} members differ", "see --json")] if types else [])


def _value(row: dict, name: str) -> str:
    return shown(row[name] if isinstance(row[name], str) else json.dumps(row[name]), 80)


def _setting(row: dict, name: str) -> str:
    value = row[name]
    return f"{shown(row['name'], 40)}={phases.setting_text(value)}"


def _change(change: dict | None) -> str:
    if change is None:
        return "no change"
    return f"{shown(change['change'], 60)} at {change['seconds']:.6f} s on {len(change['cores'])} cores"


def _section(title: str, rows: list[tuple[str, str, str]]) -> list[str]:
    if not rows:
        return ["", f"{title}: equal"]
    return ["", *_aligned([(title, "first", "second"), *((shown(name, 80), first, second) for name, first, second in rows)])]


def _aligned(rows: list[tuple]) -> list[str]:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows]


def _number(value: float | int | None) -> str:
    if value is None:
        return "not known"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.3f} %"
