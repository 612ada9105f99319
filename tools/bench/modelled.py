# SPDX-License-Identifier: BSL-1.0
"""What the benchmarks on the model machine share: they build its parts, and do independent runs beside each other.

Runs are in virtual time, so that the number of them beside each other does not change a result.
"""

import concurrent.futures
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tools import build, progress
from tools.model import plugin

Setting = TypeVar("Setting")
Result = TypeVar("Result")


def prepare(*applications: str) -> None:
    """Builds the plugin, the world and the images of these applications. Linux needs none of them."""
    plugin.library()
    build.build_world()
    if applications:
        build.build("image", [f"{name}.elf" for name in applications])


class Countdown:
    """Reports finished runs every 30 s, on a terminal every second, with an estimate of the time left."""

    def __init__(self, runs: int):
        self._runs = runs
        self._done = 0
        self._start = self._shown_at = time.monotonic()
        self._guard = threading.Lock()

    def finished(self) -> None:
        """One more run has ended. MAY be called by any thread."""
        with self._guard:
            self._done += 1
            now = time.monotonic()
            interval = progress.TERMINAL_INTERVAL_SECONDS if progress.on_terminal() else progress.QUIET_INTERVAL_SECONDS
            if now - self._shown_at < interval or self._done == self._runs:
                return
            self._shown_at = now
            left = progress.duration((now - self._start) / self._done * (self._runs - self._done))
            progress.show_status(f"neap: {self._done} of {self._runs} runs, about {left} left")


def run_each(settings: Sequence[Setting], run: Callable[[Setting], Result]) -> list[Result]:
    """The results in the order of the settings. Raises what a run raises, after the runs in progress."""
    countdown = Countdown(len(settings))

    def counted(setting: Setting) -> Result:
        result = run(setting)
        countdown.finished()
        return result

    with (
        progress.step(f"{len(settings)} runs on the model machine"),
        concurrent.futures.ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool,
    ):
        try:
            return list(pool.map(counted, settings))
        finally:
            if progress.on_terminal():
                progress.show_status("")
