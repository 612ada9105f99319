# SPDX-License-Identifier: BSL-1.0
"""A sweep that is killed at any moment goes on without a lost, doubled or half run, and the number of workers does not change the table.
The runs are invented (invented_worker.py); tests/model/sweep_test.py has real ones."""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyarrow import parquet

from tools.errors import Failure, UsageError
from tools.process import wait_until
from tools.study import command, modelled, schema
from tools.study.folder import RUNS

KILLS = 50
# A kill after the sweep's end does not count.
MOMENTS_MAX = 3 * KILLS
STUDY = """
title = "invented"
order = "random"
repeats = 2
window_ms = 100
[[arms]]
name = "Neap"
[settings]
itr_us = [2, 50, 100, 200, 300]
frequency_ghz = [1.2, 2.9]
[[loads]]
name = "etc"
mix = "etc"
arrivals = "poisson"
rate = [12500, 37500]
"""
RUNS_OF_STUDY = 5 * 2 * 2 * 2
WORKER = Path(__file__).with_name("invented_worker.py")


def write_files(folder: Path, jobs: int = 1, seconds: float = 0.0, failing: str = "", study: str = STUDY) -> None:
    (folder / "study.toml").write_text(study)
    words = [sys.executable, str(WORKER), str(folder / "journal"), str(seconds), failing]
    (folder / "rigs.toml").write_text(f"[[rigs]]\nname = 'here'\njobs = {jobs}\ncommand = {json.dumps(words)}\n")


def sweep(folder: Path, out: str = "out", **options) -> int:
    given = {"jobs": None, "machines": "machines.toml", "retry_failed": False, "plan_only": False, "worker": False}
    return command.sweep(str(folder / "study.toml"), str(folder / out), rigs_file=str(folder / "rigs.toml"), **{**given, **options})


def table(folder: Path, out: str = "out") -> list[dict]:
    return parquet.read_table(folder / out / schema.RUNS).to_pylist()


def journal(folder: Path) -> list[list]:
    return [json.loads(line) for line in (folder / "journal").read_text().splitlines()]


