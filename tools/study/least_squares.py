# SPDX-License-Identifier: BSL-1.0
"""Least squares for the models of a study, and confidence intervals by bootstrap.

Measured latencies and energies have errors in proportion to their size. So residuals are relative: the difference, divided by the
prediction of an earlier fit. With plain residuals the largest latencies alone would decide.

A model has one prediction for each setting. So the fits take the mean over a setting's repeats, weighted by their number: the parameters
are those of a fit to all rows.

Repeats of one setting share the model's own error at that setting, so they are no independent rows. The bootstrap keeps all settings and
multiplies the mean residual of each setting by one random sign (wild cluster bootstrap). Before that, residuals are enlarged by what the
fit took from them (CR3), so that intervals are not too narrow with few settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
from scipy import optimize, stats

from tools.study.repeats import Repeats

Predict = Callable[[np.ndarray], np.ndarray]

REWEIGHTINGS = 4
REPLICATES = 1000
LEVEL = 0.95
# With fewer settings, signs alone have too few combinations.
SIGNS_SETTINGS_MIN = 12
# Webb's six values: mean 0, variance 1.
SIX_POINTS = np.array([-np.sqrt(1.5), -1.0, -np.sqrt(0.5), np.sqrt(0.5), 1.0, np.sqrt(1.5)])
# Above this, two parameters cannot be told apart in double precision and with any noise.
CONDITION_MAX = 1e6
# With more settings, replicates are so close to the solution that one linear step finds them. It takes a thousandth of the time.
EXACT_SETTINGS_MAX = 1000
# A setting that alone decides a parameter has this share or more of its residual taken by the fit.
TAKEN_MAX = 1 - 1e-8


@dataclasses.dataclass(frozen=True)
class Model:
    """A prediction and its derivatives (settings x parameters), as functions of the parameters. `start`: a value near the solution."""

    predict: Predict
    jacobian: Predict
    start: np.ndarray


@dataclasses.dataclass(frozen=True)
class Solution:
    """`predicted`, `measured`, `scale`: of each row; `scale` is what its residual was divided by. `replicates`: one row of parameters for
    each bootstrap replicate."""

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


def solve(model: Model, measured: np.ndarray, of: Repeats, *, relative: bool, replicates: int, seed: int) -> Solution:
    """Fits the model to rows."""
    means, weights = of.means(measured), np.sqrt(of.counts)
    scale = np.abs(means) if relative else np.ones(len(means))
    values = model.start
    for _ in range(REWEIGHTINGS if relative else 1):
        values = _minimum(model, means, scale / weights, values)
        if relative:
            scale = relative_scale(model.predict(values), means)
    values = _minimum(model, means, scale / weights, values)
    predicted = model.predict(values)
    divisor = scale / weights
    jacobian = model.jacobian(values) / divisor[:, None]
    condition = _condition(jacobian)
    found = np.empty((0, len(values)))
    if condition < CONDITION_MAX and replicates:
        residuals = enlarged((means - predicted) / divisor, jacobian)
        if len(of) > EXACT_SETTINGS_MAX:
            found = values + _steps(jacobian, residuals, replicates, seed)
        else:
            shaken = (predicted + divisor * residuals * factors for factors in multipliers(len(of), replicates, seed))
            found = np.array([_minimum(model, each, divisor, values) for each in shaken])
    return Solution(values, predicted[of.setting], measured, scale[of.setting], condition, found)


def relative_scale(predicted: np.ndarray, means: np.ndarray) -> np.ndarray:
    """A prediction of zero or less has no relative error."""
    return np.where(predicted > 0.01 * np.abs(means), predicted, np.abs(means))


def _minimum(model: Model, measured: np.ndarray, divisor: np.ndarray, start: np.ndarray) -> np.ndarray:
    done = optimize.least_squares(
        lambda values: (model.predict(values) - measured) / divisor,
        start,
        jac=lambda values: model.jacobian(values) / divisor[:, None],  # type: ignore[arg-type]
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


def multipliers(settings: int, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """Yields random factors of the settings, once for each replicate: mean 0, variance 1."""
    chance = np.random.default_rng(seed)
    choices = np.array([-1.0, 1.0]) if settings >= SIGNS_SETTINGS_MIN else SIX_POINTS
    for _ in range(replicates):
        yield chance.choice(choices, settings)


def enlarged(residuals: np.ndarray, jacobian: np.ndarray) -> np.ndarray:
    """The residual of each setting, had the setting been left out of the fit: divided by 1 - h, with h of the hat matrix's diagonal. 0 for
    a setting that alone decides a parameter."""
    basis, _ = np.linalg.qr(jacobian)
    taken = np.sum(basis**2, axis=1)
    return np.where(taken < TAKEN_MAX, residuals / np.maximum(1 - taken, 1 - TAKEN_MAX), 0.0)


def _steps(jacobian: np.ndarray, residuals: np.ndarray, replicates: int, seed: int) -> np.ndarray:
    """The parameters' changes by the residuals with random factors, by one linear step: replicates x parameters."""
    solving = np.linalg.pinv(jacobian) * residuals
    return np.array([solving @ factors for factors in multipliers(len(residuals), replicates, seed)])


def solve_linear(columns: np.ndarray, measured: np.ndarray, of: Repeats, *, relative: bool, replicates: int, seed: int) -> Solution:
    """Like solve() for the model columns @ values, in closed form. `columns`: settings x parameters."""
    means, weights = of.means(measured), np.sqrt(of.counts)
    scale = np.abs(means) if relative else np.ones(len(means))
    for _ in range(REWEIGHTINGS + 1 if relative else 1):
        divisor = scale / weights
        values = np.linalg.lstsq(columns / divisor[:, None], means / divisor, rcond=None)[0]
        predicted = columns @ values
        if relative:
            used, scale = scale, relative_scale(predicted, means)
        else:
            used = scale
    weighted = columns / divisor[:, None]
    condition = _condition(weighted)
    found = np.empty((0, len(values)))
    if condition < CONDITION_MAX and replicates:
        found = values + _steps(weighted, enlarged((means - predicted) / divisor, weighted), replicates, seed)
    return Solution(values, predicted[of.setting], measured, used[of.setting], condition, found)


def interval(replicates: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """The percentile interval of one parameter."""
    good = replicates[np.isfinite(replicates)]
    if len(good) == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(good, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def lack_of_fit(solution: Solution, of: Repeats) -> float | None:
    """The probability that repeats alone explain how far the settings' means are from the model (F test). None without repeats."""
    repeated = solution.rows - len(of)
    free = len(of) - len(solution.values)
    if repeated < 1 or free < 1:
        return None
    residuals = solution.residuals
    means = of.means(residuals)
    pure = float(np.sum((residuals - means[of.setting]) ** 2)) / repeated
    misfit = float(np.sum(of.counts * means**2)) / free
    return float(stats.f.sf(misfit / pure, free, repeated)) if pure > 0 else None
