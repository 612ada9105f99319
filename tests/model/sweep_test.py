# SPDX-License-Identifier: BSL-1.0
"""`./neap sweep` with real runs on the model machine: kills, two workers, a killed worker, Linux, NetPIPE, and runs that fail."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tools import process
from tools.bench import sweeps
from tools.bench.sweep_ssh import children, command_line

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
BURST = 16  # connections
# Both loads of a Linux are measured in one boot, in this order.
LINUX = """
title = "Linux"
warm_up_ms = 5
window_ms = 20
[[arms]]
name = "Linux dynamic"
system = "linux"
words = ["itr=adaptive", "governor=schedutil"]
[settings]
idle = "c6"
[[loads]]
name = "usr"
mix = "usr"
rate = 10000
[[loads]]
name = "etc"
mix = "etc"
rate = 5000
[checks]
rate_within = 0.1
"""
FAILING = """
title = "failing"
warm_up_ms = 5
window_ms = 20
[[arms]]
name = "Neap"
[[arms]]
name = "misspelt"
words = ["speed=high"]
[settings]
itr_us = 16
[[loads]]
name = "etc"
mix = "etc"
rate = 2000000
[[leave_out]]
arm = "misspelt"
load = "ping_pong.*"
[[ping_pong]]
sizes = [64, 128]
repeats = 10
"""


# One test, because the three sweeps have the table of the first one in common.
def test_kills_and_workers_do_not_change_the_table(tmp_path: Path):
    (tmp_path / "study.toml").write_text(STUDY)
    sweeps.run(tmp_path, "one", "--jobs", "1")
    one = sweeps.table(tmp_path, "one")
    check_figures(tmp_path / "one", one)

    chance = random.Random(2)
    for _ in range(KILLS):
        child = sweeps.start(tmp_path, "killed")
        time.sleep(chance.uniform(0, 4))
        child.send_signal(signal.SIGKILL)
        child.wait()
    sweeps.run(tmp_path, "killed")
    assert sweeps.table(tmp_path, "killed") == one

    child = sweeps.start(tmp_path, "workers", "--jobs", "2")
    assert process.wait_until(lambda: sweeps.whole_runs(tmp_path, "workers"), 120)
    workers = [pid for pid in children(child.pid) if b"tools.study.worker" in command_line(pid)]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    assert child.wait(600) == 0, sweeps.log(tmp_path, "workers").read_text()[-2000:]
    assert sweeps.table(tmp_path, "workers") == one


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


def test_linux_is_an_arm(tmp_path: Path):
    (tmp_path / "study.toml").write_text(LINUX)
    sweeps.run(tmp_path, "out", "--jobs", "1")
    usr, etc = sweeps.table(tmp_path, "out")
    for row, load, rate in ((usr, "usr", 10_000), (etc, "etc", 5_000)):
        assert (row["system"], row["load"], row["status"], row["idle"]) == ("linux", load, "ok", "c6")
        assert row["itr_us"] is None and row["frequency_ghz"] is None, "the driver and the governor choose them"
        assert abs(row["requests"] - rate * row["window_s"]) <= BURST, "a burst at one end of the window"
        assert row["instructions"] / row["requests"] > 10_000 and 1199.9 <= row["mhz"] <= 3800.1, "a mean, so it is rounded"


def test_netpipe_is_a_load_and_failed_runs_say_why(tmp_path: Path):
    (tmp_path / "study.toml").write_text(FAILING)
    with open(sweeps.log(tmp_path, "out"), "wb") as log:
        child = process.spawn(sweeps.argv(tmp_path, "out", "--jobs", "2"), stdout=log, stderr=log)
        assert child.wait(600) == 1
    found = {(row["arm"], row["load"]): row for row in sweeps.table(tmp_path, "out")}
    said = sweeps.log(tmp_path, "out").read_text()
    too_much, misspelt = found["Neap", "etc"], found["misspelt", "etc"]
    assert too_much["status"] == "failed" and "requests/s were answered of" in too_much["failure"] and too_much["p99_us"] > 0
    assert misspelt["failure"] == "the modelled machine ended early, in load 0 (etc): speed= is not known"
    assert all(f"failed: {row['run']}" in said for row in (too_much, misspelt))
    small, large = found["Neap", "ping_pong.64"], found["Neap", "ping_pong.128"]
    for row in (small, large):
        assert row["status"] == "ok" and row["rate_wanted"] is None and row["requests"] == 3 * 10
        assert row["energy_uj"] * row["rate_reached"] / 1e6 == pytest.approx(row["power_w"])
        # A round trip is two ways; the first one of a trial does not wait.
        assert row["rate_reached"] * 2 * row["p50_us"] / 1e6 == pytest.approx(1, rel=0.1)
    assert small["p50_us"] <= large["p50_us"] < 100
