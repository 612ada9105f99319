# SPDX-License-Identifier: BSL-1.0
"""Pareto fronts of latency against energy per request, with confidence bands.

A group of runs has settings (ITR, frequency, ...) with repeats. A setting's latency and energy are the means over its repeats. The front
has the settings that no other setting dominates: none has less of one and not more of the other.

Repeats differ, so the front is uncertain. A bootstrap replicate draws repeats of each setting with replacement. Their deviations from the
mean are enlarged by sqrt(n / (n - 1)), because few repeats underestimate their own scatter. Latency and energy of a repeat stay together.

Few repeats that happen to be close say little about the scatter. So a setting with fewer than OWN_REPEATS_MIN repeats draws from the
relative deviations of all settings of its group.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tools.errors import Failure
from tools.study import derived, runs_table
from tools.study.least_squares import LEVEL
from tools.study.repeats import Repeats
from tools.study.runs_table import Excluded, Runs, drop

RATE_SHARE_MIN = 0.99
OWN_REPEATS_MIN = 10
BAND_POINTS = 60
# Replicates x settings; two arrays of so many numbers take 800 MB.
REPLICATED_MAX = 50_000_000
# Means of a few drawn deviations, of which each replicate of a setting with few repeats takes one.
DRAWN_MEANS = 100_000
# Drawn repeats that are in memory at once.
DRAWN_MAX = 10_000_000


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of one group, each with the means over its repeats. `of`: the rows of each setting in `runs`. `replicates_*`: replicates
    x settings; no rows without repeats, and after released(). `latency_bounds`, `energy_bounds`: settings x 2; NaN without repeats."""

    key: dict[str, Any]
    runs: Runs
    latency_column: str
    names: tuple[str, ...]
    settings: list[dict[str, Any]]
    of: Repeats
    latency_us: np.ndarray
    energy_uj: np.ndarray
    replicates_latency: np.ndarray
    replicates_energy: np.ndarray
    latency_bounds: np.ndarray
    energy_bounds: np.ndarray
    figures: list[dict[str, float]]
    excluded: list[Excluded]

    def __len__(self) -> int:
        return len(self.settings)

    @property
    def name(self) -> str:
        return runs_table.group_name(self.key)

    @property
    def has_bands(self) -> bool:
        return bool(np.isfinite(self.latency_bounds).any())

    @property
    def repeats(self) -> np.ndarray:
        return self.of.counts

    def values(self, name: str) -> np.ndarray:
        found = np.empty(len(self), object)
        found[:] = [one[name] for one in self.settings]
        return found

    def released(self) -> Settings:
        """The same without the replicates, which are large."""
        nothing = np.empty((0, len(self)))
        return dataclasses.replace(self, replicates_latency=nothing, replicates_energy=nothing)

    @functools.cached_property
    def replicate_fronts(self) -> list[np.ndarray]:
        """The front of each replicate, as front() has it."""
        near, found = front(self.latency_us, self.energy_uj), []
        for latency, energy in zip(self.replicates_latency, self.replicates_energy, strict=True):
            near = front_near(latency, energy, near)
            found.append(near)
        return found


def front(latency: np.ndarray, energy: np.ndarray) -> np.ndarray:
    """The places of the points that no other one dominates, by rising latency. Of equal points all are on the front."""
    order = np.lexsort((energy, latency))
    latency, energy = latency[order], energy[order]
    least_before = np.concatenate([[np.inf], np.minimum.accumulate(energy)[:-1]])
    is_first = np.ones(len(order), bool)
    is_first[1:] = (latency[1:] != latency[:-1]) | (energy[1:] != energy[:-1])
    first_equal = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    return order[(energy < least_before)[first_equal]]


def front_near(latency: np.ndarray, energy: np.ndarray, near: np.ndarray) -> np.ndarray:
    """The same as front(), in less time. `near`: places of points that may be on the front. Points that these dominate are not sorted."""
    near = near[front(latency[near], energy[near])]
    rest = np.flatnonzero(energy <= least_within(latency, energy, near, latency))
    return rest[front(latency[rest], energy[rest])]


