# SPDX-License-Identifier: BSL-1.0
"""`./neap bench wakeup`: wake-up latency of each idle state (apps/wakeup) on the modelled CPUs, beside the latencies of their models.

A median's target is the model's latency and the time of the instructions between the doorbell and the clock reading. A write may take 2 us
more (`limit_us` in tools/model/wakeup.py derives both bounds). A wake-up that takes less than the model's latency ends the benchmark with a
sentence: then the measurement is wrong.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import build
from tools.bench import modelled
from tools.bench.rows import Row
from tools.errors import Failure
from tools.model import cpu_model, plugin, wakeup

# The 99th percentile of 100 rounds is the second largest value.
ROUNDS = 100
FIGURES = ("min", "median", "p99", "max")


def run(model: str, image: Path) -> list[wakeup.Latency]:
    """Measures on one modelled CPU. Raises Failure if a latency is below the model's."""
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        found = wakeup.run(wakeup.Wakeup(model, arguments=[f"rounds={ROUNDS}"]), image, Path(scratch))
    cpu = cpu_model.load(model)
    for one in found:
        if one.min / 1000 < wakeup.model_us(cpu, one.state, one.doorbell):
            raise Failure(f"{model}: {one.name} took {one.min} ns, less than the model's latency")
    return found


def rows() -> list[Row]:
    plugin.library()
    build.build("image", ["wakeup.elf"])
    image = build.image("wakeup")
    models = cpu_model.names()
    measured = modelled.run_each(models, lambda model: run(model, image))
    return [row for model, found in zip(models, measured) for one in found for row in rows_of(model, one)]


def rows_of(model: str, one: wakeup.Latency) -> list[Row]:
    name = f"{model}.{one.name}"
    cpu = cpu_model.load(model)
    truth, limit = (of(cpu, one.state, one.doorbell) for of in (wakeup.model_us, wakeup.limit_us))
    found = [Row(f"{name}.{figure}", "us, modelled", getattr(one, figure) / 1000) for figure in FIGURES]
    found[FIGURES.index("median")] = Row(f"{name}.median", "us, modelled", one.median / 1000, target=limit)
    return [*found, Row(f"{name}.model", "us, the model's latency", truth), Row(f"{name}.rounds", "wake-ups", float(one.rounds))]


def show(found: Sequence[Row]) -> str:
    """A table for each CPU: measured beside the model's."""
    parts = ["wake-up latency, from the doorbell to the first clock reading, virtual time: modelled, not measured"]
    values = {row.name: row.value or 0.0 for row in found}
    for model in cpu_model.names():
        latencies = []
        for name in (name for name in values if name.startswith(f"{model}.") and name.endswith(".median")):
            own = name.removesuffix(".median")
            state, doorbell = own.removeprefix(f"{model}.").split(".")
            figures = [round(1000 * values[f"{own}.{figure}"]) for figure in FIGURES]
            latencies.append(wakeup.Latency(state, doorbell, int(values[f"{own}.rounds"]), *figures, repeated=0))
        parts += ["", f"modelled {model}", wakeup.table(latencies, cpu_model.load(model))]
    return "\n".join(parts)
