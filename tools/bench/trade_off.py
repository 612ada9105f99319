# SPDX-License-Identifier: BSL-1.0
"""`./neap bench trade-off`: latency and power of memcached over interrupt moderation and frequency, Neap and Linux on the model machine.

The published studies measured this grid on Xeon E5 machines: longer intervals between interrupts (ITR) and lower frequencies save energy
and cost latency. Here the machine is modelled (docs/model-machine.md): the figures show an order and a shape, not the watts of a machine.

Rates are those of one core. The studies offered 200,000, 400,000 and 600,000 requests/s to 16 cores: 12,500, 25,000 and 37,500 a core.

Below each grid are the fits of the studies' models (study_models.py). At the end they are beside the published ones.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import build
from tools.bench import modelled, study_models
from tools.bench.rows import Row, aligned
from tools.model import experiment, linux, results

MODEL = "e5-2690"
ITR_US = (2, 50, 100, 200, 300)
RATIOS = (12, 15, 18, 21, 25, 29)
WINDOW_MS = 100.0
# In the first 0.1 s of a load, Linux sometimes stalls for 1.5 to 3.6 ms. The cause is not known. This warm-up leaves that time out.
WARM_UP_MS = 200.0
CONNECTIONS = 64
PHI_RANGE = (0.9, 1.1)


@dataclasses.dataclass(frozen=True)
class Arm:
    """One grid. `rate`: requests/s."""

    system: str
    rate: int

    @property
    def name(self) -> str:
        return f"{self.system}_{self.rate}"

    @property
    def title(self) -> str:
        return f"{self.system.capitalize()}, {self.rate} requests/s"


RATES = (12_500, 25_000, 37_500)
ARMS = tuple(Arm(system, rate) for system in ("linux", "neap") for rate in RATES)

# Table 6.1 of the dissertation: requests/s of 16 cores, then Z, a, phi, log gamma, b.
PUBLISHED = (
    ("Linux 200K", 12_500, 86.3, -0.48, 1.09, -12.82, 0.71),
    ("Linux 400K", 25_000, 251.67, 0.71, 1.08, -12.79, 0.76),
    ("Linux 600K", 37_500, 687.97, 1.34, 1.02, -12.75, 0.89),
    ("EbbRT 200K", 12_500, 55.88, -0.96, 0.98, -12.89, 0.68),
    ("EbbRT 400K", 25_000, 55.63, -1.00, 0.98, -12.85, 0.66),
    ("EbbRT 600K", 37_500, 51.72, -1.04, 1.03, -12.85, 0.68),
)

FIGURES = {
    "p50_us": "us",
    "p99_us": "us",
    "watts": "W",
    "c0_share": "share",
    "wakeups": "wake-ups",
    "interrupts": "interrupts",
    "uj_per_request": "uJ a request",
    "failed": "requests",
}
FITTED = {
    "z": "us at 1 GHz",
    "a": "exponent",
    "phi": "intervals",
    "error_us": "us",
    "log_gamma": "of J/us",
    "b": "exponent",
    "log_p_c0": "of W",
    "log_p_f": "exponent",
    "log_p_itr": "exponent",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    arm: Arm
    itr_us: int
    ratio: int
    figures: dict[str, float]

    @property
    def name(self) -> str:
        return f"{self.arm.name}.itr_{self.itr_us}us.{self.ratio * 100}MHz"


def measure() -> list[Cell]:
    modelled.prepare("memcached")
    systems = {"neap": experiment.System(build.image("memcached", "image")), "linux": experiment.System(*linux.image())}
    settings = [(arm, itr_us, ratio) for arm in ARMS for itr_us in ITR_US for ratio in RATIOS]
    return modelled.run_each(settings, lambda setting: run_cell(systems[setting[0].system], *setting))


def run_cell(system: experiment.System, arm: Arm, itr_us: int, ratio: int) -> Cell:
    wanted = experiment.Experiment(
        MODEL,
        rate=arm.rate,
        window_ms=WINDOW_MS,
        warm_up_ms=WARM_UP_MS,
        connections=CONNECTIONS,
        arguments=[f"itr={itr_us}us", f"pstate={ratio}"],
    )
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        result: results.Result = experiment.run(wanted, system, Path(scratch))
    return Cell(arm, itr_us, ratio, {**result.row(), "failed": result.world["failed"]})


def fitted(cells: Sequence[Cell]) -> dict[str, float]:
    points = [
        study_models.Point(
            ghz=cell.ratio / 10,
            itr_us=cell.itr_us,
            latency_us=cell.figures["p99_us"],
            watts=cell.figures["watts"],
            interrupt_j=cell.figures["joules"] / max(1.0, cell.figures["interrupts"]),
        )
        for cell in cells
    ]
    latency = study_models.fit_latency(points)
    # An interrupt that is not held back by moderation does not wait for it: its energy says nothing about ITR.
    moderated = [point for point in points if point.itr_us >= 50]
    energy = study_models.fit_energy(moderated, latency.phi)
    power = study_models.fit_power(points)
    values = (latency.z, latency.a, latency.phi, latency.error_us, energy.log_gamma, energy.b, power.c0, power.c1, power.c2)
    return dict(zip(FITTED, values, strict=True))


def rows() -> list[Row]:
    cells = measure()
    found = []
    for cell in cells:
        found += [Row(f"{cell.name}.{name}", f"{unit}, modelled", cell.figures[name]) for name, unit in FIGURES.items()]
    for arm in ARMS:
        values = fitted([cell for cell in cells if cell.arm == arm])
        found += [Row(f"{arm.name}.fit.{name}", f"{unit}, modelled", values[name]) for name, unit in FITTED.items()]
    return found


def show(found: Sequence[Row]) -> str:
    """A grid for each arm with its fits, and at the end all fits beside the published ones."""
    values = {row.name: float(row.value or 0) for row in found}
    parts = [f"memcached (ETC) on the modelled {MODEL}, 1 core, {WINDOW_MS:g} ms of virtual time a run: modelled, not measured"]
    for arm in ARMS:
        cells = [("ITR us", "MHz", *FIGURES)]
        for itr_us in ITR_US:
            for ratio in RATIOS:
                name = Cell(arm, itr_us, ratio, {}).name
                cells.append((str(itr_us), str(ratio * 100), *(f"{values[f'{name}.{figure}']:.5g}" for figure in FIGURES)))
        fit = {name: values[f"{arm.name}.fit.{name}"] for name in FITTED}
        parts += ["", arm.title, aligned(cells)]
        parts.append(f"p99 = {fit['z']:.1f} us / f^(1 + {fit['a']:.2f}) + {fit['phi']:.2f} * ITR, +- {fit['error_us']:.1f} us")
        parts.append(f"log P = {fit['log_p_c0']:.2f} + {fit['log_p_f']:.2f} log f + {fit['log_p_itr']:.3f} log ITR")
        parts.append(f"of {len(RATIOS)} frequencies: {_effects(values, arm)}")
    return "\n".join([*parts, "", _beside_published(values)])


def _effects(values: dict[str, float], arm: Arm) -> str:
    """At how many frequencies the longest interval saves energy, and costs latency, against the shortest."""
    ends = [[Cell(arm, itr_us, ratio, {}).name for itr_us in (ITR_US[0], ITR_US[-1])] for ratio in RATIOS]
    cheaper = sum(values[f"{long}.watts"] < values[f"{short}.watts"] for short, long in ends)
    later = sum(values[f"{long}.p99_us"] > values[f"{short}.p99_us"] for short, long in ends)
    return f"the longest interval needs less power at {cheaper}, and has a higher p99 at {later}"


def _beside_published(values: dict[str, float]) -> str:
    cells = [("", "requests/s a core", "Z us", "a", "phi", "log gamma", "b")]
    for title, rate, *numbers in PUBLISHED:
        cells.append((f"published {title}", str(rate), *(f"{number:.2f}" for number in numbers)))
    for arm in ARMS:
        numbers = [values[f"{arm.name}.fit.{name}"] for name in ("z", "a", "phi", "log_gamma", "b")]
        low, high = PHI_RANGE
        mark = "" if low <= numbers[2] <= high else " !"
        cells.append((f"modelled {arm.system.capitalize()}{mark}", str(arm.rate), *(f"{number:.2f}" for number in numbers)))
    note = f"!: phi is not between {PHI_RANGE[0]} and {PHI_RANGE[1]} (docs/model-machine.md, Compared with the studies)"
    gamma = "log gamma here is of the power of a package; it was not published of what power it is there"
    return "\n".join([aligned(cells), note, gamma])
