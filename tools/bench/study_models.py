# SPDX-License-Identifier: BSL-1.0
"""The published studies' models of latency and energy, fitted to a grid of interrupt moderation (ITR) and frequency.

With f in GHz and times in us:

    6.1  t_work = Z / f^(1 + a)
    6.2  t_interrupt = phi * ITR
    6.3  latency = t_work + t_interrupt
    6.4  energy of an interrupt = gamma * phi * ITR * f^b, gamma in J/us
    companion  log P = c0 + c1 log f + c2 log ITR

phi near 1: a request at the tail waits for one whole interval. a = -1: the clock has no influence on latency. a > 0: its influence exceeds
that of the time of instructions, because requests queue.
"""

import dataclasses
import math
from collections.abc import Sequence

A_STEPS = 800  # the fit tries a from -4 to 4, in steps of 1/100
A_LOWEST = -4.0


@dataclasses.dataclass(frozen=True)
class Point:
    """One cell of the grid. `interrupt_j`: energy from one interrupt to the next."""

    ghz: float
    itr_us: float
    latency_us: float
    watts: float
    interrupt_j: float


@dataclasses.dataclass(frozen=True)
class LatencyFit:
    """`error_us` is the root of the mean squared difference."""

    z: float
    a: float
    phi: float
    error_us: float


@dataclasses.dataclass(frozen=True)
class EnergyFit:
    log_gamma: float
    b: float


@dataclasses.dataclass(frozen=True)
class PowerFit:
    c0: float
    c1: float
    c2: float


def fit_latency(points: Sequence[Point]) -> LatencyFit:
    """6.1 to 6.3 by least squares: for each a the model is linear in Z and phi."""
    tried = [_latency_with(A_LOWEST + step / 100, points) for step in range(A_STEPS + 1)]
    return min(tried, key=lambda one: one.error_us)


def _latency_with(a: float, points: Sequence[Point]) -> LatencyFit:
    z, phi = least_squares([(p.ghz ** -(1 + a), p.itr_us) for p in points], [p.latency_us for p in points])
    squares = [(z * p.ghz ** -(1 + a) + phi * p.itr_us - p.latency_us) ** 2 for p in points]
    return LatencyFit(z, a, phi, math.sqrt(sum(squares) / len(points)))


def fit_energy(points: Sequence[Point], phi: float) -> EnergyFit:
    """6.4 in logarithms. gamma and phi cannot be told apart there, so phi is that of the latency."""
    log_gamma, b = least_squares([(1.0, math.log(p.ghz)) for p in points], [math.log(p.interrupt_j / (phi * p.itr_us)) for p in points])
    return EnergyFit(log_gamma, b)


def fit_power(points: Sequence[Point]) -> PowerFit:
    rows = [(1.0, math.log(p.ghz), math.log(p.itr_us)) for p in points]
    return PowerFit(*least_squares(rows, [math.log(p.watts) for p in points]))


def least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """The coefficients that minimise the squared error, from the normal equations by Gaussian elimination with pivoting."""
    size = len(rows[0])
    table = [
        [sum(row[i] * row[j] for row in rows) for j in range(size)] + [sum(row[i] * value for row, value in zip(rows, values, strict=True))]
        for i in range(size)
    ]
    for column in range(size):
        pivot = max(range(column, size), key=lambda line: abs(table[line][column]))
        table[column], table[pivot] = table[pivot], table[column]
        for line in range(size):
            if line != column:
                factor = table[line][column] / table[column][column]
                table[line] = [one - factor * other for one, other in zip(table[line], table[column], strict=True)]
    return [table[i][size] / table[i][i] for i in range(size)]
