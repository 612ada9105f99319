# SPDX-License-Identifier: BSL-1.0
"""`./neap soak fuzz`: all fuzzers of the host side by side, each for the requested time.

A fuzzer is found by its name: an executable `fuzz_NAME` of the host preset, or a Python program `tools/**/fuzz_NAME.py`. Its arguments are
SECONDS and SEED. A fuzzer prints each thousandth case (`NAME: from ... of seed ...`), and at its end the number of cases (`NAME: ... in N
s`). Any exit status except 0 is a finding. `./neap soak card` runs the soft card's fuzzers.
"""

import collections
import dataclasses
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from tools import build, packages, progress, pythons, run
from tools.errors import EXIT_FAILURE, Failure
from tools.process import output_of, run_logged

PRESET = "host"
# Additional time for a fuzzer to finish its last case and to exit, which is slow with a sanitizer.
SPARE_SECONDS = 180
SHOWN_LINES = 20
# Freed memory is kept from reuse for longer than a case lasts, and no more, because more of it fills the caches. A finding is repeated
# without these options for the whole call stack of an allocation.
ASAN_OPTIONS = "quarantine_size_mb=8:malloc_context_size=2"


@dataclasses.dataclass(frozen=True)
class Fuzzer:
    """The command line of a fuzzer, before SECONDS and SEED."""

    name: str
    argv: tuple[str, ...]


def programs(targets: str) -> list[str]:
    """Returns the paths of the executables named fuzz_* among ninja's targets, as `ninja -t targets all` prints them."""
    return sorted(re.findall(r"^((?:[\w./-]*/)?fuzz_\w+): CXX_EXECUTABLE_LINKER", targets, re.MULTILINE))


def find(wanted: Callable[[str], object] = lambda _name: True) -> list[Fuzzer]:
    """Builds and returns the fuzzers whose names `wanted` accepts."""
    packages.require("host-tests", "sources", "python-tests")
    with build.building(PRESET) as directory:
        build.configure_locked(PRESET)
        paths = [path for path in programs(output_of(["ninja", "-C", str(directory), "-t", "targets", "all"])) if wanted(Path(path).name)]
        build.build_locked(PRESET, [Path(path).name for path in paths])
    found = [Fuzzer(Path(path).name, (str(directory / path),)) for path in paths]
    python = str(pythons.environment() / "python")
    for path in sorted((build.REPOSITORY / "tools").rglob("fuzz_*.py")):
        if path.stem != Path(__file__).stem and not path.stem.endswith("_test") and wanted(path.stem):
            module = ".".join(path.relative_to(build.REPOSITORY).with_suffix("").parts)
            found.append(Fuzzer(path.stem, (python, "-m", module)))
    return found


def soak(minutes: float) -> int:
    """Runs all fuzzers, as many at a time as there are cores. After a finding, continues and returns 1 at the end."""
    return play(find(), minutes, int(os.environ.get("NEAP_SOAK_SEED") or int.from_bytes(os.urandom(4), "little")))


def play(fuzzers: list[Fuzzer], minutes: float, seed: int) -> int:
    if not fuzzers:
        raise Failure("there are no fuzzers")
    lanes = min(os.cpu_count() or 1, len(fuzzers))
    seconds = max(1, round(60 * minutes * lanes / len(fuzzers)))
    progress.say(f"neap: soak: {len(fuzzers)} fuzzers, {lanes} at a time, {progress.duration(seconds)} each, seed {seed}")
    outcomes = run.in_lanes(lambda fuzzer: run_one(fuzzer, seconds, seed), fuzzers, lanes)
    found = outcomes.count(None)
    print(f"{len(outcomes) - found} fuzzers without a finding, {found} with one, {progress.duration(seconds)} each", flush=True)
    return EXIT_FAILURE if found else 0


def run_one(fuzzer: Fuzzer, seconds: int, seed: int) -> str | None:
    """Runs one fuzzer for this many seconds. Prints the result in one line, and for a finding also the command that repeats it. Returns
    the fuzzer's last line, or None for a finding, whose log is kept."""
    log = build.log_path(f"soak-{fuzzer.name}-{seed}")
    log.unlink(missing_ok=True)
    start = time.monotonic()
    argv = [*fuzzer.argv, str(seconds), str(seed)]
    try:
        env = {"ASAN_OPTIONS": ASAN_OPTIONS, **os.environ}
        run_logged(argv, log, fuzzer.name, cwd=build.REPOSITORY, env=env, timeout_seconds=seconds + SPARE_SECONDS)
    except Failure as failure:
        took = progress.duration(time.monotonic() - start)
        at = last_line(log, rf"{fuzzer.name}: from .*") or "from its first case"
        lines = [f"neap: soak: {fuzzer.name}: FINDING within {took}: {failure.message}; seed {seed}; {at.removeprefix(fuzzer.name + ': ')}"]
        lines += [f"    {line}" for line in failure.details[-SHOWN_LINES:]]
        print("\n".join([*lines, f"    again: {' '.join(argv)}; log: {log}"]), flush=True)
        return None
    summary = last_line(log, rf"{fuzzer.name}: .* in [0-9.]+ s.*")
    if summary is None:
        print(f"neap: soak: {fuzzer.name}: FAILED: it ended without saying how many cases it played; log: {log}", flush=True)
        return None
    print(f"neap: soak: {summary}; no finding, seed {seed}", flush=True)
    log.unlink()
    return summary


def last_line(log: Path, pattern: str) -> str | None:
    with open(log, errors="replace") as lines:
        return next(iter(collections.deque((line.rstrip("\n") for line in lines if re.fullmatch(pattern, line.rstrip("\n"))), 1)), None)
