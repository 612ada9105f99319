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
from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.errors import Failure
from tools.study import derived, runs_table
from tools.study.least_squares import LEVEL, interval
from tools.study.runs_table import Excluded, Runs, drop

RATE_SHARE_MIN = 0.99
OWN_REPEATS_MIN = 10
BAND_POINTS = 60
# Replicates x settings; two arrays of so many numbers take 800 MB.
REPLICATED_MAX = 50_000_000


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of one group, each with the means over its repeats. `replicates_*`: replicates x settings; no rows without repeats.
    `rows`: the places of each setting's runs in `runs`."""

    key: dict[str, Any]
    runs: Runs
    latency_column: str
    names: tuple[str, ...]
    settings: list[dict[str, Any]]
    rows: list[np.ndarray]
    latency_us: np.ndarray
    energy_uj: np.ndarray
    replicates_latency: np.ndarray
    replicates_energy: np.ndarray
    figures: list[dict[str, float]]
    excluded: list[Excluded]

    def __len__(self) -> int:
        return len(self.settings)

    @property
    def name(self) -> str:
        return runs_table.group_name(self.key)

    @property
    def has_bands(self) -> bool:
        return len(self.replicates_latency) > 0

    @property
    def repeats(self) -> np.ndarray:
        return np.array([len(rows) for rows in self.rows])

    def interval(self, replicates: np.ndarray, place: int) -> tuple[float, float]:
        """Of one setting, from `replicates_latency` or `replicates_energy`; NaN without replicates."""
        return interval(replicates[:, place]) if len(replicates) else (float("nan"), float("nan"))

    def values(self, name: str) -> np.ndarray:
        found = np.empty(len(self), object)
        found[:] = [one[name] for one in self.settings]
        return found


def front(latency: np.ndarray, energy: np.ndarray) -> np.ndarray:
    """The places of the points that no other one dominates, by rising latency. Of equal points all are on the front."""
    found: list[int] = []
    least = np.inf
    for at in np.lexsort((energy, latency)).tolist():
        equal = bool(found) and latency[at] == latency[found[-1]] and energy[at] == energy[found[-1]]
        if energy[at] < least or equal:
            found.append(at)
            least = energy[at]
    return np.array(found, int)


def least_energy(latency: np.ndarray, energy: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The least energy within each limit of latency; infinite if no point is. Works on points (settings) or replicates x settings."""
    return np.stack([np.min(np.where(latency <= limit, energy, np.inf), axis=-1) for limit in limits], axis=-1)


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
    of_replicates = least_energy(group.replicates_latency, group.replicates_energy, limits)
    # This method never computes with two values, of which one may be infinite.
    low, high = np.quantile(of_replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0, method="inverted_cdf")
    share = np.zeros(len(group))
    for latency, energy in zip(group.replicates_latency, group.replicates_energy, strict=True):
        share[front(latency, energy)] += 1
    return Front(members, share / len(group.replicates_latency), limits, least, low, high)


def groups(
    runs: Runs, by: str | None, latency: str, replicates: int, seed: int, keep_saturated: bool = False
) -> tuple[list[Settings], list[Excluded]]:
    """Groups without a row are left out; the reasons are in the second list. Raises Failure if a column is missing."""
    runs.require(latency, "energy_uj")
    group_names = runs_table.grouping(runs, by)
    usable, excluded = runs_table.measured(runs)
    usable = derived.added(usable, latency)
    found = []
    for key, part in usable.groups(group_names):
        names = tuple(name for name in (*runs_table.SETTING_COLUMNS, *runs.further_settings()) if name not in group_names)
        found.append(_settings(key, part, names, latency, replicates, seed, keep_saturated))
    # A group without a row is not shown, so its reasons are told for the whole table.
    for group in found:
        if not len(group):
            excluded += [dataclasses.replace(one, reason=f"{one.reason} ({group.name})") for one in group.excluded]
    return [group for group in found if len(group)], excluded


def _settings(
    key: dict[str, Any], runs: Runs, names: tuple[str, ...], latency: str, replicates: int, seed: int, keep_saturated: bool
) -> Settings:
    excluded: list[Excluded] = []
    known = (runs.numbers(latency) > 0) & (runs.numbers("energy_uj") > 0)
    runs = drop(runs, ~known, f"{latency} or energy_uj is not known or not positive", excluded)
    if not keep_saturated:
        runs = _without_saturated(runs, names, excluded)
    settings, rows = [], []
    for setting, places in _places(runs, names):
        settings.append(setting)
        rows.append(places)
    latencies, energies = runs.numbers(latency), runs.numbers("energy_uj")
    means = [np.array([column[places].mean() for places in rows]) for column in (latencies, energies)]
    drawn = resampled(latencies, energies, rows, replicates, seed)
    figures = derived.means(runs, rows)
    return Settings(key, runs, latency, names, settings, rows, means[0], means[1], drawn[0], drawn[1], figures, excluded)


def _places(runs: Runs, names: Sequence[str]) -> list[tuple[dict[str, Any], np.ndarray]]:
    return runs.places([name for name in names if name in runs.table.column_names])


def _without_saturated(runs: Runs, names: Sequence[str], excluded: list[Excluded]) -> Runs:
    """Drops all repeats of a setting if one of them did not reach its rate. Without that repeat the setting would look too good."""
    with np.errstate(divide="ignore", invalid="ignore"):
        saturated = runs.numbers("rate_reached") / runs.numbers("rate_wanted") < RATE_SHARE_MIN
    if not saturated.any():
        return runs
    bad = np.zeros(len(runs), bool)
    for _, places in _places(runs, names):
        bad[places] = saturated[places].any()
    return drop(
        runs,
        bad,
        f"a repeat of the setting reached less than {100 * RATE_SHARE_MIN:g} % of the wanted rate; --keep-saturated keeps it",
        excluded,
    )


def resampled(
    latency: np.ndarray, energy: np.ndarray, rows: Sequence[np.ndarray], replicates: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Means of drawn repeats: replicates x settings of latency and of energy. Empty if no setting has two repeats."""
    if not replicates or not any(len(places) > 1 for places in rows):
        return np.empty((0, len(rows))), np.empty((0, len(rows)))
    if replicates * len(rows) > REPLICATED_MAX:
        raise Failure(f"{replicates} replicates of {len(rows)} settings need too much memory", "a smaller --replicates, or --where")
    chance = np.random.default_rng(seed)
    found = np.empty((2, replicates, len(rows)))
    pooled = []
    for places in rows:
        if len(places) > 1:
            values = np.stack([latency[places], energy[places]])
            mean = values.mean(axis=1, keepdims=True)
            pooled.append((values / mean - 1) * np.sqrt(len(places) / (len(places) - 1)))
    deviations = np.concatenate(pooled, axis=1)
    for at, places in enumerate(rows):
        values = np.stack([latency[places], energy[places]])
        mean = values.mean(axis=1, keepdims=True)
        if len(places) < OWN_REPEATS_MIN:
            drawn = deviations[:, chance.integers(0, deviations.shape[1], (replicates, len(places)))]
            found[:, :, at] = mean * (1 + drawn.mean(axis=2))
        else:
            drawn = values[:, chance.integers(0, len(places), (replicates, len(places)))].mean(axis=2)
            found[:, :, at] = mean + np.sqrt(len(places) / (len(places) - 1)) * (drawn - mean)
    return found[0], found[1]
