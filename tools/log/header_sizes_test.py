# SPDX-License-Identifier: BSL-1.0
"""Headers of all sizes that the format allows are collected and fetched byte for byte. Parts of an older collector are continued."""

import json
from pathlib import Path

import pytest

from tools.errors import Failure
from tools.log import collect, decode, fetch, folder, layout, synthetic
from tools.log.fake_machine import FakeMachine, split

ENTRY = layout.ENTRY_BYTES
SHAPE = synthetic.Shape(cores=2, records=30, changes=2)


def files_of(size: int, first: int = 0) -> list[bytes]:
    """Returns a run's files with headers of `size` bytes, without their first `first` entries."""
    made = []
    for data in synthetic.make(SHAPE)[0]:
        header = layout.parse_header(data, "a test")
        count = header.entries - first
        head = layout.build_header(header.core, count, first, 0, header.tsc_hz, json.loads(header.text), size)
        made.append(head + data[header.size + first * ENTRY :])
    return made


def gather(machine: FakeMachine, out: Path, *, live: bool = False, **options) -> None:
    assert collect.collect(machine.address, out, live=live, token=None, as_json=True, patience_seconds=0.05, **options) == 0


def require_whole(out: Path, files: list[bytes]) -> None:
    assert sorted(path.name for path in out.iterdir()) == ["core0.log", "core1.log", "run.json"]
    assert all((out / f"core{core}.log").read_bytes() == data for core, data in enumerate(files))


@pytest.mark.parametrize("size", [4096, 8192, 16384, 65536])
@pytest.mark.parametrize("live", [False, True])
def test_every_size_is_collected_and_fetched_byte_for_byte(tmp_path: Path, size: int, live: bool) -> None:
    files = files_of(size)
    with FakeMachine(files) as machine:
        gather(machine, tmp_path / "a", live=live)
        assert fetch.fetch(machine.address, tmp_path / "b", token=None, as_json=True) == 0
    require_whole(tmp_path / "a", files)
    require_whole(tmp_path / "b", files)
    run = decode.load([str(tmp_path / "a")])
    assert run.cores[0].header.size == size and len(run.cores[0].records) == SHAPE.records + 2


@pytest.mark.parametrize("size", [4096, 65536])
def test_gaps_and_overwritten_entries_keep_their_files(tmp_path: Path, size: int) -> None:
    files = files_of(size)
    with FakeMachine(files, gaps={1: (13, 9)}) as machine:
        gather(machine, tmp_path / "gap", live=True)
    before, after = (tmp_path / "gap" / name for name in ("core1.from-0.log", "core1.log"))
    assert before.read_bytes()[size:] == files[1][size:][: 13 * ENTRY] and after.read_bytes()[size:] == files[1][size:][22 * ENTRY :]
    late = files_of(size, 20)
    early = {core: data[size:][: 20 * ENTRY] for core, data in enumerate(files)}
    with FakeMachine(late, early=early) as machine:
        gather(machine, tmp_path / "early", live=True)
    for core, data in enumerate(late):
        assert (tmp_path / f"early/core{core}.log").read_bytes() == data
        assert (tmp_path / f"early/core{core}.from-0.log").read_bytes()[size:] == early[core]
    assert not list((tmp_path / "early").glob("*.part*")) and not list((tmp_path / "early").glob("*.new"))


@pytest.mark.parametrize("size", [4096, 16384])
def test_parts_of_an_older_collector_are_continued(tmp_path: Path, size: int) -> None:
    # An older collector left 4096 bytes in front of the entries, and did not name that number.
    files = files_of(size)
    (tmp_path / "core0.from-0.part").write_bytes(bytes(4096) + files[0][size:][: 10 * ENTRY])
    (tmp_path / "collecting.json").write_text(json.dumps({"boot_id": synthetic.BOOT_ID, "run": 1}))
    with FakeMachine(files) as machine:
        gather(machine, tmp_path)
    assert "0=10" in machine.requests[0]
    require_whole(tmp_path, files)