def test_kill_at_50_random_moments(tmp_path: Path, python):
    """After each kill the next call goes on. No run that is whole is measured again, and none is lost or half."""
    write_files(tmp_path, jobs=2, seconds=0.05)
    program = "import sys; from tools import cli; sys.exit(cli.main(sys.argv[1:]))"
    words = ("sweep", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out"), "--rigs", str(tmp_path / "rigs.toml"))
    chance, plan = random.Random(1), tmp_path / "out" / "plan.json"
    whole: set[str] = set()
    hit = 0
    for _ in range(MOMENTS_MAX):
        if hit == KILLS:
            break
        # Once all runs are there, some are removed, so that further kills hit runs, too.
        if len(whole) == RUNS_OF_STUDY:
            for name in chance.sample(sorted(whole), RUNS_OF_STUDY - 10):
                (tmp_path / "out" / RUNS / name / "run.json").unlink()
                (tmp_path / "out" / RUNS / name).rmdir()
                whole.remove(name)
        written = plan.stat().st_mtime_ns if plan.exists() else 0
        child = python(program, *words)
        # A sweep writes its plan before the first run.
        assert wait_until(lambda written=written: plan.exists() and plan.stat().st_mtime_ns != written, 60)
        time.sleep(chance.uniform(0, 0.5))
        hit += child.poll() is None
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        there = {path.name for path in (tmp_path / "out" / RUNS).iterdir() if not path.name.startswith(".")}
        assert whole <= there, "a run that was whole is gone"
        whole = there
        for name in there:
            assert json.loads((tmp_path / "out" / RUNS / name / "run.json").read_text())["run"] == name, "a half run"
    assert hit == KILLS, "most kills came after the end of the sweep"
    assert not living_workers(tmp_path), "a worker outlived its sweep"
    before, whole_before = len(journal(tmp_path)), len(whole)
    assert sweep(tmp_path) == 0
    assert len(journal(tmp_path)) - before == RUNS_OF_STUDY - whole_before, "a whole run was measured again"
    rows = table(tmp_path)
    assert len(rows) == len({row["run"] for row in rows}) == RUNS_OF_STUDY
    settings = Counter((row["itr_us"], row["frequency_ghz"], row["rate_wanted"], row["repeat"]) for row in rows)
    assert len(settings) == RUNS_OF_STUDY and all(row["status"] == "ok" and row["p99_us"] for row in rows)
    assert not [path for path in (tmp_path / "out" / RUNS).iterdir() if path.name.startswith(".")]


def living_workers(folder: Path) -> list[int]:
    """Returns the workers of this test that still run. A worker ends at the death of its sweep, which takes the kernel a moment."""

    def living() -> list[int]:
        found = []
        for pid in {line[0] for line in journal(folder)}:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            found += [pid] if str(folder).encode() in words else []
        return found

    wait_until(lambda: not living(), 10)
    return living()


def test_two_workers_give_the_table_of_one(tmp_path: Path):
    write_files(tmp_path, jobs=1)
    assert sweep(tmp_path, "one") == 0
    write_files(tmp_path, jobs=2, seconds=0.01)
    assert sweep(tmp_path, "two") == 0
    assert len({line[0] for line in journal(tmp_path)}) == 3, "both workers ran units"
    assert without_times(table(tmp_path, "one")) == without_times(table(tmp_path, "two"))
    one, two = (parquet.read_table(tmp_path / out / schema.HISTOGRAMS) for out in ("one", "two"))
    assert one.equals(two) and one.num_rows == 2 * RUNS_OF_STUDY


def without_times(rows: list[dict]) -> list[dict]:
    return [{name: value for name, value in row.items() if name not in ("started", "took_s")} for row in rows]


def test_a_killed_worker_s_runs_are_done_by_the_others(tmp_path: Path, python):
    write_files(tmp_path, jobs=1)
    assert sweep(tmp_path, "one") == 0
    (tmp_path / "journal").unlink()
    write_files(tmp_path, jobs=2, seconds=0.1)
    program = "import sys; from tools import cli; sys.exit(cli.main(sys.argv[1:]))"
    words = ("sweep", str(tmp_path / "study.toml"), "--out", str(tmp_path / "two"), "--rigs", str(tmp_path / "rigs.toml"))
    child = python(program, *words)
    assert wait_until(lambda: (tmp_path / "journal").exists() and len(journal(tmp_path)) > 5, 60)
    killed = journal(tmp_path)[-1][0]
    os.kill(killed, signal.SIGKILL)
    said, _ = child.communicate(timeout=120)
    assert child.returncode == 0, said
    lines = journal(tmp_path)
    pids = [line[0] for line in lines]
    assert len(set(pids)) == 3, "the killed worker was started again"
    assert without_times(table(tmp_path, "two")) == without_times(table(tmp_path, "one"))
    assert len(lines) == RUNS_OF_STUDY + 1, "only the killed worker's run began twice"


def test_a_failed_run_is_kept_and_named_and_run_again_on_request(tmp_path: Path, capfd):
    write_files(tmp_path, failing="itr=200us")
    assert sweep(tmp_path) == 1
    said = capfd.readouterr()
    assert "32 runs in" in said.out and "8 failed" in said.out
    assert "failed: Neap, itr_us=200" in said.err and "the machine ended early" in said.err
    failed = [row for row in table(tmp_path) if row["status"] == "failed"]
    assert {row["itr_us"] for row in failed} == {200.0} and {row["failure"] for row in failed} == {"the machine ended early"}
    assert all(row["p99_us"] is None for row in failed)

    write_files(tmp_path)
    before = len(journal(tmp_path))
    assert sweep(tmp_path) == 1, "without the option nothing is run again"
    assert len(journal(tmp_path)) == before
    assert sweep(tmp_path, retry_failed=True) == 0
    assert len(journal(tmp_path)) == before + 8
    assert all(row["status"] == "ok" for row in table(tmp_path))


def test_a_run_that_ends_its_workers_is_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tools.study.engine.RESTART_SECONDS", 0.0)
    text = STUDY.replace("itr_us = [2, 50, 100, 200, 300]", "itr_us = [2, 50]").replace("rate = [12500, 37500]", "rate = 12500")
    write_files(tmp_path, jobs=2, failing="die=itr=50us", study=text.replace("repeats = 2", "repeats = 1"))
    monkeypatch.setattr("tools.study.engine.WORKER_ENDS_MAX", 10)
    assert sweep(tmp_path) == 1
    rows = table(tmp_path)
    assert {row["failure"] for row in rows if row["itr_us"] == 50} == {"3 workers ended during it"}
    assert all(row["status"] == "ok" for row in rows if row["itr_us"] == 2)


def test_workers_that_cannot_start_are_named(tmp_path: Path):
    write_files(tmp_path)
    (tmp_path / "rigs.toml").write_text('[[rigs]]\nname = "left"\ncommand = ["false"]\n')
    with pytest.raises(Failure, match="the worker of left ended before its first run"):
        sweep(tmp_path)


def test_a_study_that_grew_keeps_its_runs(tmp_path: Path):
    write_files(tmp_path)
    sweep(tmp_path)
    write_files(tmp_path, study=STUDY.replace("repeats = 2", "repeats = 3"))
    before = len(journal(tmp_path))
    assert sweep(tmp_path) == 0
    assert len(journal(tmp_path)) - before == RUNS_OF_STUDY // 2
    assert len(table(tmp_path)) == RUNS_OF_STUDY * 3 // 2


def test_runs_of_other_programs_are_not_mixed(tmp_path: Path):
    write_files(tmp_path)
    sweep(tmp_path)
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    plan["programs"]["neap image"] = "2"
    (tmp_path / "out" / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(UsageError, match="has runs of other versions of: neap image"):
        sweep(tmp_path)


def test_a_build_during_a_sweep_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tools.study.engine.RESTART_SECONDS", 0.0)
    write_files(tmp_path, failing="rebuilt")
    with pytest.raises(Failure, match=f"no worker is left for {RUNS_OF_STUDY} units .*here has other versions of: neap image"):
        sweep(tmp_path)
    assert not table(tmp_path), "a run of the other image was kept"
    image = tmp_path / "image"
    image.write_bytes(b"1")
    monkeypatch.setattr(modelled, "_prepared", {image: modelled._signature(image)})
    assert modelled.rebuilt() is None
    image.write_bytes(b"22")
    assert modelled.rebuilt() == image


def test_baselines_stand_beside_the_runs_with_their_settings(tmp_path: Path):
    write_files(tmp_path, study=STUDY + "[baselines]\nidle = true\npolling = true\n")
    assert sweep(tmp_path) == 0
    rows = table(tmp_path)
    baselines = {(row["load"], row["frequency_ghz"], row["repeat"]): row["power_w"] for row in rows if row["load"] in schema.BASELINES}
    assert len(baselines) == 8 and len(rows) == RUNS_OF_STUDY + 8
    for row in rows:
        assert row["idle_w"] == baselines[schema.IDLE_BASELINE, row["frequency_ghz"], row["repeat"]]
        assert row["polling_w"] == baselines[schema.POLLING_BASELINE, row["frequency_ghz"], row["repeat"]]
    assert {row["idle"] for row in rows if row["load"] == schema.POLLING_BASELINE} == {"poll"}


def test_other_files_are_left_alone(tmp_path: Path):
    write_files(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match="has other files"):
        sweep(tmp_path)
    assert not (tmp_path / "journal").exists()


def test_a_machine_that_is_down_matters_only_if_runs_of_it_are_missing(tmp_path: Path):
    (tmp_path / "machines.toml").write_text('[machines.rack1]\nserial = "1"\n')
    study = STUDY.replace('name = "Neap"', 'name = "rack"\nmachine = "rack1"\naddress = "10.0.0.5"').replace("repeats = 2", "repeats = 1")
    options = {"machines": str(tmp_path / "machines.toml")}
    write_files(tmp_path, jobs=2, failing="down", study=study)
    with pytest.raises(Failure, match="rack1 does not answer"):
        sweep(tmp_path, **options)
    assert not (tmp_path / "journal").exists(), "a run began"
    write_files(tmp_path, jobs=2, study=study)
    assert sweep(tmp_path, **options) == 0
    write_files(tmp_path, jobs=2, failing="down", study=study)
    assert sweep(tmp_path, **options) == 0, "all runs were there"
    assert len(table(tmp_path)) == len(journal(tmp_path)) == RUNS_OF_STUDY // 2
