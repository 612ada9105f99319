# SPDX-License-Identifier: BSL-1.0
"""`./neap bench ancestor`: instructions, cycles and energy of a request on the model machine, beside counters that were measured on metal.

The library OS from which Neap descends was measured beside Linux on two Xeon E5-2630 v3 (16 cores, an 82599, memcached under mutilate's
ETC load; 2024). The figures below are those logs' totals divided by the requests. Here one package of 8 cores is modelled, with half of the
load. So a core has the same rate, a request's figures compare as they are, and the power of the package counts twice.

Different here: no threads (the measured Linux had two a core), kernel 6.1 in place of 5.15, no cache misses, modelled clients with
open-loop arrivals. The driver's own interrupt moderation and the firmware's frequency are used in both systems.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import build, progress
from tools.bench import modelled
from tools.bench.rows import Row, aligned
from tools.model import experiment, linux

MODEL = "e5-2630v3"
CORES = 8
PACKAGES = 2  # of the measured machine
CONNECTIONS = 640  # half of 5 agents with 16 threads and 16 connections each
DEPTH = 4
WARM_UP_MS = 50.0
WINDOW_MS = 50.0


@dataclasses.dataclass(frozen=True)
class Published:
    """A row of the measured machine: requests/s over both packages; figures of a request."""

    rate: int
    instructions: float
    cycles: float
    microjoules: float
    p99_us: float

    @property
    def watts(self) -> float:
        return self.microjoules * self.rate / 1e6


PUBLISHED = {
    "linux": (
        Published(200_000, 39_938, 80_362, 306, 115),
        Published(600_000, 33_089, 71_904, 137, 145),
        Published(800_000, 30_395, 66_955, 111, 225),
        Published(1_000_000, 27_727, 61_220, 93, 1157),
    ),
    "neap": (
        Published(200_000, 7_962, 19_234, 268, 96),
        Published(600_000, 7_905, 16_790, 98, 96),
        Published(1_000_000, 7_879, 15_461, 65, 96),
        Published(2_000_000, 7_877, 13_508, 38, 97),
    ),
}
TITLES = {"linux": "Linux", "neap": "Neap beside its ancestor"}
FIGURES = {
    "instructions": ("instructions a request", lambda row: row["instructions_per_request"]),
    "cycles": ("cycles a request", lambda row: row["cycles_per_request"]),
    "microjoules": ("uJ a request", lambda row: row["uj_per_request"]),
    "watts": (f"W, {PACKAGES} packages", lambda row: row["watts"] * PACKAGES),
    "p99_us": ("us", lambda row: row["p99_us"]),
}


def rows() -> list[Row]:
    modelled.prepare("memcached")
    systems = {"neap": experiment.System(build.image("memcached", "image")), "linux": experiment.System(*linux.image())}
    found = []
    for name, measured in PUBLISHED.items():
        for published in measured:
            with progress.step(f"{TITLES[name]}: {published.rate // PACKAGES} requests/s on {CORES} cores"):
                row = run(systems[name], published.rate / PACKAGES)
            found += [
                Row(
                    f"{name}.{published.rate}.{figure}", f"{unit}, modelled", read(row), peer=getattr(published, figure), peer_is="measured"
                )
                for figure, (unit, read) in FIGURES.items()
            ]
    return found


def run(system: experiment.System, rate: float) -> dict[str, float]:
    wanted = experiment.Experiment(
        MODEL,
        rate=rate,
        cores=CORES,
        connections=CONNECTIONS,
        depth=DEPTH,
        protocol="binary",
        warm_up_ms=WARM_UP_MS,
        window_ms=WINDOW_MS,
        memory="1G",
    )
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        return experiment.run(wanted, system, Path(scratch)).row()


def show(found: Sequence[Row]) -> str:
    """For each system and rate: modelled, measured, and the ratio of the two."""
    by_name = {row.name: row for row in found}
    parts = [f"memcached (ETC, binary protocol, depth {DEPTH}) on {CORES} cores of the modelled {MODEL}: modelled, not measured"]
    for name, measured in PUBLISHED.items():
        cells = [("requests/s a core", "", "modelled", "measured", "ratio", "unit")]
        for published in measured:
            for figure, (unit, _) in FIGURES.items():
                row = by_name[f"{name}.{published.rate}.{figure}"]
                value, peer = row.value or 0.0, row.peer or 1.0
                per_core = f"{published.rate / PACKAGES / CORES:.0f}"
                cells.append((per_core, figure, f"{value:.1f}", f"{peer:.1f}", f"{value / peer:.2f}", unit))
        parts += ["", TITLES[name], aligned(cells)]
    return "\n".join(parts)
