# SPDX-License-Identifier: BSL-1.0
"""A collection has each entry once, also after broken connections. Missing entries are reported."""

import json
import os
from pathlib import Path

import pytest

from tools.conftest import on_small_disk
from tools.errors import Failure
from tools.log import collect, decode, fetch, layout, synthetic
from tools.log.fake_machine import FakeMachine, split
from tools.process import wait_until

ENTRY = layout.ENTRY_BYTES
FILES, _ = synthetic.make(synthetic.Shape(cores=2, records=30, changes=2))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "PAUSE_SECONDS", (0.001, 0.01))


def gather(machine: FakeMachine, out: Path, *, live: bool = False, token: str | None = None, patience_seconds: float = 10.0) -> dict:
    assert collect.collect(machine.address, out, live=live, token=token, as_json=False, patience_seconds=patience_seconds) == 0
    return json.loads((out / "run.json").read_text())


def whole(out: Path) -> bool:
    """True if the logs equal FILES byte for byte. Asserts that the folder holds only the logs and run.json."""
    assert sorted(path.name for path in out.iterdir()) == ["core0.log", "core1.log", "run.json"]
    return all((out / f"core{core}.log").read_bytes() == data for core, data in enumerate(FILES))


def rebuilt(data: bytes, first: int) -> bytes:
    """Returns the log file `data` without its first `first` entries, like a log whose first entries were overwritten."""
    header = layout.parse_header(data[: layout.HEADER_BYTES], "a test")
    return layout.rebuild_header(header, header.entries - first, first) + data[layout.HEADER_BYTES + first * ENTRY :]


@pytest.mark.parametrize("live", [False, True])
def test_what_is_collected_is_what_get_gives(tmp_path: Path, live: bool, capsys) -> None:
    with FakeMachine(FILES) as machine:
        run = gather(machine, tmp_path / "a", live=live)
        assert fetch.fetch(machine.address, tmp_path / "b", token=None, as_json=False) == 0
    assert whole(tmp_path / "a") and whole(tmp_path / "b")
    assert machine.requests[0] == f"stream,{'live' if live else 'after'}"
    assert run["gaps"] == [] and run["breaks"] == 0 and run["boot_id"] == synthetic.BOOT_ID
    assert [(row["changed"], row["itr_us"]) for row in run["settings"] if row["core"] == 0] == [("start", 8), ("itr", 16), ("itr", 24)]
    assert run["settings"][0]["wall_clock_ns"] == 1_700_000_000_000_000_000 + 2_500_000_000
    assert "lost 0" in capsys.readouterr().out


