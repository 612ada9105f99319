# SPDX-License-Identifier: BSL-1.0
"""The record of a run on the model machine: it reads back as it was written, and a damaged one is refused with one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.errors import Failure
from tools.model import record
from tools.model.experiment import Experiment
from tools.model.record import RECORD, Record

EXPERIMENT = Experiment(
    "e5-2690", rate=20_000, cores=2, keys=50, arguments=["itr=8us"], faults=["at 5ms ecc"], world_options=["--strict"], stall=(500, 100)
)


def document(**changes: Any) -> dict[str, Any]:
    whole = {
        "version": record.VERSION,
        "application": "memcached",
        "image": "/images/memcached.elf",
        "experiment": EXPERIMENT.about(),
        "programs": {"image": "1234", "QEMU": "11.1.3"},
        "files": {"world.json": "aa", "log/core0.log": "bb"},
    }
    return {**whole, **changes}


def written(directory: Path, content: object) -> Path:
    (directory / RECORD).write_text(content if isinstance(content, str) else json.dumps(content))
    return directory


def test_a_record_reads_back(tmp_path: Path) -> None:
    for wanted in (EXPERIMENT, Experiment("xeon-6430", trace=True)):
        found = record.read(written(tmp_path, document(experiment=wanted.about())))
        assert (found.application, found.image, found.files) == ("memcached", Path("/images/memcached.elf"), document()["files"])
        assert found.experiment.about() == json.loads(json.dumps(wanted.about())) | {"stall": wanted.stall}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "1" * (record.RECORD_BYTES_MAX + 1),
        document(version=0),
        document(application=1),
        document(image=None),
        document(files={}),
        document(files={"world.json": 5}),
        document(programs=[]),
        document(experiment={}),
        *(
            document(experiment=EXPERIMENT.about() | change)
            for change in (
                {"rate": "many"},
                {"rate": -1},
                {"cores": True},
                {"cores": 99},
                {"arguments": "itr=8us"},
                {"faults": [1]},
                {"keys": "50"},
                {"trace": 1},
                {"stall": [1]},
                {"stall": ["1", 2]},
                {"model": "unknown"},
                {"further": 1},
            )
        ),
    ],
)
def test_a_damaged_record_is_refused(tmp_path: Path, content: object) -> None:
    with pytest.raises(Failure):
        record.read(written(tmp_path, content))


def test_a_folder_without_a_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="holds no record"):
        record.read(tmp_path)


def test_the_files_that_differ_are_named() -> None:
    one = Record("memcached", Path("image"), EXPERIMENT, {}, {"world.json": "1", "log/core0.log": "2", "gone": "3"})
    record.require_equal(one, dict(one.files))
    with pytest.raises(Failure, match="differs from the record in gone, log/core0.log, new "):
        record.require_equal(one, {"world.json": "1", "log/core0.log": "5", "new": "6"})


def test_a_record_needs_a_new_or_empty_folder(tmp_path: Path) -> None:
    record.require_new(tmp_path)
    record.require_new(tmp_path / "new")
    (tmp_path / "file").touch()
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(Failure, match="not an empty folder"):
            record.require_new(taken)
