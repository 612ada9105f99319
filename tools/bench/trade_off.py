# SPDX-License-Identifier: BSL-1.0
"""`./neap bench trade-off`: latency and power of memcached over interrupt moderation and frequency, on the model machine.

The published studies measured this grid on Xeon E5 machines: longer intervals between interrupts (ITR) and lower frequencies save energy
and cost latency. Here the machine is modelled (docs/model-machine.md): the figures show an order and a shape, not the watts of a machine.

For each rate the latencies are fitted with the studies' model: p99 = Z / f^(1 + a) + phi * ITR, with f in GHz and times in us. phi near 1
means that a request at the tail waits for one whole interval. a is -1 if the clock has no influence.
"""

import dataclasses
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import build
from tools.bench import modelled
from tools.bench.rows import Row, aligned
from tools.model import experiment, results

MODEL = "e5-2690"
RATES = (25_000, 250_000)
ITR_US = (2, 20, 50, 100, 200)
RATIOS = (12, 15, 18, 21, 25, 29)
WINDOW_MS = 50.0
CONNECTIONS = 64
A_STEPS = 400  # the fit tries a from -2 to 2, in steps of 1/100


@dataclasses.dataclass(frozen=True)
class Cell:
    rate: int
    itr_us: int
    ratio: int
    figures: dict[str, float]

    @property
    def name(self) -> str:
        return f"rate_{self.rate}.itr_{self.itr_us}us.{self.ratio * 100}MHz"


@dataclasses.dataclass(frozen=True)
class Fit:
    """p99_us = z / f_ghz^(1 + a) + phi * itr_us; `error_us` is the root of the mean squared difference."""

    z: float
    a: float
    phi: float
    error_us: float


def measure() -> list[Cell]:
    modelled.prepare("memcached")
    settings = [(rate, itr_us, ratio) for rate in RATES for itr_us in ITR_US for ratio in RATIOS]
    return modelled.run_each(settings, lambda setting: run_cell(*setting))


def run_cell(rate: int, itr_us: int, ratio: int) -> Cell:
    words = [f"itr={itr_us}us", f"pstate={ratio}"]
    wanted = experiment.Experiment(MODEL, rate=rate, window_ms=WINDOW_MS, connections=CONNECTIONS, arguments=words)
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        result: results.Result = experiment.run(wanted, build.image("memcached", "image"), Path(scratch))
    return Cell(rate, itr_us, ratio, result.row())


def fit(cells: Sequence[Cell]) -> Fit:
    """Least squares: for each a the model is linear in z and phi."""
    found = [_fit_for(step / 100 - 2, cells) for step in range(A_STEPS + 1)]
    return min(found, key=lambda one: one.error_us)


def _fit_for(a: float, cells: Sequence[Cell]) -> Fit:
    points = [((cell.ratio / 10) ** -(1 + a), float(cell.itr_us), cell.figures["p99_us"]) for cell in cells]
    xx, xy, yy = (sum(p[i] * p[j] for p in points) for i, j in ((0, 0), (0, 1), (1, 1)))
    xv, yv = (sum(p[i] * p[2] for p in points) for i in (0, 1))
    determinant = xx * yy - xy * xy
    z, phi = (xv * yy - yv * xy) / determinant, (xx * yv - xy * xv) / determinant
    error = math.sqrt(sum((z * p[0] + phi * p[1] - p[2]) ** 2 for p in points) / len(points))
    return Fit(z, a, phi, error)


def rows() -> list[Row]:
    cells = measure()
    found = []
    for cell in cells:
        found += [Row(f"{cell.name}.{name}", f"{unit}, modelled", cell.figures[name]) for name, unit in FIGURES.items()]
    for rate in RATES:
        one = fit([cell for cell in cells if cell.rate == rate])
        for name, unit in (("z", "us at 1 GHz"), ("a", "exponent"), ("phi", "intervals"), ("error_us", "us")):
            found.append(Row(f"rate_{rate}.fit.{name}", f"{unit}, modelled", getattr(one, name)))
    return found


FIGURES = {"p50_us": "us", "p99_us": "us", "watts": "W", "c0_share": "share", "wakeups": "wake-ups", "uj_per_request": "uJ a request"}


def show(found: Sequence[Row]) -> str:
    """A table for each rate, and the fit below it."""
    values = {row.name: row.value for row in found}
    parts = [f"memcached (ETC) on the modelled {MODEL}, 1 core, {WINDOW_MS:g} ms of virtual time a run: modelled, not measured"]
    for rate in RATES:
        cells = [("ITR us", "MHz", *FIGURES)]
        for itr_us in ITR_US:
            for ratio in RATIOS:
                name = Cell(rate, itr_us, ratio, {}).name
                cells.append((str(itr_us), str(ratio * 100), *(f"{values[f'{name}.{figure}']:.5g}" for figure in FIGURES)))
        z, a, phi, error = (values[f"rate_{rate}.fit.{name}"] for name in ("z", "a", "phi", "error_us"))
        parts += ["", f"{rate} requests/s", aligned(cells), f"p99 = {z:.1f} us / f^(1 + {a:.2f}) + {phi:.2f} * ITR, +- {error:.1f} us"]
    return "\n".join(parts)
