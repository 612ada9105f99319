# SPDX-License-Identifier: BSL-1.0
"""Runs with faults in virtual time (`./neap soak model`), and the repetition of a recorded run (`./neap replay`).

`./neap soak model --seeds 1000` runs more seeds.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.model.modelled import image
from tools.errors import Failure
from tools.model import campaign, experiment, record
from tools.model.campaign import Machine, Outcome, run_plan
from tools.model.campaign_plan import plan
from tools.model.experiment import Experiment, Programs

MEMCACHED = image("apps/memcached", "memcached")
SEEDS = (1, 2)
# A plan without polling: a guest that polls while it cannot be reached executes instructions for two minutes of virtual time.
BROKEN_SEED = 2
# After the end of this plan's faults.
ENDLESS = "at window+100ms drop tx all"


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
