# SPDX-License-Identifier: BSL-1.0
"""The grid of settings that a tuner chooses from, and its coordinates for the models of latency and power.

Each axis lists its values from the safest to the riskiest for the latency: short intervals and high frequencies come first. The first
trials rely on this order, and a live machine returns to the first setting of the grid if no better one is known to be safe.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tools.errors import UsageError
from tools.study.schema import SET

Value = float | str
SETTINGS_MAX = 200_000
ITR, FREQUENCY, LIMIT, IDLE = "itr_us", "frequency_ghz", "rapl_w", "idle"
# Axes whose largest value is the safest one.
DESCENDING = (FREQUENCY, LIMIT)
# Idle states, from the one that answers first.
IDLE_ORDER = ("poll", "monitor", "halt", "c1", "c1e", "menu", "c3", "c6", "c7", "deepest")
# A numeric axis with a larger ratio of its ends has a logarithmic coordinate.
LOGARITHMIC_RATIO = 3.0


@dataclasses.dataclass(frozen=True)
class Axis:
    """`name`: a column of the table of runs. `values`: from the safest to the riskiest."""

    name: str
    values: tuple[Value, ...]

    @property
    def is_numeric(self) -> bool:
        return all(not isinstance(value, str) for value in self.values)

    def coordinates(self) -> np.ndarray:
        """One coordinate for each value. A decade of ITR has the length 1; another axis has the length 1 as a whole."""
        if not self.is_numeric:
            return np.linspace(0, 1, len(self.values))
        numbers = np.array(self.values, float)
        if self.name == ITR:
            return np.log10(np.maximum(numbers, 1.0))
        low, high = numbers.min(), numbers.max()
        if low == high:
            return np.zeros(len(numbers))
        if low > 0 and (self.name == FREQUENCY or high / low > LOGARITHMIC_RATIO):
            return np.log(numbers / low) / math.log(high / low)
        return (numbers - low) / (high - low)


def axis(name: str, values: Sequence[Value]) -> Axis:
    """An axis with its different values in the order of safety. Values of a further axis keep their order."""
    found = list(dict.fromkeys(values))
    if name == IDLE:
        found.sort(key=lambda value: IDLE_ORDER.index(str(value)) if value in IDLE_ORDER else len(IDLE_ORDER))
    elif name in (ITR, *DESCENDING) and all(not isinstance(value, str) for value in found):
        found.sort(key=float, reverse=name in DESCENDING)
    return Axis(name, tuple(found))


@dataclasses.dataclass(frozen=True)
class Grid:
    """`ranks`: for each setting and axis the place of its value, 0 the safest. A grid of a table may lack combinations."""

    axes: tuple[Axis, ...]
    ranks: np.ndarray

    def __len__(self) -> int:
        return len(self.ranks)

    def setting(self, place: int) -> dict[str, Value]:
        return {one.name: one.values[rank] for one, rank in zip(self.axes, self.ranks[place], strict=True)}

    def place(self, wanted: Sequence[int]) -> int:
        """The setting whose ranks are nearest."""
        sizes = np.array([max(1, len(one.values) - 1) for one in self.axes])
        return int(np.abs((self.ranks - np.array(wanted)) / sizes).sum(axis=1).argmin())

    def inputs(self) -> np.ndarray:
        """The coordinates of all settings for the model of power."""
        return np.column_stack([one.coordinates()[self.ranks[:, at]] for at, one in enumerate(self.axes)])

    def latency_inputs(self, sla_us: float) -> np.ndarray:
        """Those for the model of latency. Latency grows by about one interval, so ITR has a linear coordinate, as a share of the SLA."""
        found = self.inputs()
        for at, one in enumerate(self.axes):
            if one.name == ITR and one.is_numeric:
                found[:, at] = np.array(one.values, float)[self.ranks[:, at]] / sla_us
        return found

    def only(self, name: str, fixed: Mapping[str, Value]) -> Grid:
        """The part with one free axis: the others have the values of `fixed`."""
        kept = np.ones(len(self), bool)
        for at, one in enumerate(self.axes):
            if one.name != name:
                kept &= self.ranks[:, at] == one.values.index(fixed[one.name])
        return Grid(self.axes, self.ranks[kept])


def product(axes: Sequence[Axis]) -> Grid:
    """All combinations. Raises UsageError for a grid that leaves nothing to choose, or too much."""
    count = math.prod(len(one.values) for one in axes)
    if count < 2:
        raise UsageError(
            "the grid has one setting, so there is nothing to tune", "--itr and --frequency take lists, like 2:100:2 or 1.2,2.9"
        )
    if count > SETTINGS_MAX:
        raise UsageError(f"the grid has {count:,} settings; at most {SETTINGS_MAX:,} can be searched", "larger steps make it smaller")
    return Grid(tuple(axes), np.array(list(itertools.product(*(range(len(one.values)) for one in axes)))))


def parse_values(option: str, text: str) -> list[Value]:
    """`2:1000:2` (ends included), `1.2,2.9` or `halt,c6`. Raises UsageError."""
    try:
        if ":" in text:
            low, high, step = (float(word) for word in text.split(":"))
            if not (math.isfinite(low) and math.isfinite(high) and step > 0 and high >= low and (high - low) / step < SETTINGS_MAX):
                raise ValueError
            return [_whole(low + at * step) for at in range(int((high - low) / step + 1e-9) + 1)]
    except ValueError:
        raise UsageError(f"{option} takes FROM:TO:STEP or values with commas between them, not '{text}'") from None
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f"{option} takes FROM:TO:STEP or values with commas between them, not '{text}'")
    return [_number_or_text(word) for word in words]


def _number_or_text(word: str) -> Value:
    try:
        found = float(word)
    except ValueError:
        return word
    return _whole(found) if math.isfinite(found) else word


def _whole(value: float) -> float:
    return round(value, 9)


def shown(setting: Mapping[str, Any]) -> str:
    """A setting as text, like `ITR 270 us, 1.2 GHz`."""
    forms = {ITR: "ITR {} us", FREQUENCY: "{} GHz", LIMIT: "limit {} W", IDLE: "idle {}"}
    parts = []
    for name, value in setting.items():
        text = f"{value:g}" if isinstance(value, (int, float)) else str(value)
        parts.append(forms.get(name, f"{name.removeprefix(SET)} {{}}").format(text))
    return ", ".join(parts)
