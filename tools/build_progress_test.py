# SPDX-License-Identifier: BSL-1.0
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
        "neap: building it: 16 of 41 steps, about 50 s left (a line every 30 s)",
        "neap: building it: 31 of 41 steps, about 20 s left (a line every 30 s)",
    ]


def test_the_pace_counts_only_what_this_build_does() -> None:
    steps = build_progress.Steps()
    steps.read("   Compiling card v0.1.0 (/a)\n    Building [====> ] 190/200: card(bui...\r", 10)
    assert (steps.begun, steps.line(12)) == (True, "190 of 200 steps")
    # The bar may be read in two pieces.
    steps.read("    Building [====> ] 19", 14)
    steps.read("2/200: card\r", 14)
    assert steps.left_seconds(14) == pytest.approx(16)
    steps.read("    Building [======] 199/200: card\r    Finished `release` profile\n", 18)
    assert steps.left_seconds(30) == pytest.approx(20 / 9)


def test_a_second_ninja_starts_the_pace_over() -> None:
    steps = build_progress.Steps()
    steps.read("[1/2] Re-running CMake...\n", 1)
    steps.read("[0/2] Re-checking globbed directories...\n", 20)
    assert (steps.begun, steps.left_seconds(20)) == (False, None)
    steps.read("[1/11] Building a\n[2/11] Building b\n", 24)
    assert (steps.begun, steps.left_seconds(24)) == (True, pytest.approx(18))


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
