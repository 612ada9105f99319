# SPDX-License-Identifier: BSL-1.0
"""A summary has one line for settings that all cores share, and lines by groups of cores for those that differ."""

from pathlib import Path

import pytest

from tools.log import decode, shared_settings, summary, synthetic

START = {"changed": "start", "itr_us": 16, "poll_budget_us": 0, "pstate": "0x0", "power_limit_mw": 0, "turbo": "on", "generation": 1}


def start(core: int, idle: str, **more) -> dict:
    return {"core": core, "seconds": core / 1000, "idle": idle, **START, **more}


def change(core: int, seconds: float, name: str, value: str, generation: int) -> dict:
    return {"core": core, "seconds": seconds, "changed": name, "value": value, "generation": generation}


def test_settings_that_all_cores_share_are_one_line(tmp_path: Path) -> None:
    synthetic.write(tmp_path, synthetic.Shape(cores=16, records=100, changes=3))
    text = summary.text(summary.summarise(decode.load([str(tmp_path)])))
    rows = text.split("set:\n")[1].splitlines()
    assert len(rows) == 4 and all("  all cores  " in row for row in rows)
    assert "start: idle=c7 itr=8us poll_budget=0us pstate=none power_limit=none turbo=unknown  (generation 1)" in rows[0]
    assert "itr=16us  (generation 2)" in rows[1]


def test_settings_that_differ_are_folded_by_groups_of_cores() -> None:
    rows = [start(core, "poll" if core in (2, 5) else "c6") for core in range(6)]
    rows += [change(core, 1 + core / 100, "itr", "8us", 2) for core in range(6)]
    rows += [change(core, 2 + core / 100, "idle", "c1", 3) for core in (3, 0, 1)]
    rows += [change(4, 3.0, "pstate", "0x1800 granted 24", 4), change(5, 3.0, "pstate", "0x1800 granted 22", 4)]
    found = shared_settings.folded(rows, range(6))
    assert [(row["cores"], row["text"]) for row in found] == [
        ("all cores", "start: itr=16us poll_budget=0us pstate=none power_limit=none turbo=on"),
        ("cores 0-1,3-4", "start: idle=c6"),
        ("cores 2,5", "start: idle=poll"),
        ("all cores", "itr=8us"),
        ("cores 0-1,3", "idle=c1"),
        ("core 4", "pstate=0x1800 granted 24"),
        ("core 5", "pstate=0x1800 granted 22"),
    ]
    assert [row["seconds"] for row in found] == [0.0, 0.0, 0.002, 1.0, 2.0, 3.0, 3.0]
    assert len(set(map(len, (line.split("  (gen")[0][:30] for line in shared_settings.lines(found))))) == 1


def test_one_core_is_named() -> None:
    assert [row["cores"] for row in shared_settings.folded([start(0, "c6")], [0])] == ["core 0"]
    assert shared_settings.folded([], [0]) == []


@pytest.mark.parametrize(("cores", "text"), [([3], "core 3"), ([0, 1], "cores 0-1"), ([0, 2, 3, 9], "cores 0,2-3,9")])
def test_groups_of_cores_are_named_by_ranges(cores: list[int], text: str) -> None:
    assert shared_settings.cores_text(cores, range(16)) == text
