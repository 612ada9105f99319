# SPDX-License-Identifier: BSL-1.0
"""Reports the progress of `cmake --build` (with ninja) and `cargo build`, from the log that they write.

If everything is up to date, nothing is printed. So the launcher reads the tool's output while the tool runs, and prints its line at the
first step that builds something. During a long build, a terminal has the finished steps and an estimate in its status line. In a pipe, a
line with both is printed at an interval that the line names.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tools import progress

POLL_SECONDS = 0.1
# ninja: "[3/43] Building CXX object ...". A step is printed at its end.
NINJA = re.compile(r"\[(\d{1,9})/(\d{1,9})\] (.*)")
# Steps of every build of an image: they look for new files and for a new commit. Only their results may cause further steps.
LOOKING = re.compile(r"Re-checking globbed directories|Re-running CMake|cd .*write_commit\.py")
# cargo: "   Compiling card v0.1.0 (...)" and, if CARGO_TERM_PROGRESS_WHEN is `always`, "    Building [===>   ] 3/10: card".
CARGO_COMPILES = re.compile(r"\s+Compiling ")
CARGO = re.compile(r"\s+Building \[[=> ]*\] (\d{1,9})/(\d{1,9})")


class Steps:
    """The finished steps of a build, and an estimate of the time left."""

    def __init__(self) -> None:
        self.begun = False  # a step has built something, or is building it
        self.done = 0
        self.total = 0
        self._first: tuple[float, int] | None = None
        self._partial = ""

    def read(self, text: str, now_seconds: float) -> None:
        """Takes the next piece of the tool's output. A piece may end inside a line."""
        # cargo ends the lines of its progress bar with CR.
        *lines, self._partial = re.split(r"[\r\n]", self._partial + text)
        for line in lines:
            if match := NINJA.match(line):
                self._finished(int(match[1]), int(match[2]), now_seconds)
                self.begun = self.begun or (int(match[1]) > 0 and not LOOKING.match(match[3]))
            elif match := CARGO.match(line):
                self._finished(int(match[1]), int(match[2]), now_seconds)
            elif CARGO_COMPILES.match(line):
                self.begun = True

    def _finished(self, done: int, total: int, now_seconds: float) -> None:
        # Steps that are up to date are finished at once, so the pace counts from the first number of finished steps.
        if self._first is None or done < self.done:
            self._first = (now_seconds, done)
        self.done, self.total = done, total

    def left_seconds(self, now_seconds: float) -> float | None:
        """Returns the time that the other steps take at the pace so far; None before two steps have ended."""
        if self._first is None or self.done <= self._first[1]:
            return None
        began, before = self._first
        return (now_seconds - began) / (self.done - before) * max(self.total - self.done, 0)

    def line(self, now_seconds: float) -> str:
        left = self.left_seconds(now_seconds)
        return f"{self.done} of {self.total} steps" + ("" if left is None else f", about {progress.duration(max(left, 1))} left")


class _Watcher:
    """Reads a log that grows, and prints what has been built."""

    def __init__(self, what: str, log: Path):
        self.steps = Steps()
        self.said = False
        self._what = what
        self._log = log
        self._position = log.stat().st_size if log.is_file() else 0
        self._printed_at = 0.0

    def look(self) -> None:
        try:
            with open(self._log, "rb") as log:
                log.seek(self._position)
                data = log.read()
        except OSError:
            return
        self._position += len(data)
        now = time.monotonic()
        self.steps.read(data.decode(errors="replace"), now)
        if self.steps.begun and not self.said:
            progress.say(f"neap: {self._what}")
            self.said, self._printed_at = True, now
        terminal = progress.on_terminal()
        interval = progress.TERMINAL_INTERVAL_SECONDS if terminal else progress.QUIET_INTERVAL_SECONDS
        if self.said and self.steps.total and now - self._printed_at >= interval:
            stated = "" if terminal else f" (a line every {interval:g} s)"
            progress.show_status(f"neap: {self._what}: {self.steps.line(now)}{stated}")
            self._printed_at = now

    def run(self, stopped: threading.Event) -> None:
        while not stopped.wait(POLL_SECONDS):
            self.look()


@contextlib.contextmanager
def building(what: str, log: Path) -> Iterator[None]:
    """Reports the build that runs in the `with` block and appends to `log`. Prints nothing if the build finds everything up to date."""
    start = time.monotonic()
    watcher, stopped = _Watcher(what, log), threading.Event()
    thread = threading.Thread(target=watcher.run, args=(stopped,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        watcher.look()
        if watcher.said:
            progress.show_status("")
    seconds = time.monotonic() - start
    if watcher.said and seconds >= 1:
        progress.say(f"neap: {what}: done in {progress.duration(seconds)}")
