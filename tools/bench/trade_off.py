# SPDX-License-Identifier: BSL-1.0
"""`./neap bench trade-off`: latency and power of memcached over interrupt moderation and frequency, Neap and Linux on the model machine.

The published studies measured this grid on Xeon E5 machines: longer intervals between interrupts (ITR) and lower frequencies save energy
and cost latency. Here the machine is modelled (docs/model-machine.md): the figures show an order and a shape, not the watts of a machine.

Rates are those of one core. The studies offered 200,000, 400,000 and 600,000 requests/s to 16 cores; here are the lowest and the highest:
12,500 and 37,500 a core.

Latency is that of one loaded core. Energy is that of a package with all its cores loaded, as in the studies: their energy of an interrupt
is that of both packages, divided by the interrupts of all cores. Below each grid are fits of the studies' models, with
plain residuals (tools/study/open_loop.py). At the end they are beside the published ones.
"""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tools import build
from tools.bench import modelled
from tools.bench.rows import Row, aligned
from tools.errors import Failure
from tools.model import experiment, linux, results
from tools.study import least_squares, open_loop
from tools.study.open_loop import Fit, Options, Unfit
from tools.study.published import CORES, TABLE_6_1

MODEL = "e5-2690"
ITR_US = (2, 50, 100, 200, 300)
RATIOS = (12, 15, 18, 21, 25, 29)
WINDOW_MS = 100.0
# In the first 0.1 s of a load, memcached's LRU maintainer keeps Linux's core from the requests for some milliseconds at a time
# (docs/model-machine.md). This warm-up leaves that time out.
WARM_UP_MS = {"linux": 200.0, "neap": 50.0}
CONNECTIONS = 64
# Client, its card and the switch of the studies: 24 us of each request, chosen (docs/model-machine.md). A request and its answer pass four
# cables, of 7 us each in place of 1 us.
NETWORK = ("--network", "delay_ns=7000")
PHI_RANGE = (0.9, 1.1)
OPTIONS = Options(relative=False, replicates=0)

# The studies' list of intervals begins at 50 us, and a run whose p99 was above their limit was left out (handong32/intlog, scripts/mcd). So
# is it in the fits.
FITTED_ITR_US = 50
P99_LIMIT_US = 500.0

# The package with all its cores loaded. There requests take any connection, so that they reach the cores in no order.
PACKAGE_CORES = 8
PACKAGE_ITR_US = (100, 300)
PACKAGE_RATIOS = (12, 29)
PACKAGE_WARM_UP_MS = 30.0
PACKAGE_WINDOW_MS = 30.0
PACKAGE_WORLD = (*NETWORK, "--any-connection")


@dataclasses.dataclass(frozen=True)
class Arm:
    """One grid. `rate`: requests/s of a core."""

    system: str
    rate: int

    @property
    def name(self) -> str:
        return f"{self.system}_{self.rate}"

    @property
    def title(self) -> str:
        return f"{self.system.capitalize()}, {self.rate} requests/s a core"


RATES = (12_500, 37_500)
ARMS = tuple(Arm(system, rate) for system in ("linux", "neap") for rate in RATES)