def least_energy(latency: np.ndarray, energy: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The least energy within each limit of latency; infinite if no point is."""
    return least_within(latency, energy, front(latency, energy), limits)


def least_within(latency: np.ndarray, energy: np.ndarray, members: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Like least_energy(), of points whose front is known."""
    return np.concatenate([[np.inf], energy[members]])[np.searchsorted(latency[members], limits, "right")]


@dataclasses.dataclass(frozen=True)
class Front:
    """The members of a front by rising latency, and its band. `share`: for each setting of the group, the share of replicates in which it
    is on the front; NaN without replicates.

    The band is that of a curve: the least energy within each limit of latency. `limits_us` are evenly spaced on a logarithmic axis, from
    the first to the last member. A bound is infinite where the front may begin at a higher latency, and NaN without replicates."""

    members: np.ndarray
    share: np.ndarray
    limits_us: np.ndarray
    least_uj: np.ndarray
    low_uj: np.ndarray
    high_uj: np.ndarray


def front_of(group: Settings) -> Front:
    members = front(group.latency_us, group.energy_uj)
    ends = group.latency_us[members[[0, -1]]]
    limits = np.geomspace(*ends, BAND_POINTS) if ends[1] > ends[0] else ends[:1]
    limits[0], limits[-1] = ends[0], ends[1]  # exactly, so that the first member is within the first limit
    least = least_energy(group.latency_us, group.energy_uj, limits)
    if not group.has_bands:
        nothing = np.full(len(limits), np.nan)
        return Front(members, np.full(len(group), np.nan), limits, least, nothing, nothing)
    replicates = list(zip(group.replicates_latency, group.replicates_energy, group.replicate_fronts, strict=True))
    of_replicates = np.stack([least_within(*each, limits) for each in replicates])
    # This method never computes with two values, of which one may be infinite.
    low, high = np.quantile(of_replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0, method="inverted_cdf")
    share = np.bincount(np.concatenate(group.replicate_fronts), minlength=len(group)) / len(replicates)
    return Front(members, share, limits, least, low, high)


def groups(
    runs: Runs, by: str | None, latency: str, replicates: int, seed: int, excluded: list[Excluded], keep_saturated: bool = False
) -> Iterator[Settings]:
    """Yields each group with a row. Adds to `excluded` the rows that are left out, if not of one of these groups. Raises Failure if a
    column is missing."""
    runs.require(latency, "energy_uj")
    group_names = runs_table.grouping(runs, by)
    usable, left_out = runs_table.measured(runs)
    excluded += left_out
    for key, part in derived.added(usable, latency).groups(group_names):
        names = tuple(name for name in (*runs_table.SETTING_COLUMNS, *runs.further_settings()) if name not in group_names)
        group = _settings(key, part, names, latency, replicates, seed, keep_saturated)
        if len(group):
            yield group
        else:
            excluded += [dataclasses.replace(one, reason=f"{one.reason} ({group.name})") for one in group.excluded]


def _settings(
    key: dict[str, Any], runs: Runs, names: tuple[str, ...], latency: str, replicates: int, seed: int, keep_saturated: bool
) -> Settings:
    excluded: list[Excluded] = []
    known = (runs.numbers(latency) > 0) & (runs.numbers("energy_uj") > 0)
    runs = drop(runs, ~known, f"{latency} or energy_uj is not known or not positive", excluded)
    if not keep_saturated:
        runs = _without_saturated(runs, names, excluded)
    settings, of = _repeats(runs, names)
    latencies, energies = runs.numbers(latency), runs.numbers("energy_uj")
    drawn = resampled(latencies, energies, of, replicates, seed)
    return Settings(
        *(key, runs, latency, names, settings, of),
        *(of.means(latencies), of.means(energies), *drawn, *map(_bounds, drawn)),
        *(derived.means(runs, of), excluded),
    )


def _repeats(runs: Runs, names: Sequence[str]) -> tuple[list[dict[str, Any]], Repeats]:
    return runs.combinations([name for name in names if name in runs.table.column_names])


def _bounds(replicates: np.ndarray) -> np.ndarray:
    if not len(replicates):
        return np.full((replicates.shape[1], 2), np.nan)
    return np.quantile(replicates.T, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1).T


def bounds(of: np.ndarray, place: int) -> tuple[float, float]:
    """Of one setting, from `latency_bounds` or `energy_bounds`."""
    return float(of[place, 0]), float(of[place, 1])


def _without_saturated(runs: Runs, names: Sequence[str], excluded: list[Excluded]) -> Runs:
    """Drops all repeats of a setting if one of them did not reach its rate. Without that repeat the setting would look too good."""
    with np.errstate(divide="ignore", invalid="ignore"):
        saturated = runs.numbers("rate_reached") / runs.numbers("rate_wanted") < RATE_SHARE_MIN
    if not saturated.any():
        return runs
    _, of = _repeats(runs, names)
    return drop(
        runs,
        (of.means(saturated) > 0)[of.setting],
        f"a repeat of the setting reached less than {100 * RATE_SHARE_MIN:g} % of the wanted rate; --keep-saturated keeps it",
        excluded,
    )


def resampled(latency: np.ndarray, energy: np.ndarray, of: Repeats, replicates: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of drawn repeats: replicates x settings of latency and of energy. Empty if no setting has two repeats."""
    if not replicates or not np.any(of.counts > 1):
        return np.empty((0, len(of))), np.empty((0, len(of)))
    if replicates * len(of) > REPLICATED_MAX:
        raise Failure(f"{replicates} replicates of {len(of)} settings need too much memory", "a smaller --replicates, or --where")
    chance = np.random.default_rng(seed)
    means = np.stack([of.means(latency), of.means(energy)])
    counts = of.counts[of.setting]
    # As shares of the mean. Few repeats underestimate their own scatter.
    deviations = (np.stack([latency, energy]) / means[:, of.setting] - 1) * np.sqrt(counts / np.maximum(counts - 1, 1))
    pooled = deviations[:, counts > 1]
    by_setting = np.argsort(of.setting, kind="stable")
    found = np.empty((2, len(of), replicates))
    for count in np.unique(of.counts).tolist():
        chosen = np.flatnonzero(of.counts == count)
        if count < OWN_REPEATS_MIN:
            drawn = pooled[:, chance.integers(0, pooled.shape[1], (DRAWN_MEANS, count))].mean(axis=2)
            found[:, chosen] = drawn[:, chance.integers(0, DRAWN_MEANS, (len(chosen), replicates))]
        else:
            own = deviations[:, by_setting[counts[by_setting] == count]].reshape(2, len(chosen), count)
            found[:, chosen] = _own(own, replicates, chance)
    found += 1
    found *= means[:, :, None]
    return found[0].T, found[1].T


def _own(deviations: np.ndarray, replicates: int, chance: np.random.Generator) -> np.ndarray:
    """Means of repeats that are drawn from the setting's own: 2 x settings x replicates. The drawn numbers are those of all settings, in
    another order for each, so that settings do not depend on each other."""
    _, settings, count = deviations.shape
    found = np.empty((2, settings, replicates))
    at_once = max(1, DRAWN_MAX // count)
    for begin in range(0, replicates, at_once):
        size = min(at_once, replicates - begin)
        drawn = chance.integers(0, count, (size, count)) + count * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        found[:, :, begin : begin + size] = deviations @ (times.T / count)
    order = chance.permuted(np.tile(np.arange(replicates), (settings, 1)), axis=1)
    return np.take_along_axis(found, order[None], axis=2)
