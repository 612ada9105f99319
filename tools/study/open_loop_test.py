# SPDX-License-Identifier: BSL-1.0
"""The fits recover the parameters that made their rows, their intervals are right, and what rows cannot tell is named."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import optimize

from tools.study import least_squares, open_loop, twin
from tools.study.open_loop import Fit, Options, Points, Unfit
from tools.study.published import TABLE_6_1, Published

NO_INTERVALS = Options(replicates=0)
EXACT = Published("Linux", 400_000, 251.67, 0.71, 1.08, -12.79, 0.76)


def column(rows: list[dict], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows])


def latencies(rows: list[dict]) -> Points:
    return open_loop.points(column(rows, "itr_us"), column(rows, "frequency_ghz"), column(rows, "p99_us"))


def energies(rows: list[dict]) -> Points:
    return open_loop.points(column(rows, "itr_us"), column(rows, "frequency_ghz"), column(rows, "energy_j") / column(rows, "interrupts"))


def fitted(found: Fit | Unfit) -> Fit:
    assert isinstance(found, Fit), found
    return found


def refused(found: Fit | Unfit) -> str:
    assert isinstance(found, Unfit), found
    return found.reason


@pytest.mark.parametrize("of", TABLE_6_1, ids=lambda of: of.name)
def test_exact_rows_give_exact_parameters(of: Published) -> None:
    rows = twin.rows(of, 1, noise=0, repeats=1)
    latency = fitted(open_loop.fit_latency(latencies(rows), NO_INTERVALS))
    assert (latency["Z"], latency["a"], latency["phi"]) == pytest.approx((of.z, of.a, of.phi), rel=1e-5)
    energy = fitted(open_loop.fit_energy(energies(rows), latency, NO_INTERVALS))
    assert (energy["log gamma"], energy["b"]) == pytest.approx((of.log_gamma, of.b), rel=1e-5)
    assert energy["gamma"] == pytest.approx(1e6 * math.exp(of.log_gamma), rel=1e-4)
    parts = open_loop.fit_parts(latencies(rows), NO_INTERVALS)
    assert fitted(parts.interrupt)["phi"] == pytest.approx(of.phi, rel=1e-6)
    assert fitted(parts.interrupt)["t_work(2 GHz)"] == pytest.approx(of.z / 2 ** (1 + of.a), rel=1e-6)
    assert (fitted(parts.work)["Z"], fitted(parts.work)["a"]) == pytest.approx((of.z, of.a), rel=1e-5)


@pytest.mark.parametrize("of", TABLE_6_1, ids=lambda of: of.name)
def test_noise_of_two_percent(of: Published) -> None:
    """The twin's rows: Z within 3 %, a within 0.05, phi within 0.01, and the intervals contain most of the true values."""
    covered = []
    for seed in range(5):
        rows = twin.rows(of, seed)
        options = Options(replicates=200, seed=seed)
        latency = fitted(open_loop.fit_latency(latencies(rows), options))
        assert latency["Z"] == pytest.approx(of.z, rel=0.03)
        assert latency["a"] == pytest.approx(of.a, abs=0.05)
        assert latency["phi"] == pytest.approx(of.phi, abs=0.01)
        energy = fitted(open_loop.fit_energy(energies(rows), latency, options))
        assert (energy["log gamma"], energy["b"]) == pytest.approx((of.log_gamma, of.b), abs=0.03)
        for fit, name, true in ((latency, "Z", of.z), (latency, "a", of.a), (latency, "phi", of.phi), (energy, "b", of.b)):
            found = fit.parameter(name)
            assert found.low < found.value < found.high
            covered.append(found.low <= true <= found.high)
        assert latency.solution.spread == pytest.approx(0.02, rel=0.15)
        assert abs(latency.correlations["work, a"]) < 0.65 < latency.correlations["Z, a"]
    # 20 intervals of 95 %: 15 or fewer would have a probability of 1 in 400.
    assert sum(covered) >= 15


