# SPDX-License-Identifier: BSL-1.0
"""The instructions of a window by layer, for any arm. Neap's are found by source file, Linux's by symbols and mappings (tools/model)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.compare.plan import Arm
from tools.model import experiment, layers, linux_profile, profile


@dataclasses.dataclass(frozen=True)
class Counts:
    """by_layer: instructions. moved_lines: cache lines moved between cores."""

    by_layer: Mapping[str, int]
    moved_lines: int


def reader(arm: Arm, system: experiment.System, console: Sequence[str]) -> Callable[[Path], Counts]:
    """Reads profiles of one boot. `console`: all lines of that boot, which on Linux name the addresses of modules and programs."""
    if arm.is_linux:
        symbols = linux_profile.symbols(console, arm.system == "linux-13")
        return lambda file: Counts(linux_profile.layers(file, symbols), profile.total(file)[1])

    def of_neap(file: Path) -> Counts:
        found = profile.read(file, system.kernel)
        return Counts(layers.of_neap(found), found.moved)

    return of_neap
