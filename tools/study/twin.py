# SPDX-License-Identifier: BSL-1.0
"""A synthetic twin of the published measurements: rows that the models make with the parameters of table 6.1, with noise.

A fit that is right recovers the parameters. The settings are those of the published scripts for memcached (handong32/intlog, scripts/mcd).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

# The intervals and frequencies that scripts/mcd/linux sweeps by default, three times each.
ITR_US = (2, 4, 10, 20, 30, 40, 50, 100, 200, 300, 400)
GHZ = tuple(ratio / 10 for ratio in range(12, 30))
REPEATS = 3
WINDOW_S = 20.0
NOISE = 0.02


@dataclasses.dataclass(frozen=True)
class Published:
    """A row of table 6.1. Z in us, log gamma of J/us."""

    system: str
    rate: int
    z: float
    a: float
    phi: float
    log_gamma: float
    b: float

    @property
    def name(self) -> str:
        return f"{self.system} {self.rate // 1000}K"


TABLE_6_1 = (
    Published("Linux", 200_000, 86.3, -0.48, 1.09, -12.82, 0.71),
    Published("Linux", 400_000, 251.67, 0.71, 1.08, -12.79, 0.76),
    Published("Linux", 600_000, 687.97, 1.34, 1.02, -12.75, 0.89),
    Published("EbbRT", 200_000, 55.88, -0.96, 0.98, -12.89, 0.68),
    Published("EbbRT", 400_000, 55.63, -1.00, 0.98, -12.85, 0.66),
    Published("EbbRT", 600_000, 51.72, -1.04, 1.03, -12.85, 0.68),
)


def rows(
    of: Published,
    seed: int,
    noise: float = NOISE,
    itr_us: Sequence[float] = ITR_US,
    ghz: Sequence[float] = GHZ,
    repeats: int = REPEATS,
) -> list[dict[str, Any]]:
    """Rows of the table of runs. Latency and energy have independent relative errors of standard deviation `noise`."""
    chance = np.random.default_rng([seed, of.rate, len(of.system), ord(of.system[0])])
    found = []
    for interval in itr_us:
        for frequency in ghz:
            for repeat in range(1, repeats + 1):
                errors = 1 + noise * chance.standard_normal(2)
                interrupts = round(1e6 * WINDOW_S * 16 / (of.phi * max(interval, 2)))
                interrupt_j = math.exp(of.log_gamma) * of.phi * interval * frequency**of.b
                energy_j = interrupt_j * interrupts * errors[1]
                requests = round(of.rate * WINDOW_S)
                found.append(
                    {
                        "study": "table 6.1",
                        "run": f"{len(found):016x}",
                        "arm": of.system,
                        "load": "etc",
                        "repeat": repeat,
                        "status": "ok",
                        "cores": 16,
                        "itr_us": float(interval),
                        "frequency_ghz": frequency,
                        "rate_wanted": float(of.rate),
                        "rate_reached": float(of.rate),
                        "requests": requests,
                        "window_s": WINDOW_S,
                        "p99_us": (of.z / frequency ** (1 + of.a) + of.phi * interval) * errors[0],
                        "energy_j": energy_j,
                        "energy_uj": 1e6 * energy_j / requests,
                        "power_w": energy_j / WINDOW_S,
                        "interrupts": float(interrupts),
                    }
                )
    return found
