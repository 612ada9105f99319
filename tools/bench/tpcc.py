# SPDX-License-Identifier: BSL-1.0
"""`./neap bench tpcc`: the instructions of a transaction of TPC-C, asked for by a client over the network, and the share of attempts that
had conflicts.

The model machine counts them as for `./neap bench request`: all instructions of all cores in the window, from the interrupt to the last
frame, with network, database and the way into sleep. There is one warehouse for each core, with the remote accesses of the specification.

With `--silo DIR`, a checkout of Silo's public source (with its submodule) is copied and built, and its own benchmark is counted by
callgrind with one warehouse and one thread. Only its functions for the five transactions are counted: the loops that wait for other threads
depend on the host's load. Silo's benchmark has neither a network nor a client, so its row is a lower bound of a server's. Silo's source has
no change since 2015, so its copy gets a declaration and its compiler options that today's compilers need.
"""

import contextlib
import dataclasses
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import build, progress
from tools.bench import modelled, request
from tools.bench.rows import Row, Selection, table
from tools.errors import Failure, UsageError
from tools.log import decode
from tools.model import experiment, profile
from tools.process import finished, run_logged

APPLICATION = "tpcc"
GAP_US = 2000.0
# For each number of cores. The lines of orders are random, so the cost of 1,600 transactions varies by 3 %.
TRANSACTIONS = 12_800
CONNECTIONS_A_CORE = 4
WARM_UP_MS = 20.0
MEBIBYTES_A_WAREHOUSE = 256
CORES = (1, 2, 4, 8)
# Three quarters of the cost of Silo's own benchmark, which has no network.
TARGET = 45_000
UNIT = "instructions a transaction"
# The tables are loaded first: about a million rows for each warehouse.
LOAD_SECONDS = 3 * experiment.TIME_OUT_SECONDS

SILO_TRANSACTIONS = 6_000
SILO_FUNCTIONS = "tpcc_worker::Txn*"
SILO_SECONDS = 1800.0
# Silo's header uses this operator before it declares it. C++14's compilers look names up at the template's definition.
SILO_DECLARATION = "template <typename A, typename B>\ninline std::ostream &operator<<(std::ostream &o, const std::pair<A, B> &p);\n"
# Silo's Makefile has its own options behind the compiler's name. The last ones count.
SILO_COMPILER = '#!/bin/sh\nexec g++ "$@" -std=c++14 -fpermissive -w\n'
SILO_PROGRAMS = ("autoconf", "automake", "g++", "make", "valgrind")
SILO_HEADERS = {"numa.h": "libnuma-dev", "db_cxx.h": "libdb++-dev"}
SILO_CLONE = "git -c url.https://.insteadOf=git:// clone --recurse-submodules https://github.com/stephentu/silo DIR"


@dataclasses.dataclass(frozen=True)
class Load:
    cores: int

    @property
    def name(self) -> str:
        return f"cores_{self.cores}"

    def experiment(self) -> experiment.Experiment:
        burst = CONNECTIONS_A_CORE * self.cores
        return experiment.Experiment(
            request.MODEL,
            load="tpcc",
            rate=burst * 1e6 / GAP_US,
            window_ms=TRANSACTIONS / burst * GAP_US / 1e3,
            warm_up_ms=WARM_UP_MS,
            connections=burst,
            depth=1,
            protocol="tpcc",
            cores=self.cores,
            memory=f"{MEBIBYTES_A_WAREHOUSE * (self.cores + 1)}M",
            arguments=request.WORDS,
            world_options=["--arrivals", f"bursts:{burst}:fixed"],
            profile=True,
            moved_lines=False,
        )


LOADS = [Load(cores) for cores in CORES]


def names() -> list[str]:
    return [*(load.name for load in LOADS), "silo"]


def rows(selection: Selection | None = None, image: Path | None = None) -> list[Row]:
    """Raises UsageError if no row is selected, and Failure."""
    selection = selection or Selection()
    loads = [load for load in LOADS if selection.has(load.name)]
    with_silo = selection.silo is not None and selection.has("silo")
    if not loads and not with_silo:
        if selection.has("silo"):
            raise UsageError("the row silo needs --silo DIR", f"{SILO_CLONE} makes DIR")
        raise UsageError(f"--rows: no row is named {' or '.join(selection.patterns)}", f"rows: {' '.join(names())}")
    if with_silo:
        _check_silo(Path(selection.silo or ""))
    if loads:
        modelled.prepare(APPLICATION)
    measured = image or build.image(APPLICATION, "image")
    found = []
    for load, (instructions, answered, conflicts) in zip(loads, modelled.run_each(loads, lambda load: _cost(load, measured)), strict=True):
        about = f"{load.cores} cores, a warehouse for each; {answered} transactions"
        found.append(Row(f"tpcc.{load.name}", f"{UNIT}, {about}", instructions, TARGET))
        found.append(Row(f"tpcc.conflicts.{load.name}", "share of attempts that had a conflict", conflicts))
    if with_silo:
        about = "Silo's own benchmark, 1 thread, 1 warehouse, no network, no log"
        found.append(Row("tpcc.silo", f"{UNIT}, {about}", _silo(Path(selection.silo or ""))))
    return found


