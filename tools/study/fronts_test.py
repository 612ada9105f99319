# SPDX-License-Identifier: BSL-1.0
"""Fronts agree with their definition, bands contain the truth, and a group's settings are made of the right rows."""

import numpy as np
import pyarrow as pa
import pytest

from tools.errors import Failure
from tools.study import fronts, schema
from tools.study.fronts import Settings
from tools.study.runs_table import Runs

ITR_US = (2.0, 50, 100, 200, 400)
GHZ = (1.2, 1.8, 2.4, 2.9)


def truth(itr: float, ghz: float) -> tuple[float, float]:
    """Latency in us and energy in uJ without noise."""
    return 150 / ghz**1.3 + itr, 50 * ghz**0.9 * max(itr, 5) ** -0.11


def rows(repeats: int = 5, seed: int = 1, noise: float = 0.02, **changes) -> list[dict]:
    chance = np.random.default_rng(seed)
    found = []
    for itr in ITR_US:
        for ghz in GHZ:
            for repeat in range(1, repeats + 1):
                latency, energy = np.array(truth(itr, ghz)) * (1 + noise * chance.standard_normal(2))
                row = {"arm": "Neap", "load": "etc", "status": "ok", "itr_us": itr, "frequency_ghz": ghz, "repeat": repeat}
                found.append({**row, "p99_us": latency, "energy_uj": energy, **changes})
    return found


def made(given: list[dict], replicates: int = 200, by: str | None = None, **options) -> list[Settings]:
    return list(fronts.groups(Runs(schema.runs_table(given), "test"), by, "p99_us", replicates, 1, [], **options))


def by_definition(latency: np.ndarray, energy: np.ndarray) -> set[int]:
    """The places that no other point dominates, by comparison of all pairs."""
    found = set()
    for i in range(len(latency)):
        dominated = False
        for j in range(len(latency)):
            no_worse = latency[j] <= latency[i] and energy[j] <= energy[i]
            dominated |= bool(no_worse and (latency[j] < latency[i] or energy[j] < energy[i]))
        if not dominated:
            found.add(i)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_front_is_that_of_the_definition(seed: int) -> None:
    """Half of the cases have few distinct values, so that ties of each kind occur."""
    chance = np.random.default_rng(seed)
    count = int(chance.integers(1, 60))
    values = chance.random((2, count)) if seed % 2 else chance.integers(0, 6, (2, count)).astype(float)
    found = fronts.front(*values)
    assert set(found.tolist()) == by_definition(*values) and len(set(found.tolist())) == len(found)
    latency, energy = values[:, found]
    assert np.all(np.diff(latency) >= 0) and np.all(np.diff(energy) <= 0)


def test_least_energy() -> None:
    latency, energy = np.array([10.0, 20, 30]), np.array([5.0, 7, 3])
    np.testing.assert_equal(fronts.least_energy(latency, energy, np.array([9.9, 10, 29, 30])), [np.inf, 5, 5, 3])
    np.testing.assert_equal(fronts.least_energy(latency[::-1], energy, np.array([10.0, 25])), [3, 3])


def test_fronts_of_replicates_are_those_of_all_settings() -> None:
    group = made(rows(4, noise=0.05))[0]
    for latency, energy, found in zip(group.replicates_latency, group.replicates_energy, group.replicate_fronts, strict=True):
        assert set(found.tolist()) == by_definition(latency, energy)


@pytest.mark.parametrize("repeats", [4, 30])
def test_replicates_scatter_as_means_of_repeats_do(repeats: int) -> None:
    """Of repeats with a scatter of 2 %, and of settings that do not depend on each other."""
    group = made(rows(repeats, noise=0.02), replicates=2000)[0]
    spread = group.replicates_energy.std(axis=0) / group.energy_uj
    assert np.sqrt(np.mean(spread**2)) == pytest.approx(0.02 / np.sqrt(repeats), rel=0.15)
    assert np.abs(np.corrcoef(group.replicates_energy.T) - np.eye(len(group))).max() < 0.12


@pytest.mark.parametrize("repeats", [3, 10])
def test_bands_contain_the_truth(repeats: int) -> None:
    """Of the true least energies and of the true means of settings, some 95 % are within their bounds: over 20 seeds at least 88 %."""
    inside, within = [], []
    for seed in range(20):
        group = made(rows(repeats, seed))[0]
        front = fronts.front_of(group)
        true = np.array([truth(one["itr_us"], one["frequency_ghz"]) for one in group.settings])
        # Away from the steps of the true curve: there the least energy jumps within the error of a latency.
        steps = true[fronts.front(*true.T), 0]
        limits = [at for at, limit in enumerate(front.limits_us) if np.min(np.abs(steps / limit - 1)) > 0.06]
        least = fronts.least_energy(true[:, 0], true[:, 1], front.limits_us)
        inside += [bool(front.low_uj[at] <= least[at] <= front.high_uj[at]) for at in limits]
        for place in range(len(group)):
            low, high = fronts.bounds(group.energy_bounds, place)
            within.append(low <= true[place, 1] <= high)
    assert 0.88 < np.mean(inside) <= 1 and 0.88 < np.mean(within) < 0.995


