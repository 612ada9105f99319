# SPDX-License-Identifier: BSL-1.0
"""What the benchmarks on the model machine share: they build its parts, and do independent runs beside each other.

Runs are in virtual time, so that the number of them beside each other does not change a result.
"""

import concurrent.futures
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from tools import build, progress
from tools.model import plugin

Setting = TypeVar("Setting")
Result = TypeVar("Result")


def prepare(*applications: str) -> None:
    """Builds the plugin, the world and the images of these applications."""
    plugin.library()
    build.build_world()
    build.build("image", [f"{name}.elf" for name in applications])


def run_each(settings: Sequence[Setting], run: Callable[[Setting], Result]) -> list[Result]:
    """The results in the order of the settings. Raises what a run raises, after the runs in progress."""
    with (
        progress.step(f"{len(settings)} runs on the model machine"),
        concurrent.futures.ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool,
    ):
        return list(pool.map(run, settings))
