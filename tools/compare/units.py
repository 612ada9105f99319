# SPDX-License-Identifier: BSL-1.0
"""The runs of a comparison: which there are, and what each of them measures.

A unit is one boot of one arm: with all workloads in sequence, with NetPIPE between two machines, or with the log on. Linux needs a quarter
of a minute to boot, so a boot for each workload would take hours. A unit that has ended is stored, so an interrupted comparison loses only
the units in progress.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools import build
from tools.bench import modelled
from tools.compare import profiles
from tools.compare.figures import Measured
from tools.compare.plan import Arm, PingPong, Plan, Workload
from tools.errors import Failure
from tools.foreign import parse_json
from tools.model import experiment, linux, pair, results

LOADS, PING_PONG, LOG = "loads", "ping-pong", "log"
MACHINE = "machine: "
MEMORY = "512M"
FIRST_ROUND = 1


@dataclasses.dataclass(frozen=True)
class Unit:
    """round: from 1; 0 for the run with the log on."""

    kind: str
    arm: Arm
    cores: int
    round: int
    ping_pong: PingPong | None = None

    @property
    def name(self) -> str:
        what = self.ping_pong.name if self.ping_pong else self.kind
        return f"{what}.{self.arm.folder}.cores_{self.cores}.round_{self.round}"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of one unit. machine: its list of facts; null unless the log was on. logs: the folder of the log, likewise."""

    measured: list[Measured]
    machine: Mapping[str, Any] | None = None
    logs: Path | None = None


@dataclasses.dataclass(frozen=True)
class Booted:
    """The systems that an arm boots: for memcached, for NetPIPE, and with the log on."""

    memcached: experiment.System
    netpipe: experiment.System
    traced: experiment.System


def units(plan: Plan) -> list[Unit]:
    """In the order in which they run: all arms once with the log on, then the rounds. The arms alternate."""
    found = [Unit(LOG, arm, plan.log.cores if plan.log else plan.cores[0], 0) for arm in plan.arms]
    for number in range(1, plan.rounds + 1):
        for cores in plan.cores:
            if plan.workloads:
                found += [Unit(LOADS, arm, cores, number) for arm in plan.arms]
        for one in plan.ping_pong:
            found += [Unit(PING_PONG, arm, cores, number, one) for cores in one.cores for arm in plan.arms]
    return found


def boot_files(plan: Plan) -> dict[str, Booted]:
    """Builds what the arms boot, by the arm's system. Raises Failure."""
    modelled.prepare("memcached", "netpipe")
    found = {}
    for system in dict.fromkeys(arm.system for arm in plan.arms):
        if system == "neap":
            memcached, netpipe = (experiment.System(build.image(name, "image")) for name in ("memcached", "netpipe"))
            found[system] = Booted(memcached, netpipe, memcached)
        else:
            is_13 = system == "linux-13"
            plain = experiment.System(*linux.image(is_13))
            found[system] = Booted(plain, plain, experiment.System(*linux.image(is_13, with_trace=True)))
    return found


def run(unit: Unit, plan: Plan, booted: Booted, keep: Path) -> Outcome:
    """Runs a unit. `keep`: a folder for files that stay, made if there are any. Raises Failure that names the unit."""
    try:
        with tempfile.TemporaryDirectory(prefix="neap-compare-") as scratch:
            if unit.kind == LOADS:
                return _loads(unit, plan, booted.memcached, Path(scratch))
            if unit.kind == PING_PONG:
                return _ping_pong(unit, plan, booted.netpipe, Path(scratch))
            return _log(unit, plan, booted.traced, Path(scratch), keep)
    except Failure as failure:
        raise Failure(f"{unit.name}: {failure.message}", failure.hint, failure.details) from None


def load_of(one: Workload, cores: int, seed: int, *, log: bool = False, window_ms: float | None = None) -> experiment.Load:
    is_fixed = one.mix == "fixed"
    return experiment.Load(
        name=one.name,
        mix=one.mix,
        rate=one.rate_of(cores),
        connections=one.connections,
        depth=one.depth,
        protocol=one.protocol,
        keys=one.keys if is_fixed else None,
        key_bytes=one.key_bytes if is_fixed else None,
        value_bytes=one.value_bytes if is_fixed else None,
        update=one.update if is_fixed else None,
        arrivals=f"bursts:{one.burst(cores)}:fixed" if one.arrivals == "bursts" and not one.is_idle else None,
        warm_up_ms=one.warm_up_ms,
        window_ms=window_ms or one.window_ms_of(cores),
        seed=seed,
        log=log,
    )


def _settings(unit: Unit, plan: Plan, *, trace: bool = False) -> experiment.Experiment:
    words = [*unit.arm.words, *(["trace=on"] if trace and unit.arm.is_linux else [])]
    return experiment.Experiment(
        plan.model,
        cores=unit.cores,
        memory=MEMORY,
        seed=plan.seed + unit.round,
        arguments=words,
        profile=unit.kind == LOADS,
        moved_lines=unit.round == FIRST_ROUND,
    )


