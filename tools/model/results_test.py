# SPDX-License-Identifier: BSL-1.0
"""The two files of a run are merged by load and phase, and histograms give the percentiles of several runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from tools.errors import Failure
from tools.model import results

LATENCY = {"mean": 0.0, "p50": 0, "p90": 0, "p95": 0, "p99": 0, "p999": 0, "max": 0}


def member(name: str, answered: int) -> dict[str, Any]:
    frames = dict.fromkeys(results.FRAME_COUNTS, answered)
    counts = {"offered": answered, "answered": answered, "failed": 0, "interrupts": 1}
    return {
        "name": name,
        "rate": 1.0,
        **counts,
        "latency_ns": LATENCY,
        "latency_histogram": [[9, answered]],
        "frames_in_window": frames,
        "digest": name,
    }


def snapshot(load: int, phase: int, instructions: int, event: str = "phase") -> dict[str, Any]:
    cpu = {"instructions": instructions, "cycles": 0, "c0_ns": 0, "wakeups": 0, "frequency_mhz": 2900, "residency_ns": {"C1": 0}}
    energy = {"package_j": 0.0, "cores_j": 0.0, "dram_j": 0.0}
    return {"event": event, "phase": phase, "load": load, "virtual_ns": instructions, **energy, "digest": f"d{load}", "cpus": [cpu]}


def write(directory: Path, snapshots: list[dict[str, Any]]) -> tuple[Path, Path]:
    world, lines = directory / "world.json", directory / "snapshots.jsonl"
    runs = [member("a", 10), member("b", 0)]
    world.write_text(json.dumps({"version": 1, "digest": "x", "answers": ["cores=1"], "runs": runs}))
    lines.write_text("".join(json.dumps(one) + "\n" for one in snapshots))
    return world, lines


def test_each_load_has_the_difference_of_its_own_snapshots(tmp_path: Path) -> None:
    phases = [snapshot(0, 2, 100), snapshot(0, 2, 150, "mark"), snapshot(0, 3, 300), snapshot(1, 0, 400), snapshot(1, 2, 500)]
    first, second = results.read_sequence(*write(tmp_path, [*phases, snapshot(1, 3, 507), snapshot(1, 4, 900)]))
    assert (first.name, first.instructions, first.window_ns, first.digest) == ("a", 200, 200, "a-d0")
    assert (second.name, second.instructions, second.digest, second.answers) == ("b", 7, "b-d1", ("cores=1",))
    assert first.frames_in_window["bytes_to_card"] == 10 and first.row()["instructions_per_request"] == 20
    assert second.row()["instructions_per_request"] == 0 and second.row()["uj_per_request"] == 0


def test_a_load_whose_window_did_not_end_is_a_failure(tmp_path: Path) -> None:
    files = write(tmp_path, [snapshot(0, 2, 100), snapshot(0, 3, 300), snapshot(1, 2, 500)])
    with pytest.raises(Failure, match="no snapshots of the window"):
        results.read_sequence(*files)


def test_a_report_that_lacks_a_member_is_refused(tmp_path: Path) -> None:
    world, lines = write(tmp_path, [])
    document = json.loads(world.read_text())
    del document["runs"][1]["interrupts"]
    world.write_text(json.dumps(document))
    with pytest.raises(Failure, match=r"run 1 .* lacks interrupts"):
        results.read_sequence(world, lines)
    world.write_text('{"digest": "x"}')
    with pytest.raises(Failure, match="no runs"):
        results.read_sequence(world, lines)


def test_quantiles_of_merged_histograms_are_those_of_all_answers() -> None:
    slow, fast = [(20, 1), (90, 1)], [(5, 1), (20, 7)]
    both = results.merged([slow, fast])
    assert both == [(5, 1), (20, 8), (90, 1)]
    assert [results.quantile(both, share) for share in (0.0, 0.1, 0.11, 0.9, 0.91, 1.0)] == [5, 5, 20, 20, 90, 90]
    assert results.quantile([], 0.99) == 0
