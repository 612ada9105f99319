# SPDX-License-Identifier: BSL-1.0
"""The arithmetic of the published cleaners of memcached's data, stated again, and its check against synthetic runs.

The published scripts (clean_mcd_linux.py and clean_mcd_ebbrt.py of the studies' repository) are no package of a distribution. So they
cannot be pinned as a source here. The two functions below compute what the scripts compute: which rows they drop, and which files and
columns they take. They share no code with the writer of the files. If the variable NEAP_CLEANERS names a checkout of the studies'
repository, the scripts themselves run too, with the `python3` of the search path, which needs pandas.
"""

import dataclasses
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tools.errors import Failure
from tools.log import decode, study, study_layout, synthetic

CHECKOUT = "NEAP_CLEANERS"
SCRIPT_SECONDS = 300
CORES = range(16)
HZ = 2_899_999_000
JOULES = 0.00001526
INSTRUCTIONS, CYCLES, REFERENCE, MISSES = 5, 6, 7, 8


@dataclasses.dataclass(frozen=True)
class Cleaned:
    """The totals that a cleaner prints for a run."""

    joules: float
    instructions: float
    interrupts: int
    rx_bytes: int
    sleeps: float


def _sampled_growth(rows: np.ndarray, joules: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows in which all five counters are above 0, and their growth, without the rows in which energy did not grow."""
    sampled = rows[np.all(rows[:, [INSTRUCTIONS, CYCLES, REFERENCE, MISSES, joules]] > 0, axis=1)]
    growth = np.diff(sampled.astype(np.int64), axis=0)
    kept = growth[:, joules] > 0
    return sampled[1:][kept], growth[kept]


def clean_linux(folder: Path, setting: str, repetition: int = 0) -> Cleaned:
    """`setting`: ITR_DVFS_RAPL_QPS."""
    lines = [line.split() for line in (folder / f"linux.mcd.rdtsc.{repetition}_{setting}").read_text().splitlines()]
    begin, end = max(int(words[2]) for words in lines), max(int(words[3]) for words in lines)
    found = []
    for core in CORES:
        rows = np.loadtxt(folder / f"linux.mcd.dmesg.{repetition}_{core}_{setting}", np.int64, ndmin=2)
        assert rows.shape[1] == 16
        rows = rows[(rows[:, 15] >= begin) & (rows[:, 15] <= end)]
        _, growth = _sampled_growth(rows, 14)
        joules = float(growth[:, 14].sum()) * JOULES if core < 2 else 0.0
        sleeps = growth[:, 9:14].sum()
        found.append((joules, growth[:, INSTRUCTIONS].sum(), len(rows), rows[:, 2].sum(), sleeps))
    return Cleaned(*(sum(column) for column in zip(*found)))


def clean_ebbrt(folder: Path, setting: str, repetition: int = 0) -> Cleaned:
    """`setting`: ITR_DVFS_RAPL_QPS_SLEEP."""
    begin, end = map(int, (folder / f"ebbrt_rdtsc.{repetition}_{setting}").read_text().split()[:2])
    found = []
    for core in CORES:
        rows = np.loadtxt(folder / f"ebbrt_dmesg.{repetition}_{core}_{setting}.csv", np.int64, skiprows=1, ndmin=2)
        assert rows.shape[1] == 14
        rows = rows[(rows[:, 13] >= begin) & (rows[:, 13] <= end)]
        if len(rows):
            # The first row of a core is lost, because it has no row before it.
            rows = rows[(rows[:, 13] - rows[0, 13]) / HZ <= 20.0][1:]
        kept, growth = _sampled_growth(rows, 12)
        joules = float(growth[:, 12].sum()) * JOULES if core < 2 else 0.0
        found.append((joules, growth[:, INSTRUCTIONS].sum(), len(rows), rows[:, 2].sum(), kept[:, 9:12].sum()))
    return Cleaned(*(sum(column) for column in zip(*found)))


RESTATED = {"linux": clean_linux, "ebbrt": clean_ebbrt}
# The position of each figure in the line that a script prints for a whole run.
_PRINTED = {"joules": 14, "instructions": 19, "interrupts": 28, "rx_bytes": 16}


def clean_by_script(system: str, checkout: Path, folder: Path) -> Cleaned:
    """Runs a published script. Raises Failure if it fails or prints no figures of the run."""
    script = checkout / "scripts/mcd" / system / f"clean_mcd_{system}.py"
    command = ["python3", "-W", "ignore", str(script), str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SCRIPT_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"{script}: {error}") from None
    words = next((line.split() for line in done.stdout.splitlines() if line.startswith(f"{system}_tuned ")), [])
    if done.returncode or len(words) <= max(_PRINTED.values()):
        raise Failure(f"{script} printed no figures of the run: {done.stderr.strip()[-300:]}")
    figures = {name: float(words[at]) for name, at in _PRINTED.items()}
    return Cleaned(
        figures["joules"], figures["instructions"], int(figures["interrupts"]), int(figures["rx_bytes"]), sum(map(float, words[23:28]))
    )


SHAPES = {
    # The energy counter wraps early, and so do instructions and cycles, which have 48 bits (synthetic.Shape).
    "16 cores of 2 packages": synthetic.Shape(
        cores=16, packages=2, records=4000, seconds=15.5, tsc_hz=2_900_000_000, package_watts=(30.0, 50.0)
    ),
    "4 cores of 1 package, another clock": synthetic.Shape(cores=4, records=4000, seconds=15.5, tsc_hz=3_500_000_000),
    "2 cores without a counter of misses": synthetic.Shape(
        cores=2, packages=2, records=4000, seconds=15.5, counters=("instructions", "cycles", "reference_cycles", "package_energy")
    ),
}
SETTING = {"changes": 0, "itr_us": 10, "performance": 0x1800, "power_limit_mw": 135_000}


def check() -> Iterator[dict]:
    """Yields for each system, run and figure: its value from the cleaner, and the truth."""
    checkout = os.environ.get(CHECKOUT)
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory(prefix="neap-cleaners-") as scratch:
            truth = synthetic.write(Path(scratch, "log"), dataclasses.replace(shape, **SETTING))
            run = decode.load([str(Path(scratch, "log"))])
            for system, clean in RESTATED.items():
                out = Path(scratch, system)
                study.write(run, study.Wanted(study_layout.LAYOUTS[system], qps="200000"), out)
                tail = "10_0x1800_135_200000" + ("_c7" if system == "ebbrt" else "")
                ways = {"arithmetic": clean(out, tail)}
                if checkout:
                    ways["script"] = clean_by_script(system, Path(checkout), out)
                for way, found in ways.items():
                    for figure in ("joules", "instructions", "interrupts"):
                        row = {"system": system, "run": name, "by": way, "figure": figure}
                        yield {**row, "found": float(getattr(found, figure)), "truth": float(sum(getattr(truth, figure)))}


if __name__ == "__main__":
    print(json.dumps(list(check())))
