# SPDX-License-Identifier: BSL-1.0
"""Telling the user what takes so long.

Every long step prints a line when it starts and one when it is done, so that a log file reads well. On a terminal, a last line
is kept up to date with the share done and an estimate of the time left; in a pipe, the estimate appears once a minute instead.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from tools.foreign import shown, shown_lines

QUIET_INTERVAL_SECONDS = 60.0
TERMINAL_INTERVAL_SECONDS = 1.0

_guard = threading.Lock()
_status = ""


def say(text: str) -> None:
    """One line to standard error, above the status line if there is one. What a terminal would obey is escaped."""
    text = shown_lines(text)
    with _guard:
        if _status and on_terminal():
            sys.stderr.write(f"\r\x1b[K{text}\n{_status}")
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def on_terminal() -> bool:
    return sys.stderr.isatty()


def show_status(text: str) -> None:
    """On a terminal: replaces the status line ("" takes it away). Else: a line."""
    global _status
    text = shown(text)
    with _guard:
        if on_terminal():
            sys.stderr.write(f"\r\x1b[K{text[:118]}")
            _status = text[:118]
        elif text:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Says `text`, and how long it took if that was more than a second."""
    start = time.monotonic()
    say(f"neap: {text}")
    yield
    seconds = time.monotonic() - start
    if seconds >= 1:
        say(f"neap: {text}: done in {duration(seconds)}")


def duration(seconds: float) -> str:
    """'48 s', '3 min 05 s'."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


class Plan:
    """A row of steps with known weights, and the estimate that follows from how fast the first ones went.

    Weights are the seconds that each step took on the machine where it was measured; only their proportions matter here.
    """

    def __init__(self, title: str, weights: Sequence[tuple[str, float]]):
        self.title = title
        self._weights = dict(weights)
        self._done_weight = 0.0
        self._done_seconds = 0.0

    def skip(self, name: str) -> None:
        """A step that an earlier run has done: it counts neither way."""
        self._weights.pop(name, None)

    @contextlib.contextmanager
    def run(self, name: str) -> Iterator[None]:
        """Surrounds one step; keeps the status line going while it runs."""
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
            if on_terminal():
                show_status("")
        seconds = time.monotonic() - start
        self._done_weight += self._weights[name]
        self._done_seconds += seconds

    def estimate(self, name: str, elapsed_seconds: float) -> tuple[int, float]:
        """(percent done, seconds left) while `name` has been running for `elapsed_seconds`.

        The pace is what the finished steps took against their weights; before that, the weights as they are.
        """
        total = sum(self._weights.values())
        weight = self._weights[name]
        pace = self._done_seconds / self._done_weight if self._done_weight >= 0.02 * total else 1.0
        # A step that has run longer than expected shows that the pace was too hopeful, for what is left too; it counts as nearly through.
        nearly = 0.97 * weight
        if elapsed_seconds > pace * nearly:
            pace = (self._done_seconds + elapsed_seconds) / (self._done_weight + nearly)
        in_step = min(elapsed_seconds / pace, nearly)
        done = self._done_weight + in_step
        return int(100 * done / total), (total - done) * pace

    def _line(self, name: str, elapsed_seconds: float) -> str:
        percent, left = self.estimate(name, elapsed_seconds)
        return f"{percent}%, about {duration(max(left, 1))} left"

    def _watch(self, name: str, start: float, stopped: threading.Event) -> None:
        interval = TERMINAL_INTERVAL_SECONDS if on_terminal() else QUIET_INTERVAL_SECONDS
        while not stopped.wait(interval):
            show_status(f"neap: {self.title}: {name}, {self._line(name, time.monotonic() - start)}")
