# SPDX-License-Identifier: BSL-1.0
"""`./neap bench request`: the instructions of a memcached GET.

The model machine (docs/model-machine.md) counts all instructions of the core while requests arrive: interrupt, driver, network stack,
memcached, the way into sleep and back. A run repeats to the instruction, so a difference between two builds is a difference of their code.
Requests are far apart, so each one finds a sleeping core; only `get.16_connections` shares wake-ups between requests.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tools import build
from tools.bench import modelled
from tools.bench.rows import Row
from tools.errors import Failure
from tools.model import experiment

MODEL = "e5-2690"
WINDOW_MS = 100.0
KEYS = 100
LONG_BYTES = 32 << 10
FORMS = ("off", "copy", "chain")
UNIT = "instructions a request"


@dataclass(frozen=True)
class Load:
    """One row. words: of the image's command line."""

    name: str
    about: str
    rate: float = 5_000.0
    connections: int = 1
    value_bytes: int = 200
    words: list[str] = field(default_factory=list)


LOADS = [
    Load("get", "one connection, value of 200 bytes"),
    *(Load(f"get.tso_{form}", "the same", words=[f"tso={form}"]) for form in FORMS),
    *(Load(f"get_32_KiB.tso_{form}", "value of 32 KiB", 2_000.0, 1, LONG_BYTES, [f"tso={form}"]) for form in FORMS),
    Load("get.16_connections", "16 connections at 200,000 requests/s", 200_000.0, 16),
]


def rows(image: Path | None = None) -> list[Row]:
    """`image`: a memcached of another build, to compare it with this one."""
    modelled.prepare("memcached")
    measured = image or build.image("memcached", "image")
    costs = modelled.run_each(LOADS, lambda load: cost(load, measured))
    return [Row(f"request.{load.name}", f"{UNIT}, {load.about}", value) for load, value in zip(LOADS, costs, strict=True)]


def cost(load: Load, image: Path) -> float:
    """Returns the instructions of the core in the window, divided by the requests answered. Raises Failure if one was not answered."""
    wanted = experiment.Experiment(
        MODEL,
        load="fixed",
        rate=load.rate,
        window_ms=WINDOW_MS,
        connections=load.connections,
        depth=1,
        keys=KEYS,
        value_bytes=load.value_bytes,
        arguments=load.words,
    )
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        result = experiment.run(wanted, image, Path(scratch))
    if result.world["failed"] or not result.answered:
        raise Failure(f"{load.name}: {result.world['failed']} requests failed, {result.answered} were answered")
    return sum(core.instructions for core in result.cores) / result.answered
