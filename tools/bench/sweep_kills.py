# SPDX-License-Identifier: BSL-1.0
"""`./neap bench sweep-kills`: kill -9 at 50 random moments of a sweep of 40 short runs on the model machine.

After each kill the same command goes on. When all runs are there, most of them are removed, so that further kills hit runs, too. At the end
the table must have each run once and whole, and equal that of a sweep that nothing interrupted.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tools import build, cache, process, progress
from tools.bench.rows import Row
from tools.errors import Failure

KILLS, RUNS_WANTED, KEPT = 50, 40, 10
PLAN, RUNS, RUN = "plan.json", "runs", "run.json"  # tools/study/folder.py, which needs other packages
SECONDS_MAX = 8.0
STUDY = """
title = "kills"
repeats = 2
warm_up_ms = 5
window_ms = 20
[[arms]]
name = "Neap"
[settings]
itr_us = [2, 50, 100, 200, 300]
frequency_ghz = [1.2, 2.9]
[[loads]]
name = "etc"
mix = "etc"
rate = [12500, 37500]
[checks]
rate_within = 0.05
"""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="neap-kills-") as scratch:
        folder = Path(scratch)
        (folder / "study.toml").write_text(STUDY)
        with progress.step("a sweep without a kill"):
            _sweep(folder, "whole")
        with progress.step(f"{KILLS} kills"):
            found = _kill(folder)
        begin = time.monotonic()
        _sweep(folder, "killed")
        whole, killed = (_table(folder / name) for name in ("whole", "killed"))
        names = [row["run"] for row in killed]
        return [
            Row("kills", "kills while the sweep ran", found["hit"]),
            Row("runs", "runs in the table", len(killed)),
            Row("missing", "runs", RUNS_WANTED - len(set(names)), target=1),
            Row("doubled", "runs", len(names) - len(set(names)), target=1),
            Row("half", "runs without a whole result after a kill", found["half"], target=1),
            Row("measured_again", "runs that were whole before", found["changed"], target=1),
            Row(
                "different", "runs with other figures than without kills", sum(a != b for a, b in zip(whole, killed, strict=True)), target=1
            ),
            Row("last_sweep", "s", time.monotonic() - begin),
        ]


def _sweep(folder: Path, out: str) -> None:
    log = folder / f"{out}.log"
    process.run_logged(_argv(folder, out), log, "./neap sweep", timeout_seconds=1800)


def _argv(folder: Path, out: str) -> list[str]:
    return [sys.executable, str(build.REPOSITORY / "neap"), "sweep", str(folder / "study.toml"), "--out", str(folder / out)]


def _kill(folder: Path) -> dict[str, int]:
    """Kills the sweep again and again. Returns what was wrong after the kills."""
    chance = random.Random(1)
    out = folder / "killed"
    seen: dict[str, int] = {}
    found = {"hit": 0, "half": 0, "changed": 0}
    for _ in range(KILLS):
        if len(seen) >= RUNS_WANTED:
            for name in chance.sample(sorted(seen), RUNS_WANTED - KEPT):
                cache.remove(out / RUNS / name)
                del seen[name]
        plan = out / PLAN
        before = plan.stat().st_mtime_ns if plan.exists() else 0
        with open(folder / "killed.log", "ab") as log:
            child = process.spawn(_argv(folder, "killed"), stdout=log, stderr=log)
        if not process.wait_until(lambda plan=plan, before=before: plan.exists() and plan.stat().st_mtime_ns != before, 600):
            raise Failure("the sweep wrote no plan", details=process.tail(folder / "killed.log"))
        time.sleep(chance.uniform(0, SECONDS_MAX))
        found["hit"] += child.poll() is None
        child.send_signal(signal.SIGKILL)
        child.wait()
        there = [path for path in (out / RUNS).iterdir() if not path.name.startswith(".")]
        for path in there:
            try:
                found["half"] += json.loads((path / RUN).read_text())["run"] != path.name
            except (OSError, ValueError, KeyError):
                found["half"] += 1
            written = (path / RUN).stat().st_mtime_ns
            found["changed"] += seen.setdefault(path.name, written) != written
    return found


def _table(folder: Path) -> list[dict]:
    from pyarrow import parquet

    from tools.study import schema

    table = parquet.read_table(folder / schema.RUNS).to_pylist()
    return [{name: value for name, value in row.items() if name not in ("started", "took_s")} for row in table]
