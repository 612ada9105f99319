# SPDX-License-Identifier: BSL-1.0
"""The second half of `./neap bench load`: how exactly the load generator keeps its rate, and how exactly it reports the server's real
latencies.

Two servers are the references. For the rate, the reference is stock memcached on a core of its own. The generator's peak rate is measured
first, then the error of the achieved rate at shares of that peak. Arrivals are evenly spaced, so chance has no influence. For the
latencies, it is neap-load-stub, which delays answers and freezes, and records its real delays. The error of the measured percentiles is
reported. Run the benchmark on an otherwise idle machine.
"""

import json
import subprocess
from collections.abc import Sequence

from tools import build, progress
from tools.bench import clients
from tools.bench.programs import LAST_CORE, measured, memcached, on_core
from tools.bench.rows import Row, table
from tools.errors import Failure
from tools.process import kill_session, spawn

SHARES_PERCENT = (10, 50, 80)
RATE_MISSED_PERCENT = 1.0
DELAY_OFF_PERCENT = 2.0
CONNECTIONS = ["--connections", "16", "--depth", "4"]
SECONDS = 5.0
STUB_PATIENCE_SECONDS = 10.0
# The delays are long compared with the kernel paths of both programs, which are three wake-ups of about 0.1 ms on a virtual machine.
DELAYS = ["--delay-us", "exponential:100000"]
FREEZE_MS, FREEZE_EVERY_MS = 100, 1000
# 1 % of the period of the freezes. Of 100 evenly spaced requests, one falls into this time.
HUNDREDTH_NS = FREEZE_EVERY_MS * 1e6 / 100


def load() -> list[Row]:
    """Returns rows of both halves of `./neap bench load`."""
    return [*clients.load(), *rows()]


def show(found: Sequence[Row]) -> str:
    """Returns one line per client, and a table of the rows that have a target."""
    promised = [row for row in found if row.target is not None]
    return f"{clients.side_by_side([row for row in found if row.target is None])}\n\n{table(promised)}"


def rows() -> list[Row]:
    build.build_load()
    with progress.step("rates kept against stock memcached"):
        kept = _rates()
    with progress.step("delays and freezes that a server made"):
        return kept + _delays() + _freezes()


def _figures(address: str, *words: str) -> dict:
    """Runs the load generator and returns its figures. Raises Failure."""
    argv = [str(build.LOAD), address, "--quiet", "--seconds", f"{SECONDS:g}", "--json", "-", *words]
    output, _, _ = measured(build.LOAD.name, argv, on_core(LAST_CORE))
    (figures,) = json.loads(output[output.index("\n{\n") :])["runs"]
    if errors := figures["loading"]["requests"]["errors"]:
        raise Failure(f"{errors} of the load's requests failed", details=output.splitlines()[:12])
    return figures


def _rates() -> list[Row]:
    found = []
    with memcached() as address:
        peak = _figures(address, "--closed", *CONNECTIONS)["rate"]["achieved"]
        for share in SHARES_PERCENT:
            asked = round(peak * share / 100)
            rate = _figures(address, "--rate", str(asked), "--arrivals", "fixed", "--no-preload", *CONNECTIONS)["rate"]
            missed = 100 * abs(1 - rate["achieved"] / rate["asked"])
            found.append(Row(f"load.rate.{share}%", f"% missed of {asked:,} requests/s, {share}% of its peak", missed, RATE_MISSED_PERCENT))
    return found


def _with_stub(options: Sequence[str], *words: str) -> tuple[dict, dict]:
    """Loads the stub. Returns the load generator's measurements and the stub's record. Raises Failure."""
    child = spawn([*on_core(0), str(build.LOAD_STUB), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        address = child.stdout.readline().partition("listening on ")[2].strip()
        if not address:
            raise Failure("neap-load-stub does not start")
        figures = _figures(address, "--no-preload", "--warm-up", "0", *words)
        made, _ = child.communicate(timeout=STUB_PATIENCE_SECONDS)
    finally:
        kill_session(child)
    return figures, json.loads(made)


def _off(name: str, what: str, measured_ns: float, made_ns: float) -> Row:
    unit = f"% off {made_ns / 1e3:,.0f} us, {what}"
    return Row(name, unit, 100 * abs(measured_ns / made_ns - 1), DELAY_OFF_PERCENT)


def _delays() -> list[Row]:
    figures, made = _with_stub(DELAYS, "--rate", "2000", "--connections", "1000")
    return [
        _off(f"load.delay.{percentile}", f"{percentile} of what a server delayed", latency, made["delay"][f"{percentile}_ns"])
        for percentile in ("p50", "p99", "p99.9")
        for latency in [figures["loading"]["latency"][f"{percentile}_ns"]]
    ]


def _freezes() -> list[Row]:
    """Compares p99 with a freeze's length minus 10 ms: 1 % of the requests are evenly spaced over the first 10 ms of each freeze."""
    words = ["--rate", "2000", "--arrivals", "fixed", "--connections", "1000"]
    figures, made = _with_stub(["--freeze", f"{FREEZE_EVERY_MS}:{FREEZE_MS}"], *words)
    frozen = [length for _, length in made["absences_ns"] if length >= FREEZE_MS * 1e6]
    if not frozen:
        raise Failure("neap-load-stub did not freeze")
    p99_ns = sum(frozen) / len(frozen) - HUNDREDTH_NS
    return [
        _off("load.freeze.p99", f"p99 of a server that freezes {FREEZE_MS} ms a second", figures["loading"]["latency"]["p99_ns"], p99_ns)
    ]
