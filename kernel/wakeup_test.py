# SPDX-License-Identifier: BSL-1.0
"""Checks wakeup.pml, a model of a sleeping core. SPIN tries every order of its steps and must find a lost event only for a broken rule."""

import re
from pathlib import Path

import pytest

from tools.process import finished

MODEL = Path(__file__).with_name("wakeup.pml")
TIMEOUT_SECONDS = 300
DEPTH = 200_000


def errors(folder: Path, way: str, broken: str = "NOTHING") -> tuple[int, str]:
    """Returns the number of errors that SPIN finds (it stops at the first), and its output."""
    steps = (
        ["spin", "-a", f"-DWAY={way}", f"-DBREAK={broken}", str(MODEL)],
        ["gcc", "-O1", "-w", "-DSAFETY", "-o", "pan", "pan.c"],
        ["./pan", f"-m{DEPTH}"],
    )
    output = ""
    for argv in steps:
        done = finished(argv, TIMEOUT_SECONDS, cwd=folder)
        output = done.stdout + done.stderr
        assert done.returncode == 0, f"{argv}: {output}"
    assert "max search depth too small" not in output, output
    found = re.search(r"errors: (\d+)", output)
    assert found, output
    return int(found[1]), output


@pytest.mark.parametrize("way", ["HALT", "MWAIT", "WATCH", "POLL"])
def test_no_order_of_steps_loses_a_call(tmp_path: Path, way: str) -> None:
    count, output = errors(tmp_path, way)
    assert count == 0, output
    states = re.search(r"(\d+) states, stored", output)
    assert states and int(states[1]) > 1000, f"the model hardly moved: {output}"


@pytest.mark.parametrize(
    ("way", "broken"),
    [
        ("HALT", "LOOK_BEFORE_ANNOUNCEMENT"),
        ("MWAIT", "LOOK_BEFORE_ANNOUNCEMENT"),
        ("MWAIT", "MONITOR_AFTER_LOOK"),
        ("WATCH", "MONITOR_AFTER_LOOK"),
        ("HALT", "REQUEST_BEFORE_WORK"),
        ("MWAIT", "REQUEST_BEFORE_WORK"),
        ("POLL", "REQUEST_BEFORE_WORK"),
        ("HALT", "LOOK_BEFORE_TAKING"),
        ("MWAIT", "LOOK_BEFORE_TAKING"),
        ("POLL", "LOOK_BEFORE_TAKING"),
        ("HALT", "AWAKE_FORGETS"),
        ("MWAIT", "AWAKE_FORGETS"),
        ("HALT", "NO_INTERRUPT"),
        ("WATCH", "NO_INTERRUPT"),
        ("WATCH", "NO_LINE_COMPARED"),
    ],
)
def test_a_broken_rule_loses_one(tmp_path: Path, way: str, broken: str) -> None:
    count, output = errors(tmp_path, way, broken)
    assert count > 0, f"nothing is lost, so the rule is none or the model does not see it: {output}"
    assert "assertion violated" in output, output
