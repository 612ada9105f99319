# SPDX-License-Identifier: BSL-1.0
"""The table of the trade-off shows every cell and the fits that its cells have."""

import pytest

from tools.bench import trade_off
from tools.bench.rows import Row
from tools.bench.trade_off import ARMS, Cell


def cells(arm: trade_off.Arm, z: float, a: float, phi: float) -> list[Cell]:
    found = []
    for itr_us in trade_off.ITR_US:
        for ratio in trade_off.RATIOS:
            ghz = ratio / 10
            figures = {"p99_us": z / ghz ** (1 + a) + phi * itr_us, "watts": 20.0 - itr_us / 100, "joules": 2.0, "interrupts": 1e5 / itr_us}
            found.append(Cell(arm, itr_us, ratio, figures))
    return found


def test_the_fit_is_that_of_the_cells() -> None:
    fit = trade_off.fitted(cells(ARMS[0], 251.67, 0.71, 1.08))
    assert (fit["z"], fit["a"], fit["phi"]) == pytest.approx((251.67, 0.71, 1.08), rel=1e-6)
    assert fit["log_p_itr"] < 0 and fit["b"] == pytest.approx(0, abs=1e-9)


def test_the_table_has_every_cell_and_fit() -> None:
    rows = []
    for number, arm in enumerate(ARMS):
        for cell in cells(arm, 100 + number, -1, 1 if number else 0.5):
            rows += [Row(f"{cell.name}.{name}", "", cell.figures.get(name, 1.0)) for name in trade_off.FIGURES]
        fit = trade_off.fitted(cells(arm, 100 + number, -1, 1 if number else 0.5))
        rows += [Row(f"{arm.name}.fit.{name}", "", fit[name]) for name in trade_off.FITTED]
    shown = trade_off.show(rows)
    lines = shown.splitlines()
    assert "modelled, not measured" in lines[0]
    size = len(trade_off.ITR_US) * len(trade_off.RATIOS)
    assert len(lines) == 1 + len(ARMS) * (2 + 1 + size + 3) + 1 + 1 + len(trade_off.PUBLISHED) + len(ARMS) + 2
    for number, arm in enumerate(ARMS):
        assert f"p99 = {100 + number:.1f} us / f^(1 + -1.00)" in shown
        assert arm.title in shown
    assert "the longest interval needs less power at 6, and has a higher p99 at 6" in shown
    marked = [line for line in lines if line.startswith("modelled") and " !" in line]
    assert len(marked) == 1 and marked[0].startswith("modelled Linux !")
