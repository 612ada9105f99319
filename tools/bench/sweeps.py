# SPDX-License-Identifier: BSL-1.0
"""Sweeps of short runs on the model machine, for the benchmarks and tests that disturb them: their command, their start, their table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tools import build, process
from tools.errors import Failure

STUDY = """
title = "short"
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
RUNS_OF_STUDY = 5 * 2 * 2 * 2
PLAN, RUNS, RUN = "plan.json", "runs", "run.json"  # tools/study/folder.py, which needs other packages
SECONDS_MAX = 1800.0


def argv(folder: Path, out: str, *options: str) -> list[str]:
    """The command that sweeps `folder`/study.toml into `folder`/`out`."""
    words = [sys.executable, str(build.REPOSITORY / "neap"), "sweep", str(folder / "study.toml"), "--out", str(folder / out)]
    return [*words, *options]


def run(folder: Path, out: str, *options: str) -> None:
    process.run_logged(argv(folder, out, *options), log(folder, out), "./neap sweep", timeout_seconds=SECONDS_MAX)


def start(folder: Path, out: str, *options: str) -> subprocess.Popen:
    """Starts a sweep. Returns when it has written its plan, which it does before its first run."""
    plan = folder / out / PLAN
    before = plan.stat().st_mtime_ns if plan.exists() else 0
    with open(log(folder, out), "ab") as file:
        child = process.spawn(argv(folder, out, *options), stdout=file, stderr=file)

    def is_written() -> bool:
        return plan.exists() and plan.stat().st_mtime_ns != before

    process.wait_until(lambda: is_written() or child.poll() is not None, SECONDS_MAX)
    if not is_written():
        process.stop(child)
        raise Failure("the sweep wrote no plan", details=process.tail(log(folder, out)))
    return child


def log(folder: Path, out: str) -> Path:
    return folder / f"{out}.log"


def whole_runs(folder: Path, out: str) -> list[Path]:
    """The folders of the runs that have ended."""
    return [path for path in (folder / out / RUNS).iterdir() if not path.name.startswith(".")]


def table(folder: Path, out: str) -> list[dict[str, Any]]:
    """The rows without times of the host, so that two sweeps of one study have equal rows."""
    from pyarrow import parquet

    from tools.study import schema

    rows = parquet.read_table(folder / out / schema.RUNS).to_pylist()
    return [{name: value for name, value in row.items() if name not in ("started", "took_s")} for row in rows]
