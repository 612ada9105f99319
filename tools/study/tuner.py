# SPDX-License-Identifier: BSL-1.0
"""Constrained Bayesian optimisation over a grid: the setting of least power whose latency meets an SLA.

A trial violates the SLA at the cost of real requests, so a setting is tried only if the model is sure that it meets the SLA: its predicted
latency is below the SLA by the guard band, and by three standard deviations of the prediction. While trials are few these are more: the
quantile of Student's distribution with the same probability. Only of the first trials, which look at each
axis, it is enough that they are more likely to meet the SLA than to violate it.

Among the sure settings the tuner takes the one of largest expected improvement. If another setting promises far more, but is not sure yet,
the tuner takes the sure setting whose trial says most about the other's latency. That may be one that was tried already: its second trial
halves the noise. It does so only if the trials left can make the other setting sure.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from tools.study.tune_grid import ITR, Grid, Value
from tools.study.tune_model import NOISE_MIN, NOISE_MIN_LATENCY, cost_surface, latency_surface

POWER, ENERGY = "power_w", "energy_uj"
DEVIATIONS = 3.0
# The prior counts as so many trials, for the degrees of freedom of Student's distribution.
PRIOR_TRIALS = 2
# A sure trial of at least this share of the largest promise is preferred to one that only informs.
WORTHWHILE_SHARE = 0.5
# The result's predicted latency is below the SLA by this many standard deviations.
RESULT_DEVIATIONS = 2.0
# The largest latency that the model learns, as a multiple of the SLA; also that of a trial without a valid latency.
LATENCY_MAX = 2.0
FEW_VALUES = 5
START, GAIN, KNOWLEDGE = "start", "gain", "knowledge"
MEETS, IN_GUARD_BAND, VIOLATES = "meets", "in the guard band", "violates"


@dataclasses.dataclass(frozen=True)
class Goal:
    """guard: share of the SLA. trials: the largest number. gain: the search ends if no setting promises to save this share of power.
    repeatable: a second trial of a setting may give another result."""

    sla_us: float
    guard: float = 0.01
    trials: int = 30
    gain: float = 0.0005
    repeatable: bool = True


@dataclasses.dataclass(frozen=True)
class Trial:
    """One measurement. `why`: START, GAIN or KNOWLEDGE. latency_us: None if the load failed. cost: power or energy per request."""

    number: int
    place: int
    why: str
    latency_us: float | None
    cost: float | None
    verdict: str


@dataclasses.dataclass(frozen=True)
class Proposal:
    place: int
    why: str


class Tuner:
    """Proposes settings, and learns from their trials: `propose`, measure, `record`, until `propose` returns None."""

    def __init__(self, grid: Grid, goal: Goal):
        self.grid = grid
        self.goal = goal
        self.trials: list[Trial] = []
        self.ended_because = ""
        self._latency = latency_surface(grid, goal.sla_us, NOISE_MIN_LATENCY if goal.repeatable else NOISE_MIN)
        self._cost = cost_surface(grid)
        self._start = _start_ranks(grid, goal.sla_us)
        self._fitted = 0

    @property
    def safest(self) -> int:
        return self.grid.place([0] * len(self.grid.axes))

    def propose(self) -> Proposal | None:
        """The next trial; None if the search ends, with the reason in `ended_because`."""
        if len(self.trials) >= self.goal.trials:
            return self._end(f"{self.goal.trials} trials were made")
        while self._start:
            place = self.grid.place(self._start.pop(0))
            if not self.trials or self._is_likely(place):
                return Proposal(place, START)
        if not any(trial.verdict != VIOLATES for trial in self.trials):
            if len(self.trials) == 1 and self.goal.repeatable:
                return Proposal(self.safest, START)
            return self._end("no trial met the SLA")
        return self._best_informed()

    def record(self, proposal: Proposal, latency_us: float | None, cost: float | None) -> Trial:
        """`latency_us`: None if the load failed; the setting then counts as a violation. `cost`: None if it was not measured."""
        trial = Trial(len(self.trials) + 1, proposal.place, proposal.why, latency_us, cost, self.verdict(latency_us))
        self.trials.append(trial)
        return trial

    def verdict(self, latency_us: float | None) -> str:
        if latency_us is None or latency_us > self.goal.sla_us:
            return VIOLATES
        return MEETS if latency_us <= self.goal.sla_us * (1 - self.goal.guard) else IN_GUARD_BAND

    def best(self) -> int | None:
        """The tried setting of least predicted cost among those that meet the SLA, as far as the model is sure; None if there is none."""
        met = {trial.place: trial for trial in self.trials if trial.verdict != VIOLATES}
        if not met:
            return None
        if not self.goal.repeatable:
            return min(met, key=lambda place: met[place].cost or math.inf)
        if any(trial.cost is not None for trial in self.trials):
            self._fit()
            surface = self._latency
            sure = [place for place in met if surface.mean[place] + RESULT_DEVIATIONS * surface.deviation[place] <= 1]
            if sure:
                return min(sure, key=lambda place: float(self._cost.mean[place]))
        return min(met, key=lambda place: min(trial.latency_us or math.inf for trial in self.trials if trial.place == place))

    def nearest(self) -> Trial | None:
        """The trial of least latency."""
        valid = [trial for trial in self.trials if trial.latency_us is not None]
        return min(valid, key=lambda trial: trial.latency_us or math.inf) if valid else None

    def _end(self, why: str) -> None:
        self.ended_because = why

    def _is_likely(self, place: int) -> bool:
        """True for a start setting that is new, and more likely to meet the SLA than to violate it."""
        self._fit()
        return all(trial.place != place for trial in self.trials) and bool(self._latency.mean[place] <= 1 - self.goal.guard)

    def _share(self, trial: Trial) -> float:
        """The trial's latency as a share of the SLA."""
        return LATENCY_MAX if trial.latency_us is None else min(LATENCY_MAX, trial.latency_us / self.goal.sla_us)

    def _fit(self) -> None:
        if self._fitted == len(self.trials):
            return
        self._fitted = len(self.trials)
        self._latency.fit([trial.place for trial in self.trials], [self._share(trial) for trial in self.trials])
        priced = [(trial.place, math.log(trial.cost)) for trial in self.trials if trial.cost is not None and trial.cost > 0]
        if priced:
            self._cost.fit(*zip(*priced, strict=True))

    def _best_informed(self) -> Proposal | None:
        self._fit()
        goal, latency = self.goal, self._latency
        places = np.arange(len(self.grid))
        # Without repeats a setting's one value has the noise for good.
        deviation = latency.deviation if goal.repeatable else np.hypot(latency.deviation, latency.noise(places))
        room = 1 - latency.mean
        tried = np.isin(places, [trial.place for trial in self.trials])
        sure = room >= np.maximum(goal.guard, self._deviations() * deviation)
        hoped = np.where(tried, 0.0, self._expected_saving() * norm.cdf((room - goal.guard) / deviation))
        if hoped.max() <= goal.gain:
            return self._end(f"no setting promises to save {100 * goal.gain:g} %")
        gain = np.where(sure, hoped, 0.0)
        candidates = np.flatnonzero(sure if goal.repeatable else sure & ~tried)
        wanted = self._worth_knowing(hoped, room, candidates)
        if gain.max() > goal.gain and (wanted is None or gain.max() >= WORTHWHILE_SHARE * hoped[wanted]):
            return Proposal(int(gain.argmax()), GAIN)
        if wanted is None:
            return self._end(f"no setting that promises to save {100 * goal.gain:g} % is surely within the SLA")
        return Proposal(int(candidates[latency.reduction(wanted, candidates, 1).argmax()]), KNOWLEDGE)

    def _worth_knowing(self, hoped: np.ndarray, room: np.ndarray, candidates: np.ndarray) -> int | None:
        """The setting of largest promise among those that the trials left, but the last one, can make sure; None if there is none."""
        repeats, latency, open_places = self.goal.trials - len(self.trials) - 1, self._latency, hoped > self.goal.gain
        while repeats > 0 and len(candidates) and open_places.any():
            wanted = int(np.where(open_places, hoped, 0.0).argmax())
            known = float(latency.reduction(wanted, candidates, repeats).max())
            left = math.sqrt(max(0.0, latency.deviation[wanted] ** 2 - known))
            # The prediction will move by the variance that becomes known.
            becomes_sure = norm.cdf((room[wanted] - max(self.goal.guard, self._deviations() * left)) / math.sqrt(max(known, 1e-12)))
            if hoped[wanted] * becomes_sure > self.goal.gain:
                return wanted
            # Settings of no less latency and no less doubt cannot become sure either.
            open_places &= (room > room[wanted]) | (latency.deviation < latency.deviation[wanted])
        return None

    def _deviations(self) -> float:
        return float(student.ppf(norm.cdf(DEVIATIONS), len(self.trials) + PRIOR_TRIALS))

    def _expected_saving(self) -> np.ndarray:
        """For each setting, by which share it is expected to be cheaper than the present result; a dearer one saves nothing."""
        cost, best = self._cost, self.best()
        improvement = cost.mean[best] - cost.mean
        scaled = improvement / cost.deviation
        return improvement * norm.cdf(scaled) + cost.deviation * norm.pdf(scaled)


def _start_ranks(grid: Grid, sla_us: float) -> list[list[int]]:
    """The first trials: the safest setting; each axis alone at a moderate value; each axis of few values but ITR alone at its riskiest one.
    Between many values the model steps by itself."""
    zero = [0] * len(grid.axes)
    moderate = [(at, _moderate(one.name, one.values, sla_us)) for at, one in enumerate(grid.axes)]
    riskiest = [(at, len(one.values) - 1) for at, one in enumerate(grid.axes) if one.name != ITR and len(one.values) <= FEW_VALUES]
    return [zero, *([*zero[:at], rank, *zero[at + 1 :]] for at, rank in moderate + riskiest)]


def _moderate(name: str, values: Sequence[Value], sla_us: float) -> int:
    """The middle value. Of ITR the last one of at most a quarter of the SLA, but not the first."""
    if name != ITR:
        return len(values) // 2
    return min(len(values) - 1, max(1, sum(float(value) <= sla_us / 4 for value in values) - 1))
