# SPDX-License-Identifier: BSL-1.0
"""`./neap soak crowd` and `./neap soak protocols`: memcached under thousands of clients, and under random bytes of each protocol.

`crowd` plays the attacks of tests/hostile/crowd_attacks.py in their full size on an emulated machine. An ordinary client must be served all
the time, and the counters with a documented limit must be within it at every sample. `protocols` runs the fuzzer `fuzz_protocols` under the
sanitizers until open connections have received the given number of bytes of each protocol.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools import build, packages, progress, qemu, run
from tools.errors import EXIT_FAILURE, Failure, UsageError
from tools.process import run_logged

CORES = 4
CROWD_SECONDS = 5
PROTOCOLS = ("text", "meta", "binary", "udp")
FUZZER = "fuzz_protocols"
BYTES, BYTES_MAX = 100_000_000, 10**12
# The slowest protocol on a busy machine; a run that takes longer hangs.
BYTES_PER_SECOND_MIN = 50_000
SHOWN_LINES = 20


# --- Many clients ------------------------------------------------------------------------------------------------------------------------
def soak_crowd(cores: int = CORES) -> int:
    """Plays each attack once. After a finding, continues and returns 1 at the end."""
    if not 1 <= cores <= run.CORES_MAX:
        raise UsageError(f"--cores takes 1 to {run.CORES_MAX}, not {cores}")
    run.require_build_packages()
    qemu.command()
    build.build("image", ["memcached.elf"])
    build.build_soft_card()
    build.build_load()
    sys.path.insert(0, str(build.REPOSITORY / "tests"))
    from hostile.attacks import FULL_SIZE  # noqa: PLC0415

    from tools.bench.hostile import attack  # noqa: PLC0415

    found = 0
    for name in FULL_SIZE:
        start = time.monotonic()
        result = attack(name, "--full", "--cores", str(cores), "--seconds", str(CROWD_SECONDS))
        faults = faults_of(result, may_miss=FULL_SIZE[name].may_miss)
        found += bool(faults)
        took = progress.duration(time.monotonic() - start)
        print("\n".join([f"neap: soak: {name} on {cores} cores: {'FAILED' if faults else 'passed'}, {took}", *report(result)]), flush=True)
        for fault in faults:
            print(f"    FINDING: {fault}", flush=True)
    print(f"{len(FULL_SIZE) - found} attacks without a finding, {found} with one", flush=True)
    return EXIT_FAILURE if found else 0


def report(result: dict) -> list[str]:
    """Returns the lines that show what was measured."""
    lines = [
        f"    {name}: peak {peak['peak']} of {peak['limit']} ({peak['peak'] / max(1, peak['limit']):.0%})"
        for name, peak in result.get("bounds", {}).items()
    ]
    if "memory" in result:
        lines.append(f"    heap before {result['memory']['before']}, after {result['memory']['after']}")
    if "during" in result:
        during = result["during"]
        lines.append(f"    the bystander: {during['count']} requests, {during['errors']} errors, p99 {during['p99_us'] / 1000:.1f} ms")
        lines.append(f"    new clients: {result['newcomers']} served, the slowest in {result['newcomer_slowest_s']} s")
    return lines + [f"    {name}: {number}" for name, number in result.get("measured", {}).items()]


def faults_of(result: dict, *, may_miss: bool) -> list[str]:
    """Returns what is wrong with the result of an attack (tests/hostile/scene.py). Empty: nothing."""
    if "broken" in result:
        return [f"the service broke off: {result['broken']}", *result["console"]]
    faults = [f"{name}: {number}" for name, number in result["findings"].items() if number]
    faults += [f"a new client was not served: {failure}" for failure in result["newcomers_failed"]]
    if not result["alive"]:
        faults += ["the machine has ended", *result["console"]]
    during = result["during"]
    if during["errors"] or not during["count"] or (not may_miss and not set(during["outcomes"]) <= {"done", "hit"}):
        faults.append(f"the bystander was not served: {during}")
    if result["memory"]["left"] or result["memory"]["kept"]:
        faults.append(f"memory has not returned: {result['memory']}")
    return faults


# --- Random bytes ------------------------------------------------------------------------------------------------------------------------
def soak_protocols(count: int = BYTES) -> int:
    """Sends `count` bytes of each protocol, and prints a table. After a finding, continues with the other protocols and returns 1."""
    if not 1 <= count <= BYTES_MAX:
        raise UsageError(f"--bytes takes 1 to {BYTES_MAX}, not {count}")
    packages.require("host-tests", "sources")
    directory = build.build("host", [FUZZER])
    seed = int(os.environ.get("NEAP_SOAK_SEED") or int.from_bytes(os.urandom(4), "little"))
    progress.say(f"neap: soak: {count} bytes of each of {len(PROTOCOLS)} protocols, seed {seed}")
    return play([str(directory / "apps/memcached" / FUZZER)], count, seed)


def play(fuzzer: Sequence[str], count: int, seed: int) -> int:
    rows = dict(run.in_lanes(lambda protocol: (protocol, fuzz(fuzzer, protocol, count, seed)), PROTOCOLS, os.cpu_count() or 1))
    print(f"{'protocol':10}{'bytes':>14}{'commands':>12}{'streams':>10}{'findings':>10}{'seconds':>9}")
    for protocol in PROTOCOLS:
        row = rows[protocol]
        shown = row or {"bytes": "-", "commands": "-", "streams": "-", "seconds": "-"}
        print(
            f"{protocol:10}{shown['bytes']:>14}{shown['commands']:>12}{shown['streams']:>10}{0 if row else 1:>10}{shown['seconds']:>9}",
            flush=True,
        )
    return EXIT_FAILURE if None in rows.values() else 0


def fuzz(fuzzer: Sequence[str], protocol: str, count: int, seed: int) -> dict[str, str] | None:
    """Runs the fuzzer with one protocol. Returns the counts that it prints; None after a finding, which is printed."""
    log = build.log_path(f"soak-{FUZZER}-{protocol}")
    log.unlink(missing_ok=True)
    argv = [*fuzzer, f"{count}b", str(seed), protocol]
    try:
        run_logged(argv, log, FUZZER, cwd=build.REPOSITORY, timeout_seconds=120 + count / BYTES_PER_SECOND_MIN)
    except Failure as failure:
        lines = [f"neap: soak: {protocol}: FINDING: {failure.message}", *(f"    {line}" for line in failure.details[-SHOWN_LINES:])]
        print("\n".join([*lines, f"    again: {' '.join(argv)}; log: {log}"]), flush=True)
        return None
    counts = counts_of(log, protocol)
    if counts is None or int(counts["bytes"]) < count:
        print(f"neap: soak: {protocol}: FAILED: the fuzzer ended without {count} bytes; log: {log}", flush=True)
        return None
    return counts


def counts_of(log: Path, protocol: str) -> dict[str, str] | None:
    found = re.search(
        rf"^{FUZZER} {protocol}: (?P<bytes>\d+) bytes, (?P<commands>\d+) commands, (?P<streams>\d+) streams, (?P<seconds>[0-9.]+) s$",
        log.read_text(errors="replace"),
        re.MULTILINE,
    )
    return found.groupdict() if found else None
