# SPDX-License-Identifier: BSL-1.0
"""`./neap bench NAME ...`: costs and rates, as tables or as JSON.

Instruction counts are the same everywhere. Times depend on this machine and on emulation. So they have no targets, and are reported beside
the times of another program (the peer) in the same run.
"""

import dataclasses
import importlib
import json
from collections.abc import Callable, Sequence

from tools import pythons, run
from tools.bench import (
    ancestor,
    card,
    cleaners,
    counts,
    determinism,
    driver,
    hit_ratio,
    hostile,
    idle,
    idle_policies,
    instructions,
    kernel,
    linux_card,
    linux_log,
    load_accuracy,
    model_judges,
    model_speed,
    netpipe,
    report_page,
    request,
    sleep_states,
    stream,
    sweep_kills,
    sweep_ssh,
    view,
    wakeup,
    web,
)
from tools.bench.rows import Row, Selection, table
from tools.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """`measure` takes a `Selection` if the benchmark has rows that can be chosen. `packages`: those that it needs (pythons.require)."""

    measure: Callable[..., list[Row]]
    show: Callable[[Sequence[Row]], str] = table
    has_selection: bool = False
    packages: str = ""


def _later(module: str, name: str) -> Callable:
    """A function of a module that needs packages at its import, or other modules that import this one."""
    return lambda *arguments: getattr(importlib.import_module(f"tools.bench.{module}"), name)(*arguments)


BENCHMARKS: dict[str, Benchmark] = {
    "observe": Benchmark(instructions.observe),
    "kernel": Benchmark(kernel.rows),
    "request": Benchmark(request.rows, request.show, has_selection=True),
    "web": Benchmark(web.rows, web.show, has_selection=True),
    "tpcc": Benchmark(_later("tpcc", "rows"), _later("tpcc", "show"), has_selection=True, packages="log"),
    "stream": Benchmark(stream.stream),
    "netpipe": Benchmark(netpipe.netpipe, netpipe.side_by_side),
    "card": Benchmark(card.rows),
    "driver": Benchmark(driver.rows),
    "hit-ratio": Benchmark(hit_ratio.rows, hit_ratio.show, has_selection=True),
    "linux-card": Benchmark(linux_card.rows),
    "linux-log": Benchmark(linux_log.rows, packages="log"),
    "hostile": Benchmark(hostile.rows),
    "load": Benchmark(load_accuracy.load, load_accuracy.show),
    "model-judges": Benchmark(model_judges.rows, model_judges.show),
    "trade-off": Benchmark(_later("trade_off", "rows"), _later("trade_off", "show"), packages="study"),
    "netpipe-model": Benchmark(_later("netpipe_model", "rows"), _later("netpipe_model", "show"), packages="study"),
    "sleep-states": Benchmark(sleep_states.rows, sleep_states.show),
    "idle": Benchmark(idle.rows, idle.show),
    "idle-policies": Benchmark(idle_policies.rows, idle_policies.show),
    "wakeup": Benchmark(wakeup.rows, wakeup.show),
    "determinism": Benchmark(determinism.rows, determinism.show),
    "ancestor": Benchmark(ancestor.rows, ancestor.show),
    "cleaners": Benchmark(cleaners.rows, cleaners.show),
    "counts": Benchmark(counts.rows),
    "sweep-kills": Benchmark(sweep_kills.rows, packages="study"),
    "sweep-ssh": Benchmark(sweep_ssh.rows, packages="study"),
    "report-page": Benchmark(report_page.rows),
    "fit": Benchmark(_later("fit", "rows"), _later("fit", "show"), packages="study"),
    "tune": Benchmark(_later("tune", "rows"), _later("tune", "show"), packages="study"),
    "view": Benchmark(view.rows),
    "network": Benchmark(_later("network", "rows"), _later("network", "show"), has_selection=True),
    "model-speed": Benchmark(model_speed.rows, model_speed.show),
}


# Options that not all benchmarks have, by their names in `Selection`.
OPTIONS_OF = {
    "with_linux": ("--linux", ("request", "web")),
    "megabytes": ("--megabytes", ("network",)),
    "seeds": ("--seeds", ("network",)),
    "congestion": ("--congestion", ("network",)),
    "image_words": ("--word", ("network",)),
    "silo": ("--silo", ("tpcc",)),
}


def bench(
    names: Sequence[str],
    as_json: bool,
    rows: Sequence[str] = (),
    with_linux: bool = False,
    megabytes: float | None = None,
    seeds: int | None = None,
    congestion: str | None = None,
    image_words: Sequence[str] | None = None,
    silo: str | None = None,
) -> int:
    """Runs the benchmarks one after the other and prints their tables, or one JSON list. Returns 1 if a value misses its target. `rows`:
    patterns of the rows to measure; none: all. The others are further fields of a Selection; None and False: not given."""
    options = (with_linux, megabytes, seeds, congestion, image_words, silo)
    given = {name: value for name, value in zip(OPTIONS_OF, options, strict=True) if value is not None and value is not False}
    for name in names:
        if name not in BENCHMARKS:
            raise UsageError(f"there is no benchmark '{name}'", f"benchmarks: {' '.join(BENCHMARKS)}")
        if rows and not BENCHMARKS[name].has_selection:
            raise UsageError(
                f"--rows: {name} has no such choice", "the benchmarks 'request', 'web', 'network', 'tpcc' and 'hit-ratio' have it"
            )
        if foreign := next((OPTIONS_OF[option] for option in given if name not in OPTIONS_OF[option][1]), None):
            having = " and ".join(f"'{other}'" for other in foreign[1])
            raise UsageError(f"{foreign[0]}: {name} has no such choice", f"it is one of the benchmark {having}")
    # The environment for studies has the log's packages, too.
    for packages in ("study", "log"):
        if any(BENCHMARKS[name].packages == packages for name in names):
            pythons.require(packages)
    run.require_build_packages()
    found: list[Row] = []
    for number, name in enumerate(names):
        benchmark = BENCHMARKS[name]
        measured = benchmark.measure(Selection(rows, **given)) if benchmark.has_selection else benchmark.measure()
        found += measured
        if not as_json:
            print("\n" * bool(number) + benchmark.show(measured), flush=True)
    if as_json:
        print(json.dumps([row.fields() for row in found], indent=2))
    return 1 if any(row.missed for row in found) else 0
