# SPDX-License-Identifier: BSL-1.0
"""Builds the soft card's fuzzers with coverage on stable Rust, runs them for a time, and reads their results.

The fuzzers use libFuzzer (sim/soft82599/fuzz). Their corpus stays in build/ from run to run. An input that causes a failure is stored in
build/fuzz/NAME/, and the error names it.
"""

import dataclasses
import os
import re
from pathlib import Path

from tools import build, packages, progress
from tools.errors import Failure
from tools.process import run_logged, tail

CRATE = build.Crate("the soft card's fuzzers", build.SOFT_CARD_CRATE.source / "fuzz", "soft82599-fuzz")
TARGET = "x86_64-unknown-linux-gnu"
PLACE = build.BUILD / "fuzz"
# Time limit for an input, which usually takes milliseconds; a busy machine may be much slower.
HANG_SECONDS = 60
MEMORY_MB = 512
INPUT_BYTES = 1024
# Each fuzzer's share of the total time.
SHARES = {"card": 0.85, "guest_memory": 0.15}
SOAK_OPERATIONS = 100_000_000


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a fuzzer: operations, inputs, and the number of code locations reached."""

    name: str
    operations: int
    inputs: int
    coverage: int

    def __str__(self) -> str:
        return f"{self.name}: {self.operations:,} operations in {self.inputs:,} inputs, {self.coverage} places of the code reached"


def build_fuzzers() -> Path:
    """Compiles the fuzzers. Returns the folder of the programs."""
    packages.require("card", "rust", "fuzz")
    build.cargo_run(CRATE, ["build", "--release", "--locked"], f"building {CRATE.title}", CRATE.folder)
    return build.BUILD / CRATE.folder / TARGET / "release"


def run(seconds: float) -> list[Result]:
    """Runs each fuzzer for its share of the time. Raises Failure if a fuzzer finds an error."""
    programs = build_fuzzers()
    return [run_one(programs, name, max(1, int(seconds * share))) for name, share in SHARES.items()]


def run_one(programs: Path, name: str, seconds: int) -> Result:
    place = PLACE / name
    corpus = place / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    tally = place / "operations"
    tally.unlink(missing_ok=True)
    log = build.log_path(f"fuzz-{name}")
    log.unlink(missing_ok=True)
    argv = [str(programs / name), str(corpus), f"-artifact_prefix={place}/", f"-max_total_time={seconds}", f"-timeout={HANG_SECONDS}"]
    argv += [f"-rss_limit_mb={MEMORY_MB}", f"-max_len={INPUT_BYTES}", "-len_control=0", "-print_final_stats=1"]
    environment = {**os.environ, "FUZZ_OPERATIONS": str(tally)}
    with progress.step(f"fuzzing: {name}"):
        try:
            run_logged(argv, log, f"fuzzing {name}", env=environment, timeout_seconds=seconds + 10 * HANG_SECONDS)
        except Failure:
            raise Failure(f"the fuzzer {name} found something", f"see {log} and the input in {place}", tail(log, 30)) from None
    return Result(name, int(tally.read_text()), *read_log(log.read_text(errors="replace")))


def read_log(text: str) -> tuple[int, int]:
    """Returns the number of inputs and the coverage, from libFuzzer's last lines."""
    inputs = re.search(r"^stat::number_of_executed_units: (\d+)", text, re.MULTILINE)
    coverage = re.findall(r"\bcov: (\d+)", text)
    if not inputs or not coverage:
        raise Failure("the fuzzer's log has no sums")
    return int(inputs[1]), int(coverage[-1])


def soak(minutes: float) -> int:
    """Fuzzes for this time. Then prints the number of operations, and whether that number is enough for a soak."""
    results = run(60 * minutes)
    for result in results:
        print(result)
    total = sum(result.operations for result in results)
    print(f"{total:,} operations, {SOAK_OPERATIONS:,} are asked for")
    return 0 if total >= SOAK_OPERATIONS else 1
