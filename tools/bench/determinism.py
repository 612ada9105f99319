# SPDX-License-Identifier: BSL-1.0
"""`./neap bench determinism`: equal seeds give equal runs on the model machine, on a host that is busy with other work.

For each number of cores, memcached runs several times with one seed and once with another one. Meanwhile busy loops compete for the host's
CPUs. Two runs are equal if all their files are equal byte by byte: each core's log, the world's report with the digest of all frames, and
the CPUs' snapshots with the digest of all events.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools import build, progress
from tools.bench import modelled
from tools.bench.rows import Row, aligned
from tools.model import experiment
from tools.model.experiment import Experiment
from tools.model.plugin import SNAPSHOTS
from tools.process import spawn

MODEL = "e5-2690"
CORES = (1, 2, 4)
RUNS = 10
# Two on each CPU of the host interrupt a run often, and leave it a third of the time.
BUSY_LOOPS = 2 * (os.cpu_count() or 1)
SEED, OTHER_SEED = 7, 8
RATE = 50_000
WINDOW_MS, WARM_UP_MS = 20.0, 5.0
BUSY_LOOP = ("sh", "-c", "while :; do :; done")


@contextlib.contextmanager
def busy_host(loops: int = BUSY_LOOPS) -> Iterator[None]:
    """Programs that use all CPUs of the host. They end with the `with` block, and if this process is killed."""
    running = []
    try:
        running += [spawn(BUSY_LOOP) for _ in range(loops)]
        yield
    finally:
        for loop in running:
            loop.kill()
            loop.wait()


def fingerprints(directory: Path) -> dict[str, str]:
    """The hash of each result of a run, by the file's name."""
    logs = sorted((directory / experiment.LOG).glob("core*.log"))
    files = [directory / experiment.WORLD_RESULT, directory / SNAPSHOTS, *logs]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def run_once(cores: int, seed: int, image: Path) -> dict[str, str]:
    wanted = Experiment(MODEL, rate=RATE, window_ms=WINDOW_MS, warm_up_ms=WARM_UP_MS, cores=cores, seed=seed)
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        experiment.run(wanted, image, Path(scratch))
        return fingerprints(Path(scratch))


def compared(cores: int, runs: Sequence[dict[str, str]], other: dict[str, str]) -> list[Row]:
    """`runs` have one seed, `other` has another one."""
    logs = [{name: mark for name, mark in run.items() if name.startswith("core")} for run in runs]
    unequal_logs = sum(one != logs[0] for one in logs)
    same_anyway = sum(other.get(name) == mark for name, mark in runs[0].items())
    return [
        Row(f"{cores}_cores.runs", "runs with one seed", len(runs)),
        Row(f"{cores}_cores.logs", "logs of cores in each run", len(logs[0])),
        Row(f"{cores}_cores.unequal_logs", "runs whose logs differ from the first run's", unequal_logs, 1),
        Row(f"{cores}_cores.unequal_results", "runs with any other file or digest", sum(run != runs[0] for run in runs), 1),
        Row(
            f"{cores}_cores.equal_with_another_seed", f"files that equal those of a run with another seed, of {len(other)}", same_anyway, 1
        ),
    ]


def rows() -> list[Row]:
    modelled.prepare("memcached")
    image = build.image("memcached", "image")
    found: list[Row] = []
    with busy_host():
        for cores in CORES:
            with progress.step(f"{RUNS + 1} runs on {cores} cores"):
                runs = [run_once(cores, SEED, image) for _ in range(RUNS)]
                found += compared(cores, runs, run_once(cores, OTHER_SEED, image))
    return found


def show(found: Sequence[Row]) -> str:
    title = f"{RUNS} runs with seed {SEED}, modelled ({MODEL}), beside {BUSY_LOOPS} busy loops on the host; then one with seed {OTHER_SEED}"
    cells = [("name", "value", "target", "unit")]
    cells += [(row.name, f"{row.value:.0f}", "" if row.target is None else f"< {row.target:g}", row.unit) for row in found]
    return f"{title}\n{aligned(cells)}"
