# SPDX-License-Identifier: BSL-1.0
"""The verdicts of `./neap soak starts`, and its busy processes."""

import os
import subprocess
import time

import pytest

from tools import start_soak
from tools.errors import UsageError
from tools.machine import FAILURE, PANIC, SUCCESS

REFUSAL = "neap: 3 of 4 cores started, so the machine ends: the host of this machine is too busy"


def hello(*cores: int) -> list[str]:
    return ["neap: hello (0.1.0) on 4 cores", *(f"hello from core {core}" for core in cores)]


@pytest.mark.parametrize(
    ("status", "lines", "outcome"),
    [
        (SUCCESS, hello(0, 1, 2, 3), start_soak.FULL),
        (FAILURE, [REFUSAL], start_soak.STATED),
        (SUCCESS, hello(0, 1, 2), start_soak.FAILED),  # fewer cores, in silence
        (SUCCESS, hello(0, 1, 2, 2), start_soak.FAILED),
        (SUCCESS, hello(0, 1, 2, 3, 4), start_soak.FAILED),
        (SUCCESS, [*hello(0, 1, 2, 3), REFUSAL], start_soak.FAILED),
        (FAILURE, [], start_soak.FAILED),  # a refusal without a reason
        (FAILURE, [REFUSAL, *hello(0, 1, 2)], start_soak.FAILED),  # the application ran nevertheless
        (PANIC, [REFUSAL], start_soak.FAILED),
        (None, hello(0, 1, 2, 3), start_soak.FAILED),
    ],
)
def test_only_all_cores_or_a_stated_refusal_pass(status: int | None, lines: list[str], outcome: str) -> None:
    assert start_soak.judge(status, lines, 4) == outcome


def test_bounds() -> None:
    for arguments in ({"starts": 0}, {"cores": 0}, {"cores": 257}, {"busy": -1}, {"busy": 257}):
        with pytest.raises(UsageError, match="takes"):
            start_soak.soak(**arguments)


def test_busy_processes_compute_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kw: started.append(popen(*args, **kw)) or started[-1])
    with start_soak.busy_loops(2):
        assert len(started) == 2
        deadline = time.monotonic() + 60
        while any(_ticks(process.pid) < 3 for process in started):
            assert time.monotonic() < deadline, "a busy process used no processor time"
            time.sleep(0.05)
        assert all(process.poll() is None for process in started)
    assert all(process.poll() is not None for process in started)


def _ticks(pid: int) -> int:
    """Processor time of a process in clock ticks: fields 14 and 15 of /proc/PID/stat."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    assert os.sysconf("SC_CLK_TCK") > 0
    return int(fields[11]) + int(fields[12])