def test_power() -> None:
    itr, ghz = (axis.ravel() for axis in np.meshgrid(twin.ITR_US, twin.GHZ))
    power = fitted(open_loop.fit_power(open_loop.points(itr, ghz, np.exp(3 + 0.9 * np.log(ghz) - 0.11 * np.log(itr))), NO_INTERVALS))
    assert (power["c0"], power["c1"], power["c2"]) == pytest.approx((3, 0.9, -0.11))


def test_relative_residuals_do_not_let_the_largest_latencies_decide() -> None:
    """An error of 10 % at the largest latency moves the plain fit farther than the relative one."""
    rows = twin.rows(EXACT, 1, noise=0, repeats=1)
    given = latencies(rows)
    changed = given.value.copy()
    changed[np.argmax(changed)] *= 1.1
    moved = {}
    for relative in (True, False):
        options = dataclasses.replace(NO_INTERVALS, relative=relative)
        moved[relative] = abs(fitted(open_loop.fit_latency(dataclasses.replace(given, value=changed), options))["phi"] - EXACT.phi)
    assert 0 < moved[True] < moved[False] / 2


def test_repeats_share_the_error_of_their_setting() -> None:
    """Ten copies of each row are no more than one row: the intervals stay as wide."""
    rows = twin.rows(EXACT, 1, repeats=1)
    one = fitted(open_loop.fit_latency(latencies(rows), Options(replicates=300)))
    ten = fitted(open_loop.fit_latency(latencies(rows * 10), Options(replicates=300)))
    widths = [fit.parameter("phi").high - fit.parameter("phi").low for fit in (one, ten)]
    assert widths[1] == pytest.approx(widths[0], rel=0.25)
    assert one.misfit_p is None and ten.settings == one.settings


def test_the_fit_of_means_is_that_of_all_rows() -> None:
    """Settings with many repeats have more weight. The reference fits all rows at once."""
    rows = twin.rows(EXACT, 1, noise=0.1)
    chance = np.random.default_rng(1)
    chosen = [rows[at] for at in chance.choice(len(rows), 2 * len(rows), p=chance.dirichlet(np.ones(len(rows))))]
    itr, ghz, us = (column(chosen, name) for name in ("itr_us", "frequency_ghz", "p99_us"))
    reference = optimize.least_squares(lambda v: v[0] / ghz ** (1 + v[1]) + v[2] * itr - us, (250, 0.7, 1), xtol=1e-12, ftol=1e-12).x
    found = fitted(open_loop.fit_latency(latencies(chosen), dataclasses.replace(NO_INTERVALS, relative=False)))
    assert [found[name] for name in ("Z", "a", "phi")] == pytest.approx(reference, rel=1e-5)
    assert found.solution.rows == len(chosen) and found.settings < len(rows) / 2


def test_one_linear_step_gives_the_intervals_of_many_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = twin.rows(EXACT, 1, noise=0.05, itr_us=range(50, 150), ghz=twin.GHZ, repeats=1)
    bounds = []
    for limit in (len(rows), len(rows) - 1):
        monkeypatch.setattr(least_squares, "EXACT_SETTINGS_MAX", limit)
        found = fitted(open_loop.fit_latency(latencies(rows), Options(replicates=60)))
        bounds.append([(one.low, one.high) for one in found.parameters])
    assert bounds[0] != bounds[1]
    np.testing.assert_allclose(bounds[1], bounds[0], rtol=2e-3)


def test_a_wrong_model_is_noticed() -> None:
    """Latency that grows by the square of ITR: repeats agree, and the model misses all of them."""
    rows = twin.rows(EXACT, 1, noise=0.005)
    given = latencies(rows)
    assert fitted(open_loop.fit_latency(given, NO_INTERVALS)).misfit_p > 0.001  # type: ignore[operator]
    bent = dataclasses.replace(given, value=given.value + given.itr_us[given.of.setting] ** 2 / 1000)
    assert fitted(open_loop.fit_latency(bent, NO_INTERVALS)).misfit_p < 1e-9  # type: ignore[operator]


