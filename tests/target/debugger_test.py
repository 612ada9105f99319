# SPDX-License-Identifier: BSL-1.0
"""gdb and the function trace on a machine with known queued events and timers (debugger_sees_what_waits.cpp)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.target.images import image_path
from tools import debugger, trace
from tools.machine import REPOSITORY, SUCCESS, Machine

IMAGE = image_path("debugger_sees_what_waits")
TIMEOUT_SECONDS = 120
STOP = "neap_test_stops_here"
LAMBDA = r"neap::application\(.*\{lambda\(\)#\d\}"
# Core 0 enters about 200 functions after STOP. A wait that calls a function in its loop enters thousands each millisecond.
LINES_AFTER_STOP_MAX = 2000


def gdb_says(*words: str) -> list[str]:
    """Returns gdb's output for these commands, in a machine stopped at the function STOP."""
    with Machine(IMAGE, cores=3, memory="256M", card=False, debugger=True) as machine:
        argv = debugger.command(IMAGE, machine.debugger_socket)
        argv[1:1] = ["-nx", "-batch"]
        for word in (f"tbreak {STOP}", "continue", *words):
            argv += ["-ex", word]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    output = done.stdout + done.stderr
    assert "Error" not in output and "Exception" not in output and "Undefined" not in output, output
    return output.splitlines()


def require_in_order(lines: list[str], *patterns: str) -> None:
    rest = iter(lines)
    for pattern in patterns:
        assert any(re.search(pattern, line) for line in rest), f"no line like /{pattern}/ (in this order) in:\n" + "\n".join(lines)


def test_gdb_lists_cores_events_and_timers() -> None:
    require_in_order(
        gdb_says("neap cores", "neap events", "neap timers"),
        rf"hit Temporary breakpoint \d+, {STOP}",
        rf"^core 0 \(gdb thread 1\): in {STOP}; \d+ events, \d+ interrupts, \d+ sleeps, 2 waiting$",
        # The number of waiting events may include the running event.
        r"^core 1 \(gdb thread 2\): in .*work_until_looked_at; 0 events, .*, [23] waiting$",
        r"^core 2 \(gdb thread 3\): .*, 0 waiting$",
        r"^core 0: 2 events wait$",
        r"^    local: .*an_event$",
        rf"^    local: {LAMBDA}$",
        r"^core 1: [23] events wait$",
        r"^    remote: .*an_event$",
        r"^    remote: .*an_event$",
        r"^core 2: 0 events wait$",
        r"^core 0: 2 timers; its wheel stands at \d+\.\d+ s$",
        r"^    36\d\d\.\d+ s: .*a_timer$",
        rf"^    72\d\d\.\d+ s: {LAMBDA}$",
        r"^core 1: 0 timers",
    )


def test_the_machine_goes_on_under_gdb() -> None:
    require_in_order(gdb_says("continue"), STOP, r"exited|closed")


def test_trace_shows_callers(tmp_path: Path) -> None:
    out = tmp_path / "trace.txt"
    with trace.tracing(IMAGE, 0, out), Machine(IMAGE, cores=3, memory="256M", card=False) as plain:
        assert plain.wait_exit(TIMEOUT_SECONDS) == SUCCESS
    assert out.read_text().count("\n") == 1, "a machine that was not watched leaves a trace without entries"

    with trace.tracing(IMAGE, 0, out) as words, Machine(IMAGE, cores=3, memory="256M", card=False, qemu_options=words) as machine:
        assert machine.wait_exit(TIMEOUT_SECONDS) == SUCCESS
    lines = out.read_text().splitlines()
    assert len(lines) <= trace.ENTRIES + 1
    at = next(at for at, line in enumerate(lines) if line.endswith(f" {STOP}"))
    assert len(lines) - at < LINES_AFTER_STOP_MAX, "a wait after STOP calls functions, so on a slow machine it overwrites the ring"

    def depth(line: str) -> int:
        return len(line) - len(line[14:].lstrip())

    # Walks backwards from the line of STOP. A function's caller is the nearest earlier line with less indentation.
    callers, deepest = [], depth(lines[at])
    for line in reversed(lines[1:at]):
        if depth(line) < deepest:
            deepest = depth(line)
            callers.append(line[14:].strip())
    assert callers[0] == "neap::application", callers
    assert "neap::EventLoop::run" in callers, callers
    counts = [int(line.split()[0]) for line in lines[1:]]
    assert counts == sorted(counts)
    # Later in the trace, the application returns its result and the machine exits.
    require_in_order(lines[at:], r" an_event|::an_event", r" neap::machine::exit$")


def test_a_trace_is_bounded(tmp_path: Path) -> None:
    out = tmp_path / "trace.txt"
    entries = 50
    with (
        trace.tracing(IMAGE, 1, out, entries=entries) as words,
        Machine(IMAGE, cores=3, memory="256M", card=False, qemu_options=words) as machine,
    ):
        assert machine.wait_exit(TIMEOUT_SECONDS) == SUCCESS
    lines = out.read_text().splitlines()
    assert 1 < len(lines) <= entries + 1
    assert re.search(r"; [1-9]\d* earlier entries are not here$", lines[0])


def test_run_takes_gdb_and_trace(tmp_path: Path) -> None:
    argv = [str(REPOSITORY / "neap"), "run", "hello", "--debug", "--cores", "2", "--gdb", "--trace", "1"]
    done = subprocess.run(argv, input="neap cores\ncontinue\nquit\n", cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    require_in_order(
        done.stdout.splitlines(),
        r"^\d+\s+void run_kernel\(\)",  # a source line: the plugin finds the source file from any folder
        r"core 0 \(gdb thread 1\): in neap::run_kernel$",
        "^1 not started$",
        "^hello from core 1$",
    )
    assert "neap::EventLoop::run" in (tmp_path / "trace-1.txt").read_text()
    for word, complaint in (("2", "--trace takes a core from 0 to 1"), ("-1", "--trace takes a core")):
        refused = subprocess.run([*argv[:-1], word], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert refused.returncode != 0 and complaint in refused.stdout + refused.stderr
