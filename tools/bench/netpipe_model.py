# SPDX-License-Identifier: BSL-1.0
"""`./neap bench netpipe-model`: NetPIPE between two modelled machines over interrupt moderation and frequency, the same at both ends.

The published study measured this grid with two machines and 5,000 round trips a size. It describes one message by two models, with f in
GHz, times in us and w = Z / f^(1 + a), the work of a message:

  latency, one way   wait + t_tx + w, wait = ITR^(g * f + d)     (6.5)
  energy, one way    A * wait + B * t_tx + C * w                 (6.6), with A, B, C in watts, of both machines

t_tx is known here, from the modelled cables. On the modelled machines the interval between two interrupts runs while a message is on its
way. So the parts do not add up: a round trip takes the interval or its own time, whichever is longer. Both forms are fitted:

  latency, one way   max(ITR / 2, t_tx + w), wait = what is left of ITR / 2

Energy is fitted with the parts of the second form. Virtual time has no noise, so fewer round trips are enough. The first one of a trial
does not wait, which makes the latency of 50 round trips up to 2 % shorter.
"""

import dataclasses
import itertools
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import optimize

from tools import build
from tools.bench import modelled
from tools.bench.rows import Row, aligned
from tools.model import pair

MODEL = "e5-2690"
ITR_US = (2, 10, 20, 50, 100, 200)
RATIOS = (12, 21, 29)
SIZES = (64, 1024, 8192)
# A sweep from 32 bytes has these sizes, and its first size is none of them.
WORDS = ("idle=c1", "from=32", "to=8192", "repeats=50")
# Of the model's default network: delay_ns=1000,rate_mbps=10000 (sim/world/src/switch.rs).
DELAY_US = 1.0
BITS_PER_US = 10_000
SEGMENT_BYTES = 1460
# Ethernet's preamble, header, FCS and gap, and the headers of IPv4 and TCP.
OVERHEAD_BYTES = 38 + 40
# Ranges and steps of the fit.
EXPONENTS = [step / 50 for step in range(25, 76)]  # d
SLOPES = [step / 100 for step in range(-10, 11)]  # g
POWERS = [step / 20 - 2 for step in range(61)]  # a


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run. `us`: one way, by size. `uj`: of both machines for a message one way, by size."""

    itr_us: int
    ratio: int
    us: Mapping[int, float]
    uj: Mapping[int, float]
    watts: Mapping[int, float]

    @property
    def name(self) -> str:
        return f"itr_{self.itr_us}us.{self.ratio * 100}MHz"

    @property
    def ghz(self) -> float:
        return self.ratio / 10

    @property
    def interval_us(self) -> float:
        """The interval's part of a message one way: each end has one interrupt in a round trip."""
        return self.itr_us / 2


@dataclasses.dataclass(frozen=True)
class LatencyFit:
    g: float
    d: float
    z: float
    a: float
    error_us: float

    def wait_us(self, cell: Cell) -> float:
        return cell.itr_us ** (self.g * cell.ghz + self.d)

    def work_us(self, cell: Cell) -> float:
        return self.z / cell.ghz ** (1 + self.a)


@dataclasses.dataclass(frozen=True)
class LongerFit:
    """us = max(ITR / 2, t_tx + z / f^(1 + a))."""

    size: int
    z: float
    a: float
    error_us: float

    def work_us(self, cell: Cell) -> float:
        return self.z / cell.ghz ** (1 + self.a)

    def wait_us(self, cell: Cell) -> float:
        return max(0.0, cell.interval_us - transmission_us(self.size) - self.work_us(cell))

    def us(self, cell: Cell) -> float:
        return max(cell.interval_us, transmission_us(self.size) + self.work_us(cell))


@dataclasses.dataclass(frozen=True)
class EnergyFit:
    watts: tuple[float, float, float]  # A, B, C
    error_uj: float


def transmission_us(size: int) -> float:
    """From the first bit that leaves a card to the last bit at the other: the first frame crosses two cables, the others follow."""
    frames = math.ceil(size / SEGMENT_BYTES)
    first = (min(size, SEGMENT_BYTES) + OVERHEAD_BYTES) * 8 / BITS_PER_US
    return 2 * DELAY_US + first + (size + frames * OVERHEAD_BYTES) * 8 / BITS_PER_US


def run_cell(itr_us: int, ratio: int, image: Path) -> Cell:
    wanted = pair.Pairing(MODEL, arguments=[*WORDS, f"itr={itr_us}us", f"pstate={ratio}"])
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        result = pair.run(wanted, image, Path(scratch))
    points = {point.size: point for point in result.points if point.size in SIZES}
    return Cell(
        itr_us,
        ratio,
        {size: point.latency_us for size, point in points.items()},
        {size: (point.uj_per_round_trip or 0.0) / 2 for size, point in points.items()},
        {size: sum(spent.watts for spent in point.spent.values()) for size, point in points.items()},
    )


def fit_latency(cells: Sequence[Cell], size: int) -> LatencyFit:
    """Least squares over a grid of g, d and a; for each the best z, which is not negative. 6.5 of `./neap fit` has no such bound. For the
    modelled machines, whose parts do not add up, its Z is negative."""
    rest = [cell.us[size] - transmission_us(size) for cell in cells]
    works = {a: [cell.ghz ** -(1 + a) for cell in cells] for a in POWERS}
    best = LatencyFit(0, 0, 0, 0, math.inf)
    for g, d in itertools.product(SLOPES, EXPONENTS):
        left = [value - cell.itr_us ** (g * cell.ghz + d) for value, cell in zip(rest, cells)]
        for a, work in works.items():
            z = max(0.0, sum(map(float.__mul__, left, work)) / sum(x * x for x in work))
            error = math.sqrt(sum((y - z * x) ** 2 for x, y in zip(work, left)) / len(left))
            if error < best.error_us:
                best = LatencyFit(g, d, z, a, error)
    return best


