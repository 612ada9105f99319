# SPDX-License-Identifier: BSL-1.0
"""An interrupted comparison repeats only what had not ended, and a failure names its unit. The runs are replaced by invented ones."""

import json
from pathlib import Path

import pytest

from tools import run
from tools.compare import command, folder, units
from tools.compare.figures import Measured
from tools.errors import Failure

PLAN = """
cores = [1]
rounds = 2
[[arms]]
name = "Neap"
system = "neap"
[[arms]]
name = "Linux"
system = "linux"
[[workloads]]
name = "get"
"""
FACTS = {"os_name": "any"}


@pytest.fixture
def invented(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Returns the list of units that ran, and a set of names of units that fail."""
    ran: list[str] = []
    failing: set[str] = set()

    def run_unit(unit, plan, booted, keep):
        if unit.name in failing:
            raise Failure(f"{unit.name}: the machine ended early")
        ran.append(unit.name)
        if unit.kind == units.LOG:
            return units.Outcome([], FACTS)
        values = {"instructions": 1000.0 * (10 if unit.arm.is_linux else 1) + unit.round, "p99_us": 5.0}
        return units.Outcome([Measured("get", unit.arm.name, 1, unit.round, "request", 10.0, values, {})])

    monkeypatch.setattr(run, "require_build_packages", lambda: None)
    monkeypatch.setattr(units, "boot_files", lambda plan: {"neap": None, "linux": None})
    monkeypatch.setattr(folder, "participants", lambda plan, booted: {"memcached": "1"})
    monkeypatch.setattr(units, "run", run_unit)
    (tmp_path / "plan.toml").write_text(PLAN)
    return ran, failing


def compare(tmp_path: Path) -> int:
    return command.compare(str(tmp_path / "plan.toml"), str(tmp_path / "out"), [], None, None, 1)


def test_an_interrupted_comparison_goes_on(invented, tmp_path: Path, capsys):
    ran, failing = invented
    failing.add("loads.Linux.cores_1.round_1")
    with pytest.raises(Failure, match="loads.Linux.cores_1.round_1: the machine ended early"):
        compare(tmp_path)
    assert ran == ["log.Neap.cores_1.round_0", "log.Linux.cores_1.round_0", "loads.Neap.cores_1.round_1"]
    assert not (tmp_path / "out" / command.COMPARISON).exists()

    failing.clear()
    del ran[:]
    assert compare(tmp_path) == 0
    assert ran == ["loads.Linux.cores_1.round_1", "loads.Neap.cores_1.round_2", "loads.Linux.cores_1.round_2"]
    printed = capsys.readouterr().out
    assert "10002" in printed and "9.99" in printed

    del ran[:]
    assert compare(tmp_path) == 0
    assert ran == []


def test_all_files_are_made(invented, tmp_path: Path):
    compare(tmp_path)
    out = tmp_path / "out"
    document = json.loads((out / command.COMPARISON).read_text())
    (row,) = document["rows"]
    assert row["arms"]["Linux"]["figures"]["instructions"]["mean"] == 10_001.5
    assert row["arms"]["Linux"]["ratios"]["instructions"] == pytest.approx(10_001.5 / 1001.5)
    assert document["machines"] == {"Neap": FACTS, "Linux": FACTS}
    for name in (command.TABLE, command.PAGE, "runs.parquet", "plan.json"):
        assert (out / name).stat().st_size
