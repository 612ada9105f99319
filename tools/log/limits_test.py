# SPDX-License-Identifier: BSL-1.0
"""Tests of the limits for the bytes, parts, positions and cores that a machine can cause in a collection."""

import json
from pathlib import Path

import pytest

from tools.errors import Failure
from tools.log import collect, decode, fetch, folder, layout, summary, synthetic
from tools.log.fake_machine import FakeMachine, split
from tools.log.layout import ENTRY_BYTES

FILES, _ = synthetic.make(synthetic.Shape(cores=2, records=30, changes=2))
BOOT = int(synthetic.BOOT_ID, 16)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "PAUSE_SECONDS", (0.001, 0.01))


def gather(machine: FakeMachine, out: Path, **options) -> None:
    collect.collect(machine.address, out, live=False, token=None, as_json=True, patience_seconds=0.2, **options)


def whole(out: Path) -> bool:
    return all((out / f"core{core}.log").read_bytes() == data for core, data in enumerate(FILES))


def inserted(kind: int, core: int, position: int, payload: bytes, count: int):
    """Returns a function that inserts a block after the first block of a stream. The numbers of the blocks remain consecutive."""

    def damage(_number: int, data: bytes) -> bytes:
        blocks = split(data)
        first = layout.build_block(kind, core, 1, position, payload, count, 1, BOOT)
        moved = [
            layout.build_block(block.type, block.core, block.number + 1, block.position, data[64:], block.count, block.run, block.boot_id)
            for block, data in zip([layout.parse_block(block[:64]) for block in blocks[1:]], blocks[1:])
        ]
        return b"".join([blocks[0], first, *moved])

    return damage


def test_a_machine_fills_no_more_than_the_limit_and_what_came_is_kept(tmp_path: Path) -> None:
    limit = 2 * layout.HEADER_BYTES + 40 * ENTRY_BYTES
    with FakeMachine(FILES) as machine, pytest.raises(Failure, match="come to more than") as refused:
        gather(machine, tmp_path / "out", limit_bytes=limit)
    assert "--limit" in (refused.value.hint or "")
    files = [path for path in (tmp_path / "out").iterdir() if path.suffix != ".json"]
    assert 30 * ENTRY_BYTES < sum(path.stat().st_size for path in files) <= limit
    with FakeMachine(FILES) as machine:
        gather(machine, tmp_path / "out")
    assert whole(tmp_path / "out"), "the same command went on"
    assert any("0=" in request for request in machine.requests)


def test_a_log_larger_than_the_limit_is_not_fetched(tmp_path: Path) -> None:
    with FakeMachine(FILES) as machine, pytest.raises(Failure, match="come to more than"):
        fetch.fetch(machine.address, tmp_path, token=None, as_json=True, limit_bytes=5000)
    assert not list(tmp_path.glob("core*"))
    limit = sum(map(len, FILES))
    for _ in range(2):  # the second fetch replaces the log of the first
        with FakeMachine(FILES) as machine:
            fetch.fetch(machine.address, tmp_path, token=None, as_json=True, limit_bytes=limit)
    assert whole(tmp_path)


def test_a_machine_opens_no_more_parts_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "PARTS_MAX", 20)
    with folder.Folder(tmp_path) as place, pytest.raises(Failure, match="core 0 has more than 20 gaps"):
        for position in range(0, 1000, 2):
            place.append(0, position, bytes(ENTRY_BYTES))
    assert len(list(tmp_path.glob("core0.from-*.part"))) == 20


@pytest.mark.parametrize("core", [2, 77, 255])
def test_entries_of_a_core_that_the_machine_lacks_are_refused(tmp_path: Path, core: int) -> None:
    damage = inserted(layout.BLOCK_ENTRIES, core, 0, bytes(ENTRY_BYTES), 1)
    with FakeMachine(FILES, damage=damage) as machine, pytest.raises(Failure, match=f"sent entries of core {core}, but has 2 cores"):
        gather(machine, tmp_path / "out")
    assert not (tmp_path / "out/run.json").exists()


@pytest.mark.parametrize("position", [1 << 56, 10**18, (1 << 64) - 1])
@pytest.mark.parametrize("kind", [layout.BLOCK_ENTRIES, layout.BLOCK_GAP])
def test_a_position_that_no_files_name_holds_is_refused(tmp_path: Path, kind: int, position: int) -> None:
    damage = inserted(kind, 0, position, bytes(ENTRY_BYTES) if kind == layout.BLOCK_ENTRIES else b"", 1)
    with FakeMachine(FILES, damage=damage) as machine, pytest.raises(Failure, match="which cannot be"):
        gather(machine, tmp_path / "out")
    assert all(folder.PART.fullmatch(path.name) or path.name == "collecting.json" for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize("kind", [0, 7, 255])
def test_a_block_of_unknown_type_is_refused(tmp_path: Path, kind: int) -> None:
    with FakeMachine(FILES, damage=inserted(kind, 0, 0, b"", 0)) as machine, pytest.raises(Failure, match=f"unknown type {kind}"):
        gather(machine, tmp_path / "out")


def test_a_machine_that_breaks_off_after_each_entry_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "BREAKS_MAX", 5)
    cut = 64 + 64 + ENTRY_BYTES
    with FakeMachine(FILES, block_entries=1, cuts=[cut] * 100) as machine, pytest.raises(Failure, match="ended the stream"):
        gather(machine, tmp_path / "out")
    assert 5 <= len(machine.requests) <= 7


def test_headers_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    others, _ = synthetic.make(synthetic.Shape(cores=3, records=30, changes=2))
    mixed = [FILES[0], others[1]]
    with FakeMachine(mixed) as machine, pytest.raises(Failure, match="contradict each other"):
        gather(machine, tmp_path / "a")
    with FakeMachine(mixed) as machine, pytest.raises(Failure, match="contradict each other"):
        fetch.fetch(machine.address, tmp_path / "b", token=None, as_json=True)


def test_settings_beyond_the_limit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "SETTINGS_MAX", 2)
    monkeypatch.setattr(decode, "SETTINGS_MAX", 2)
    with FakeMachine(FILES) as machine:
        gather(machine, tmp_path)
    run = json.loads((tmp_path / "run.json").read_text())
    assert len(run["settings"]) == 2 and run["settings_left_out"] == 4
    assert "core 0: 1 further changes of settings are not listed" in summary.summarise(decode.load([str(tmp_path)]))["remarks"]


def test_logs_that_do_not_fit_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic.write(tmp_path, synthetic.Shape(cores=1, records=10))
    monkeypatch.setattr(decode.os, "sysconf", lambda _name: 16)
    with pytest.raises(Failure, match="too large to decode"):
        decode.load([str(tmp_path)])


@pytest.mark.parametrize(
    "text", ['{"boot_id": 1, "run": 1}', '{"boot_id": "\x1b", "run": 1}', '{"boot_id": "0123456789abcdef", "run": 1e999}', "[" * 5000]
)
def test_what_a_folder_says_of_itself_is_checked(tmp_path: Path, text: str) -> None:
    (tmp_path / "collecting.json").write_text(text)
    with FakeMachine(FILES) as machine, pytest.raises(Failure, match="cannot be understood"):
        gather(machine, tmp_path)