# Table 6.1: requests/s of a core, then Z, a, phi, log gamma, b.
PUBLISHED = tuple((row.name, row.rate // CORES, row.z, row.a, row.phi, row.log_gamma, row.b) for row in TABLE_6_1)

FIGURES = {
    "p50_us": "us",
    "p99_us": "us",
    "watts": "W",
    "c0_share": "share",
    "wakeups": "wake-ups",
    "interrupts": "interrupts",
    "uj_per_request": "uJ a request",
    "failed": "requests",
}
FITTED = {
    "z": "us at 1 GHz",
    "a": "exponent",
    "phi": "intervals",
    "error_us": "us",
    "phi_of_all": "intervals",
    "error_of_all_us": "us",
    "log_gamma": "of J/us",
    "b": "exponent",
    "b_of_one_core": "exponent",
    "log_p_c0": "of W",
    "log_p_f": "exponent",
    "log_p_itr": "exponent",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run. `cores`: all of them are loaded."""

    arm: Arm
    itr_us: int
    ratio: int
    figures: dict[str, float]
    cores: int = 1

    @property
    def name(self) -> str:
        return f"{self.arm.name}.{self.cores}_cores.itr_{self.itr_us}us.{self.ratio * 100}MHz"


GRID = tuple(Cell(arm, itr_us, ratio, {}) for arm in ARMS for itr_us in ITR_US for ratio in RATIOS)
PACKAGE = tuple(Cell(arm, itr_us, ratio, {}, PACKAGE_CORES) for arm in ARMS for itr_us in PACKAGE_ITR_US for ratio in PACKAGE_RATIOS)


def measure() -> list[Cell]:
    modelled.prepare("memcached")
    systems = {"neap": experiment.System(build.image("memcached", "image")), "linux": experiment.System(*linux.image())}
    # The long runs first, so that none of them is alone at the end.
    return modelled.run_each([*PACKAGE, *GRID], lambda cell: run_cell(systems[cell.arm.system], cell))


def run_cell(system: experiment.System, cell: Cell) -> Cell:
    one = cell.cores == 1
    wanted = experiment.Experiment(
        MODEL,
        rate=cell.arm.rate * cell.cores,
        window_ms=WINDOW_MS if one else PACKAGE_WINDOW_MS,
        warm_up_ms=WARM_UP_MS[cell.arm.system] if one else PACKAGE_WARM_UP_MS,
        cores=cell.cores,
        memory="512M" if one else "1G",
        connections=CONNECTIONS * cell.cores,
        arguments=[f"itr={cell.itr_us}us", f"pstate={cell.ratio}"],
        world_options=NETWORK if one else PACKAGE_WORLD,
    )
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        result: results.Result = experiment.run(wanted, system, Path(scratch))
    return dataclasses.replace(cell, figures={**result.row(), "failed": result.world["failed"]})


def _points(cells: Sequence[Cell], value: Callable[[Cell], float]) -> open_loop.Points:
    columns = ([cell.itr_us for cell in cells], [cell.ratio / 10 for cell in cells], [value(cell) for cell in cells])
    return open_loop.points(*(np.array(column, float) for column in columns))


def _fit(found: Fit | Unfit) -> Fit:
    if isinstance(found, Unfit):
        raise Failure(f"{found.model} is not determined by the cells: {found.reason}")
    return found


def _latency(cells: Sequence[Cell]) -> tuple[Fit, float]:
    """Returns the fit, and the root of the mean squared difference in us."""
    fit = _fit(open_loop.fit_latency(_points(cells, lambda cell: cell.figures["p99_us"]), OPTIONS))
    return fit, float(np.sqrt(np.mean(fit.solution.residuals**2)))


def _energy(cells: Sequence[Cell], phi: float) -> tuple[float, float]:
    """Returns log gamma and b of model 6.4. `./neap fit` wants three frequencies for it; modelled runs have no noise, so two are enough."""
    given = _points(cells, lambda cell: cell.figures["joules"] / max(1.0, cell.figures["interrupts"]) / (phi * cell.itr_us))
    columns = np.stack([np.ones(len(given.ghz)), np.log(given.ghz)], axis=1)
    found = least_squares.solve_linear(columns, np.log(given.value), given.of, relative=False, replicates=0, seed=0)
    return float(found.values[0]), float(found.values[1])


def fitted(cells: Sequence[Cell]) -> dict[str, float]:
    """The fits of one arm's cells: latency by those of one core, energy by those of the package."""
    grid = [cell for cell in cells if cell.cores == 1]
    moderated = [cell for cell in grid if cell.itr_us >= FITTED_ITR_US]
    latency, error_us = _latency([cell for cell in moderated if cell.figures["p99_us"] <= P99_LIMIT_US])
    of_all, error_of_all_us = _latency(grid)
    energy = _energy([cell for cell in cells if cell.cores > 1], latency["phi"])
    power = _fit(open_loop.fit_power(_points(grid, lambda cell: cell.figures["watts"]), OPTIONS))
    values = (
        *(latency["Z"], latency["a"], latency["phi"], error_us, of_all["phi"], error_of_all_us),
        *(*energy, _energy(moderated, latency["phi"])[1], power["c0"], power["c1"], power["c2"]),
    )
    return dict(zip(FITTED, values, strict=True))


def rows() -> list[Row]:
    cells = measure()
    found = []
    for cell in cells:
        found += [Row(f"{cell.name}.{name}", f"{unit}, modelled", cell.figures[name]) for name, unit in FIGURES.items()]
    for arm in ARMS:
        values = fitted([cell for cell in cells if cell.arm == arm])
        found += [Row(f"{arm.name}.fit.{name}", f"{unit}, modelled", values[name]) for name, unit in FITTED.items()]
    return found


def show(found: Sequence[Row]) -> str:
    """A grid for each arm with its fits, the power of the package, and at the end all fits beside the published ones."""
    values = {row.name: float(row.value or 0) for row in found}
    parts = [f"memcached (ETC) on the modelled {MODEL}, {WINDOW_MS:g} ms of virtual time a run: modelled, not measured"]
    for arm in ARMS:
        cells = [("ITR us", "MHz", *FIGURES)]
        for cell in GRID:
            if cell.arm == arm:
                cells.append((str(cell.itr_us), str(cell.ratio * 100), *(f"{values[f'{cell.name}.{name}']:.5g}" for name in FIGURES)))
        fit = {name: values[f"{arm.name}.fit.{name}"] for name in FITTED}
        parts += ["", f"{arm.title}, 1 core", aligned(cells)]
        parts.append(f"p99 = {fit['z']:.1f} us / f^(1 + {fit['a']:.2f}) + {fit['phi']:.2f} * ITR, +- {fit['error_us']:.1f} us")
        parts.append(
            f"  of the cells with ITR >= {FITTED_ITR_US} us and p99 <= {P99_LIMIT_US:g} us;"
            f" of all cells: phi {fit['phi_of_all']:.2f}, +- {fit['error_of_all_us']:.1f} us"
        )
        parts.append(f"log P = {fit['log_p_c0']:.2f} + {fit['log_p_f']:.2f} log f + {fit['log_p_itr']:.3f} log ITR")
        parts.append(f"of {len(RATIOS)} frequencies: {_effects(values, arm)}")
    return "\n".join([*parts, "", _power_of_package(values), "", _beside_published(values)])


def _effects(values: dict[str, float], arm: Arm) -> str:
    """At how many frequencies the longest interval saves energy, and costs latency, against the shortest."""
    ends = [[Cell(arm, itr_us, ratio, {}).name for itr_us in (ITR_US[0], ITR_US[-1])] for ratio in RATIOS]
    cheaper = sum(values[f"{long}.watts"] < values[f"{short}.watts"] for short, long in ends)
    later = sum(values[f"{long}.p99_us"] > values[f"{short}.p99_us"] for short, long in ends)
    return f"the longest interval needs less power at {cheaper}, and has a higher p99 at {later}"


def published_package_watts(log_gamma: float, b: float, ghz: float) -> float:
    """gamma * f^b is one core's share of the package's power: energy from one interrupt of a core to its next, by the time between."""
    return PACKAGE_CORES * math.exp(log_gamma) * 1e6 * ghz**b


def _power_of_package(values: dict[str, float]) -> str:
    published = {(title.split()[0], rate): (log_gamma, b) for title, rate, _, _, _, log_gamma, b in PUBLISHED}
    cells = [("", "requests/s a core", "MHz", *(f"W, ITR {itr_us} us" for itr_us in PACKAGE_ITR_US), "W, table 6.1", "C0 share")]
    for arm in ARMS:
        log_gamma, b = published["Linux" if arm.system == "linux" else "EbbRT", arm.rate]
        for ratio in PACKAGE_RATIOS:
            names = [Cell(arm, itr_us, ratio, {}, PACKAGE_CORES).name for itr_us in PACKAGE_ITR_US]
            watts = (f"{values[f'{name}.watts']:.1f}" for name in names)
            of_table = f"{published_package_watts(log_gamma, b, ratio / 10):.1f}"
            share = f"{values[f'{names[0]}.c0_share']:.2f}"
            cells.append((arm.system.capitalize(), str(arm.rate), str(ratio * 100), *watts, of_table, share))
    return f"power of the package, {PACKAGE_CORES} cores loaded\n{aligned(cells)}"


def _beside_published(values: dict[str, float]) -> str:
    cells = [("", "requests/s a core", "Z us", "a", "phi", "log gamma", "b", "b, 1 core")]
    for title, rate, *numbers in PUBLISHED:
        if rate in RATES:
            cells.append((f"published {title}", str(rate), *(f"{number:.2f}" for number in numbers), ""))
    for arm in ARMS:
        numbers = [values[f"{arm.name}.fit.{name}"] for name in ("z", "a", "phi", "log_gamma", "b", "b_of_one_core")]
        low, high = PHI_RANGE
        mark = "" if low <= numbers[2] <= high else " !"
        cells.append((f"modelled {arm.system.capitalize()}{mark}", str(arm.rate), *(f"{number:.2f}" for number in numbers)))
    note = f"!: phi is not between {PHI_RANGE[0]} and {PHI_RANGE[1]} (docs/model-machine.md, Compared with the studies)"
    return "\n".join([aligned(cells), note])
