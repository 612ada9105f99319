# SPDX-License-Identifier: BSL-1.0
"""The comparison of sleep records with the modelled CPU's sleeps finds every kind of difference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.errors import Failure
from tools.model import sleeps
from tools.model.sleeps import CoreRecords, Record

TRACE = """\
10 ns: core 1 wakes from C7 by core
core 1 takes an interrupt
phase, phase 2
1000 ns: core 0 sleeps in C6
core 0 is called by card
2000 ns: core 0 wakes from C6 by card
core 0 is called by timer
core 0 takes an interrupt
3000 ns: core 0 passes MWAIT
4000 ns: core 0 sleeps in C6
core 0 is called by write
5000 ns: core 0 wakes from C6 by write
phase, phase 3
6000 ns: core 0 sleeps in C6
core 0 is called by timer
7000 ns: core 0 wakes from C6 by timer
core 0 takes an interrupt
"""
RECORDS = (
    Record("c6", "interrupt", 990, 2100, "c6"),
    Record("c6", "memory", 2990, 3010, "c6"),
    Record("c6", "not_asleep", 3500, 3510, "c6"),
    Record("c6", "memory", 3990, 5100, "c6"),
    Record("c6", "timer", 5990, 7100, "c6"),
)


def snapshot(phase: int, **wakeups: int) -> dict[str, Any]:
    by = dict.fromkeys(("card", "timer", "core", "write", "outside"), 0) | wakeups
    return {"event": "phase", "phase": phase, "cpus": [{"wakeups": sum(by.values()), "wakeups_by": by}]}


SNAPSHOTS = [snapshot(2, timer=5), snapshot(3, timer=5, card=1, write=1)]


@pytest.fixture
def traces(tmp_path: Path) -> dict[int, sleeps.CpuTrace]:
    path = tmp_path / "trace.txt"
    path.write_text(TRACE)
    return sleeps.read_trace(path)


def log(*records: Record, start_ns: float = 500, stop_ns: float = 8000) -> list[CoreRecords]:
    return [CoreRecords(0, start_ns, stop_ns, records)]


def test_records_that_agree_are_counted(traces: dict[int, sleeps.CpuTrace]) -> None:
    compared = sleeps.compare(log(*RECORDS), traces, SNAPSHOTS, "c6")
    assert compared == sleeps.Compared(records=5, sleeps=2, passed=1, causes={"interrupt": 1, "memory": 1})


def test_of_several_events_during_a_wake_up_each_may_be_the_cause(traces: dict[int, sleeps.CpuTrace]) -> None:
    late = Record("c6", "timer", 990, 2100, "c6")
    assert sleeps.compare(log(late, *RECORDS[1:]), traces, SNAPSHOTS).causes == {"timer": 1, "memory": 1}


def test_sleeps_before_the_log_need_no_record(traces: dict[int, sleeps.CpuTrace]) -> None:
    assert sleeps.compare(log(*RECORDS[1:], start_ns=2500), traces, SNAPSHOTS).records == 4
    assert sleeps.compare(log(*RECORDS[:4], stop_ns=5500), traces, SNAPSHOTS).records == 4


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ((Record("c3", "interrupt", 990, 2100, "c3"), *RECORDS[1:]), "says c3, and the core slept in C6"),
        ((Record("c6", "wake_up", 990, 2100, "c6"), *RECORDS[1:]), "ended by wake_up, and it ended by card"),
        ((Record("c6", "unknown", 990, 2100, "c6"), *RECORDS[1:]), "ended by unknown, and it ended by card"),
        ((*RECORDS[:3], Record("c6", "timer", 3990, 5100, "c6"), RECORDS[4]), "ended by timer, and it ended by write"),
        ((Record("c6", "not_asleep", 990, 2100, "c6"), *RECORDS[1:]), "the core did not sleep, and it slept in C6"),
        ((RECORDS[0], Record("c6", "memory", 2500, 2600, "c6"), *RECORDS[3:]), "and the core did not sleep"),
        ((RECORDS[0], *RECORDS[4:]), "slept at 4000 ns, and the log has no record"),
        (RECORDS[:4], "slept at 6000 ns, and the log has no record"),
        (RECORDS[1:], "slept at 1000 ns, and the log has no record"),
        ((*RECORDS[:3], Record("c6", "timer", 3990, 7100, "c6")), "the core slept 2 times"),
        ((Record("c6", "interrupt", 990, 1900, "c6"), *RECORDS[1:]), "the core slept until 2000 ns"),
        ((*RECORDS, Record("c6", "timer", 7500, 7600, "c6")), "the core did not sleep"),
    ],
)
def test_a_difference_is_found(traces: dict[int, sleeps.CpuTrace], records: tuple[Record, ...], said: str) -> None:
    with pytest.raises(Failure, match=said):
        sleeps.compare(log(*records), traces, SNAPSHOTS)


def test_a_record_of_another_state_than_the_setting_is_found(traces: dict[int, sleeps.CpuTrace]) -> None:
    with pytest.raises(Failure, match="has the state c6, not c7"):
        sleeps.compare(log(*RECORDS), traces, SNAPSHOTS, "c7")


@pytest.mark.parametrize(
    "change",
    [
        lambda cpu: cpu["wakeups_by"].update(card=2),
        lambda cpu: cpu["wakeups_by"].update(card=0, core=1),
        lambda cpu: cpu.update(wakeups=9),
    ],
)
def test_sums_that_differ_from_the_trace_are_found(traces: dict[int, sleeps.CpuTrace], change: Callable[[dict[str, Any]], None]) -> None:
    snapshots = copy.deepcopy(SNAPSHOTS)
    change(snapshots[1]["cpus"][0])
    with pytest.raises(Failure, match="core 0: the window's wake-ups"):
        sleeps.compare(log(*RECORDS), traces, snapshots)


def test_a_line_that_is_none_of_the_traces_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(TRACE + "something else\n")
    with pytest.raises(Failure, match="line 18"):
        sleeps.read_trace(path)
