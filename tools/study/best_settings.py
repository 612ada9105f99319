# SPDX-License-Identifier: BSL-1.0
"""The setting with the least energy per request within a limit of latency (SLA), and what simpler choices lose.

    second best     the setting with the next higher energy
    ITR alone       the frequency is fixed at the highest one
    DVFS alone      ITR is fixed: at the default, or at each of the measured ones
    unseen repeat   chosen by all repeats but one, measured by that one: the least of many noisy energies is too low, this one is not

A loss is the additional energy, as a share of the best setting's.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tools.study.fronts import Settings, bounds
from tools.study.least_squares import interval

SURE = 0.5


@dataclasses.dataclass(frozen=True)
class Choice:
    """One setting within an SLA. `place`: in the group's settings. `meets`, `is_best`: shares of the replicates in which the setting is
    within the SLA, and has the least energy of all that are; NaN without replicates. Bounds of the loss are NaN without replicates."""

    place: int
    latency_us: float
    latency_bounds: tuple[float, float]
    energy_uj: float
    energy_bounds: tuple[float, float]
    meets: float
    is_best: float
    loss: float
    loss_bounds: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Unseen:
    """Means over repeats that took no part in the choice. `meets`: the share of these repeats within the SLA."""

    loss: float
    meets: float
    repeats: int


@dataclasses.dataclass(frozen=True)
class Best:
    """All choices of one group within one SLA. A choice is None if no setting of its kind is within the SLA. `dvfs_alone`: by ITR, where
    None is the adaptive one."""

    sla_us: float
    best: Choice | None
    second: Choice | None
    itr_alone: Choice | None
    dvfs_alone: dict[float | None, Choice | None]
    unseen: Unseen | None


class Chooser:
    """Chooses within one SLA. `sure`: a setting counts as within the SLA if its share of replicates that are is at least this; without
    replicates its mean decides, as it does for a share of one half."""

    def __init__(self, group: Settings, sla_us: float, sure: float = SURE):
        self._group = group
        self._sla = sla_us
        met = group.replicates_latency <= sla_us
        self._meets = met.mean(axis=0) if group.has_bands else np.full(len(group), np.nan)
        by_mean = group.latency_us <= sla_us
        self._feasible = by_mean & (self._meets >= sure) if group.has_bands and sure > SURE else by_mean
        self._is_best = np.full(len(group), np.nan)
        if group.has_bands:
            # The setting with the least energy within a limit is the last member of the front there.
            within = (members[met[at, members]] for at, members in enumerate(group.replicate_fronts))
            least = [members[-1] for members in within if len(members)]
            self._is_best = np.bincount(np.array(least, int), minlength=len(group)) / len(met)

    def best(self, default_itr: float | None) -> Best:
        everything = np.ones(len(self._group), bool)
        order = self._order(everything)
        if not len(order):
            return Best(self._sla, None, None, None, {itr: None for itr in self._intervals()}, None)
        best = int(order[0])
        frequencies = np.array([np.nan if value is None else value for value in self._values("frequency_ghz")], float)
        highest = frequencies == np.nanmax(frequencies) if np.isfinite(frequencies).any() else np.zeros(len(frequencies), bool)
        itrs = self._values("itr_us")
        # The first setting of each interval in the order of energy.
        first = {itrs[place]: int(place) for place in order[::-1]}
        alone = {itr: self._choice(first[itr], best) if itr in first else None for itr in self._intervals()}
        if default_itr is not None:
            alone.setdefault(default_itr, None)
        second = self._choice(int(order[1]), best) if len(order) > 1 else None
        return Best(self._sla, self._choice(best, best), second, self._first(highest, best), alone, self._unseen(best))

    def _values(self, name: str) -> np.ndarray:
        found = self._group.settings
        return self._group.values(name) if found and name in found[0] else np.full(len(self._group), None, object)

    def _intervals(self) -> list[float | None]:
        found = set(self._values("itr_us").tolist())
        return sorted(found, key=lambda itr: (itr is None, itr or 0))

    def _order(self, among: np.ndarray) -> np.ndarray:
        """The feasible settings by rising energy."""
        places = np.flatnonzero(among & self._feasible)
        return places[np.argsort(self._group.energy_uj[places], kind="stable")]

    def _first(self, among: np.ndarray, best: int) -> Choice | None:
        order = self._order(among)
        return self._choice(int(order[0]), best) if len(order) else None

    def _choice(self, place: int, best: int) -> Choice:
        group = self._group
        nothing = (float("nan"), float("nan"))
        losses = group.replicates_energy[:, place] / group.replicates_energy[:, best] - 1
        return Choice(
            place,
            float(group.latency_us[place]),
            bounds(group.latency_bounds, place),
            float(group.energy_uj[place]),
            bounds(group.energy_bounds, place),
            float(self._meets[place]),
            float(self._is_best[place]),
            float(group.energy_uj[place] / group.energy_uj[best] - 1),
            interval(losses) if group.has_bands else nothing,
        )

    def _unseen(self, best: int) -> Unseen | None:
        """Each repeat number in turn is left out of the choice."""
        group = self._group
        most = int(group.repeats.max())
        if most < 2 or int(group.repeats.min()) < most:
            return None
        latency, energy = (group.runs.numbers(name)[np.stack(group.of.rows())] for name in (group.latency_column, "energy_uj"))
        losses, met = [], []
        for out in range(most):
            kept = np.arange(most) != out
            within = latency[:, kept].mean(axis=1) <= self._sla
            if not within.any():
                continue
            chosen = int(np.argmin(np.where(within, energy[:, kept].mean(axis=1), np.inf)))
            losses.append(energy[chosen, out] / group.energy_uj[best] - 1)
            met.append(latency[chosen, out] <= self._sla)
        return Unseen(float(np.mean(losses)), float(np.mean(met)), len(losses)) if losses else None
