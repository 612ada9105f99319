# SPDX-License-Identifier: BSL-1.0
"""The fit of the trade-off finds the parameters that made its points, and the table shows every cell."""

import random

import pytest

from tools.bench import trade_off
from tools.bench.rows import Row
from tools.bench.trade_off import Cell


def cells(z: float, a: float, phi: float, noise: float = 0.0) -> list[Cell]:
    chance = random.Random(4)
    found = []
    for itr_us in trade_off.ITR_US:
        for ratio in trade_off.RATIOS:
            p99_us = (z / (ratio / 10) ** (1 + a) + phi * itr_us) * (1 + noise * chance.uniform(-1, 1))
            found.append(Cell(1000, itr_us, ratio, {"p99_us": p99_us}))
    return found


@pytest.mark.parametrize(("z", "a", "phi"), [(86.3, -0.48, 1.09), (251.67, 0.71, 1.08), (55.88, -0.96, 0.98)])
def test_the_fit_finds_the_parameters_of_its_points(z: float, a: float, phi: float) -> None:
    exact = trade_off.fit(cells(z, a, phi))
    assert (exact.z, exact.a, exact.phi) == pytest.approx((z, a, phi), rel=1e-6) and exact.error_us < 1e-6
    noisy = trade_off.fit(cells(z, a, phi, noise=0.01))
    assert noisy.phi == pytest.approx(phi, rel=0.03) and noisy.error_us > 0.1


def test_the_table_has_every_cell() -> None:
    rows = []
    for rate in trade_off.RATES:
        for itr_us in trade_off.ITR_US:
            for ratio in trade_off.RATIOS:
                rows += [Row(f"{Cell(rate, itr_us, ratio, {}).name}.{name}", "", 1.0) for name in trade_off.FIGURES]
        rows += [Row(f"rate_{rate}.fit.{name}", "", 1.0) for name in ("z", "a", "phi", "error_us")]
    lines = trade_off.show(rows).splitlines()
    assert "modelled, not measured" in lines[0]
    assert len(lines) == 1 + len(trade_off.RATES) * (4 - 1 + 1 + len(trade_off.ITR_US) * len(trade_off.RATIOS))