def test_means_and_repeats() -> None:
    group = made(rows(3))[0]
    assert len(group) == len(ITR_US) * len(GHZ) and set(group.repeats) == {3}
    given = [row for row in rows(3) if row["itr_us"] == 50 and row["frequency_ghz"] == 2.4]
    place = group.settings.index({"itr_us": 50, "frequency_ghz": 2.4, "idle": None, "rapl_w": None})
    assert group.latency_us[place] == pytest.approx(np.mean([row["p99_us"] for row in given]))
    assert group.energy_uj[place] == pytest.approx(np.mean([row["energy_uj"] for row in given]))


def test_latency_and_energy_of_a_repeat_stay_together() -> None:
    """Repeats whose latency and energy rise together have replicates that do so, too."""
    given = rows(6, noise=0)
    for row in given:
        factor = 1 + 0.01 * row["repeat"]
        row["p99_us"], row["energy_uj"] = row["p99_us"] * factor, row["energy_uj"] * factor
    group = made(given)[0]
    assert np.corrcoef(group.replicates_latency[:, 0], group.replicates_energy[:, 0])[0, 1] > 0.999


def test_without_repeats_there_is_no_band() -> None:
    for given in (made(rows(1)), made(rows(3), replicates=0)):
        front = fronts.front_of(given[0])
        assert not given[0].has_bands and np.all(np.isnan(front.low_uj)) and np.all(np.isnan(front.share))
    # One setting without repeats takes its scatter from the others.
    mixed = made(rows(3)[2:])[0]
    assert mixed.has_bands and sorted(set(mixed.repeats)) == [1, 3]
    assert np.std(mixed.replicates_energy[:, int(np.argmin(mixed.repeats))]) > 0


def test_a_single_setting_is_its_front() -> None:
    front = fronts.front_of(made(rows(3)[:3])[0])
    assert front.members.tolist() == [0] and front.share.tolist() == [1] and len(front.limits_us) == 1


def test_share_of_the_front() -> None:
    """A member that is far from all others is always on the front; a dominated one is so more rarely, the nearer it is."""
    group = made(rows(5))[0]
    front = fronts.front_of(group)
    cheapest = int(np.argmin(group.energy_uj))
    assert front.share[cheapest] == 1 and np.all(front.share[front.members] > 0.3)
    far = int(np.argmax(group.energy_uj * group.latency_us))
    assert far not in front.members and front.share[far] < 0.05


def test_groups_and_settings() -> None:
    """Columns of --by make groups, all others are settings."""
    given = rows(2) + rows(2, arm="Linux", p99_us=900.0) + rows(2, idle="c6")
    assert [(group.name, len(group)) for group in made(given)] == [("Linux", 20), ("Neap", 40)]
    by_idle = made(given, by="arm,idle")
    assert [group.name for group in by_idle] == ["Linux, no idle", "Neap, idle c6", "Neap, no idle"]
    assert "idle" not in by_idle[0].settings[0]


def test_a_setting_with_one_saturated_repeat_is_left_out_whole() -> None:
    given = rows(3, rate_wanted=1e5, rate_reached=1e5)
    given[4]["rate_reached"] = 0.9e5
    found = made(given, replicates=0)
    assert len(found[0]) == 19 and [(one.rows, one.reason[:8]) for one in found[0].excluded] == [(3, "a repeat")]
    assert len(made(given, replicates=0, keep_saturated=True)[0]) == 20


def test_rows_without_latency_or_energy_are_left_out() -> None:
    given = rows(2)
    given[0]["energy_uj"], given[1]["p99_us"] = None, 0.0
    group = made(given)[0]
    assert len(group) == 19 and group.excluded[0].rows == 2
    with pytest.raises(Failure, match="the column 'energy_uj' is missing"):
        list(fronts.groups(Runs(pa.table({"p99_us": [1.0]}), "test"), None, "p99_us", 0, 1, []))


def test_too_many_replicates_are_refused() -> None:
    with pytest.raises(Failure, match="too much memory"):
        made(rows(2), replicates=10_000_000)
