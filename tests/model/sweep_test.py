# SPDX-License-Identifier: BSL-1.0
"""`./neap sweep` with real runs on the model machine: kills, two workers, a killed worker, and a load that is too much."""

import os
import random
import signal
import sys
import time
from pathlib import Path

from pyarrow import parquet

from tools import build, process
from tools.study import schema
from tools.study.folder import PLAN, RUNS

STUDY = """
title = "small"
repeats = 2
warm_up_ms = 5
window_ms = 20
log = true
[[arms]]
name = "Neap"
[settings]
itr_us = [16, 200]
[[loads]]
name = "etc"
mix = "etc"
rate = [12500, 37500]
[baselines]
idle = true
polling = true
[checks]
rate_within = 0.05
log_is_load = true
"""
ALL = 2 * 2 * 2 + 2 * 2
KILLS = 4


def argv(folder: Path, out: str, *options: str) -> list[str]:
    words = [sys.executable, str(build.REPOSITORY / "neap"), "sweep", str(folder / "study.toml"), "--out", str(folder / out)]
    return [*words, *options]


def rows(folder: Path) -> list[dict]:
    found = parquet.read_table(folder / schema.RUNS).to_pylist()
    return [{name: value for name, value in row.items() if name not in ("started", "took_s")} for row in found]


def start(folder: Path, out: str, *options: str):
    plan = folder / out / PLAN
    before = plan.stat().st_mtime_ns if plan.exists() else 0
    with open(folder / "log", "ab") as log:
        child = process.spawn(argv(folder, out, *options), stdout=log, stderr=log)
    assert process.wait_until(lambda: plan.exists() and plan.stat().st_mtime_ns != before, 300), (folder / "log").read_text()
    return child


# One test, because the three sweeps have the table of the first one in common.
def test_kills_and_workers_do_not_change_the_table(tmp_path: Path):
    (tmp_path / "study.toml").write_text(STUDY)
    process.run_logged(argv(tmp_path, "one", "--jobs", "1"), tmp_path / "log", "sweep", timeout_seconds=600)
    one = rows(tmp_path / "one")
    check_figures(tmp_path / "one", one)

    chance = random.Random(2)
    for _ in range(KILLS):
        child = start(tmp_path, "killed")
        time.sleep(chance.uniform(0, 4))
        child.send_signal(signal.SIGKILL)
        child.wait()
    process.run_logged(argv(tmp_path, "killed"), tmp_path / "log", "sweep", timeout_seconds=600)
    assert rows(tmp_path / "killed") == one

    child = start(tmp_path, "workers", "--jobs", "2")
    assert process.wait_until(lambda: any((tmp_path / "workers" / RUNS).iterdir()), 120)
    workers = [pid for pid in children_of(child.pid) if b"tools.study.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    assert child.wait(600) == 0, (tmp_path / "log").read_text()[-2000:]
    assert rows(tmp_path / "workers") == one


def children_of(pid: int) -> list[int]:
    return [int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()]


def check_figures(folder: Path, found: list[dict]) -> None:
    assert len(found) == ALL and all(row["status"] == "ok" and row["modelled"] for row in found)
    loaded = [row for row in found if row["load"] == "etc"]
    for row in loaded:
        assert row["idle_w"] < row["power_w"] < row["polling_w"]
        assert row["p50_us"] <= row["p99_us"] <= row["max_us"] and row["frames_in"] >= row["requests"]
        assert (
            0.99
            < row["c0"] + sum(row[state] for state in ("c1", "c1e", "c3", "c6", "c7")) + row["wake_ups"] * 20e-6 / row["window_s"]
            < 1.05
        )
        assert (folder / row["log"] / "core0.log").is_file()
    means = {itr: sum(row["p99_us"] for row in loaded if row["itr_us"] == itr) for itr in (16, 200)}
    assert means[200] > 2 * means[16], "a longer interval between interrupts delays requests"


def test_a_load_that_is_too_much_is_kept_as_failed(tmp_path: Path):
    study = (
        STUDY.replace("rate = [12500, 37500]", "rate = 2000000")
        .replace("repeats = 2", "repeats = 1")
        .replace("itr_us = [16, 200]", "itr_us = 16")
    )
    (tmp_path / "study.toml").write_text(study[: study.index("[baselines]")].replace("log = true\n", ""))
    with open(tmp_path / "log", "wb") as log:
        child = process.spawn(argv(tmp_path, "out", "--jobs", "1"), stdout=log, stderr=log)
        assert child.wait(600) == 1
    (row,) = rows(tmp_path / "out")
    assert row["status"] == "failed" and "requests/s were answered of" in row["failure"] and row["p99_us"] > 0
    assert f"failed: {row['run']}" in (tmp_path / "log").read_text()