@pytest.mark.parametrize("name", ["core0.log", "core0.from-0.log"])
def test_a_part_whose_copy_was_finished_is_removed(tmp_path: Path, name: str) -> None:
    """A killed process may leave a part beside the log file to which the part's entries were copied."""
    files = files_of(4096)
    (tmp_path / name).write_bytes(files[0])
    part = tmp_path / "core0.from-0.room-16384.part"
    part.write_bytes(bytes(16384) + files[0][4096:])
    with folder.Folder(tmp_path) as place:
        assert 0 not in place.parts and not part.exists()
    part.write_bytes(bytes(16384) + files[0][4096:-ENTRY])
    with folder.Folder(tmp_path) as place:
        assert part.exists(), "other entries than those of the file are kept"


@pytest.mark.parametrize("room", ["4095", "0000", "69632", "99999"])
def test_a_part_with_an_impossible_room_is_left_alone(tmp_path: Path, room: str) -> None:
    (tmp_path / f"core0.from-0.room-{room}.part").write_bytes(bytes(70000))
    with folder.Folder(tmp_path) as place:
        assert place.parts == {}


def test_a_copy_that_exceeds_the_limit_leaves_the_part(tmp_path: Path) -> None:
    files = files_of(65536)
    entries = sum(len(data) - 65536 for data in files)
    with FakeMachine(files) as machine, pytest.raises(Failure, match="come to more than"):
        gather(machine, tmp_path, limit_bytes=2 * 16384 + entries + 1000)
    assert all(folder.PART.fullmatch(path.name) or path.name == "collecting.json" for path in tmp_path.iterdir())
    with FakeMachine(files) as machine:
        gather(machine, tmp_path)
    require_whole(tmp_path, files)


@pytest.mark.parametrize("size", [0, 4095, 6144, 69632])
def test_a_header_block_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    files = files_of(16384)

    def damage(_number: int, data: bytes) -> bytes:
        blocks = split(data)
        at = next(number for number, block in enumerate(blocks) if layout.parse_block(block[:64]).type == layout.BLOCK_HEADER)
        block = layout.parse_block(blocks[at][:64])
        raw = (blocks[at][64:] + bytes(size))[:size]
        blocks[at] = layout.build_block(block.type, block.core, block.number, 0, raw, 0, block.run, block.boot_id)
        return b"".join(blocks)

    with FakeMachine(files, damage=damage) as machine, pytest.raises(Failure, match="a size that cannot be"):
        gather(machine, tmp_path)


def test_a_header_block_whose_size_is_not_the_headers_is_refused(tmp_path: Path) -> None:
    files = files_of(8192)

    def damage(_number: int, data: bytes) -> bytes:
        blocks = split(data)
        at = next(number for number, block in enumerate(blocks) if layout.parse_block(block[:64]).type == layout.BLOCK_HEADER)
        block = layout.parse_block(blocks[at][:64])
        blocks[at] = layout.build_block(block.type, block.core, block.number, 0, blocks[at][64:] + bytes(4096), 0, block.run, block.boot_id)
        return b"".join(blocks)

    with FakeMachine(files, damage=damage) as machine, pytest.raises(Failure, match="the header of something else"):
        gather(machine, tmp_path)


def test_a_machine_that_ends_within_a_long_header_is_lost(tmp_path: Path) -> None:
    files = [data[:9000] for data in files_of(16384)]
    with FakeMachine(files) as machine, pytest.raises(Failure, match="after 9000 bytes of core 0's header"):
        fetch.fetch(machine.address, tmp_path, token=None, as_json=True)


def test_a_text_that_fills_the_longest_header_is_written_anew_byte_for_byte() -> None:
    for size in (4096, 65536):
        fields = synthetic.about(SHAPE, 0)
        fields["filler"] = ""
        fields["filler"] = "x" * (layout.json_bytes_max(size) - len(json.dumps(fields, separators=(",", ":"))))
        raw = layout.build_header(0, 8, 0, 0, 10**9, fields, size)
        header = layout.parse_header(raw, "a file")
        assert len(header.text) == layout.json_bytes_max(size)
        assert layout.rebuild_header(header, 8, 0) == raw and len(raw) == size
