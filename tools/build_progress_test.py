# SPDX-License-Identifier: BSL-1.0
import json
import threading
from pathlib import Path

import pytest

from tools import build_progress, process, progress

NOTHING_BY_NINJA = "[0/2] Re-checking globbed directories...\n[1/2] Re-running CMake...\nninja: no work to do.\n"
NOTHING_OF_AN_IMAGE = (
    "[0/2] Re-checking globbed directories...\n"
    "[1/43] cd /a/build/image && /usr/bin/python3 /a/boot/write_commit.py --source /a --output /a/build/image/boot/commit.cpp\n"
)
NOTHING_BY_CARGO = "    Finished `release` profile [optimized] target(s) in 0.10s\n"


@pytest.mark.parametrize("output", ["", NOTHING_BY_NINJA, NOTHING_OF_AN_IMAGE, NOTHING_BY_CARGO])
def test_a_build_that_finds_everything_up_to_date_prints_nothing(output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text("[3/4] Building of an earlier command\n")
    with build_progress.building("building it", log), open(log, "a") as writer:
        writer.write(output)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "output",
    [
        NOTHING_BY_NINJA + "[1/9] Building CXX object a.o\n",
        NOTHING_OF_AN_IMAGE + "[2/43] Building CXX object commit.o\n",
        "   Compiling card v0.1.0 (/a)\n",
    ],
)
def test_a_build_is_printed_even_if_it_ends_at_once_or_fails(output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError), build_progress.building("building it", tmp_path / "log"):  # noqa: PT011
        (tmp_path / "log").write_text(output)
        raise OSError
    assert capsys.readouterr().err == "neap: building it\n"


def test_without_a_terminal_lines_come_at_the_interval_that_they_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The thread looks only when the test calls it, and the clock is the test's.
    now = [100.0]
    monkeypatch.setattr(build_progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(threading.Thread, "start", lambda _self: None)
    monkeypatch.setattr(threading.Thread, "join", lambda _self: None)
    log = tmp_path / "log"
    watcher = build_progress._Watcher("building it", log)
    log.write_text("[1/41] Building a\n")
    watcher.look()
    for done in range(2, 32):
        now[0] += 2
        with open(log, "a") as writer:
            writer.write(f"[{done}/41] Building b\n")
        watcher.look()
    assert capsys.readouterr().err.splitlines() == [
        "neap: building it",
        "neap: building it: 16 of 41 steps, about 48 s to the last step (a line every 30 s)",
        "neap: building it: 31 of 41 steps, about 18 s to the last step (a line every 30 s)",
    ]


def test_the_pace_counts_only_what_this_build_does() -> None:
    steps = build_progress.Steps()
    steps.read("   Compiling card v0.1.0 (/a)\n    Building [====> ] 190/200: card(bui...\r", 10)
    assert (steps.begun, steps.line(12)) == (True, "190 of 200 steps")
    # The bar may be read in two pieces.
    steps.read("    Building [====> ] 19", 14)
    steps.read("2/200: card\r", 14)
    assert steps.line(14) == "192 of 200 steps, about 14 s to the last step"
    steps.read("    Building [======] 199/200: card\r    Finished `release` profile\n", 18)
    assert steps.line(30) == "199 of 200 steps, the last step has run for 12 s"


def test_a_second_ninja_starts_the_pace_over() -> None:
    steps = build_progress.Steps()
    steps.read("[1/2] Re-running CMake...\n", 1)
    steps.read("[0/2] Re-checking globbed directories...\n", 20)
    assert (steps.begun, steps.line(20)) == (False, "0 of 2 steps")
    steps.read("[1/12] Building a\n[2/12] Building b\n", 24)
    assert (steps.begun, steps.line(24)) == (True, "2 of 12 steps, about 18 s to the last step")


def test_the_last_steps_are_estimated_by_those_of_the_last_build() -> None:
    first = build_progress.Steps()
    for done in range(1, 101):
        first.read(f"[{done}/101] Building a\n", done)
    # 100 steps of a second each, then a link of 61 s
    assert first.line(159) == "100 of 101 steps, the last step has run for 59 s"
    ends = first.ends(161)
    assert ends == {left: 60.0 + left for left in range(1, build_progress.LAST_STEPS + 1)}
    second = build_progress.Steps(ends)
    second.read("[1/101] Building a\n", 0)
    second.read("[51/101] Building a\n", 50)
    assert second.line(50) == "51 of 101 steps, about 1 min 50 s left"
    second.read("[100/101] Building a\n", 99)
    assert second.line(100) == "100 of 101 steps, the last step has run for 1 s, about 60 s left"
    assert second.line(170) == "100 of 101 steps, the last step has run for 71 s, 10 s longer than last time"
    # After one change there are few steps.
    third = build_progress.Steps(ends)
    third.read("[1/3] Building a\n", 1)
    assert third.line(3) == "1 of 3 steps, about 60 s left"
    # A link may be the last step but one.
    fourth = build_progress.Steps({2: 50.0, 1: 0.5})
    fourth.read("[1/3] Building a\n", 1)
    assert fourth.line(21) == "1 of 3 steps, about 30 s left"


def built(log: Path, what: str = "building it") -> None:
    with build_progress.building(what, log), open(log, "a") as writer:
        writer.write("[1/4] Building a\n[2/4] Building b\n[3/4] Linking c\n")


def test_a_build_that_succeeds_keeps_the_times_of_its_last_steps(tmp_path: Path) -> None:
    log, kept = tmp_path / "image.log", tmp_path / "image-last-steps.json"
    with pytest.raises(OSError), build_progress.building("building it", log):  # noqa: PT011
        log.write_text("[3/4] Linking c\n")
        raise OSError
    with build_progress.building("building it", log):
        pass
    assert not kept.exists()
    built(log)
    built(log, "building another")
    assert {title: sorted(ends) for title, ends in json.loads(kept.read_text()).items()} == {
        "building it": ["1", "2", "3"],
        "building another": ["1", "2", "3"],
    }
    assert sorted(build_progress._Record(log).ends("building it")) == [1, 2, 3]


@pytest.mark.parametrize(
    "content", ["", "[1]", "{", '{"building it": 3}', '{"building it": {"1": "x", "2": -1, "x": 1, "3": Infinity, "99": 1, "4": true}}']
)
def test_a_damaged_record_costs_only_the_estimate(content: str, tmp_path: Path) -> None:
    log = tmp_path / "image.log"
    (tmp_path / "image-last-steps.json").write_text(content)
    assert build_progress._Record(log).ends("building it") == {}
    built(log)
    assert sorted(build_progress._Record(log).ends("building it")) == [1, 2, 3]


def test_a_log_ends_as_a_terminal_shows_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\r\n   Building [=> ] 1/2\r   Building [==>] 2/2\rerror: no such thing\nlast\n")
    assert process.tail(log) == ["one", "error: no such thing", "last"]


def test_the_interval_of_long_steps_is_named_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped:
        times = 0

        def wait(self, seconds: float) -> bool:
            assert seconds == progress.QUIET_INTERVAL_SECONDS
            self.times += 1
            return self.times > 1

    monkeypatch.setattr(progress.time, "monotonic", lambda: 5.0)
    progress.Plan("trial", [("a", 10), ("b", 90)])._watch("a", 0.0, Stopped())  # type: ignore[arg-type]
    assert capsys.readouterr().err == "neap: trial: a, 5%, about 95 s left (a line every 30 s)\n"
