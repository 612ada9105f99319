# SPDX-License-Identifier: BSL-1.0
"""The result of one run on the model machine: latencies from its world, energy and sleep from its CPUs.

The world (`neap-world`) measures requests, the plugin of QEMU counts instructions, sleep and energy. Both stamp their figures with the
same virtual clock, and the plugin writes a snapshot of its totals whenever the world enters another phase. So the difference of two
snapshots covers exactly the world's measured window.
"""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.errors import Failure
from tools.foreign import parse_json, read_bounded

RESULT_BYTES_MAX = 16 << 20
WINDOW, DRAIN = 2, 3
NS_PER_S = 1e9
FRAME_COUNTS = ("to_card", "from_card", "bytes_to_card", "bytes_from_card")
LOAD_MEMBERS = ("rate", "offered", "answered", "failed", "latency_ns", "latency_histogram", "frames_in_window", "interrupts", "digest")
# Pairs of the highest latency of a bucket, in ns, and its number of answers; ascending.
Histogram = Sequence[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class CoreFigures:
    """One core during the window."""

    instructions: int
    cycles: int
    c0_ns: int
    wakeups: int
    frequency_mhz: float
    residency_ns: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Result:
    """A run: the world's report as it wrote it, and the differences of the plugin's totals over the window.

    world: of a sequence, the load's member of `runs`. answers: control's answers to the lines of `ask`, in their order, without `ok`.
    """

    world: Mapping[str, Any]
    window_ns: int
    package_j: float
    cores_j: float
    dram_j: float
    cores: Sequence[CoreFigures]
    digest: str
    answers: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The load's name in its sequence; empty for a single run."""
        return self.world.get("name", "")

    @property
    def frames_in_window(self) -> Mapping[str, int]:
        """FRAME_COUNTS: frames at the card's port. Bytes are those of Ethernet frames, padding included, without FCS."""
        return self.world["frames_in_window"]

    @property
    def histogram(self) -> Histogram:
        """The latencies of all good answers. `merged` adds those of several runs."""
        return [(latency_ns, count) for latency_ns, count in self.world["latency_histogram"]]

    @property
    def answered(self) -> int:
        return self.world["answered"]

    @property
    def watts(self) -> float:
        return self.package_j / (self.window_ns / NS_PER_S)

    @property
    def instructions(self) -> int:
        return sum(core.instructions for core in self.cores)

    def row(self) -> dict[str, float]:
        """The figures that a study compares, one number each."""
        latency = self.world["latency_ns"]
        busy_ns = sum(core.c0_ns for core in self.cores)
        return {
            "rate": self.world["rate"],
            "answered": self.answered,
            "mean_us": latency["mean"] / 1e3,
            **{f"{name}_us": latency[name] / 1e3 for name in ("p50", "p95", "p99", "max")},
            "watts": self.watts,
            "joules": self.package_j,
            "c0_share": busy_ns / (self.window_ns * len(self.cores)),
            "wakeups": sum(core.wakeups for core in self.cores),
            "interrupts": self.world["interrupts"],
            "instructions_per_request": self.instructions / self.answered if self.answered else 0.0,
            "cycles_per_request": sum(core.cycles for core in self.cores) / self.answered if self.answered else 0.0,
            "uj_per_request": self.package_j * 1e6 / self.answered if self.answered else 0.0,
        }


def merged(histograms: Sequence[Histogram]) -> Histogram:
    """One histogram of the answers of all."""
    counts: Counter[int] = Counter()
    for histogram in histograms:
        for latency_ns, count in histogram:
            counts[latency_ns] += count
    return sorted(counts.items())


def quantile(histogram: Histogram, share: float) -> int:
    """The latency in ns that `share` (0 to 1) of the answers do not exceed, as the world computes it; 0 if there are none."""
    total = sum(count for _, count in histogram)
    wanted = max(1, math.ceil(share * total))
    for latency_ns, count in histogram:
        wanted -= count
        if wanted <= 0:
            return latency_ns
    return 0


def read(world_file: Path, snapshots_file: Path) -> Result:
    """Merges the two files of a run with one load. Raises Failure if one is missing or not as documented."""
    world = _world(world_file)
    _require(world, LOAD_MEMBERS, str(world_file))
    return _result(world, world, 0, snapshots_file, _phases(snapshots_file))


def read_sequence(world_file: Path, snapshots_file: Path) -> list[Result]:
    """Merges the two files of a sequence: a result for each load, in order. Raises Failure like `read`."""
    world = _world(world_file)
    phases = _phases(snapshots_file)
    runs = world.get("runs")
    if not isinstance(runs, list) or not runs:
        raise Failure(f"{world_file} is no report of a sequence: it has no runs")
    for number, run in enumerate(runs):
        _require(run, LOAD_MEMBERS, f"{world_file}, run {number}")
    return [_result(run, world, number, snapshots_file, phases) for number, run in enumerate(runs)]


def _phases(path: Path) -> Mapping[tuple[int, int], Mapping[str, Any]]:
    """The snapshots at the changes of phase, by load and phase."""
    changes = [snapshot for snapshot in _snapshots(path) if snapshot.get("event") == "phase"]
    return {(snapshot.get("load", 0), snapshot["phase"]): snapshot for snapshot in changes}


def _result(
    run: Mapping[str, Any],
    world: Mapping[str, Any],
    number: int,
    snapshots_file: Path,
    phases: Mapping[tuple[int, int], Mapping[str, Any]],
) -> Result:
    start, end = phases.get((number, WINDOW)), phases.get((number, DRAIN))
    if start is None or end is None:
        raise Failure(f"{snapshots_file} has no snapshots of the window's start and end", "the run ended before its window did")
    try:
        return dataclasses.replace(_merge(run, start, end), answers=tuple(world.get("answers", ())))
    except (KeyError, TypeError, IndexError) as error:
        raise Failure(f"{snapshots_file}: a snapshot lacks {error}") from None


def _merge(world: Mapping[str, Any], start: Mapping[str, Any], end: Mapping[str, Any]) -> Result:
    cores = [
        CoreFigures(
            instructions=after["instructions"] - before["instructions"],
            cycles=after["cycles"] - before["cycles"],
            c0_ns=after["c0_ns"] - before["c0_ns"],
            wakeups=after["wakeups"] - before["wakeups"],
            frequency_mhz=after["frequency_mhz"],
            residency_ns={name: after["residency_ns"][name] - before["residency_ns"][name] for name in after["residency_ns"]},
        )
        for before, after in zip(start["cpus"], end["cpus"], strict=True)
    ]
    return Result(
        world=world,
        window_ns=end["virtual_ns"] - start["virtual_ns"],
        package_j=end["package_j"] - start["package_j"],
        cores_j=end["cores_j"] - start["cores_j"],
        dram_j=end["dram_j"] - start["dram_j"],
        cores=cores,
        digest=f"{world['digest']}-{end['digest']}",
    )


def _world(path: Path) -> Mapping[str, Any]:
    try:
        report = parse_json(read_bounded(path, RESULT_BYTES_MAX))
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: {error}") from None
    _require(report, ("digest",), str(path))
    return report


def _require(report: object, needed: Sequence[str], name: str) -> None:
    if not isinstance(report, dict) or (missing := [member for member in needed if member not in report]):
        raise Failure(f"{name} is no report of a world" + (f": it lacks {', '.join(missing)}" if isinstance(report, dict) else ""))


def _snapshots(path: Path) -> list[Mapping[str, Any]]:
    try:
        snapshots = [parse_json(line) for line in read_bounded(path, RESULT_BYTES_MAX).splitlines()]
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: {error}") from None
    return [snapshot for snapshot in snapshots if isinstance(snapshot, dict) and "phase" in snapshot]


def table(result: Result, title: str) -> str:
    """The result as text. `title` names the model, because figures of a model MUST NOT be taken for measurements of a machine."""
    world, row = result.world, result.row()
    latency = {name: f"{world['latency_ns'][name] / 1e3:.1f}" for name in ("mean", "p50", "p95", "p99", "max")}
    lines = [
        f"{title}; window {result.window_ns / 1e6:g} ms of virtual time",
        "  latency   " + "  ".join(f"{name} {value} us" for name, value in latency.items()),
        f"  requests  {world['offered']} offered, {world['answered']} answered, {world['failed']} failed",
        f"  power     package {row['watts']:.2f} W (cores {_watts(result, result.cores_j):.2f} W), "
        f"DRAM {_watts(result, result.dram_j):.2f} W; {row['uj_per_request']:.1f} uJ a request",
        f"  work      {row['instructions_per_request']:.0f} instructions and {row['cycles_per_request']:.0f} cycles a request",
    ]
    for number, core in enumerate(result.cores):
        waking_ns = result.window_ns - core.c0_ns - sum(core.residency_ns.values())
        states = [("C0", core.c0_ns), *core.residency_ns.items(), ("waking", max(0, waking_ns))]
        shares = ", ".join(f"{name} {100 * spent / result.window_ns:.1f} %" for name, spent in states if spent)
        lines.append(f"  core {number:<4} {shares}; {core.wakeups} wake-ups; {core.frequency_mhz:g} MHz")
    return "\n".join(lines)


def _watts(result: Result, joules: float) -> float:
    return joules / (result.window_ns / NS_PER_S)


def write(result: Result, path: Path, about: Mapping[str, Any]) -> None:
    """Writes the whole result as JSON, with `about`: the settings of the run."""
    document = {"modelled": True, **about, "figures": result.row(), **dataclasses.asdict(result)}
    path.write_text(json.dumps(document, indent=1) + "\n")
