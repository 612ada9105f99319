# SPDX-License-Identifier: BSL-1.0
"""`./neap bench NAME`: costs and rates, as a table or as JSON.

Instruction counts are the same everywhere. Times depend on this machine and on emulation. So they have no targets, and are reported beside
the times of another program (the peer) in the same run.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence

from tools import run
from tools.bench import (
    ancestor,
    card,
    determinism,
    driver,
    hostile,
    instructions,
    kernel,
    linux_card,
    load_accuracy,
    model_judges,
    model_speed,
    netpipe,
    netpipe_model,
    request,
    sleep_states,
    stream,
    trade_off,
)
from tools.bench.rows import Row, table
from tools.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Benchmark:
    measure: Callable[[], list[Row]]
    show: Callable[[Sequence[Row]], str] = table


BENCHMARKS: dict[str, Benchmark] = {
    "observe": Benchmark(instructions.observe),
    "kernel": Benchmark(kernel.rows),
    "request": Benchmark(request.rows),
    "stream": Benchmark(stream.stream),
    "netpipe": Benchmark(netpipe.netpipe, netpipe.side_by_side),
    "card": Benchmark(card.rows),
    "driver": Benchmark(driver.rows),
    "linux-card": Benchmark(linux_card.rows),
    "hostile": Benchmark(hostile.rows),
    "load": Benchmark(load_accuracy.load, load_accuracy.show),
    "model-judges": Benchmark(model_judges.rows, model_judges.show),
    "trade-off": Benchmark(trade_off.rows, trade_off.show),
    "netpipe-model": Benchmark(netpipe_model.rows, netpipe_model.show),
    "sleep-states": Benchmark(sleep_states.rows, sleep_states.show),
    "determinism": Benchmark(determinism.rows, determinism.show),
    "ancestor": Benchmark(ancestor.rows, ancestor.show),
    "model-speed": Benchmark(model_speed.rows, model_speed.show),
}


def bench(name: str, as_json: bool) -> int:
    """Runs one benchmark and prints its table. Returns 1 if a value misses its target."""
    benchmark = BENCHMARKS.get(name)
    if benchmark is None:
        raise UsageError(f"there is no benchmark '{name}'", f"benchmarks: {' '.join(BENCHMARKS)}")
    run.require_build_packages()
    rows = benchmark.measure()
    print(json.dumps([row.fields() for row in rows], indent=2) if as_json else benchmark.show(rows))
    return 1 if any(row.missed for row in rows) else 0