def fit_longer(cells: Sequence[Cell], size: int) -> LongerFit:
    """z and a by least squares over the cells whose messages took longer than the interval; the error is that of all cells."""
    best = LongerFit(size, 0, 0, math.inf)
    bound = [cell for cell in cells if cell.us[size] > 1.02 * cell.interval_us]
    left = [cell.us[size] - transmission_us(size) for cell in bound]
    least = math.inf
    for a in POWERS:
        work = [cell.ghz ** -(1 + a) for cell in bound]
        z = max(0.0, sum(map(float.__mul__, left, work)) / sum(x * x for x in work)) if bound else 0.0
        squares = sum((y - z * x) ** 2 for x, y in zip(work, left))
        if squares < least:
            fit = LongerFit(size, z, a, 0)
            error = math.sqrt(sum((fit.us(cell) - cell.us[size]) ** 2 for cell in cells) / len(cells))
            least, best = squares, dataclasses.replace(fit, error_us=error)
    return best


def fit_energy(cells: Sequence[Cell], fits: Mapping[int, LongerFit]) -> EnergyFit:
    """Least squares over all sizes, with coefficients that are not negative. 6.6 of `./neap fit` has other parts: those of a sum."""
    parts = np.array([(fit.wait_us(cell), transmission_us(size), fit.work_us(cell)) for size, fit in fits.items() for cell in cells])
    watts, distance = optimize.nnls(parts, np.array([cell.uj[size] for size in fits for cell in cells]))
    return EnergyFit(tuple(watts.tolist()), distance / math.sqrt(len(parts)))


def rows() -> list[Row]:
    modelled.prepare("netpipe")
    image = build.image("netpipe")
    cells = modelled.run_each(list(itertools.product(ITR_US, RATIOS)), lambda setting: run_cell(*setting, image))
    found = []
    for cell in cells:
        for size in SIZES:
            name = f"{size}_bytes.{cell.name}"
            found.append(Row(f"{name}.us", "us one way, modelled", cell.us[size]))
            found.append(Row(f"{name}.watts", "W of both machines, modelled", cell.watts[size]))
            found.append(Row(f"{name}.uj", "uJ one way of both machines, modelled", cell.uj[size]))
    fits = {size: fit_latency(cells, size) for size in SIZES}
    for size, fit in fits.items():
        for name, unit in (("g", "1/GHz"), ("d", "exponent"), ("z", "us at 1 GHz"), ("a", "exponent"), ("error_us", "us")):
            found.append(Row(f"{size}_bytes.fit.{name}", f"{unit}, modelled", getattr(fit, name)))
    longer = {size: fit_longer(cells, size) for size in SIZES}
    for size, one in longer.items():
        for name, unit in (("z", "us at 1 GHz"), ("a", "exponent"), ("error_us", "us")):
            found.append(Row(f"{size}_bytes.longer.{name}", f"{unit}, modelled", getattr(one, name)))
    energy = fit_energy(cells, longer)
    found += [Row(f"fit.{name}", "W, modelled", value) for name, value in zip("ABC", energy.watts)]
    return [*found, Row("fit.error_uj", "uJ, modelled", energy.error_uj)]


def show(found: Sequence[Row]) -> str:
    """A table for each size with the fit of latency below it, and the fit of energy."""
    values = {row.name: row.value or 0.0 for row in found}
    parts = [f"NetPIPE between two modelled {MODEL}, 1 core each, {' '.join(WORDS)}, virtual time: modelled, not measured"]
    for size in SIZES:
        heads = [f"{what} {ratio * 100} MHz" for what in ("us", "W", "uJ") for ratio in RATIOS]
        cells: list[tuple[str, ...]] = [("ITR us", *heads, "")]
        for itr_us in ITR_US:
            names = [f"{size}_bytes.itr_{itr_us}us.{ratio * 100}MHz.{what}" for what in ("us", "watts", "uj") for ratio in RATIOS]
            cells.append((str(itr_us), *(f"{values[name]:.2f}" for name in names), ""))
        g, d, z, a, error = (values[f"{size}_bytes.fit.{name}"] for name in ("g", "d", "z", "a", "error_us"))
        tx = transmission_us(size)
        fitted = f"us = ITR^({g:.2f} * f + {d:.2f}) + {tx:.2f} + {z:.1f} / f^(1 + {a:.2f}), +- {error:.2f} us"
        parts += ["", f"{size} bytes; us and uJ of a message one way, W and uJ of both machines", aligned(cells), fitted]
        z, a, error = (values[f"{size}_bytes.longer.{name}"] for name in ("z", "a", "error_us"))
        parts.append(f"us = max(ITR / 2, {tx:.2f} + {z:.1f} / f^(1 + {a:.2f})), +- {error:.2f} us")
    a_watts, b_watts, c_watts = (values[f"fit.{name}"] for name in "ABC")
    parts.append(
        f"uJ = {a_watts:.1f} W * wait + {b_watts:.1f} W * t_tx + {c_watts:.1f} W * work, +- {values['fit.error_uj']:.1f} uJ (all sizes)"
    )
    return "\n".join(parts)
