# SPDX-License-Identifier: BSL-1.0
"""The sleep records of Neap's log against the modelled CPU's own account of the same sleeps.

A log says for each sleep which state the core asked for and what woke it. On hardware nothing can confirm either. The modelled CPU knows
both, so here every record is compared with the sleep that the CPU had at that time: none may be missing, none invented, and state and
cause must be the CPU's.

If several events reach a core while it wakes up, the kernel takes the interrupt with the highest vector for the cause, not the first.
So a record's cause must be among the events that reached the core until it took an interrupt.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.errors import Failure
from tools.log.layout import read_header
from tools.log.schema import ENTRY_BYTES, name_of
from tools.model.cpu_model import CpuModel
from tools.model.results import DRAIN, WINDOW

# The CPU's name of the C-state that each request of Neap's means.
C_STATES = {"halt": "C1", "c1": "C1", "c1e": "C1E", "c3": "C3", "c6": "C6", "c7": "C7"}
# Neap's names of causes, and the model's.
CAUSES = {"interrupt": "card", "timer": "timer", "wake_up": "core", "memory": "write"}
NOT_ASLEEP = "not_asleep"
START, STOP = 4, 5  # kinds of entries, docs/log-format.md
# Moments of the trace are whole nanoseconds, rounded down.
ROUNDING_NS = 1

_LINE = re.compile(
    r"(?:(?P<ns>\d+) ns: )?core (?P<core>\d+) "
    r"(?:sleeps in (?P<sleeps>\w+)|wakes from (?P<wakes>\w+) by (?P<by>\w+)|is called by (?P<call>\w+)|(?P<takes>takes an interrupt)"
    r"|(?P<passes>passes MWAIT))"
)
_EVENT = re.compile(r"(?P<event>\w+), phase (?P<phase>\d+)")


@dataclasses.dataclass
class CpuSleep:
    """A sleep as the CPU had it. `calls`: the events that reached the core until it took an interrupt. `by`: the first of them."""

    state: str
    began_ns: int
    ended_ns: int = 0
    by: str = ""
    calls: set[str] = dataclasses.field(default_factory=set)
    in_window: bool = False


@dataclasses.dataclass
class CpuTrace:
    """One core's sleeps that have ended, in order. `passed_ns`: MWAITs that did not sleep, because the line had been written already."""

    sleeps: list[CpuSleep] = dataclasses.field(default_factory=list)
    passed_ns: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Record:
    """A sleep as Neap logged it. `c_state`: what it requested; the same as `idle`, unless that leaves the choice to Neap."""

    idle: str
    cause: str
    from_ns: float
    to_ns: float
    c_state: str


@dataclasses.dataclass(frozen=True)
class CoreRecords:
    core: int
    start_ns: float
    stop_ns: float
    sleeps: Sequence[Record]


@dataclasses.dataclass(frozen=True)
class Compared:
    """What agreed. `causes`, `sleeps`: in the measured window, over all cores, with Neap's names. `passed`: MWAITs that did not sleep."""

    records: int
    sleeps: int
    passed: int
    causes: Mapping[str, int]


def read_trace(path: Path) -> dict[int, CpuTrace]:
    """Each core's sleeps, from the plugin's trace. Raises Failure for a line that is none of the trace's."""
    cores: dict[int, CpuTrace] = {}
    asleep: dict[int, CpuSleep] = {}
    waking: dict[int, CpuSleep] = {}  # woken, and no interrupt taken yet
    pending: dict[int, set[str]] = {}
    phase = 0
    with open(path, encoding="ascii") as lines:
        for number, line in enumerate(lines, 1):
            if event := _EVENT.match(line):
                phase = int(event["phase"])
                continue
            match = _LINE.match(line)
            if match is None:
                raise Failure(f"{path}: line {number} is not one of a trace: {line.strip()[:100]!r}")
            core = int(match["core"])
            trace, calls = cores.setdefault(core, CpuTrace()), pending.setdefault(core, set())
            if match["sleeps"]:
                asleep[core] = CpuSleep(match["sleeps"], int(match["ns"]))
                waking.pop(core, None)
                calls.discard("write")
            elif match["wakes"]:
                # Cores that wait for their start sleep from the reset on, which the trace does not say.
                sleep = asleep.pop(core, None)
                if sleep is not None:
                    sleep.ended_ns, sleep.by, sleep.in_window = int(match["ns"]), match["by"], phase == WINDOW
                    sleep.calls = calls | {match["by"]}
                    trace.sleeps.append(sleep)
                    waking[core] = sleep
            elif match["call"]:
                calls.add(match["call"])
                if core in waking:
                    waking[core].calls.add(match["call"])
            elif match["takes"]:
                waking.pop(core, None)
                calls.clear()
            else:
                trace.passed_ns.append(int(match["ns"]))
    return cores