def test_gamma_and_phi_are_one_factor() -> None:
    rows = twin.rows(EXACT, 1, noise=0, repeats=1)
    without = fitted(open_loop.fit_energy(energies(rows), Unfit("6.3", "of no matter"), NO_INTERVALS))
    assert without["log gamma + log phi"] == pytest.approx(EXACT.log_gamma + math.log(EXACT.phi), rel=1e-5)
    assert "gamma" not in [one.name for one in without.parameters] and "cannot be told apart" in without.notes[0]


def test_energy_that_is_not_proportional_to_itr_is_named() -> None:
    rows = twin.rows(EXACT, 1)
    given = energies(rows)
    bent = dataclasses.replace(given, value=given.value * given.itr_us[given.of.setting] ** -0.11)
    fit = fitted(open_loop.fit_energy(bent, Unfit("6.3", ""), Options(replicates=100)))
    assert fit["power of ITR"] == pytest.approx(0.89, abs=0.01) and any("grows by ITR^0.8" in note for note in fit.notes)
    assert not any("grows" in note for note in fitted(open_loop.fit_energy(given, Unfit("6.3", ""), Options(replicates=100))).notes)


def only(rows: list[dict], **wanted: tuple) -> list[dict]:
    return [row for row in rows if all(row[name] in values for name, values in wanted.items())]


def test_what_rows_cannot_tell_is_named() -> None:
    rows = twin.rows(EXACT, 1)
    few = only(rows, frequency_ghz=(1.2, 2.9))
    assert "2 distinct frequencies" in refused(open_loop.fit_latency(latencies(few), NO_INTERVALS))
    assert "2 distinct frequencies" in refused(open_loop.fit_energy(energies(few), Unfit("6.3", ""), NO_INTERVALS))
    assert "2 distinct frequencies" in refused(open_loop.fit_parts(latencies(few), NO_INTERVALS).work)
    assert fitted(open_loop.fit_parts(latencies(few), NO_INTERVALS).interrupt)["phi"] == pytest.approx(EXACT.phi, abs=0.02)
    one_itr = only(rows, itr_us=(100.0,))
    assert "1 distinct ITR" in refused(open_loop.fit_latency(latencies(one_itr), NO_INTERVALS))
    assert "1 distinct ITR" in refused(open_loop.fit_power(energies(one_itr), NO_INTERVALS))
    # Energy of an interrupt needs no second ITR, because its dependence on ITR is given.
    assert fitted(open_loop.fit_energy(energies(one_itr), Unfit("6.3", ""), NO_INTERVALS))["b"] == pytest.approx(EXACT.b, abs=0.05)
    together = [row for row in rows if abs(row["itr_us"] - 400 * math.log(row["frequency_ghz"])) < 25]
    given = latencies(together)
    diagonal = open_loop.points(400 * np.log(given.ghz), given.ghz, given.value)
    assert "change together" in refused(open_loop.fit_latency(diagonal, NO_INTERVALS))
    constant = dataclasses.replace(latencies(rows), value=np.full(len(rows), 7.0))
    assert "the same in all 594 rows" in refused(open_loop.fit_latency(constant, NO_INTERVALS, "p99_us"))
    assert "no row left" in refused(open_loop.fit_latency(latencies(rows[:0]), NO_INTERVALS))


def test_an_exponent_without_work_is_named() -> None:
    """Latency that is ITR and noise alone: Z is 0, and each `a` fits."""
    chance = np.random.default_rng(1)
    itr, ghz = (axis.ravel() for axis in np.meshgrid((50.0, 100, 200, 300), (1.2, 1.6, 2.0, 2.4, 2.9)))
    noise = 1 + 0.02 * chance.standard_normal(len(itr))
    reason = refused(open_loop.fit_latency(open_loop.points(itr, ghz, itr * noise), Options(replicates=200)))
    assert "`a` is not determined" in reason or "cannot be told apart" in reason


def test_two_intervals_are_a_caution() -> None:
    rows = only(twin.rows(EXACT, 1), itr_us=(50.0, 400.0))
    assert any("untested" in note for note in fitted(open_loop.fit_latency(latencies(rows), NO_INTERVALS)).notes)
