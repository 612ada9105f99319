# SPDX-License-Identifier: BSL-1.0
"""The fits find the parameters that made their points."""

import math
import random

import pytest

from tools.bench import study_models
from tools.bench.study_models import Point

ITR_US = (2, 50, 100, 200, 300)
GHZ = (1.2, 1.5, 1.8, 2.1, 2.5, 2.9)


def points(z: float, a: float, phi: float, log_gamma: float = -12.8, b: float = 0.7, noise: float = 0.0) -> list[Point]:
    chance = random.Random(4)
    found = []
    for itr_us in ITR_US:
        for ghz in GHZ:
            latency_us = (z / ghz ** (1 + a) + phi * itr_us) * (1 + noise * chance.uniform(-1, 1))
            watts = math.exp(3 + 0.9 * math.log(ghz) - 0.11 * math.log(itr_us))
            found.append(Point(ghz, itr_us, latency_us, watts, math.exp(log_gamma) * phi * itr_us * ghz**b))
    return found


@pytest.mark.parametrize(("z", "a", "phi"), [(86.3, -0.48, 1.09), (251.67, 0.71, 1.08), (687.97, 1.34, 1.02), (51.72, -1.04, 1.03)])
def test_latency(z: float, a: float, phi: float) -> None:
    exact = study_models.fit_latency(points(z, a, phi))
    assert (exact.z, exact.a, exact.phi) == pytest.approx((z, a, phi), rel=1e-6) and exact.error_us < 1e-6
    noisy = study_models.fit_latency(points(z, a, phi, noise=0.01))
    assert noisy.phi == pytest.approx(phi, rel=0.03) and noisy.error_us > 0.1


def test_energy_and_power() -> None:
    made = points(86.3, -0.48, 1.09, log_gamma=-12.82, b=0.71)
    energy = study_models.fit_energy(made, 1.09)
    assert (energy.log_gamma, energy.b) == pytest.approx((-12.82, 0.71))
    power = study_models.fit_power(made)
    assert (power.c0, power.c1, power.c2) == pytest.approx((3, 0.9, -0.11))
