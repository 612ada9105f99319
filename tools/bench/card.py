# SPDX-License-Identifier: BSL-1.0
"""The cost of a frame in the soft card alone: nanoseconds on this machine, and instructions, which are the same everywhere.

Each cost is measured with one queue and no timer, and with all 128 queues enabled and every timer armed. A frame's cost must not grow with
the number of queues and timers.
"""

import json

from tools import build, packages
from tools.bench.rows import Row
from tools.errors import Failure

# Limit of the ratio of instructions with all queues and timers to those with one queue and no timer. Only heap operations may increase it.
GROWTH_LIMIT = 1.1


def rows() -> list[Row]:
    packages.require("card", "rust")
    log = build.cargo_run(
        build.SOFT_CARD_CRATE, ["run", "--release", "--locked", "--example", "bench"], "measuring the soft card's core", "bench-card"
    )
    return read(log.read_text(errors="replace"))


def read(text: str) -> list[Row]:
    """Makes rows from the lines of JSON that the benchmark program prints."""
    cases = [json.loads(line) for line in text.splitlines() if line.startswith('{"way"')]
    if not cases:
        raise Failure("the soft card's benchmark printed nothing")
    table = []
    for case in cases:
        name = f"card.{case['way']}.{case['size']}.queues_{case['queues']}.timers_{case['timers']}"
        table.append(Row(name, "ns a frame", case["nanoseconds"]))
        if case["instructions"] is None:
            raise Failure("no instructions were counted", "this machine does not let a program trace its child (ptrace)")
        table.append(Row(f"{name}.instructions", "instructions a frame", case["instructions"]))
    for way, size in dict.fromkeys((case["way"], case["size"]) for case in cases):
        costs = {
            (case["queues"], case["timers"] != 0): case["instructions"] for case in cases if (case["way"], case["size"]) == (way, size)
        }
        growth = max(costs.values()) / costs[1, False]
        table.append(
            Row(f"card.{way}.{size}.growth", "instructions with all queues and timers over those with one and none", growth, GROWTH_LIMIT)
        )
    return table
