# SPDX-License-Identifier: BSL-1.0
"""Reports the progress of `cmake --build` (with ninja) and `cargo build`, from the log that they write.

If everything is up to date, nothing is printed. So the launcher reads the tool's output while the tool runs, and prints its line at the
first step that builds something. During a long build, a terminal has the finished steps and an estimate in its status line. In a pipe, a
line with both is printed at an interval that the line names.

The last steps are links, which take much longer than other steps. So their pace says nothing about them. A build that succeeds leaves the
durations of its last steps in a file beside the log, and the next build with the same title estimates from them. Without that file the
estimate ends at the last step.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools import progress

POLL_SECONDS = 0.1
# The number of last steps whose durations are kept for the next build.
LAST_STEPS = 8
# ninja: "[3/43] Building CXX object ...". A step is printed at its end.
NINJA = re.compile(r"\[(\d{1,9})/(\d{1,9})\] (.*)")
# Steps of every build of an image: they look for new files and for a new commit. Only their results may cause further steps.
LOOKING = re.compile(r"Re-checking globbed directories|Re-running CMake|cd .*write_commit\.py")
# cargo: "   Compiling card v0.1.0 (...)" and, if CARGO_TERM_PROGRESS_WHEN is `always`, "    Building [===>   ] 3/10: card".
CARGO_COMPILES = re.compile(r"\s+Compiling ")
CARGO = re.compile(r"\s+Building \[[=> ]*\] (\d{1,9})/(\d{1,9})")


class Steps:
    """The finished steps of a build, and an estimate of the time left.

    `ends` has the seconds from the moment at which a number of steps was left until the end, in the last build of the same kind.
    """

    def __init__(self, ends: Mapping[int, float] | None = None) -> None:
        self.begun = False  # a step has built something, or is building it
        self.done = 0
        self.total = 0
        self._first: tuple[float, int] | None = None
        self._partial = ""
        self._ends = dict(ends or {})
        self._left_since: dict[int, float] = {}  # when that number of steps was left for the first time

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
            self._left_since.clear()
        self.done, self.total = done, total
        self._left_since.setdefault(total - done, now_seconds)

    def _pace_seconds(self, steps: int, now_seconds: float) -> float | None:
        """Returns the time that `steps` take at the pace so far; None before two steps have ended."""
        if self._first is None or self.done <= self._first[1]:
            return None
        began, before = self._first
        return (now_seconds - began) / (self.done - before) * steps

    def ends(self, now_seconds: float) -> dict[int, float]:
        """Returns the durations of the last steps of a build that ends now, in the form of `__init__`."""
        return {left: now_seconds - since for left, since in self._left_since.items() if 1 <= left <= LAST_STEPS}

    def line(self, now_seconds: float) -> str:
        return f"{self.done} of {self.total} steps{self._estimate(now_seconds)}"

    def _estimate(self, now_seconds: float) -> str:
        left = self.total - self.done
        if left <= 0:
            return ""
        running = now_seconds - self._left_since[left]
        last = f", the last step has run for {progress.duration(running)}" if left == 1 else ""
        if left in self._ends:
            seconds = self._ends[left] - running
            if seconds < 0:
                return f"{last}, {progress.duration(-seconds)} longer than last time"
            return f"{last}, about {progress.duration(max(seconds, 1))} left"
        if left == 1:
            return last
        # The nearest smaller number of steps with a known time. If none is known, the estimate is for the time before the last step.
        known = max((number for number in self._ends if number < left), default=1)
        pace = self._pace_seconds(left - known, now_seconds)
        if pace is None:
            return ""
        if known not in self._ends:
            return f", about {progress.duration(max(pace, 1))} to the last step"
        return f", about {progress.duration(max(pace + self._ends[known], 1))} left"


class _Record:
    """The file with the durations of the last steps, for each title. A file that cannot be read or written only costs an estimate."""

    def __init__(self, log: Path):
        self._path = log.with_name(f"{log.stem}-last-steps.json")

    def _titles(self) -> dict[str, object]:
        try:
            titles = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return titles if isinstance(titles, dict) else {}

    def ends(self, what: str) -> dict[int, float]:
        kept = self._titles().get(what)
        if not isinstance(kept, dict):
            return {}
        return {
            int(left): float(seconds)
            for left, seconds in kept.items()
            if re.fullmatch("[1-8]", left) and type(seconds) in (int, float) and 0 <= seconds < math.inf
        }

    def keep(self, what: str, ends: Mapping[int, float]) -> None:
        titles = self._titles()
        # A build with few steps leaves the times of the others.
        titles[what] = {str(left): round(seconds, 1) for left, seconds in {**self.ends(what), **ends}.items()}
        with contextlib.suppress(OSError):
            self._path.write_text(json.dumps(titles, indent=1) + "\n")


class _Watcher:
    """Reads a log that grows, and prints what has been built."""

    def __init__(self, what: str, log: Path):
        self.steps = Steps(_Record(log).ends(what))
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
    # A build that fails does not get here.
    if watcher.said and (ends := watcher.steps.ends(time.monotonic())):
        _Record(log).keep(what, ends)
    seconds = time.monotonic() - start
    if watcher.said and seconds >= 1:
        progress.say(f"neap: {what}: done in {progress.duration(seconds)}")
