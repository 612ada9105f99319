# SPDX-License-Identifier: BSL-1.0
"""Least squares for the models of a study, and confidence intervals by bootstrap.

Measured latencies and energies have errors in proportion to their size. So residuals are relative: the difference, divided by the
prediction of an earlier fit. With plain residuals the largest latencies alone would decide.

Repeats of one setting share the model's own error at that setting, so they are no independent rows. The bootstrap keeps all settings and
multiplies the residuals of each setting by one random sign (wild cluster bootstrap). Before that, residuals are enlarged by what the fit
took from them (CR3), so that intervals are not too narrow with few settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import optimize, stats

Predict = Callable[[np.ndarray], np.ndarray]

REWEIGHTINGS = 4
REPLICATES = 1000
LEVEL = 0.95
# With fewer clusters, signs alone have too few combinations.
SIGNS_CLUSTERS_MIN = 12
# Webb's six values: mean 0, variance 1.
SIX_POINTS = np.array([-np.sqrt(1.5), -1.0, -np.sqrt(0.5), np.sqrt(0.5), 1.0, np.sqrt(1.5)])
# Above this, two parameters cannot be told apart in double precision and with any noise.
CONDITION_MAX = 1e6


@dataclasses.dataclass(frozen=True)
class Model:
    """A prediction and its derivatives (rows x parameters), as functions of the parameters. `start`: a value near the solution."""

    predict: Predict
    jacobian: Predict
    start: np.ndarray


@dataclasses.dataclass(frozen=True)
class Solution:
    """`scale`: what each residual was divided by. `replicates`: one row of parameters for each bootstrap replicate."""

    values: np.ndarray
    predicted: np.ndarray
    measured: np.ndarray
    scale: np.ndarray
    condition: float
    replicates: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.measured)

    @property
    def residuals(self) -> np.ndarray:
        """Measured less predicted, relative if the fit was."""
        return (self.measured - self.predicted) / self.scale

    @property
    def r2(self) -> float:
        """The share of the variance of the plain values that the model explains."""
        total = np.sum((self.measured - self.measured.mean()) ** 2)
        return float(1 - np.sum((self.measured - self.predicted) ** 2) / total) if total > 0 else float("nan")

    @property
    def spread(self) -> float:
        """The standard deviation of the residuals."""
        free = max(1, self.rows - len(self.values))
        return float(np.sqrt(np.sum(self.residuals**2) / free))


def solve(model: Model, measured: np.ndarray, clusters: np.ndarray, *, relative: bool, replicates: int, seed: int) -> Solution:
    """Fits the model. `clusters`: a number for each row; rows of one setting share it."""
    scale = np.abs(measured) if relative else np.ones(len(measured))
    values = model.start
    for _ in range(REWEIGHTINGS if relative else 1):
        values = _minimum(model, measured, scale, values)
        if relative:
            # A prediction of zero or less has no relative error.
            predicted = model.predict(values)
            scale = np.where(predicted > 0.01 * np.abs(measured), predicted, np.abs(measured))
    values = _minimum(model, measured, scale, values)
    predicted = model.predict(values)
    jacobian = model.jacobian(values) / scale[:, None]
    condition = _condition(jacobian)
    found = np.empty((0, len(values)))
    if condition < CONDITION_MAX and replicates:
        found = _bootstrap(model, values, predicted, measured, scale, jacobian, clusters, replicates, seed)
    return Solution(values, predicted, measured, scale, condition, found)


def _minimum(model: Model, measured: np.ndarray, scale: np.ndarray, start: np.ndarray) -> np.ndarray:
    done = optimize.least_squares(
        lambda values: (model.predict(values) - measured) / scale,
        start,
        jac=lambda values: model.jacobian(values) / scale[:, None],  # type: ignore[arg-type]
        method="lm",
        xtol=1e-10,
        ftol=1e-10,
    )
    return done.x


def _condition(jacobian: np.ndarray) -> float:
    """The condition number of the columns, each scaled to length 1: infinite if a parameter has no effect."""
    lengths = np.sqrt(np.sum(jacobian**2, axis=0))
    if not np.all(np.isfinite(lengths)) or np.any(lengths == 0):
        return float("inf")
    return float(np.linalg.cond(jacobian / lengths))


def _bootstrap(
    model: Model,
    values: np.ndarray,
    predicted: np.ndarray,
    measured: np.ndarray,
    scale: np.ndarray,
    jacobian: np.ndarray,
    clusters: np.ndarray,
    replicates: int,
    seed: int,
) -> np.ndarray:
    residuals = enlarged((measured - predicted) / scale, jacobian, clusters)
    shaken = (predicted + scale * residuals * signs for signs in multipliers(clusters, replicates, seed))
    return np.array([_minimum(model, each, scale, values) for each in shaken])


def multipliers(clusters: np.ndarray, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """Yields random factors for the rows, once for each replicate: mean 0, variance 1, equal within a cluster."""
    chance = np.random.default_rng(seed)
    names, places = np.unique(clusters, return_inverse=True)
    choices = np.array([-1.0, 1.0]) if len(names) >= SIGNS_CLUSTERS_MIN else SIX_POINTS
    for _ in range(replicates):
        yield chance.choice(choices, len(names))[places]


def enlarged(residuals: np.ndarray, jacobian: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """The residuals of each cluster, had the cluster been left out of the fit: (I - H)^-1 r with the cluster's block of the hat matrix."""
    basis, _ = np.linalg.qr(jacobian)
    found = residuals.copy()
    order = np.argsort(clusters, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(clusters[order])) + 1):
        block = np.eye(len(rows)) - basis[rows] @ basis[rows].T
        # A cluster that alone decides a parameter has a singular block. Its residual is 0.
        found[rows] = np.linalg.lstsq(block, residuals[rows], rcond=1e-8)[0]
    return found


