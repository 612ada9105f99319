# SPDX-License-Identifier: BSL-1.0
"""The configuration of a run, from its log: members of the header, settings at the start, changes in the run, marks of the load.

run.json, the summary, the report and the tables take it from here. The collector runs without numpy, so this module does, too.

A log of an older build states only six settings at the start, and has neither marks nor most members. A missing member stays missing.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

from tools.foreign import shown
from tools.log.shared_settings import AT_START, change_text, cores_text

# The members of the header that say how a run was configured, in the order in which they are shown.
MEMBERS = (
    *(
        "application",
        "neap",
        "system",
        "kernel",
        "driver",
        "interface",
        "tracer",
        "commit",
        "build",
        "compiler",
        "command_line",
        "cpu",
        "cpu_signature",
        "microcode",
        "cores",
        "packages",
    ),
    *("tsc_hz", "frequencies_mhz", "limits", "c_states", "card", "link", "slow", "sample_period_us", "when_full", "control_core"),
)
# A change of this setting changes others, and the log does not say which. It does not change those with a field of their own.
PRESET = "preset"
POLICY = ("idle", "itr", "poll_budget", "pstate", "power_limit", "turbo")
MARKS_MAX = 1000
# A header's command line is not cut.
TEXT_MAX = 20_000


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry about settings. `at_start`: the value holds from the begin of the run. `is_change`: the run changed the setting."""

    row: dict
    at_start: bool
    is_change: bool


@dataclasses.dataclass
class CoreEntries:
    """The entries about settings in one core's log. `begin_tsc`: of the run on this core; None for a log without entries. `settings` and
    `configured`: rows of schema.describe_settings; `marks`: rows of describe_mark. All are in the log's order."""

    core: int
    begin_tsc: int | None = None
    settings: list[dict] = dataclasses.field(default_factory=list)
    configured: list[dict] = dataclasses.field(default_factory=list)
    marks: list[dict] = dataclasses.field(default_factory=list)

    @functools.cached_property
    def in_order(self) -> list[Entry]:
        """All entries about settings: those of the start, then the others by time."""
        first = {id(row) for row in self.configured_at_start()}
        found = [Entry(row, row["changed"] == "start", row["changed"] != "start") for row in self.settings]
        found += [Entry(row, id(row) in first, False) for row in self.configured]
        return sorted(found, key=lambda entry: (not entry.at_start, entry.row["tsc"]))

    @property
    def is_preset_unknown(self) -> bool:
        """True if a preset was set, and no entries behind it state the values that other settings got."""
        presets = [row["tsc"] for row in self.settings if row["changed"] == PRESET and "value" in row]
        return bool(presets) and not any(row["tsc"] >= max(presets) for row in self.configured)

    def at_start(self) -> dict[str, str]:
        """Returns the settings at the start of the run with their values as text."""
        rows = self.configured_at_start()
        if rows:
            return {row["changed"]: row["value"] for row in rows}
        start = next((row for row in self.settings if row["changed"] == "start"), None)
        known = [text(start).partition("=") for name, text in AT_START.items() if start[name] is not None] if start else []
        return {name: value for name, _, value in known}

    def configured_at_start(self) -> list[dict]:
        """Returns the first entry of each setting, if it stands between the entry of the start and the first change behind that entry."""
        begin = next((row["tsc"] for row in self.settings if row["changed"] == "start"), None)
        if begin is None:
            return []
        until = next((row["tsc"] for row in self.settings if row["changed"] != "start" and row["tsc"] >= begin), None)
        found: dict[str, dict] = {}
        for row in self.configured:
            if begin <= row["tsc"] and (until is None or row["tsc"] <= until):
                found.setdefault(row["changed"], row)
        return list(found.values())


def describe(about: dict, tsc_hz: int, cores: Sequence[CoreEntries], load: dict | None = None) -> dict:
    """Returns a run's configuration for JSON. `about`: a header's checked JSON. Moments are in seconds since the run's begin, and Unix
    times in ns. `load`: what load_results.offered says."""
    begin = min((core.begin_tsc for core in cores if core.begin_tsc is not None), default=0)
    return {
        "header": {name: about[name] for name in MEMBERS if about.get(name) is not None},
        "settings_at_start": _at_start(cores),
        "changes": _changes(cores, begin, about, tsc_hz),
        "marks": [
            {"seconds": (row["tsc"] - begin) / tsc_hz, "what": row["what"]}
            for row in sorted((row for core in cores for row in core.marks), key=lambda row: row["tsc"])[:MARKS_MAX]
        ],
        "card_counters": counter_growth(about),
        "load": load,
    }


def counter_growth(about: dict) -> dict[str, int | None] | None:
    """Returns how much each counter of the card grew in the run; None for a counter that was reset. None if the header has none."""
    first, last = about.get("card_counters_start"), about.get("card_counters_stop")
    if first is None or last is None:
        return None
    return {name: last[name] - first[name] if last[name] >= first[name] else None for name in first if name in last}


def _at_start(cores: Sequence[CoreEntries]) -> list[dict]:
    """Returns a row for each value that a setting has at the start, with the cores that have it."""
    found: dict[tuple[str, str], list[int]] = {}
    order: dict[str, None] = {}
    for core in cores:
        for name, value in core.at_start().items():
            order.setdefault(name)
            found.setdefault((name, value), []).append(core.core)
    places = {name: place for place, name in enumerate(order)}
    rows = sorted(found.items(), key=lambda item: (places[item[0][0]], item[1]))
    return [{"setting": name, "value": value, "cores": numbers} for (name, value), numbers in rows]


