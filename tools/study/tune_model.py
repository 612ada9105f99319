# SPDX-License-Identifier: BSL-1.0
"""Gaussian processes over the grid of settings: the mean of what was measured, and how sure it is.

Two of them serve the tuner: one of log(power), one of log(latency / SLA). The kernel is Matern 5/2 with a length for each axis, plus noise;
scikit-learn fits it to the trials (maximum likelihood). Far from all trials the mean returns to the prior mean. For latency that is above
the SLA, so that a setting without evidence is presumed to violate it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_solve
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

# Standard deviations of the logarithms: of the surface and of the noise, first guess and bounds.
AMPLITUDE, AMPLITUDE_BOUNDS = 0.7, (0.05, 3.0)
NOISE, NOISE_MAX = 0.02, 0.05


class Surface:
    """One quantity over all settings of a grid. `inputs`: a row of coordinates for each setting. `prior_mean`: None is the mean of what was
    measured. `length_max`: longer lengths would make the process too sure of what lies outside the trials. `noise_min`: few trials may
    agree by chance, and the process would then be too sure of them."""

    def __init__(self, inputs: np.ndarray, *, prior_mean: float | None, length_max: float, noise_min: float):
        self._inputs = inputs
        self._prior_mean = prior_mean
        amplitude = ConstantKernel(AMPLITUDE**2, (AMPLITUDE_BOUNDS[0] ** 2, AMPLITUDE_BOUNDS[1] ** 2))
        shape = Matern(np.ones(inputs.shape[1]), (0.3, length_max), nu=2.5)
        self._kernel = amplitude * shape + WhiteKernel(NOISE**2, (noise_min**2, NOISE_MAX**2))
        self._process: GaussianProcessRegressor | None = None
        self.mean = np.zeros(len(inputs))
        self.deviation = np.ones(len(inputs))

    def fit(self, places: Sequence[int], values: Sequence[float]) -> None:
        """Fits the kernel, and computes `mean` and `deviation` (of the surface, without the noise of a trial) for all settings."""
        measured = np.array(values)
        offset = float(measured.mean()) if self._prior_mean is None else self._prior_mean
        process = GaussianProcessRegressor(self._kernel)
        with warnings.catch_warnings():
            # A parameter at its bound is expected: a flat axis has the longest length.
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(self._inputs[list(places)], measured - offset)
        # The next fit starts from this one, which makes it cheap.
        self._kernel, self._process = process.kernel_, process
        mean, deviation = process.predict(self._inputs, return_std=True)
        self.mean = mean + offset
        self.deviation = np.sqrt(np.maximum(deviation**2 - self.noise**2, 1e-12))

    @property
    def noise(self) -> float:
        """Standard deviation of one trial's noise."""
        return float(np.sqrt(self._kernel.k2.noise_level))

    def reduction(self, target: int, candidates: np.ndarray) -> np.ndarray:
        """By how much a trial of each candidate would reduce the variance at `target`."""
        assert self._process is not None
        surface, trials = self._kernel.k1, self._process.X_train_
        at_target, at_candidates = self._inputs[[target]], self._inputs[candidates]
        seen = surface(at_candidates, trials) @ cho_solve((self._process.L_, True), surface(trials, at_target))
        covariance = surface(at_candidates, at_target)[:, 0] - seen[:, 0]
        return covariance**2 / (self.deviation[candidates] ** 2 + self.noise**2)
