# SPDX-License-Identifier: BSL-1.0
"""Constrained Bayesian optimisation over a grid: the setting of least power whose latency meets an SLA.

A trial violates the SLA at the cost of real requests, so a setting is tried only if the model is sure that it meets the SLA:

- Its predicted latency is below the SLA by the guard band, and by three standard deviations of the prediction. Few trials say little about
  the model's own parameters. So "three standard deviations" are the quantile of Student's distribution with the same probability.
- The guard band narrows in proportion to the trials made, to a fifth of its width at the last trial.

Among these settings the tuner takes the one of largest expected improvement. If another setting promises far more, but is not sure yet,
the tuner takes the safe setting whose trial says most about the other's latency. That may be one that was tried already: its second trial
halves the noise. The last trials only collect what the others made safe.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from tools.study.tune_grid import ITR, Grid, Value
from tools.study.tune_model import Surface

POWER, ENERGY = "power_w", "energy_uj"
# The prior mean of log(latency / SLA): a setting without evidence exceeds the SLA by a third.
PRIOR_LATENCY = 0.3
LENGTH_MAX_LATENCY, LENGTH_MAX_COST = 4.0, 6.0
# The least standard deviation of a trial's logarithms that the models presume. For latency it decides on safety.
NOISE_MIN_LATENCY, NOISE_MIN = 0.015, 0.003
DEVIATIONS = 3.0
GUARD_SHARE_AT_END = 0.2
# Degrees of freedom that the kernel's parameters take.
FITTED_PARAMETERS = 2
# A safe trial of at least this share of the largest promise is preferred to one that only informs.
WORTHWHILE_SHARE = 0.25
COLLECTING_TRIALS = 2
# The result's predicted latency is below the SLA by this many standard deviations.
RESULT_DEVIATIONS = 2.0
# A start at moderate values needs a safest setting whose latency is at most this share of the SLA.
CORNER_MAX = 0.5
# The latency of a trial without a valid latency, as a multiple of the SLA.
FAILED_LATENCY = 2.0
START, GAIN, KNOWLEDGE = "start", "gain", "knowledge"
MEETS, IN_GUARD_BAND, VIOLATES = "meets", "in the guard band", "violates"


@dataclasses.dataclass(frozen=True)
class Goal:
    """guard: share of the SLA. trials: the largest number. gain: the search ends if no setting promises to save this share of power.
    repeatable: a second trial of a setting may give another result."""

    sla_us: float
    guard: float = 0.05
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
        noise_min = NOISE_MIN_LATENCY if goal.repeatable else NOISE_MIN
        inputs = grid.latency_inputs(goal.sla_us)
        self._latency = Surface(inputs, prior_mean=PRIOR_LATENCY, length_max=LENGTH_MAX_LATENCY, noise_min=noise_min)
        self._cost = Surface(grid.inputs(), prior_mean=None, length_max=LENGTH_MAX_COST, noise_min=NOISE_MIN)
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
            if not self.trials or self._is_cautious(place):
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
        tried = sorted({trial.place for trial in self.trials})
        met = {trial.place for trial in self.trials if trial.verdict != VIOLATES}
        if not met:
            return None
        if len(self.trials) >= 2 and any(trial.cost is not None for trial in self.trials):
            self._fit()
            surface = self._latency
            sure = [place for place in tried if surface.mean[place] + RESULT_DEVIATIONS * surface.deviation[place] <= 0 and place in met]
            if sure:
                return min(sure, key=lambda place: float(self._cost.mean[place]))
        return min(met, key=lambda place: min(trial.latency_us or math.inf for trial in self.trials if trial.place == place))

    def nearest(self) -> Trial | None:
        """The trial of least latency."""
        valid = [trial for trial in self.trials if trial.latency_us is not None]
        return min(valid, key=lambda trial: trial.latency_us or math.inf) if valid else None

    def _end(self, why: str) -> None:
        self.ended_because = why

    def _is_cautious(self, place: int) -> bool:
        """False for a start setting that the trials so far advise against: it was tried, it is riskier on all axes than a setting that
        violated the SLA, or its latency is likely to be too high if it grows from the safest setting as it did so far."""
        ranks, wanted = self.grid.ranks, self.grid.ranks[place]
        ratio = {trial.place: math.exp(self._log_ratio(trial)) for trial in self.trials}
        if place in ratio or any(value > 1 and bool(np.all(ranks[at] <= wanted)) for at, value in ratio.items()):
            return False
        corner = ratio[self.trials[0].place]
        # The largest growth on each axis alone, of trials that are no riskier there.
        alone = {
            axis: value for at, value in ratio.items() if (axis := _only_axis(ranks[at])) is not None and ranks[at][axis] <= wanted[axis]
        }
        if (axis := _only_axis(wanted)) is not None:
            # Twice the relative growth that the moderate value had; without one, a half of the SLA must be left.
            return alone[axis] * (alone[axis] / corner) ** 2 <= 1 if axis in alone else corner <= CORNER_MAX
        return corner + 2 * sum(value - corner for value in alone.values()) <= 1

    def _log_ratio(self, trial: Trial) -> float:
        return math.log(FAILED_LATENCY if trial.latency_us is None else max(trial.latency_us, 1e-9) / self.goal.sla_us)

    def _fit(self) -> None:
        if self._fitted == len(self.trials):
            return
        self._fitted = len(self.trials)
        self._latency.fit([trial.place for trial in self.trials], [self._log_ratio(trial) for trial in self.trials])
        priced = [(trial.place, math.log(trial.cost)) for trial in self.trials if trial.cost is not None and trial.cost > 0]
        if priced:
            self._cost.fit(*zip(*priced, strict=True))

    def _best_informed(self) -> Proposal | None:
        self._fit()
        latency, cost, made, goal = self._latency, self._cost, len(self.trials), self.goal
        share_made = min(1.0, made / goal.trials)
        guard = goal.guard * (1 - (1 - GUARD_SHARE_AT_END) * share_made)
        deviations = student.ppf(norm.cdf(DEVIATIONS), max(1, made - FITTED_PARAMETERS))
        safe = latency.mean <= -np.maximum(guard, deviations * latency.deviation)
        tried = np.zeros(len(self.grid), bool)
        tried[[trial.place for trial in self.trials]] = True
        best_cost = self._best_cost(tried)
        improvement = best_cost - cost.mean
        scaled = improvement / cost.deviation
        expected = improvement * norm.cdf(scaled) + cost.deviation * norm.pdf(scaled)
        meets = norm.cdf((-guard - latency.mean) / latency.deviation)
        gain = np.where(safe & ~tried, expected * meets, 0.0)
        promise = np.where((latency.mean <= -guard) & ~tried, np.maximum(improvement, 0) * meets, 0.0)
        largest, wanted = float(gain.max()), int(promise.argmax())
        if max(largest, promise[wanted]) <= goal.gain:
            return self._end(f"no setting promises to save {100 * goal.gain:g} %")
        is_collecting = goal.trials - made <= COLLECTING_TRIALS
        is_worthwhile = largest >= max(2 * goal.gain, WORTHWHILE_SHARE * promise[wanted])
        if (is_worthwhile or promise[wanted] <= goal.gain) and largest > 0 or (is_collecting and largest > 0):
            return Proposal(int(gain.argmax()), GAIN)
        candidates = np.flatnonzero(safe if goal.repeatable else safe & ~tried)
        if not len(candidates):
            return self._end("no further setting is surely within the SLA")
        return Proposal(int(candidates[latency.reduction(wanted, candidates).argmax()]), KNOWLEDGE)

    def _best_cost(self, tried: np.ndarray) -> float:
        """The least predicted cost of the settings that were tried and are within the SLA, by one standard deviation."""
        within = tried & (self._latency.mean + self._latency.deviation <= 0)
        return float(self._cost.mean[within].min()) if within.any() else float(self._cost.mean[tried].max())


def _only_axis(ranks: np.ndarray) -> int | None:
    """The axis on which a setting differs from the safest one; None if there are none or several."""
    found = np.flatnonzero(ranks)
    return int(found[0]) if len(found) == 1 else None


def _start_ranks(grid: Grid, sla_us: float) -> list[Sequence[int]]:
    """The first trials: the safest setting; each axis alone, and all axes, at a moderate value; at last each axis but ITR alone at its
    riskiest value. An ITR of a quarter of the SLA is moderate."""
    moderate = [_moderate(one.name, one.values, sla_us, 0.25) for one in grid.axes]
    far = [_moderate(one.name, one.values, sla_us, 0.5) if one.name == ITR else len(one.values) - 1 for one in grid.axes]
    zero = [0] * len(grid.axes)
    found = [zero]
    found += [[rank if other == at else 0 for other in range(len(zero))] for at, rank in enumerate(moderate)]
    if len(zero) > 1:
        found.append(moderate)
    for at, one in enumerate(grid.axes):
        if one.name != ITR or len(zero) == 1:
            found.append([far[at] if other == at else 0 for other in range(len(zero))])
    return list(found)


def _moderate(name: str, values: Sequence[Value], sla_us: float, share: float) -> int:
    if name != ITR:
        return len(values) // 2
    return max((at for at, value in enumerate(values) if float(value) <= sla_us * share), default=0)
