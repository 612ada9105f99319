# SPDX-License-Identifier: BSL-1.0
"""A synthetic twin of the published measurements: rows that the models make with the parameters of table 6.1, with noise.

A fit that is right recovers the parameters. The settings are those of the published scripts for memcached (handong32/intlog, scripts/mcd).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.study.published import CORES, Published

# The intervals and frequencies that scripts/mcd/linux sweeps by default, three times each.
ITR_US = (2, 4, 10, 20, 30, 40, 50, 100, 200, 300, 400)
GHZ = tuple(ratio / 10 for ratio in range(12, 30))
REPEATS = 3
WINDOW_S = 20.0
NOISE = 0.02


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
                interrupts = round(1e6 * WINDOW_S * CORES / (of.phi * max(interval, 2)))
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
                        "cores": CORES,
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