def _cost(load: Load, image: Path) -> tuple[float, int, float]:
    """Returns the instructions of a transaction, the number of transactions, and the share of attempts that had a conflict."""
    with tempfile.TemporaryDirectory(prefix="neap-tpcc-") as scratch:
        result = experiment.run(load.experiment(), image, Path(scratch), time_out_seconds=LOAD_SECONDS)
        if result.world["failed"] or not result.answered:
            raise Failure(f"{load.name}: {result.world['failed']} transactions failed, {result.answered} were answered")
        instructions, _ = profile.total(Path(scratch) / experiment.PROFILE)
        cores = decode.load([str(Path(scratch) / experiment.LOG)]).cores
    retries = sum(int(core.transactions["retries"].sum()) for core in cores)
    ended = sum(int(core.transactions[name].sum()) for core in cores for name in ("committed", "rolled_back", "failed"))
    return instructions / result.answered, result.answered, retries / max(retries + ended, 1)


def _check_silo(checkout: Path) -> None:
    """Raises Failure if Silo cannot be built from `checkout`, before other rows are measured."""
    if not (checkout / "benchmarks/tpcc.cc").is_file() or not (checkout / "masstree/configure.ac").is_file():
        raise Failure(f"--silo: {checkout} is no checkout of Silo with its submodule", f"{SILO_CLONE} makes one")
    if missing := [program for program in SILO_PROGRAMS if shutil.which(program) is None]:
        raise Failure(f"--silo needs {' and '.join(missing)}", f"apt install {' '.join(missing)}")
    for header, package in SILO_HEADERS.items():
        if finished(["g++", "-fsyntax-only", "-x", "c++", "-include", header, os.devnull], SILO_SECONDS).returncode != 0:
            raise Failure(f"--silo needs the header {header}", f"apt install {package}")


def _silo(checkout: Path) -> float:
    """Builds Silo from a copy of `checkout` and returns its benchmark's instructions a transaction. Raises Failure."""
    with tempfile.TemporaryDirectory(prefix="neap-silo-") as scratch:
        copy = Path(scratch) / "silo"
        shutil.copytree(checkout, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", "out-*"))
        header = copy / "util.h"
        header.write_text(header.read_text().replace("namespace util {", f"{SILO_DECLARATION}namespace util {{", 1))
        compiler = Path(scratch) / "compiler"
        compiler.write_text(SILO_COMPILER)
        compiler.chmod(0o755)
        log = build.BUILD / "logs/bench-silo.log"
        log.unlink(missing_ok=True)
        words = ["USE_MALLOC_MODE=0", "MODE=perf", "MYSQL=0", f"CXX={compiler}", "BENCH_LDFLAGS=-lpthread -lnuma -lrt -ldb_cxx", "dbtest"]
        # Without a repository, the Makefile cannot exchange the submodule for a later version.
        environment = {**os.environ, "GIT_DIR": os.devnull}
        jobs = f"-j{len(os.sched_getaffinity(0))}"
        with progress.step("building Silo"):
            run_logged(["make", jobs, *words], log, "building Silo", cwd=copy, env=environment, timeout_seconds=SILO_SECONDS)
        program = copy / "out-perf.masstree/benchmarks/dbtest"
        with progress.step("counting Silo's instructions"):
            return _silo_instructions(program, Path(scratch)) / SILO_TRANSACTIONS


def _silo_instructions(program: Path, scratch: Path) -> int:
    words = ["--bench", "tpcc", "--num-threads", "1", "--scale-factor", "1", "--ops-per-worker", str(SILO_TRANSACTIONS)]
    counted = ["--collect-atstart=no", f"--toggle-collect={SILO_FUNCTIONS}"]
    options = ["--tool=callgrind", f"--callgrind-out-file={scratch / 'counts'}", *counted]
    done = finished(["valgrind", *options, program, *words], SILO_SECONDS, cwd=program.parents[2])
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found or found[1] == "0":
        with contextlib.suppress(IndexError):
            raise Failure(f"Silo's benchmark ended with status {done.returncode}: {done.stderr.strip().splitlines()[-1]}")
        raise Failure(f"Silo's benchmark ended with status {done.returncode}")
    return int(found[1])


def show(found: Sequence[Row]) -> str:
    return table(found)