def _changes(cores: Sequence[CoreEntries], begin: int, about: dict, tsc_hz: int) -> list[dict]:
    """Returns a row for each change, at the moment of its first core. `before`: the value until then; None if it is not known, or if the
    cores had different ones."""
    groups: dict[tuple[int, str], list[tuple[int, dict, str | None]]] = {}
    for core in cores:
        known = core.at_start()
        for row, is_change in ((entry.row, entry.is_change) for entry in core.in_order if not entry.at_start):
            if is_change and row["tsc"] >= begin:
                groups.setdefault((row["generation"], change_text(row)), []).append((core.core, row, known.get(row["changed"])))
                if row["changed"] == PRESET:
                    known = {name: value for name, value in known.items() if name in POLICY}
            known[row["changed"]] = row["value"]
    found = []
    for (generation, _), rows in groups.items():
        first = min((row for _, row, _ in rows), key=lambda row: row["tsc"])
        before = {value for _, _, value in rows}
        found.append(
            {
                "seconds": (first["tsc"] - begin) / tsc_hz,
                "wall_clock_ns": wall_clock_ns(first["tsc"], about, tsc_hz),
                "generation": generation,
                "setting": first["changed"],
                "value": first["value"],
                "before": before.pop() if len(before) == 1 else None,
                "cores": sorted({core for core, _, _ in rows}),
            }
        )
    return sorted(found, key=lambda row: (row["seconds"], row["generation"]))


def wall_clock_ns(tsc: int, about: dict, tsc_hz: int) -> int | None:
    """Returns a TSC value as Unix time; None if the header lacks the clock's values."""
    if "tsc_at_boot" not in about or "wall_clock_at_boot_ns" not in about:
        return None
    return about["wall_clock_at_boot_ns"] + (tsc - about["tsc_at_boot"]) * 1_000_000_000 // tsc_hz


def remarks(found: dict) -> list[str]:
    """Returns what a reader of a run's figures needs to know of its configuration."""
    said = []
    slow = found["header"].get("slow")
    if slow is not None:
        said.append(f"the soft card's clock ran {slow} times slower than the CPUs': itr=1us lasted {slow} us")
    return said


# ---- text ----


def member_text(value: object) -> str:
    """Returns a member of the header as text: objects as name=value pairs, and lists of objects by their names."""
    if isinstance(value, dict):
        return " ".join(f"{shown(name, 64)}={_scalar(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(_named(each) if isinstance(each, dict) else _scalar(each) for each in value)
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "null" if value is None else shown(value, TEXT_MAX)


def _named(value: dict) -> str:
    rest = {name: each for name, each in value.items() if name != "name"}
    return f"{_scalar(value.get('name'))} ({member_text(rest)})" if rest else _scalar(value.get("name"))


# Rows of the text: a label, and the members in it. The members that every log has are in the summary's head.
ROWS = (
    ("system", ("system", "kernel", "driver", "interface", "tracer")),
    ("image", ("commit", "build", "compiler")),
    ("command line", ("command_line",)),
    ("CPU", ("cpu_signature", "microcode")),
    ("MHz", ("frequencies_mhz",)),
    ("limits", ("limits",)),
    ("C-states", ("c_states",)),
    ("card", ("card",)),
    ("link", ("link",)),
    ("slow", ("slow",)),
)


def rows(found: dict) -> list[tuple[str, str]]:
    """Returns labels and texts of the configuration, without its settings."""
    header = found["header"]
    said = []
    for label, names in ROWS:
        parts = [
            f"{name} {member_text(header[name])}" if name == "microcode" else member_text(header[name]) for name in names if name in header
        ]
        if parts:
            said.append((label, ", ".join(parts)))
    if found["load"] is not None:
        said.append(("load", load_text(found["load"])))
    return said


def load_text(load: dict) -> str:
    rates = [f"{rate:,.6g} requests/s" if rate is not None else "a closed loop" for rate in load["offered_per_second"]]
    return f"{', '.join(rates) or 'no rate'}, from {shown(load['file'], 256)}"


def flat(name: str, value: object) -> list[tuple[str, str]]:
    """Returns a member of the header as names and texts of its parts, like "limits.c_state", or "c_states.c6.wake_up_us" in a list."""
    if isinstance(value, dict):
        return [pair for inner, each in value.items() for pair in flat(f"{name}.{inner}", each)]
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        named = [
            (each.get("name", number), {inner: part for inner, part in each.items() if inner != "name"})
            for number, each in enumerate(value)
        ]
        return [pair for each_name, rest in named for pair in flat(f"{name}.{each_name}", rest)]
    return [(name, member_text(value))]


def lines(found: dict) -> list[str]:
    listed = rows(found)
    width = max((len(label) for label, _ in listed), default=0)
    return [f"  {label:{width}}  {text}" for label, text in listed]


def start_rows(found: dict, everywhere: Iterable[int]) -> list[tuple[str, str, str]]:
    """Returns settings at the start as text: name, value, cores."""
    cores = sorted(set(everywhere))
    return [(row["setting"], row["value"], cores_text(row["cores"], cores)) for row in found["settings_at_start"]]
