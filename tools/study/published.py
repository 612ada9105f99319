# SPDX-License-Identifier: BSL-1.0
"""Table 6.1 of the dissertation on interrupt moderation and frequency: parameters of the models in open_loop.py, for memcached."""

import dataclasses

# Cores of the measured machines; rates are those of all cores.
CORES = 16


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