def _loads(unit: Unit, plan: Plan, system: experiment.System, scratch: Path) -> Outcome:
    loads = [load_of(one, unit.cores, plan.seed + unit.round) for one in plan.workloads]
    console: list[str] = []
    found = experiment.run_sequence(_settings(unit, plan), loads, system, scratch, console.append)
    read_profile = profiles.reader(unit.arm, system, console)
    measured = []
    for at, (one, result) in enumerate(zip(plan.workloads, found, strict=True)):
        measured.append(_measured(unit, one, result, read_profile(scratch / experiment.sequence_profile(at))))
    return Outcome(measured)


def _measured(unit: Unit, one: Workload, result: results.Result, profile: profiles.Counts) -> Measured:
    world = result.world
    if world["failed"] or not (result.answered or one.is_idle):
        raise Failure(f"{one.name}: {world['failed']} requests failed, {result.answered} were answered")
    seconds = result.window_ns / 1e9
    count = seconds if one.is_idle else float(result.answered)
    frames = result.frames_in_window
    awake_ns = sum(core.c0_ns for core in result.cores)
    totals = {
        # Of the profile, because it counts a repeated string instruction once, as a CPU does.
        "instructions": sum(profile.by_layer.values()),
        "interrupts": world["interrupts"],
        "wakeups": sum(core.wakeups for core in result.cores),
        "frames_in": frames["to_card"],
        "frames_out": frames["from_card"],
        "bytes_in": frames["bytes_to_card"],
        "bytes_out": frames["bytes_from_card"],
    }
    figures = {name: value / count for name, value in totals.items()}
    if unit.cores > 1 and unit.round == FIRST_ROUND:
        figures["moved_lines"] = profile.moved_lines / count
    if not one.is_idle:
        figures |= {f"{name}_us": world["latency_ns"][name] / 1e3 for name in ("p50", "p99", "p999")}
        figures["uj"] = result.package_j * 1e6 / count
    figures["watts"] = result.watts
    figures["busy_share"] = awake_ns / (result.window_ns * len(result.cores))
    if awake_ns:
        figures["mhz"] = 1e3 * sum(core.cycles for core in result.cores) / awake_ns
    about = {
        "offered": world["offered"],
        "answered": result.answered,
        "window_ns": result.window_ns,
        "digest": result.digest,
        "latency": world["latency_ns"],
    }
    of_layers = {name: value / count for name, value in profile.by_layer.items()}
    return Measured(
        one.name, unit.arm.name, unit.cores, unit.round, "second" if one.is_idle else "request", count, figures, of_layers, about
    )


def _ping_pong(unit: Unit, plan: Plan, system: experiment.System, scratch: Path) -> Outcome:
    assert unit.ping_pong
    one = unit.ping_pong
    pairing = pair.Pairing(
        plan.model,
        cores=unit.cores,
        memory=MEMORY,
        seed=plan.seed + unit.round,
        arguments=unit.arm.words,
        sizes=one.sizes,
        repeats=one.repeats,
        profile=True,
        debian_13_kernel=unit.arm.system == "linux-13",
    )
    result = pair.run(pairing, system, scratch)
    points = {point.size: point for point in result.points}
    if missing := [size for size in one.sizes if size not in points]:
        raise Failure(f"NetPIPE did not measure {missing} bytes")
    return Outcome([_of_point(unit, f"{one.name}.{size}", points[size]) for size in one.sizes])


def _of_point(unit: Unit, row: str, point: pair.Point) -> Measured:
    spent = point.spent[pair.TRANSMITTER]
    trips = float(pair.TRIALS * point.repeats)
    figures = {
        "instructions": spent.instructions / trips,
        "wakeups": spent.wakeups / trips,
        "p50_us": point.latency_us,
        "watts": spent.watts,
        "uj": spent.package_j * 1e6 / trips,
    }
    of_layers = {name: value / trips for name, value in spent.layers.items()}
    return Measured(row, unit.arm.name, unit.cores, unit.round, "round trip", trips, figures, of_layers, {"mbps": point.mbps})


def _log(unit: Unit, plan: Plan, system: experiment.System, scratch: Path, keep: Path) -> Outcome:
    chosen = next((one for one in plan.workloads if plan.log and one.name == plan.log.workload), None)
    if chosen is None:
        load = experiment.Load("none", rate=0, connections=1, warm_up_ms=1, window_ms=1)
    else:
        load = load_of(chosen, unit.cores, plan.seed, log=True, window_ms=plan.log and plan.log.window_ms)
    console: list[str] = []
    ask = () if unit.arm.is_linux else ("machine",)
    (result,) = experiment.run_sequence(_settings(unit, plan, trace=True), [load], system, scratch, console.append, ask=ask)
    logs = None
    if load.log:
        logs = keep / unit.arm.folder
        shutil.rmtree(logs, ignore_errors=True)
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copytree(scratch / experiment.sequence_log(0, load), logs)
    return Outcome([], _machine(unit, console, result), logs)


def _machine(unit: Unit, console: list[str], result: results.Result) -> Mapping[str, Any]:
    """The machine's list: Linux prints it on its console, Neap answers it to control."""
    lines = [line.partition(MACHINE)[2] for line in console if MACHINE in line] if unit.arm.is_linux else list(result.answers)
    try:
        found = parse_json(lines[0].removeprefix("ok ")) if lines else None
    except ValueError as error:
        raise Failure(f"the machine's list is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Failure("the machine gave no list of its facts")
    return found
