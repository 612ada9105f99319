# SPDX-License-Identifier: BSL-1.0
"""NetPIPE's models: parameters are recovered over several sizes, coefficients are not negative, one size is not enough for energy."""

import numpy as np
import pytest

from tools.study import closed_loop
from tools.study.closed_loop import Link, Size
from tools.study.open_loop import Fit, Options, Unfit

ITR_US = (2.0, 10, 20, 50, 100, 200)
GHZ = (1.2, 1.6, 2.0, 2.4, 2.9)
LINK = Link(delay_us=2.0)
G, D, A = -0.02, 0.98, -0.4
Z_US = {64: 12.0, 8192: 30.0, 65536: 110.0}
NO_INTERVALS = Options(replicates=0)


def made(message_bytes: int, watts: tuple[float, float, float], noise: float = 0.0, repeats: int = 1, seed: int = 1) -> Size:
    chance = np.random.default_rng([seed, message_bytes])
    itr, ghz, _ = (axis.ravel() for axis in np.meshgrid(ITR_US, GHZ, range(repeats)))
    wait, work = itr ** (G * ghz + D), Z_US[message_bytes] / ghz ** (1 + A)
    sent = LINK.transmission_us(message_bytes)
    one_way = (wait + sent + work) * (1 + noise * chance.standard_normal(len(itr)))
    energy = 2 * (watts[0] * wait + watts[1] * sent + watts[2] * work) * (1 + noise * chance.standard_normal(len(itr)))
    return closed_loop.size(message_bytes, itr, ghz, one_way, energy)


def fits(sizes: dict[float, Size], options: Options = NO_INTERVALS) -> tuple[dict[float, Fit], Fit | Unfit]:
    times = {number: closed_loop.fit_times(one, LINK, options) for number, one in sizes.items()}
    for one in times.values():
        assert isinstance(one, Fit), one
    return times, closed_loop.fit_energies(sizes, times, LINK, options)  # type: ignore[return-value]


def test_transmission() -> None:
    """One frame of 64 bytes and 78 of headers; three frames of a message of 4,000 bytes."""
    assert Link().transmission_us(64) == pytest.approx(142 * 8 / 10_000)
    assert Link(gbps=40, delay_us=1).transmission_us(4000) == pytest.approx(1 + (4000 + 3 * 78) * 8 / 40_000)


def test_exact_rows_give_exact_parameters() -> None:
    times, energy = fits({number: made(number, (15.0, 4.0, 28.0)) for number in Z_US})
    for number, one in times.items():
        assert [one[name] for name in ("g", "d", "Z", "a")] == pytest.approx([G, D, Z_US[number], A], rel=1e-4)
    assert isinstance(energy, Fit) and [energy[name] for name in closed_loop.CF_NAMES] == pytest.approx([15, 4, 28], rel=1e-3)


def test_noise_and_intervals() -> None:
    options = Options(replicates=100)
    times, energy = fits({number: made(number, (15.0, 4.0, 28.0), 0.01, repeats=3) for number in Z_US}, options)
    for number, one in times.items():
        assert one["Z"] == pytest.approx(Z_US[number], rel=0.1) and one["a"] == pytest.approx(A, abs=0.1)
        assert one["g"] == pytest.approx(G, abs=0.01)
    assert isinstance(energy, Fit) and energy["CFa"] == pytest.approx(15, rel=0.05) and energy["CFc"] == pytest.approx(28, rel=0.1)
    for name, true in zip(closed_loop.CF_NAMES, (15, 4, 28)):
        found = energy.parameter(name)
        assert found.low <= found.value <= found.high and found.low - 1 < true < found.high + 1
    assert energy.solution.rows == 3 * len(Z_US) * len(ITR_US) * len(GHZ)


def test_the_longer_of_interval_and_message() -> None:
    """Rows of a machine whose interval runs while the message is on its way. Their energy has the same parts."""
    sizes = {}
    for number in Z_US:
        itr, ghz = (axis.ravel() for axis in np.meshgrid((2.0, 10, 20, 50, 100, 200, 400, 800), GHZ))
        sent, work = LINK.transmission_us(number), Z_US[number] / ghz ** (1 + A)
        one_way = np.maximum(0.5 * itr, sent + work)
        sizes[number] = closed_loop.size(number, itr, ghz, one_way, 2 * (15 * (one_way - sent - work) + 4 * sent + 28 * work))
    times = {number: closed_loop.fit_longer(one, LINK, Options(replicates=20)) for number, one in sizes.items()}
    for number, one in times.items():
        assert isinstance(one, Fit), one
        assert [one[name] for name in ("phi", "Z", "a")] == pytest.approx([0.5, Z_US[number], A], rel=1e-4)
        additive = closed_loop.fit_times(sizes[number], LINK, NO_INTERVALS)
        assert isinstance(additive, Unfit) or additive.solution.spread > 100 * one.solution.spread
    energy = closed_loop.fit_energies(sizes, times, LINK, Options(replicates=20))
    assert isinstance(energy, Fit) and [energy[name] for name in closed_loop.CF_NAMES] == pytest.approx([15, 4, 28], rel=1e-3)


def test_an_interval_that_is_longer_in_all_rows_shows_no_work() -> None:
    itr, ghz = (axis.ravel() for axis in np.meshgrid((50.0, 100, 200), GHZ))
    found = closed_loop.fit_longer(closed_loop.size(64, itr, ghz, 0.5 * itr), LINK, NO_INTERVALS)
    assert isinstance(found, Unfit) and "the interval is longer than the message in all rows" in found.reason


def test_coefficients_are_not_negative() -> None:
    """A transmission that gives energy back is not one: CFb stays at 0, and is named."""
    _, energy = fits({number: made(number, (15.0, -3.0, 28.0)) for number in Z_US})
    assert isinstance(energy, Fit) and energy["CFb"] == 0 and energy.notes == ("CFb is at its bound, 0",)


def test_one_size_does_not_determine_the_energy() -> None:
    _, energy = fits({64: made(64, (15.0, 4.0, 28.0))})
    assert isinstance(energy, Unfit) and "CFb needs 2 sizes" in energy.reason


def test_proportional_parts_are_named() -> None:
    """Two sizes whose work has the ratio of their transmission, and does not depend on the frequency."""
    sizes = {}
    for number in (8192, 65536):
        itr, ghz = (axis.ravel() for axis in np.meshgrid(ITR_US, GHZ))
        sent = LINK.transmission_us(number)
        sizes[number] = closed_loop.size(number, itr, ghz, itr + 3 * sent, itr + sent + ghz)
    _, energy = fits(sizes)
    assert isinstance(energy, Unfit) and "nearly proportional" in energy.reason


def test_what_rows_cannot_tell_is_named() -> None:
    whole = made(64, (15.0, 4.0, 28.0))

    def of(keep: np.ndarray, link: Link = LINK) -> str:
        given = whole.times
        part = closed_loop.size(64, given.itr_us[keep], given.ghz[keep], given.value[keep])
        found = closed_loop.fit_times(part, link, NO_INTERVALS)
        assert isinstance(found, Unfit)
        return found.reason

    everything = whole.times.itr_us > 0
    assert "2 distinct frequencies" in of(np.isin(whole.times.ghz, (1.2, 2.9)))
    assert "2 distinct ITRs" in of(np.isin(whole.times.itr_us, (2, 200)))
    assert "is the link's speed right" in of(everything, Link(gbps=0.001))
