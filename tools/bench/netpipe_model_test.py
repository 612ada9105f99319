# SPDX-License-Identifier: BSL-1.0
"""The fits of the studies' models find the parameters that made their points, and the table shows every cell."""

import itertools

import pytest

from tools.bench import netpipe_model
from tools.bench.netpipe_model import Cell, LatencyFit, LongerFit
from tools.bench.rows import Row


def cells(fit: LatencyFit, watts: tuple[float, float, float]) -> list[Cell]:
    found = []
    for itr_us, ratio in itertools.product(netpipe_model.ITR_US, netpipe_model.RATIOS):
        empty = Cell(itr_us, ratio, {}, {}, {})
        wait, work = fit.wait_us(empty), fit.work_us(empty)
        us = {size: wait + netpipe_model.transmission_us(size) + work for size in netpipe_model.SIZES}
        uj = {size: watts[0] * wait + watts[1] * netpipe_model.transmission_us(size) + watts[2] * work for size in netpipe_model.SIZES}
        found.append(Cell(itr_us, ratio, us, uj, {size: 1.0 for size in netpipe_model.SIZES}))
    return found


@pytest.mark.parametrize("wanted", [LatencyFit(0.0, 1.0, 12.0, 0.5, 0.0), LatencyFit(-0.03, 0.9, 40.0, -0.5, 0.0)])
def test_the_fit_of_a_sum_finds_the_parameters_of_its_points(wanted: LatencyFit) -> None:
    made = cells(wanted, (1.0, 1.0, 1.0))
    fits = {size: netpipe_model.fit_latency(made, size) for size in netpipe_model.SIZES}
    for fit in fits.values():
        assert (fit.g, fit.d, fit.z, fit.a) == pytest.approx((wanted.g, wanted.d, wanted.z, wanted.a), abs=1e-6)
        assert fit.error_us < 1e-6


@pytest.mark.parametrize(("z", "a"), [(12.0, 0.5), (40.0, -0.5)])
@pytest.mark.parametrize("watts", [(20.0, 30.0, 45.0), (35.0, 0.0, 50.0)])
def test_the_fit_of_the_longer_part_finds_the_parameters_of_its_points(z: float, a: float, watts: tuple[float, float, float]) -> None:
    found = []
    for cell in cells(LatencyFit(0.0, 1.0, z, a, 0.0), watts):
        fits = {size: LongerFit(size, z, a, 0.0) for size in netpipe_model.SIZES}
        us = {size: fit.us(cell) for size, fit in fits.items()}
        uj = {}
        for size, fit in fits.items():
            parts = (fit.wait_us(cell), netpipe_model.transmission_us(size), fit.work_us(cell))
            uj[size] = sum(watt * part for watt, part in zip(watts, parts))
        found.append(Cell(cell.itr_us, cell.ratio, us, uj, cell.watts))
    fitted = {size: netpipe_model.fit_longer(found, size) for size in netpipe_model.SIZES}
    for fit in fitted.values():
        assert (fit.z, fit.a) == pytest.approx((z, a), abs=1e-6) and fit.error_us < 1e-6
    assert netpipe_model.fit_energy(found, fitted).watts == pytest.approx(watts, abs=1e-4)


def test_a_message_of_one_frame_needs_two_transmissions_and_two_delays() -> None:
    assert netpipe_model.transmission_us(64) == pytest.approx(2 * (1.0 + (64 + 78) * 8e-4))
    assert netpipe_model.transmission_us(8192) > 2 + 8192 * 8e-4


def test_the_table_has_every_cell() -> None:
    rows = []
    for size in netpipe_model.SIZES:
        for itr_us, ratio in itertools.product(netpipe_model.ITR_US, netpipe_model.RATIOS):
            name = Cell(itr_us, ratio, {}, {}, {}).name
            rows += [Row(f"{size}_bytes.{name}.{what}", "", 1.0) for what in ("us", "watts", "uj")]
        rows += [Row(f"{size}_bytes.fit.{name}", "", 1.0) for name in ("g", "d", "z", "a", "error_us")]
        rows += [Row(f"{size}_bytes.longer.{name}", "", 1.0) for name in ("z", "a", "error_us")]
    rows += [Row(f"fit.{name}", "", 1.0) for name in ("A", "B", "C", "error_uj")]
    lines = netpipe_model.show(rows).splitlines()
    assert "modelled, not measured" in lines[0]
    assert len(lines) == 2 + len(netpipe_model.SIZES) * (5 + len(netpipe_model.ITR_US))
