# SPDX-License-Identifier: BSL-1.0
"""Gaussian processes over the grid of settings: the mean of what was measured, and how sure it is.

Two of them serve the tuner, from scikit-learn: one of latency, one of log(cost). The kernels are Matern 5/2, plus the noise of the trials.
Far from all trials the mean returns to the prior mean.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_solve
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, WhiteKernel

from tools.study.tune_grid import ITR, Grid

# The prior of latency, in shares of the SLA. A setting without evidence exceeds the SLA by a third. An interval adds about itself.
PRIOR_LATENCY, PRIOR_OF_INTERVAL = 1.3, 1.0
# Latency is the sum of a curve of each axis, and of a smaller surface of all axes: standard deviations and lengths.
CURVE_AMPLITUDE, CURVE_LENGTH = 1.0, 1.0
JOINT_AMPLITUDE, JOINT_LENGTH = 0.3, 2.0
# The curve of the interval is nearly a line. A Matern 5/2 process of amplitude A and length L has slopes of deviation A * sqrt(5 / 3) / L.
INTERVAL_DEVIATION = 0.2
INTERVAL_LENGTH = (5 / 3) ** 0.5 * CURVE_AMPLITUDE / INTERVAL_DEVIATION
# With this length an axis has no part in a curve.
FLAT = 1e6
# Standard deviation of a trial's noise: first guess, and bounds of the fit. Few trials may agree by chance, so latency has at least 2 %.
NOISE, NOISE_MIN_LATENCY, NOISE_MIN, NOISE_MAX = 0.02, 0.02, 0.003, 0.1
COST_AMPLITUDE, COST_AMPLITUDE_BOUNDS, COST_LENGTH_BOUNDS = 0.7, (0.05, 3.0), (0.3, 6.0)


class TrialNoise(WhiteKernel):
    """The noise of the trials, each in proportion to its scale. Predictions are of the surface, so they have none."""

    def __init__(self, noise_level: float, noise_level_bounds: tuple[float, float], scales: np.ndarray):
        super().__init__(noise_level, noise_level_bounds)
        self.scales = scales

    def __call__(self, X, Y=None, eval_gradient=False):  # noqa: N803, the names of scikit-learn
        if Y is not None:
            return np.zeros((len(X), len(Y)))
        found = np.diag(self.noise_level * self.scales**2)
        return (found, found[:, :, np.newaxis]) if eval_gradient else found

    def diag(self, X):  # noqa: N803
        return np.zeros(len(X))


class Surface:
    """One quantity over all settings of a grid. `inputs`: a row of coordinates for each setting. `kernel`: without the noise. `prior_mean`:
    of each setting; None is the mean of what was measured. `is_relative`: noise is in proportion to the value."""

    def __init__(
        self, inputs: np.ndarray, kernel: Kernel, noise_min: float, prior_mean: np.ndarray | None = None, is_relative: bool = False
    ):
        self._inputs, self._kernel, self._prior_mean, self._is_relative = inputs, kernel, prior_mean, is_relative
        self._noise_level, self._noise_bounds = max(NOISE, noise_min) ** 2, (noise_min**2, NOISE_MAX**2)
        self._process: GaussianProcessRegressor | None = None
        self.mean = np.zeros(len(inputs))
        self.deviation = np.ones(len(inputs))

    def fit(self, places: Sequence[int], values: Sequence[float]) -> None:
        """Fits the free parameters (maximum likelihood). Computes `mean` and `deviation` of all settings, without the noise of a trial."""
        at, measured = list(places), np.array(values)
        offset = np.full(len(self._inputs), measured.mean()) if self._prior_mean is None else self._prior_mean
        noise = TrialNoise(self._noise_level, self._noise_bounds, measured if self._is_relative else np.ones(len(measured)))
        process = GaussianProcessRegressor(self._kernel + noise)
        with warnings.catch_warnings():
            # A parameter at its bound is expected: a flat axis has the longest length.
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(self._inputs[at], measured - offset[at])
        # The next fit starts from this one, which makes it cheap.
        self._kernel, self._noise_level, self._process = process.kernel_.k1, process.kernel_.k2.noise_level, process
        mean, deviation = process.predict(self._inputs, return_std=True)
        self.mean = mean + offset
        self.deviation = np.maximum(deviation, 1e-6)

    def noise(self, places: np.ndarray) -> np.ndarray:
        """Standard deviation of the noise of one trial of each setting."""
        return np.sqrt(self._noise_level) * (self.mean[places] if self._is_relative else np.ones(len(places)))

    def reduction(self, target: int, candidates: np.ndarray, repeats: int) -> np.ndarray:
        """By how much so many trials of each candidate would reduce the variance at `target`."""
        assert self._process is not None
        surface, trials = self._kernel, self._process.X_train_
        at_target, at_candidates = self._inputs[[target]], self._inputs[candidates]
        seen = surface(at_candidates, trials) @ cho_solve((self._process.L_, True), surface(trials, at_target))
        covariance = surface(at_candidates, at_target)[:, 0] - seen[:, 0]
        return covariance**2 / (self.deviation[candidates] ** 2 + self.noise(candidates) ** 2 / repeats)


def latency_surface(grid: Grid, sla_us: float, noise_min: float) -> Surface:
    """Of latency / SLA. Its prior is fixed, apart from the noise: the parameters that few trials suggest may be wrong, and too sure."""
    inputs, count = grid.latency_inputs(sla_us), len(grid.axes)
    prior_mean = np.full(len(grid), PRIOR_LATENCY)
    kernel = ConstantKernel(JOINT_AMPLITUDE**2, "fixed") * Matern(np.full(count, JOINT_LENGTH), "fixed", nu=2.5)
    for at, one in enumerate(grid.axes):
        lengths = np.full(count, FLAT)
        lengths[at] = CURVE_LENGTH
        if one.name == ITR and one.is_numeric:
            prior_mean += PRIOR_OF_INTERVAL * inputs[:, at]
            lengths[at] = INTERVAL_LENGTH
        kernel += ConstantKernel(CURVE_AMPLITUDE**2, "fixed") * Matern(lengths, "fixed", nu=2.5)
    return Surface(inputs, kernel, noise_min, prior_mean, is_relative=True)


def cost_surface(grid: Grid) -> Surface:
    """Of log(cost)."""
    amplitude = ConstantKernel(COST_AMPLITUDE**2, (COST_AMPLITUDE_BOUNDS[0] ** 2, COST_AMPLITUDE_BOUNDS[1] ** 2))
    return Surface(grid.inputs(), amplitude * Matern(np.ones(len(grid.axes)), COST_LENGTH_BOUNDS, nu=2.5), NOISE_MIN)
