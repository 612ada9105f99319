# SPDX-License-Identifier: BSL-1.0
"""One search of the tuner, on a table or on a machine, with the energy that the search itself takes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from tools.study.tune_grid import Grid, Value, shown
from tools.study.tune_live import Measured, Setting
from tools.study.tuner import MEETS, POWER, VIOLATES, Goal, Trial, Tuner

# Measures a setting. The second one is safe, and in force after a violation.
Measure = Callable[[Setting, Setting], Measured]


@dataclasses.dataclass(frozen=True)
class Search:
    """The end of a search. `best`: None if no trial met the SLA. `best_power_w`, `best_latency_us`: means of its trials."""

    grid: Grid
    goal: Goal
    trials: tuple[Trial, ...]
    measured: tuple[Measured, ...]
    best: int | None
    ended_because: str

    @property
    def setting(self) -> dict[str, Value] | None:
        return None if self.best is None else self.grid.setting(self.best)

    def of_best(self, what: Callable[[Measured], float | None]) -> float | None:
        """The mean of a quantity of the best setting's trials."""
        values = [what(one) for trial, one in zip(self.trials, self.measured, strict=True) if trial.place == self.best]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    @property
    def best_power_w(self) -> float | None:
        return self.of_best(lambda one: one.power_w)

    @property
    def violations(self) -> int:
        return sum(trial.verdict == VIOLATES for trial in self.trials)

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.measured)

    @property
    def energy_j(self) -> float:
        return sum(one.energy_j for one in self.measured)

    @property
    def additional_j(self) -> float | None:
        """The energy of the trials, minus that of the best setting in the same time."""
        power = self.best_power_w
        return None if power is None else self.energy_j - power * self.seconds

    @property
    def nearest(self) -> Trial | None:
        valid = [trial for trial in self.trials if trial.latency_us is not None]
        return min(valid, key=lambda trial: trial.latency_us or 0.0) if valid else None

    def refusal(self) -> str:
        """Why there is no best setting."""
        nearest = self.nearest
        if nearest is None:
            return "no trial had a valid latency"
        return (
            f"no setting was found that meets an SLA of {self.goal.sla_us:g} us; the nearest is "
            f"{shown(self.grid.setting(nearest.place))} with {nearest.latency_us:.1f} us"
        )


def search(
    grid: Grid,
    goal: Goal,
    measure: Measure,
    cost: str = POWER,
    on_trial: Callable[[Trial, Measured], Any] | None = None,
    seconds_max: float | None = None,
) -> Search:
    """Searches until the tuner ends, or until `seconds_max` of the host's time have passed. Raises what `measure` raises; `on_trial` has
    then had all trials before."""
    tuner, measured = Tuner(grid, goal), []
    deadline = None if seconds_max is None else time.monotonic() + seconds_max
    safe: Setting = grid.setting(tuner.safest)
    while proposal := tuner.propose():
        if deadline is not None and time.monotonic() >= deadline:
            tuner.ended_because = f"{seconds_max:g} s have passed"
            break
        one = measure(grid.setting(proposal.place), safe)
        trial = tuner.record(proposal, one.latency_us, one.power_w if cost == POWER else one.energy_uj)
        measured.append(one)
        if trial.verdict == MEETS:
            safe = grid.setting(trial.place)
        if on_trial:
            on_trial(trial, one)
    return Search(grid, goal, tuple(tuner.trials), tuple(measured), tuner.best(), tuner.ended_because)