def read_records(path: Path, cpu: CpuModel) -> CoreRecords:
    """The sleeps of one core's log. Raises Failure if the log is not whole."""
    header = read_header(path)
    if header.first or header.unwritten:
        raise Failure(f"{path} lacks entries, so its sleeps cannot be compared", "log=4M on the command line makes room")
    data = path.read_bytes()[header.size :]
    entries = [data[at : at + ENTRY_BYTES] for at in range(0, len(data), ENTRY_BYTES)]
    record, idle = header.schema.form["record"].by_name, header.schema.form["idle"].by_name
    idle_kinds = header.schema.kinds_of("idle")
    ns_per_tick = 10 / cpu.values["frequency.base_ratio"]
    bounds = {record["kind"].read(entry): record["tsc"].read(entry) for entry in entries if entry[record["kind"].offset] in (START, STOP)}
    if bounds.keys() != {START, STOP}:
        raise Failure(f"{path} has no start or no stop")
    sleeps = [
        Record(
            header.schema.idle_name(idle["idle_state"].read(entry)),
            name_of(idle["cause"].choices, idle["cause"].read(entry)),
            idle["tsc_asleep"].read(entry) * ns_per_tick,
            idle["tsc"].read(entry) * ns_per_tick,
            name_of(idle["c_state"].choices, idle["c_state"].read(entry)),
        )
        for entry in entries
        if entry[idle["kind"].offset] in idle_kinds
    ]
    return CoreRecords(header.core, bounds[START] * ns_per_tick, bounds[STOP] * ns_per_tick, sleeps)


def compare(
    logs: Sequence[CoreRecords], traces: Mapping[int, CpuTrace], snapshots: Sequence[Mapping[str, Any]], idle: str | None = None
) -> Compared:
    """Compares each record with the CPU's sleep, and the sleeps of the window with the CPU's sums. `idle`: the state that every record must
    have, if given. Raises Failure for the first difference."""
    causes: Counter[str] = Counter()
    records = sleeps = passed = 0
    for log in logs:
        trace = traces.get(log.core, CpuTrace())
        for record, sleep in _pairs(log, trace):
            if idle is not None and record.idle != idle:
                raise Failure(f"core {log.core}: a record at {record.to_ns:.0f} ns has the state {record.idle}, not {idle}")
            records += 1
            passed += sleep is None and record.cause != NOT_ASLEEP
            if sleep is not None and sleep.in_window:
                sleeps += 1
                causes[record.cause] += 1
        _compare_sums(log.core, trace, snapshots)
    return Compared(records, sleeps, passed, dict(causes))


def _pairs(log: CoreRecords, trace: CpuTrace) -> list[tuple[Record, CpuSleep | None]]:
    """Each record with the sleep that it describes; None for one that did not sleep."""
    began = [sleep.began_ns for sleep in trace.sleeps]
    at = bisect.bisect_left(began, log.start_ns - ROUNDING_NS)
    pairs: list[tuple[Record, CpuSleep | None]] = []
    for record in log.sleeps:
        where = f"core {log.core}, {record.from_ns:.0f} to {record.to_ns:.0f} ns"
        inside = bisect.bisect_right(began, record.to_ns)
        found = trace.sleeps[at:inside]
        at = inside
        if any(sleep.began_ns < record.from_ns - ROUNDING_NS for sleep in found):
            raise Failure(f"core {log.core} slept at {found[0].began_ns} ns, and the log has no record of it")
        if record.cause == NOT_ASLEEP:
            if found:
                raise Failure(f"{where}: the log says that the core did not sleep, and it slept in {found[0].state}")
            pairs.append((record, None))
            continue
        if not found:
            passes = bisect.bisect_left(trace.passed_ns, record.from_ns - ROUNDING_NS)
            if passes == len(trace.passed_ns) or trace.passed_ns[passes] > record.to_ns:
                raise Failure(f"{where}: the log has a sleep in {record.idle}, and the core did not sleep")
            pairs.append((record, None))
            continue
        pairs.append((record, _checked(where, record, found)))
    last = bisect.bisect_right(began, log.stop_ns)
    if at < last:
        raise Failure(f"core {log.core} slept at {trace.sleeps[at].began_ns} ns, and the log has no record of it")
    return pairs


def _checked(where: str, record: Record, found: Sequence[CpuSleep]) -> CpuSleep:
    sleep = found[0]
    if len(found) != 1:
        raise Failure(f"{where}: the log has one sleep, and the core slept {len(found)} times")
    if record.idle in C_STATES and record.c_state != record.idle:
        raise Failure(f"{where}: the log says that idle={record.idle} requested {record.c_state}")
    if sleep.state != C_STATES.get(record.c_state):
        raise Failure(f"{where}: the log says {record.c_state}, and the core slept in {sleep.state}")
    if CAUSES.get(record.cause) not in sleep.calls:
        raise Failure(f"{where}: the log says that the sleep ended by {record.cause}, and it ended by {sleep.by}")
    if sleep.ended_ns > record.to_ns + ROUNDING_NS:
        raise Failure(f"{where}: the core slept until {sleep.ended_ns} ns")
    return sleep


def _compare_sums(core: int, trace: CpuTrace, snapshots: Sequence[Mapping[str, Any]]) -> None:
    """The sleeps that ended in the window, as the trace has them, against the sums of the snapshots at the window's ends."""
    at = {snapshot["phase"]: snapshot["cpus"][core] for snapshot in snapshots if snapshot["event"] == "phase"}
    before, after = at[WINDOW], at[DRAIN]
    traced = Counter(sleep.by for sleep in trace.sleeps if sleep.in_window)
    counted = {name: after["wakeups_by"][name] - before["wakeups_by"][name] for name in after["wakeups_by"]}
    if any(traced[name] != count for name, count in counted.items()) or sum(counted.values()) != after["wakeups"] - before["wakeups"]:
        raise Failure(f"core {core}: the window's wake-ups are {dict(traced)} in the trace, and {counted} in the snapshots")