def test_a_break_at_any_place_leaves_no_hole_and_no_double(tmp_path: Path) -> None:
    sizes = [len(block) for block in split(FakeMachine(FILES).stream({}))]
    edges = [sum(sizes[:count]) for count in range(len(sizes))]
    places = sorted({place for edge, size in zip(edges, sizes) for place in (edge, edge + 1, edge + 64, edge + size // 2)} - {sum(sizes)})
    assert len(places) > 50
    for place in places:
        with FakeMachine(FILES, cuts=[place]) as machine:
            run = gather(machine, tmp_path / str(place))
        assert whole(tmp_path / str(place)), place
        assert run["gaps"] == [] and run["breaks"] == 1


def test_breaks_one_after_the_other_still_get_on(tmp_path: Path) -> None:
    with FakeMachine(FILES, cuts=[64 + 64 + 8 * ENTRY + 10] * 11) as machine:
        run = gather(machine, tmp_path / "out")
    assert whole(tmp_path / "out") and run["breaks"] >= 8
    assert len(set(machine.requests)) > 6, "each connection asks for what comes next"


def test_resets_that_take_along_what_was_on_its_way_leave_no_hole(tmp_path: Path) -> None:
    size = len(FakeMachine(FILES).stream({}))
    with FakeMachine(FILES, cuts=[size // 3, size // 2, size // 2], reset=True) as machine:
        gather(machine, tmp_path / "out")
    assert whole(tmp_path / "out")


def test_entries_that_come_twice_are_dropped(tmp_path: Path) -> None:
    size = len(FakeMachine(FILES).stream({}))
    with FakeMachine(FILES, forgetful=True, cuts=[size // 3, size // 2]) as machine:
        gather(machine, tmp_path / "out")
    assert whole(tmp_path / "out")


@pytest.mark.parametrize("at", [3, 30, 64 + 7, 64 + 64 + 100, 64 + 60])
def test_a_damaged_block_is_asked_for_again(tmp_path: Path, at: int) -> None:
    def damage(number: int, data: bytes) -> bytes:
        return data if number else data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]

    with FakeMachine(FILES, damage=damage) as machine:
        run = gather(machine, tmp_path / "out")
    assert whole(tmp_path / "out") and run["breaks"] == 1


def test_a_block_that_is_missing_is_noticed(tmp_path: Path) -> None:
    def damage(number: int, data: bytes) -> bytes:
        blocks = split(data)
        return data if number else b"".join([*blocks[:3], *blocks[4:]])

    with FakeMachine(FILES, damage=damage) as machine:
        gather(machine, tmp_path / "out")
    assert whole(tmp_path / "out")


def test_what_was_lost_is_named_exactly_and_the_rest_is_readable(tmp_path: Path, capsys) -> None:
    with FakeMachine(FILES, gaps={1: (13, 9)}) as machine:
        run = gather(machine, tmp_path / "out", live=True)
    assert run["gaps"] == [{"core": 1, "first": 13, "lines": 9}]
    assert "core 1: 9 entries from 13 on are lost" in capsys.readouterr().out
    before, after = (tmp_path / "out" / name for name in ("core1.from-0.log", "core1.log"))
    lines = FILES[1][layout.HEADER_BYTES :]
    assert before.read_bytes()[layout.HEADER_BYTES :] == lines[: 13 * ENTRY]
    assert after.read_bytes()[layout.HEADER_BYTES :] == lines[22 * ENTRY :]
    assert (layout.read_header(before).first, layout.read_header(after).first) == (0, 22)
    assert decode.load([str(tmp_path / "out")]).cores[1].gaps == [(13, 9)]


def test_entries_that_were_overwritten_after_they_came_live_are_kept_beside_the_file_of_get(tmp_path: Path) -> None:
    early = FILES[0][layout.HEADER_BYTES :][: 20 * ENTRY]
    files = [rebuilt(FILES[0], 20), FILES[1]]
    with FakeMachine(files, early={0: early}) as machine:
        run = gather(machine, tmp_path / "out", live=True)
    assert (tmp_path / "out/core0.log").read_bytes() == files[0]
    assert (tmp_path / "out/core0.from-0.log").read_bytes()[layout.HEADER_BYTES :] == early
    assert run["gaps"] == []


def test_entries_that_were_overwritten_before_the_collection_are_counted_as_lost(tmp_path: Path) -> None:
    files = [rebuilt(FILES[0], 20), FILES[1]]
    with FakeMachine(files) as machine:
        run = gather(machine, tmp_path / "out")
    assert (tmp_path / "out/core0.log").read_bytes() == files[0]
    assert run["gaps"] == [{"core": 0, "first": 0, "lines": 20}]


def test_a_machine_that_falls_silent_is_given_up_after_the_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "SILENCE_SECONDS", 0.2)
    with FakeMachine(FILES, damage=lambda number, data: data[:900], pause_seconds=30) as machine:
        machine.damage = lambda number, data: split(data)[0]
        with pytest.raises(Failure, match="sent nothing for 0.2 s"):
            gather(machine, tmp_path / "out", patience_seconds=0.5)
    assert len(machine.requests) > 1


def test_a_machine_that_is_not_there_is_one_error_at_once(tmp_path: Path) -> None:
    machine = FakeMachine(FILES)
    machine.__exit__()
    with pytest.raises(Failure, match="nothing answers on") as caught:
        gather(machine, tmp_path / "out", patience_seconds=60)
    assert "is the machine up" in caught.value.hint


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"ok\n", b"ok\n" + bytes(500), b"ok\n" + os.urandom(5000)])
def test_a_server_that_is_none_of_ours_is_one_error(tmp_path: Path, reply: bytes) -> None:
    with FakeMachine(FILES) as machine:
        machine._serve = lambda connection: (connection.recv(100), connection.sendall(reply), connection.close())
        with pytest.raises(Failure):
            gather(machine, tmp_path / "out", patience_seconds=0.2)


def test_an_error_of_the_machine_is_shown(tmp_path: Path) -> None:
    with FakeMachine(FILES, token="secret") as machine:
        with pytest.raises(Failure, match="answered 'error: token needed"):
            gather(machine, tmp_path / "out")
        with pytest.raises(Failure, match="refused the token") as caught:
            gather(machine, tmp_path / "out", token="wrong")
        assert "wrong" not in str(caught.value)
        gather(machine, tmp_path / "out", token="secret")
    assert whole(tmp_path / "out")


def test_runs_do_not_mix_in_one_folder(tmp_path: Path) -> None:
    others, _ = synthetic.make(synthetic.Shape(cores=2, records=30, run=2))
    size = len(FakeMachine(FILES).stream({}))
    with FakeMachine(FILES, cuts=[2 * size // 3] + [0] * 50) as machine, pytest.raises(Failure, match="ended the") as caught:
        gather(machine, tmp_path / "out", patience_seconds=0.01)
    assert "the same command goes on" in caught.value.hint
    with FakeMachine(others) as machine, pytest.raises(Failure, match="holds run 1 of boot .* has run 2"):
        gather(machine, tmp_path / "out")
    with FakeMachine(FILES) as machine:
        gather(machine, tmp_path / "out")
    assert whole(tmp_path / "out")
    with FakeMachine(others) as machine:
        with pytest.raises(Failure, match="holds run 1 .* already, whole"):
            gather(machine, tmp_path / "out")
        with pytest.raises(Failure, match="holds run 1 of boot .* has run 2"):
            fetch.fetch(machine.address, tmp_path / "out", token=None, as_json=False)
    assert whole(tmp_path / "out")


@pytest.mark.parametrize("records", [2, 200])
def test_a_machine_in_ebbrts_dialect_is_named(tmp_path: Path, records: int) -> None:
    answers = {"status": lambda: "ok application=x; dialect=ebbrt"}
    named = pytest.raises(Failure, match="was booted with dialect=ebbrt")
    with FakeMachine([bytes(88) * records], answers=answers) as machine, named as caught:
        fetch.fetch(machine.address, tmp_path / "out", token=None, as_json=False)
    assert "log collect" in caught.value.hint


def test_two_collectors_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with collect.Folder(tmp_path), FakeMachine(FILES) as machine, pytest.raises(Failure, match="another neap is writing to"):
        gather(machine, tmp_path)


COLLECT = """
import sys
from pathlib import Path
from tools.log import collect
host, port, out = sys.argv[1:4]
collect.collect((host, int(port)), Path(out), live=True, token=None, as_json=False, patience_seconds=10)
"""


def collected(out: Path) -> int:
    return sum(max(0, path.stat().st_size - layout.HEADER_BYTES) for path in out.glob("core*"))


def test_a_collector_that_is_killed_is_followed_by_one_that_goes_on(tmp_path: Path, python) -> None:
    out = tmp_path / "out"
    for _ in range(3):
        with FakeMachine(FILES, pause_seconds=0.05, block_entries=4) as machine:
            collector = python(COLLECT, machine.address[0], str(machine.address[1]), str(out))
            before = collected(out)
            assert wait_until(lambda: collected(out) > before, 20, 0.005) is not None  # noqa: B023 - called here and now
            collector.kill()
            collector.wait()
    with FakeMachine(FILES) as machine:
        run = gather(machine, out)
    assert whole(out) and run["gaps"] == []
    assert "0=" in machine.requests[0], "it asks for what is missing alone"


def test_a_part_that_was_torn_in_the_middle_of_a_line_goes_on_at_the_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    size = len(FakeMachine(FILES).stream({}))
    with FakeMachine(FILES, cuts=[2 * size // 3] + [0] * 50) as machine, pytest.raises(Failure):
        gather(machine, out, patience_seconds=0.01)
    (part,) = out.glob("core1*.part") if any(out.glob("core1*.part")) else out.glob("core0*.part")
    with open(part, "ab") as file:
        file.write(b"half a line")
    with FakeMachine(FILES) as machine:
        gather(machine, out)
    assert whole(out)


FULL_DISK = """
import os
from pathlib import Path
from tools.errors import DiskFull
from tools.log import collect, synthetic
from tools.log.fake_machine import FakeMachine

small = Path(os.environ["XDG_CACHE_HOME"])
(small / "filler").write_bytes(bytes(120_000))
files, _ = synthetic.make(synthetic.Shape(cores=2, records=1500, sample_every=100))
with FakeMachine(files) as machine:
    def gather():
        return collect.collect(machine.address, small / "out", live=False, token=None, as_json=False, patience_seconds=5)
    try:
        gather()
        print("it fitted")
    except DiskFull as full:
        print(full.report())
    sizes = {path.name: path.stat().st_size for path in (small / "out").glob("core*")}
    assert all((size - 4096) % 64 == 0 or size == 0 for size in sizes.values()), sizes
    (small / "filler").unlink()
    assert gather() == 0
    assert any("=" in request for request in machine.requests[1:]), machine.requests
for core, data in enumerate(files):
    assert (small / f"out/core{core}.log").read_bytes() == data
print("whole")
"""


def test_a_full_disk_is_one_error_and_the_next_collection_goes_on(tmp_path: Path) -> None:
    done = on_small_disk(tmp_path, "256k", FULL_DISK)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("neap: error: no space left on the disk for"), done.stdout
    assert "the same command goes on" in lines[1] and lines[-1] == "whole"
