# SPDX-License-Identifier: BSL-1.0
"""Progress reports for long steps.

Every long step prints a line at its start and a line at its end, so that a log file is easy to read. On a terminal, the last line shows the
finished share and an estimate of the time left. In a pipe, the estimate is a line every 30 s instead.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from tools.foreign import shown, shown_lines
from tools.launcher_name import worded

QUIET_INTERVAL_SECONDS = 30.0
TERMINAL_INTERVAL_SECONDS = 1.0

_guard = threading.Lock()
_status = ""


def say(text: str) -> None:
    """Prints one line on standard error, above the status line if there is one. Control characters are escaped."""
    text = shown_lines(worded(text))
    with _guard:
        if _status and on_terminal():
            sys.stderr.write(f"\r\x1b[K{text}\n{_status}")
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def on_terminal() -> bool:
    return sys.stderr.isatty()


def show_status(text: str) -> None:
    """On a terminal, replaces the status line ("" removes it). Otherwise prints a line."""
    global _status
    text = shown(worded(text))
    with _guard:
        if on_terminal():
            sys.stderr.write(f"\r\x1b[K{text[:118]}")
            _status = text[:118]
        elif text:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Prints `text`, and at the end of the `with` block the duration, if that was more than a second."""
    start = time.monotonic()
    say(f"neap: {text}")
    yield
    seconds = time.monotonic() - start
    if seconds >= 1:
        say(f"neap: {text}: done in {duration(seconds)}")


def duration(seconds: float) -> str:
    """Returns a duration as text, like '48 s' or '3 min 05 s'."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


class Plan:
    """A sequence of steps with known weights, and an estimate from the pace of the finished steps. A step's weight is its duration in
    seconds on the machine where it was measured. Only the proportions of the weights matter."""

    def __init__(self, title: str, weights: Sequence[tuple[str, float]]):
        self.title = title
        self._weights = dict(weights)
        self._done_weight = 0.0
        self._done_seconds = 0.0

    def skip(self, name: str) -> None:
        """Removes a step that an earlier run has finished, so that the estimate does not include it."""
        self._weights.pop(name, None)

    @contextlib.contextmanager
    def run(self, name: str) -> Iterator[None]:
        """A context manager for one step. Updates the status line while the step runs."""
        start = time.monotonic()
        stopped = threading.Event()
        say(f"neap: {self.title}: {name} ({self._line(name, 0.0)})")
        watcher = threading.Thread(target=self._watch, args=(name, start, stopped), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stopped.set()
            watcher.join()
            show_status("")
        seconds = time.monotonic() - start
        self._done_weight += self._weights[name]
        self._done_seconds += seconds

    def estimate(self, name: str, elapsed_seconds: float) -> tuple[int, float]:
        """Returns (percent done, seconds left) at the time when step `name` has been running for `elapsed_seconds`. The pace is the
        duration of the finished steps divided by their weights. Until the finished steps have 2 % of all weights, the pace is 1."""
        total = sum(self._weights.values())
        weight = self._weights[name]
        pace = self._done_seconds / self._done_weight if self._done_weight >= 0.02 * total else 1.0
        # A step that runs longer than expected counts as almost done. The pace was then too optimistic, so it is corrected, also for the
        # estimate of later steps.
        nearly = 0.97 * weight
        if elapsed_seconds > pace * nearly:
            pace = (self._done_seconds + elapsed_seconds) / (self._done_weight + nearly)
        done = self._done_weight + min(elapsed_seconds / pace, nearly)
        return int(100 * done / total), (total - done) * pace

    def _line(self, name: str, elapsed_seconds: float) -> str:
        percent, left = self.estimate(name, elapsed_seconds)
        return f"{percent}%, about {duration(max(left, 1))} left"

    def _watch(self, name: str, start: float, stopped: threading.Event) -> None:
        interval = TERMINAL_INTERVAL_SECONDS if on_terminal() else QUIET_INTERVAL_SECONDS
        while not stopped.wait(interval):
            stated = "" if on_terminal() else f" (a line every {interval:g} s)"
            show_status(f"neap: {self.title}: {name}, {self._line(name, time.monotonic() - start)}{stated}")
