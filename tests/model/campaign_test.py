# SPDX-License-Identifier: BSL-1.0
"""Runs with faults in virtual time (`./neap soak model`), and the repetition of a recorded run (`./neap replay`).

`./neap soak model --seeds 1000` runs more seeds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.modelled import image
from tools import build, cli, load, outside, run
from tools.errors import Failure
from tools.machine import REPOSITORY
from tools.model import campaign, experiment, record
from tools.model.campaign import Machine, Outcome, run_plan
from tools.model.campaign_plan import plan
from tools.model.experiment import Experiment, Programs

MEMCACHED = image("apps/memcached", "memcached")
SEEDS = (1, 2)
BROKEN_SEED = 2
# After the end of this plan's faults.
ENDLESS = "at window+100ms drop tx all"
LAUNCHER_SECONDS = 300
# In the middle of the load: what each core did so far, its timers' time, its registers; then 20 instructions, and the registers again.
GDB_WORDS = """
break neap::ixgbe::QueuePair::interrupt
ignore 2 40
continue
neap cores
neap timers
info registers
stepi 20
info registers
delete
continue
quit
"""
# The second run of the log begins in the middle: it lacks the first requests.
RESTARTED_LOG = ("at window+5ms control stop", "at window+5ms control start")


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine(MEMCACHED, Programs.built())


def test_no_seed_has_a_finding(machine: Machine) -> None:
    outcomes: list[Outcome] = []
    assert campaign.campaign([plan(seed) for seed in SEEDS], machine, 1, outcomes.append) == []
    assert len({outcome.digest for outcome in outcomes}) == len(SEEDS)
    assert all(outcome.requests > 500 for outcome in outcomes)


def test_a_broken_invariant_is_found_and_repeats_from_its_seed(machine: Machine) -> None:
    """After the faults the guest has to answer. A fault that does not end with the others breaks that."""
    found, again = (run_plan(plan(BROKEN_SEED, added=[ENDLESS]), machine) for _ in range(2))
    assert any("after the faults, the guest did not accept all connections again" in finding for finding in found.findings), found.text()
    assert again == found and found.digest != "none"
    assert f"again: ./neap soak model --first-seed {BROKEN_SEED} --seeds 1 --fault '{ENDLESS}'" in found.text()


def test_the_command_of_a_finding_repeats_it(machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Here the run comes to its end, and a check finds that the log and the counters differ."""
    found = run_plan(plan(BROKEN_SEED, added=RESTARTED_LOG), machine)
    assert any("rx_frames, the counters" in finding for finding in found.findings), found.text()
    monkeypatch.setattr(build, "build_world", lambda: None)
    monkeypatch.setattr(build, "build", lambda *_: None)
    monkeypatch.setattr(build, "image", lambda *_: MEMCACHED)
    program, *words = shlex.split(found.again())
    assert (program, cli.main(words)) == ("./neap", 1)
    assert found.text() in capsys.readouterr().out


def test_a_guest_without_an_end_is_a_finding(machine: Machine) -> None:
    drawn = plan(BROKEN_SEED)
    limited = dataclasses.replace(drawn, experiment=dataclasses.replace(drawn.experiment, instructions_max=20_000_000))
    found, again = (run_plan(limited, machine) for _ in range(2))
    assert found.findings[0] == "neap-machine: the guest has executed more than 20000000 instructions", found.text()
    assert again == found and found.digest != "none"


def test_a_fault_that_is_misspelled_ends_the_campaign(machine: Machine) -> None:
    with pytest.raises(Failure, match="did not start") as refused:
        run_plan(plan(1, added=["explode"]), machine)
    assert any("fault explode: known are" in line for line in refused.value.details)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("record")
    wanted = Experiment(
        "e5-2690", rate=20_000, window_ms=5, warm_up_ms=2, cores=2, seed=3, faults=["at window+1ms drop both next 3"], stall=(300, 100)
    )
    assert experiment.show(wanted, "memcached", MEMCACHED, folder, as_record=True) == 0
    return folder


def test_a_replay_gives_equal_files(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record.replay(str(recorded)) == 0
    files = json.loads((recorded / record.RECORD).read_text())["files"]
    assert sorted(files) == ["log/core0.log", "log/core1.log", "snapshots.jsonl", "world.json"]
    assert "replayed: all 4 files are equal, modelled (e5-2690, seed 3)" in capsys.readouterr().out


def seen_by_gdb(recorded: Path) -> list[str]:
    """Replays the run with a breakpoint. Returns the lines of gdb that do not depend on the host."""
    argv = [str(REPOSITORY / "neap"), "replay", str(recorded), "--gdb"]
    done = subprocess.run(argv, input=GDB_WORDS, capture_output=True, text=True, timeout=LAUNCHER_SECONDS, check=False)
    assert done.returncode == 0 and "replayed: all 4 files are equal" in done.stdout, done.stdout + done.stderr
    lines = [line.replace("(gdb) ", "") for line in done.stdout.splitlines()]
    return [line for line in lines if re.match(r"r[a-z0-9]+ +0x|core \d", line)]


def test_a_breakpoint_is_hit_at_equal_times_and_the_files_stay_equal(recorded: Path) -> None:
    first, again = (seen_by_gdb(recorded) for _ in range(2))
    assert first == again
    instruction = [line for line in first if line.startswith("rip ")]
    assert len(instruction) == 2 and instruction[0] != instruction[1]
    assert "neap::ixgbe::QueuePair" in instruction[0] and "::interrupt()>" in instruction[0], "the first instruction of the function"
    assert sum(line.startswith("core ") for line in first) == 4, first


def test_a_recorded_command_repeats_with_its_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`./neap run memcached --model e5-2690 --load etc --fault ... --record DIR`, with an image that is built already."""

    @contextlib.contextmanager
    def built(*_: object) -> Iterator[outside.Application]:
        yield outside.Application("memcached", MEMCACHED)

    monkeypatch.setattr(run, "_built", built)
    folder, faults = tmp_path / "run1", ["at window+500us drop both next 3"]
    offer = load.Offer("etc", rate=20_000, seconds=0.002)
    assert run.run(run.Options("memcached", model="e5-2690", load=offer, faults=faults, record=str(folder))) == 0
    assert json.loads((folder / "world.json").read_text())["losses"]["fault"] == 6
    assert json.loads((folder / record.RECORD).read_text())["experiment"]["faults"] == faults
    assert record.replay(str(folder)) == 0
    assert "replayed: all 3 files are equal" in capsys.readouterr().out


def changed(recorded: Path, folder: Path, change: dict[str, object]) -> str:
    """A copy of the record with other members."""
    document = json.loads((recorded / record.RECORD).read_text())
    for name, value in change.items():
        document[name] = {**document[name], **value} if isinstance(value, dict) else value
    (folder / record.RECORD).write_text(json.dumps(document))
    return str(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"programs": {"image": "0"}}, "image is not the recorded one"),
        ({"programs": {"QEMU": "9.0"}}, "QEMU is not the recorded one: it was 9.0, and is 11"),
        ({"image": "/gone/memcached.elf"}, "/gone/memcached.elf is gone"),
    ],
)
def test_a_replay_with_other_programs_is_refused(recorded: Path, tmp_path: Path, change: dict[str, object], said: str) -> None:
    with pytest.raises(Failure, match=said):
        record.replay(changed(recorded, tmp_path, change))
