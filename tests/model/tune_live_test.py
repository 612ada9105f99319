# SPDX-License-Identifier: BSL-1.0
"""`./neap tune --live` on a Neap that serves memcached: words over control, load by `./neap load`, energy from the machine's log.

The CPU is a modelled one, because QEMU's own CPUs count no energy. Its idle time passes as the host's does. The host's other work adds to
latencies, so the limits here are far below or far above them, and no figure is compared.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet
from servers import NeapServer

from tools import build, process
from tools.errors import Failure
from tools.machine import LOOPBACK
from tools.model import cpu_model, plugin
from tools.study import tune

MODEL = "e5-2690"
ALWAYS_MET, NEVER_MET = "1e8", "1"
SAFE = {"itr_us": "10", "pstate": "0x1d00"}
LOAD = {"rate": 400.0, "connections": 2, "trial_seconds": 1.5, "warm_up": 0.1}
GRID = {"itr": "10,100", "frequency": "1.2,2.9"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NeapServer]:
    cpu = cpu_model.load(MODEL)
    qemu_options = plugin.options(cpu, tmp_path, hosts_pace=True)
    build.build_load()
    with NeapServer(cpu=cpu.qemu_cpu(), one_thread=True, qemu_options=qemu_options) as running:
        yield running


def live(server: NeapServer, **options) -> int:
    target = f"{LOOPBACK}:{server.address[1]}"
    return tune.tune([server.control_target], live=True, load_target=target, **{**GRID, **LOAD, **options})


def settings_of(server: NeapServer) -> dict[str, str]:
    """The settings that are in force, by control."""
    with server.control() as control:
        answer = control.ask("policy,0")
    return dict(re.findall(r"(itr_us|pstate)=([^ ;]+)", answer))


def test_a_search_measures_energy_and_leaves_the_best_setting(server: NeapServer, tmp_path: Path, capsys) -> None:
    out = tmp_path / "trials.parquet"
    assert live(server, sla=ALWAYS_MET, trials=4, out=str(out), as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    rows = parquet.read_table(out).to_pylist()
    assert len(rows) == len(found["trials"]) >= 3
    assert all(row["requests"] > 0 and row["power_w"] > 1 and row["p99_us"] > 0 and not row["modelled"] for row in rows)
    best = found["best"]["setting"]
    assert settings_of(server) == {"itr_us": f"{best['itr_us']:g}", "pstate": f"{round(10 * best['frequency_ghz']) << 8:#x}"}


def test_violations_end_trials_early_and_leave_the_safest_setting(server: NeapServer, capsys) -> None:
    assert live(server, sla=NEVER_MET, trials=4) == 1
    printed = capsys.readouterr().out
    assert printed.count("ended early") == 2 and "no trial met the SLA" in printed
    assert settings_of(server) == SAFE


def test_a_day_has_a_search_in_each_hour(server: NeapServer, tmp_path: Path, capsys) -> None:
    trace = tmp_path / "day.csv"
    trace.write_text("hour,rate\n3,300\n15,600\n")
    assert live(server, sla=ALWAYS_MET, trials=2, day=str(trace), as_json=True) == 0
    days = json.loads(capsys.readouterr().out)
    assert {one["mode"] for one in days} == {"both", "ITR alone", "DVFS alone"}
    assert all(hour["energy_j"] > 0 for one in days for hour in one["hours"]) and all(len(one["hours"]) == 2 for one in days)


def test_a_machine_that_is_gone_is_named_with_the_line_that_sets_it_back(server: NeapServer, monkeypatch) -> None:
    monkeypatch.setattr(tune.tune_live, "PATIENCE_SECONDS", 1.0)
    step = tune.tune_live.LoadStep.__call__

    def stop_then_step(self, seconds: float, warm_up: float):
        server.machine.stop()
        return step(self, seconds, warm_up)

    monkeypatch.setattr(tune.tune_live.LoadStep, "__call__", stop_then_step)
    with pytest.raises(Failure, match=r"cannot be reached .* last set to ITR 10 us, 2.9 GHz; when it is back: ./neap ctl .* 'itr,10us'"):
        live(server, sla=ALWAYS_MET, trials=4)


def test_ctrl_c_leaves_a_safe_setting(server: NeapServer, tmp_path: Path) -> None:
    argv = [sys.executable, str(build.REPOSITORY / "neap"), "tune", "--live", server.control_target, "--sla", ALWAYS_MET, "--itr", "100,10"]
    argv += ["--frequency", "1.2,2.9", "--load-target", f"{LOOPBACK}:{server.address[1]}", "--rate", "400", "--connections", "2"]
    argv += ["--trial-seconds", "30", "--warm-up", "0.1"]
    with open(tmp_path / "log", "wb") as log:
        child = process.spawn(argv, stdout=log, stderr=log)
    try:
        with server.control() as control:
            control.ask("itr,64us")
        assert process.wait_until(lambda: settings_of(server) == SAFE, 120), (tmp_path / "log").read_text()
        with server.control() as control:
            control.ask("itr,64us")
        child.send_signal(signal.SIGINT)
        child.wait(60)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the search goes on after Ctrl-C:\n{(tmp_path / 'log').read_text()}")
    finally:
        process.stop(child)
    assert settings_of(server) == SAFE
