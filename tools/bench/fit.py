# SPDX-License-Identifier: BSL-1.0
"""`./neap bench fit`: how well `./neap fit` recovers the parameters of table 6.1 from a synthetic twin of the published measurements.

The twin's latencies and energies have independent errors of 2 % (standard deviation). Each seed makes other errors. Two grids of settings:
`scripts` is what the published scripts sweep by default (11 ITRs, 18 frequencies, three times each), and has the targets; `instructions` is
the smaller example in the scripts' instructions (7 ITRs from 50 us, 9 frequencies, twice each). There the errors of Z and `a` are larger by
the number of rows and the lack of short intervals, for each unbiased fit.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tools.bench.rows import Row, aligned
from tools.study import open_loop, twin
from tools.study.open_loop import Fit, Options
from tools.study.published import TABLE_6_1, Published

SEEDS = 20
REPLICATES = 200


@dataclasses.dataclass(frozen=True)
class Grid:
    name: str
    itr_us: Sequence[float]
    ghz: Sequence[float]
    repeats: int
    has_targets: bool

    @property
    def rows(self) -> int:
        return len(self.itr_us) * len(self.ghz) * self.repeats


GRIDS = (
    Grid("scripts", twin.ITR_US, twin.GHZ, twin.REPEATS, True),
    Grid("instructions", (50, 100, 200, 250, 300, 350, 400), tuple(ratio / 10 for ratio in range(13, 30, 2)), 2, False),
)


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A parameter of table 6.1. `target`: the largest error."""

    name: str
    unit: str
    parameter: str
    target: float | None


QUANTITIES = (
    Quantity("z", "%", "Z", 3.0),
    Quantity("a", "", "a", 0.05),
    Quantity("phi", "", "phi", 0.01),
    Quantity("log_gamma", "", "log gamma", None),
    Quantity("b", "", "b", None),
)


def _fitted(of: Published, grid: Grid, seed: int) -> dict[str, tuple[float, bool]]:
    """For each quantity the size of the error, and whether the interval contains the true value."""
    rows = twin.rows(of, seed, itr_us=grid.itr_us, ghz=grid.ghz, repeats=grid.repeats)
    itr, ghz, p99, energy, interrupts = (
        np.array([row[name] for row in rows]) for name in ("itr_us", "frequency_ghz", "p99_us", "energy_j", "interrupts")
    )
    options = Options(replicates=REPLICATES, seed=seed)
    latency = open_loop.fit_latency(open_loop.points(itr, ghz, p99), options)
    power = open_loop.fit_energy(open_loop.points(itr, ghz, energy / interrupts), latency, options)
    assert isinstance(latency, Fit) and isinstance(power, Fit)
    found = {}
    for quantity in QUANTITIES:
        one = (latency if quantity.target is not None else power).parameter(quantity.parameter)
        true = getattr(of, quantity.name)
        error = 100 * abs(one.value / true - 1) if quantity.unit == "%" else abs(one.value - true)
        found[quantity.name] = (error, one.low <= true <= one.high)
    return found


def rows() -> list[Row]:
    found = []
    for grid in GRIDS:
        for of in TABLE_6_1:
            trials = [_fitted(of, grid, seed) for seed in range(1, SEEDS + 1)]
            for quantity in QUANTITIES:
                errors = [trial[quantity.name][0] for trial in trials]
                name = f"{grid.name}.{of.name.replace(' ', '_')}.{quantity.name}"
                unit = f"{quantity.unit} error".strip()
                found.append(Row(f"{name}.median", unit, float(np.median(errors))))
                found.append(Row(f"{name}.worst", unit, max(errors), quantity.target if grid.has_targets else None))
                found.append(Row(f"{name}.covered", "share of seeds", float(np.mean([trial[quantity.name][1] for trial in trials]))))
    return found


def show(found: Sequence[Row]) -> str:
    values = {row.name: float(row.value or 0) for row in found}
    targets = ", ".join(f"{one.parameter} {one.target:g}{' %' * (one.unit == '%')}" for one in QUANTITIES if one.target is not None)
    parts = [
        f"errors of the fit to the twin of table 6.1, noise {100 * twin.NOISE:g} %, {SEEDS} seeds: median / worst / share of intervals "
        "of 95 % that contain the true value"
    ]
    for grid in GRIDS:
        heads = [f"{one.parameter} {one.unit}".strip() for one in QUANTITIES]
        cells: list[tuple[str, ...]] = [("", *heads, "")]
        for of in TABLE_6_1:
            line = [of.name]
            for one in QUANTITIES:
                name = f"{grid.name}.{of.name.replace(' ', '_')}.{one.name}"
                digits = 2 if one.unit == "%" else 4
                median, worst, covered = (values[f"{name}.{what}"] for what in ("median", "worst", "covered"))
                line.append(f"{median:.{digits}f} / {worst:.{digits}f} / {covered:.2f}")
            cells.append((*line, ""))
        size = f"{len(grid.itr_us)} ITRs x {len(grid.ghz)} frequencies x {grid.repeats} = {grid.rows} rows"
        parts.append(f"{grid.name}: {size}{f'; targets of the worst: {targets}' if grid.has_targets else ''}\n{aligned(cells)}")
    missed = [row.name for row in found if row.missed]
    return "\n\n".join([*parts, f"targets missed: {', '.join(missed) if missed else 'none'}"])
