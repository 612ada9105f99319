# SPDX-License-Identifier: BSL-1.0
"""The table of the trade-off shows every cell and the fits that its cells have."""

import math

import pytest

from tools.bench import trade_off
from tools.bench.rows import Row
from tools.bench.trade_off import ARMS, GRID, PACKAGE, Arm, Cell


def cells(arm: Arm, z: float, a: float, phi: float, gamma_w: float = 3.0, b: float = 0.7) -> list[Cell]:
    """Cells that the studies' models describe exactly: one core by latency, the package by `gamma_w` watts a core at 1 GHz."""
    found = []
    for cell in (*GRID, *PACKAGE):
        if cell.arm != arm:
            continue
        ghz = cell.ratio / 10
        core_w = gamma_w * ghz**b
        interrupts = 1e6 * cell.cores / (phi * cell.itr_us)  # in a second
        watts = 20.0 - cell.itr_us / 100 if cell.cores == 1 else core_w * cell.cores
        figures = {"p99_us": z / ghz ** (1 + a) + phi * cell.itr_us, "watts": watts, "joules": watts, "interrupts": interrupts}
        found.append(Cell(arm, cell.itr_us, cell.ratio, figures, cell.cores))
    return found


def test_the_fit_is_that_of_the_cells() -> None:
    fit = trade_off.fitted(cells(ARMS[0], 251.67, 0.71, 1.08))
    assert (fit["z"], fit["a"], fit["phi"], fit["phi_of_all"]) == pytest.approx((251.67, 0.71, 1.08, 1.08), rel=1e-6)
    assert fit["log_p_itr"] < 0 and fit["b_of_one_core"] == pytest.approx(0, abs=0.01)
    assert (math.exp(fit["log_gamma"]) * 1e6, fit["b"]) == pytest.approx((3.0, 0.7), rel=1e-6)


def test_latency_is_fitted_to_the_studies_cells() -> None:
    """Neither the shortest interval nor a p99 above the limit counts; both count in the fit of all cells."""
    for odd in (lambda cell: cell.itr_us < trade_off.FITTED_ITR_US, lambda cell: cell.itr_us == 300 and cell.ratio == 12):
        changed = cells(ARMS[0], 100, -0.5, 1)
        for cell in changed:
            if cell.cores == 1 and odd(cell):
                cell.figures["p99_us"] = trade_off.P99_LIMIT_US + 100
        fit = trade_off.fitted(changed)
        assert (fit["z"], fit["a"], fit["phi"]) == pytest.approx((100, -0.5, 1), rel=1e-6)
        assert abs(fit["phi_of_all"] - 1) > 0.02 and fit["error_of_all_us"] > 10


def test_gamma_is_a_cores_share_of_the_package() -> None:
    """The studies' scripts have a run of the library OS at 1.3 GHz: 1400.93 J in 30 s on two packages."""
    _, _, _, _, _, log_gamma, b = next(row for row in trade_off.PUBLISHED if row[0] == "EbbRT 200K")
    assert trade_off.published_package_watts(log_gamma, b, 1.3) == pytest.approx(1400.93 / 30 / 2, rel=0.05)


def test_the_table_has_every_cell_and_fit() -> None:
    rows = []
    for number, arm in enumerate(ARMS):
        made = cells(arm, 100 + number, -1, 1 if number else 0.5)
        for cell in made:
            rows += [Row(f"{cell.name}.{name}", "", cell.figures.get(name, 1.0)) for name in trade_off.FIGURES]
        fit = trade_off.fitted(made)
        rows += [Row(f"{arm.name}.fit.{name}", "", fit[name]) for name in trade_off.FITTED]
    shown = trade_off.show(rows)
    lines = shown.splitlines()
    assert "modelled, not measured" in lines[0]
    size = len(trade_off.ITR_US) * len(trade_off.RATIOS)
    published = [row for row in trade_off.PUBLISHED if row[1] in trade_off.RATES]
    assert len(published) == len(ARMS)
    package = 2 + len(ARMS) * len(trade_off.PACKAGE_RATIOS)
    assert len(lines) == 1 + len(ARMS) * (2 + 1 + size + 4) + 1 + package + 1 + 1 + len(published) + len(ARMS) + 1
    for number, arm in enumerate(ARMS):
        assert f"p99 = {100 + number:.1f} us / f^(1 + -1.00)" in shown
        assert arm.title in shown
    assert f"the longest interval needs less power at {len(trade_off.RATIOS)}, and has a higher p99 at {len(trade_off.RATIOS)}" in shown
    marked = [line for line in lines if line.startswith("modelled") and " !" in line]
    assert len(marked) == 1 and marked[0].startswith("modelled Linux !")
    # 3 W a core at 1 GHz, 8 cores, beside table 6.1.
    watts = 8 * 3.0 * 1.2**0.7
    assert any(line.split()[:5] == ["Linux", "12500", "1200", f"{watts:.1f}", f"{watts:.1f}"] for line in lines)
