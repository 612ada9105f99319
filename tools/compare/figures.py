# SPDX-License-Identifier: BSL-1.0
"""The figures of a comparison: what a run gives, and what all rounds of a row and an arm give together.

Runs of one arm differ by their seed only: by the moments and keys of requests, the hashes of connections, the addresses of memory. The
mean over the rounds has a confidence interval of 95 % by Student's t distribution. With one round there is no interval.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

# The 97.5 % quantile of Student's t distribution for 1, 2, ... degrees of freedom, from tables; above them the normal distribution's.
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
NORMAL_QUANTILE = 1.96


@dataclasses.dataclass(frozen=True)
class Figure:
    """One column. unit: with @ for what the row counts: a request, a round trip, or a second. better: low, high, or none. first_round_only:
    it is too expensive for all rounds."""

    name: str
    title: str
    unit: str
    better: str = "low"
    decimals: int = 2
    first_round_only: bool = False


FIGURES = (
    Figure("instructions", "instructions", "a @", decimals=0),
    Figure("interrupts", "interrupts", "a @", decimals=3),
    Figure("wakeups", "wake-ups", "a @", decimals=3),
    Figure("frames_in", "frames in", "a @", "none", decimals=3),
    Figure("frames_out", "frames out", "a @", "none", decimals=3),
    Figure("bytes_in", "bytes in", "a @", "none", decimals=0),
    Figure("bytes_out", "bytes out", "a @", "none", decimals=0),
    Figure("moved_lines", "moved lines", "a @", decimals=2, first_round_only=True),
    Figure("p50_us", "p50", "us", decimals=1),
    Figure("p99_us", "p99", "us", decimals=1),
    Figure("p999_us", "p99.9", "us", decimals=1),
    Figure("busy_share", "time in C0", "share", decimals=3),
    Figure("mhz", "frequency", "MHz", "none", decimals=0),
    Figure("watts", "package", "W", decimals=2),
    Figure("uj", "energy", "uJ a @", decimals=1),
)
BY_NAME = {figure.name: figure for figure in FIGURES}


@dataclasses.dataclass(frozen=True)
class Measured:
    """One row of one run. each: what the figures are relative to: request, round trip, second. count: how many of them the window had.
    layers: instructions of one, by layer; empty if not known. A figure that the row does not have is absent."""

    row: str
    arm: str
    cores: int
    round: int
    each: str
    count: float
    figures: Mapping[str, float]
    layers: Mapping[str, float]
    about: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Mean, and the bounds of its confidence interval; they are equal to the mean if it has none."""

    mean: float
    low: float
    high: float
    rounds: int

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def estimate(values: Sequence[float]) -> Estimate:
    """`values`: one of each round, at least one."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Estimate(mean, mean, mean, 1)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    freedom = len(values) - 1
    quantile = T_QUANTILES[freedom - 1] if freedom <= len(T_QUANTILES) else NORMAL_QUANTILE
    half = quantile * deviation / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half, len(values))


@dataclasses.dataclass(frozen=True)
class Cell:
    """One row and arm over all rounds."""

    each: str
    count: float
    figures: Mapping[str, Estimate]
    layers: Mapping[str, Estimate]


def cells(measured: Sequence[Measured]) -> dict[tuple[str, int], dict[str, Cell]]:
    """By row and number of cores, then by arm, in the order in which they come."""
    groups: dict[tuple[str, int], dict[str, list[Measured]]] = {}
    for one in measured:
        groups.setdefault((one.row, one.cores), {}).setdefault(one.arm, []).append(one)
    return {key: {arm: _cell(rounds) for arm, rounds in arms.items()} for key, arms in groups.items()}


def _cell(rounds: Sequence[Measured]) -> Cell:
    # A figure counts only if all rounds have it, so that a mean is never over a part of them.
    present = {name: [one.figures[name] for one in rounds if name in one.figures] for name in BY_NAME}
    figures = {
        name: estimate(values)
        for name, values in present.items()
        if values and (len(values) == len(rounds) or BY_NAME[name].first_round_only)
    }
    layers = list(dict.fromkeys(name for one in rounds for name in one.layers))
    return Cell(
        rounds[0].each,
        math.fsum(one.count for one in rounds),
        figures,
        {name: estimate([one.layers.get(name, 0.0) for one in rounds]) for name in layers},
    )


def ratio(cell: Cell, base: Cell, name: str) -> float | None:
    """A figure of `cell`, relative to that of `base`; None if one of them lacks it or the base is 0."""
    mine, theirs = cell.figures.get(name), base.figures.get(name)
    return mine.mean / theirs.mean if mine and theirs and theirs.mean else None