def linear(columns: np.ndarray) -> Model:
    """The model columns @ values."""
    return Model(lambda values: columns @ values, lambda values: columns, np.zeros(columns.shape[1]))


def solve_linear(
    columns: np.ndarray, measured: np.ndarray, clusters: np.ndarray, *, relative: bool, replicates: int, seed: int
) -> Solution:
    """Like solve(), in closed form."""
    scale = np.abs(measured) if relative else np.ones(len(measured))
    for _ in range(REWEIGHTINGS + 1 if relative else 1):
        weighted = columns / scale[:, None]
        values = np.linalg.lstsq(weighted, measured / scale, rcond=None)[0]
        predicted = columns @ values
        if relative:
            used, scale = scale, np.where(predicted > 0.01 * np.abs(measured), predicted, np.abs(measured))
        else:
            used = scale
    weighted = columns / used[:, None]
    condition = _condition(weighted)
    found = np.empty((0, len(values)))
    if condition < CONDITION_MAX and replicates:
        residuals = enlarged((measured - predicted) / used, weighted, clusters)
        solving = np.linalg.pinv(weighted)
        found = np.array([solving @ (predicted / used + residuals * signs) for signs in multipliers(clusters, replicates, seed)])
    return Solution(values, predicted, measured, used, condition, found)


def interval(replicates: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """The percentile interval of one parameter."""
    good = replicates[np.isfinite(replicates)]
    if len(good) == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(good, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def lack_of_fit(solution: Solution, clusters: np.ndarray) -> float | None:
    """The probability that repeats alone explain how far the settings' means are from the model (F test). None without repeats."""
    names, places = np.unique(clusters, return_inverse=True)
    repeats = solution.rows - len(names)
    free = len(names) - len(solution.values)
    if repeats < 1 or free < 1:
        return None
    residuals = solution.residuals
    means = np.bincount(places, residuals) / np.bincount(places)
    pure = float(np.sum((residuals - means[places]) ** 2)) / repeats
    misfit = float(np.sum(means[places] ** 2)) / free
    return float(stats.f.sf(misfit / pure, free, repeats)) if pure > 0 else None


def cluster_numbers(*columns: Any) -> np.ndarray:
    """A number for each row; rows with equal values in all columns share it. Missing numbers are equal to each other."""
    keys: dict[tuple, int] = {}
    found = []
    for values in zip(*columns, strict=True):
        key = tuple(None if isinstance(value, float) and np.isnan(value) else value for value in values)
        found.append(keys.setdefault(key, len(keys)))
    return np.array(found, int)
