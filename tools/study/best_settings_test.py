# SPDX-License-Identifier: BSL-1.0
"""The best setting within an SLA, and what simpler choices lose, by comparison of all settings."""

import math

import numpy as np
import pytest

from tools.study import fronts_test
from tools.study.best_settings import Chooser
from tools.study.fronts import Settings
from tools.study.fronts_test import GHZ, ITR_US, made, truth

TRUE = {(itr, ghz): truth(itr, ghz) for itr in ITR_US for ghz in GHZ}


def within(sla: float, **fixed: float) -> list[tuple[float, tuple[float, float]]]:
    """Energies and settings within an SLA, by rising energy."""
    found = [
        (energy, (itr, ghz))
        for (itr, ghz), (latency, energy) in TRUE.items()
        if latency <= sla and fixed.get("itr", itr) == itr and fixed.get("ghz", ghz) == ghz
    ]
    return sorted(found)


def setting(group: Settings, place: int) -> tuple[float, float]:
    return group.settings[place]["itr_us"], group.settings[place]["frequency_ghz"]


@pytest.mark.parametrize("sla", [70, 100, 150, 200, 300, 600])
def test_choices_are_the_least_of_their_kind(sla: float) -> None:
    group = made(fronts_test.rows(1, noise=0))[0]
    best = Chooser(group, sla).best(None)
    energy, place = within(sla)[0]
    assert best.best and setting(group, best.best.place) == place and best.best.energy_uj == pytest.approx(energy)
    assert best.best.loss == 0 and math.isnan(best.best.meets)
    assert best.second and best.second.loss == pytest.approx(within(sla)[1][0] / energy - 1)
    highest = within(sla, ghz=max(GHZ))
    assert best.itr_alone and best.itr_alone.loss == pytest.approx(highest[0][0] / energy - 1)
    assert list(best.dvfs_alone) == list(ITR_US)
    for itr, one in best.dvfs_alone.items():
        there = within(sla, itr=itr or 0)
        assert (one is None) == (not there)
        if one:
            assert one.loss == pytest.approx(there[0][0] / energy - 1) and setting(group, one.place) == there[0][1]


def test_no_setting_within_the_sla() -> None:
    best = Chooser(made(fronts_test.rows(2))[0], 5.0).best(default_itr=50)
    assert (best.best, best.second, best.itr_alone, best.unseen) == (None, None, None, None)
    assert list(best.dvfs_alone) == list(ITR_US) and not any(best.dvfs_alone.values())


def test_adaptive_settings_count() -> None:
    """An arm with adaptive ITR and a governor has settings without numbers. They are no part of `ITR alone`, and a kind of `DVFS alone`."""
    given = fronts_test.rows(2, noise=0)
    given += [{**given[0], "itr_us": None, "frequency_ghz": None, "repeat": n, "p99_us": 60.0, "energy_uj": 1.0} for n in (1, 2)]
    group = made(given)[0]
    best = Chooser(group, 100).best(None)
    assert best.best and group.settings[best.best.place]["itr_us"] is None
    assert list(best.dvfs_alone) == [*ITR_US, None] and best.dvfs_alone[None] == best.best
    assert best.itr_alone and group.settings[best.itr_alone.place]["frequency_ghz"] == max(GHZ)
    only = made([row for row in given if row["itr_us"] is None])[0]
    assert Chooser(only, 100).best(None).itr_alone is None


def test_a_setting_at_the_limit_is_not_sure() -> None:
    """The cheapest setting is just within the SLA: half of the replicates are not."""
    group = made(fronts_test.rows(5, noise=0.02), replicates=1000)[0]
    place = int(np.argmin(group.energy_uj))
    sla = float(group.latency_us[place]) * 1.0005
    plain = Chooser(group, sla).best(None).best
    assert plain and plain.place == place and 0.35 < plain.meets < 0.65 and plain.is_best == pytest.approx(plain.meets, abs=0.01)
    sure = Chooser(group, sla, sure=0.95).best(None).best
    assert sure and sure.place != place and sure.meets >= 0.95 and sure.energy_uj > plain.energy_uj


def test_bounds_of_losses_contain_the_truth() -> None:
    inside = []
    for seed in range(15):
        group = made(fronts_test.rows(5, seed))[0]
        best = Chooser(group, 150).best(None)
        assert best.best and best.itr_alone
        true = [truth(*setting(group, one.place))[1] for one in (best.itr_alone, best.best)]
        low, high = best.itr_alone.loss_bounds
        inside.append(low <= true[0] / true[1] - 1 <= high)
    assert np.mean(inside) >= 0.7


def test_the_least_of_noisy_energies_is_too_low() -> None:
    """All settings are equal. A repeat that took no part in the choice shows the true energy, which is above the least mean."""
    losses = []
    for seed in range(10):
        chance = np.random.default_rng(seed)
        given = fronts_test.rows(4, noise=0)
        for row in given:
            row["p99_us"], row["energy_uj"] = 50.0, 10 * (1 + 0.05 * chance.standard_normal())
        unseen = Chooser(made(given)[0], 100).best(None).unseen
        assert unseen and unseen.repeats == 4 and unseen.meets == 1
        losses.append(unseen.loss)
    assert 0.02 < np.mean(losses) < 0.08
    assert Chooser(made(fronts_test.rows(3)[1:])[0], 100).best(None).unseen is None
