# SPDX-License-Identifier: BSL-1.0
"""`./neap bench observe`: costs in instructions of the guest.

Times on an emulated machine do not predict times on real hardware, but instruction counts do not depend on the host. A QEMU plugin
(bench/instruction_counter.c) counts instructions in release images, between two marks of an image from bench/ or over a whole run.
"""

import dataclasses
import json
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import build, progress, qemu_plugin
from tools.bench.rows import Row
from tools.errors import Failure
from tools.machine import SUCCESS, Machine

COUNTER_SOURCE = build.REPOSITORY / "bench/instruction_counter.c"
RUN_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Region:
    """Instruction counts of the code between two marks. The median covers its first 16,384 executions."""

    visits: int
    instructions: int
    min: int
    median: int
    max: int

    @property
    def mean(self) -> float:
        return self.instructions / self.visits

    def rows(self, name: str, target: float | None, less: float = 0.0, median_target: float | None = None) -> list[Row]:
        """Returns rows with mean, median and maximum of a step. `less`: a cost to subtract, because it is not the step's own."""
        return [
            Row(name, "instructions, mean", self.mean - less, target),
            Row(f"{name}.median", "instructions", self.median - less, median_target),
            Row(f"{name}.most", "instructions", self.max - less),
        ]


@dataclasses.dataclass(frozen=True)
class Counts:
    """Instructions of a run: per CPU, those of each CPU in the upper half of the address space, and per region."""

    cpus: tuple[int, ...]
    upper: tuple[int, ...]
    regions: dict[int, Region]


def observe() -> list[Row]:
    """Returns the cost of the log's functions for the calling core, in a release image with 10,000 calls of each. A record with a sample is
    not measured: the emulated CPU has no counters, so no sample is written."""
    counts = run_image("bench_observe")
    require_exact(counts)
    # The region numbers of bench/observe.cpp.
    names = {
        3: ("observe.record", 60),
        2: ("observe.record_without_a_run", None),
        6: ("observe.poll_record", None),
        5: ("observe.sleep", None),
        7: ("observe.record_and_sleep", None),
        4: ("observe.record_with_control_traffic", 60),
        8: ("observe.count_control_frame", None),
    }
    rows = []
    for number, (name, target) in names.items():
        rows += counts.regions[number].rows(name, target, median_target=target)
    return rows


def require_exact(counts: Counts) -> None:
    """Checks the counter by regions of the image: a thousand NOPs, and a string instruction (and its register loads) of 1 to 694 bytes."""
    nops, string = counts.regions[0], counts.regions[1]
    if (nops.min, nops.max) != (1000, 1000):
        raise Failure(f"the instruction counter is wrong: {nops.min} to {nops.max} where 1000 ran")
    if string.min != string.max or string.max > 10:
        raise Failure(f"the instruction counter counts repetitions: {string.min} to {string.max} for one string instruction")


def run_image(name: str, preset: str = "image", words: Sequence[str] = (), cores: int = 1, net: str | None = None) -> Counts:
    """Builds an image of bench/, boots it, counts, and waits for its end. Raises Failure if it does not end with success. `net`: the soft
    card's --net; None: the machine has no card."""
    if net is not None:
        build.build_soft_card()
    build.build(preset, [f"{name}.elf"])
    image = build.BUILD / preset / "bench" / f"{name}.elf"
    with tempfile.TemporaryDirectory(prefix="neap-bench-") as directory:
        out = Path(directory) / "counts.json"
        with progress.step(f"counting instructions of {name}"):
            machine = Machine(
                image,
                cores=cores,
                memory="256M",
                card=net is not None,
                net=net or "none",
                arguments=words,
                qemu_options=counter_options(out),
            )
            with machine:
                status = machine.wait_exit(RUN_SECONDS)
            if status != SUCCESS:
                raise Failure(f"{name} ended with status {status}", details=machine.lines[-20:])
        return read_counts(out)


def counter_options(out: Path, skip: Sequence[tuple[int, int]] = (), profile: tuple[int, int, Path] | None = None) -> list[str]:
    """Returns QEMU's arguments for counting. The counter writes the file `out` at the end. `skip`: ranges of addresses [low, high) whose
    instructions do not count, for example a spinning idle loop. `profile`: a range of addresses, and the file that always has the counts of
    each of them, 8 bytes for an address; for one core."""
    words = [f"out={out}", *(f"skip={low:x}:{high:x}" for low, high in skip)]
    words += ["profile={:x}:{:x}:{}".format(*profile)] if profile else []
    return qemu_plugin.option(qemu_plugin.library(COUNTER_SOURCE), *words)


def live_counter_options(live: Path) -> list[str]:
    """The same for a QEMU that runs with -icount: each repetition of a string instruction counts, and `read_live` reads the file `live`."""
    return qemu_plugin.option(qemu_plugin.library(COUNTER_SOURCE), f"live={live}", "repetitions=on")


def read_live(path: Path) -> int:
    """The instructions of all CPUs. Raises Failure if the counter has left none."""
    try:
        counted = sum(count for count, *_ in struct.iter_unpack("<8Q", path.read_bytes()))
    except (OSError, struct.error) as error:
        raise Failure(f"the instruction counter wrote nothing: {error}") from None
    if not counted:
        raise Failure("the instruction counter has counted no instruction")
    return counted


def read_counts(path: Path) -> Counts:
    """Reads the file that the counter wrote when QEMU ended."""
    try:
        written = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise Failure(f"the instruction counter wrote nothing: {error}") from None
    regions = {}
    for number, fields in written["regions"].items():
        if fields.pop("unmatched") or not fields["visits"]:
            raise Failure(f"region {number} of the image ends without a beginning")
        regions[int(number)] = Region(**fields)
    return Counts(tuple(written["cpus"]), tuple(written["upper"]), regions)
