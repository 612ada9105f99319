# SPDX-License-Identifier: BSL-1.0
"""`./neap bench ancestor`: instructions, cycles and energy of a request on the model machine, beside counters that were measured on metal.

The library OS from which Neap descends was measured beside Linux on two Xeon E5-2630 v3 (16 cores, an 82599, memcached under mutilate's
ETC load; 2024). The figures below are those logs' totals divided by the requests. Here one package of 8 cores is modelled, with half of the
load. So a core has the same rate, a request's figures compare as they are, and the power of the package counts twice.

As there, Linux has two threads on each core, and requests ratio 32 (IA32_PERF_CTL was 2000h on that machine), so that it runs at the turbo
frequency. Neap and its ancestor have one thread on each core and firmware's frequency. Both systems use their own interrupt moderation.

Different here: kernel 6.1 in place of 5.15, the same mean share of cache misses in each instruction, and modelled clients.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import build
from tools.bench import modelled
from tools.bench.rows import Row, aligned
from tools.model import experiment, linux

MODEL = "e5-2630v3"
CORES = 8
LINUX_THREADS = 2  # of a core
LINUX_RATIO = 32
RATIO_LOW, RATIO_HIGH = 0.7, 1.3  # within 30 %
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
    settings = [(name, published) for name, measured in PUBLISHED.items() for published in measured]
    figures = modelled.run_each(settings, lambda setting: run(systems[setting[0]], setting[1].rate / PACKAGES))
    return [
        Row(f"{name}.{published.rate}.{figure}", f"{unit}, modelled", read(row), peer=getattr(published, figure), peer_is="measured")
        for (name, published), row in zip(settings, figures, strict=True)
        for figure, (unit, read) in FIGURES.items()
    ]


def run(system: experiment.System, rate: float) -> dict[str, float]:
    wanted = experiment.Experiment(
        MODEL,
        rate=rate,
        cores=CORES * LINUX_THREADS if system.is_linux else CORES,
        smt=system.is_linux,
        connections=CONNECTIONS,
        depth=DEPTH,
        protocol="binary",
        warm_up_ms=WARM_UP_MS,
        window_ms=WINDOW_MS,
        memory="1G",
        arguments=[f"pstate={LINUX_RATIO}"] if system.is_linux else [],
        world_options=["--any-connection"],
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
    return "\n".join([*parts, "", _within(by_name)])


def _within(by_name: dict[str, Row]) -> str:
    """Returns a sentence with the number of Linux's figures, of cycles and of power, that are within 30 % of the measured ones."""
    ratios = [
        (row.value or 0.0) / (row.peer or 1.0)
        for published in PUBLISHED["linux"]
        for row in (by_name[f"linux.{published.rate}.cycles"], by_name[f"linux.{published.rate}.watts"])
    ]
    inside = sum(RATIO_LOW <= ratio <= RATIO_HIGH for ratio in ratios)
    return f"cycles and power of Linux: {inside} of {len(ratios)} figures are {RATIO_LOW} to {RATIO_HIGH} times the measured ones"
