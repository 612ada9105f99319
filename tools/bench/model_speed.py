# SPDX-License-Identifier: BSL-1.0
"""`./neap bench model-speed`: what the model costs the host.

One image (bench/model_speed.cpp) does the same work on the model machine and on QEMU without the model: TCG, no instruction counting, no
plugin, the same -cpu. Both run in alternation. The model counts the work's instructions. Divided by the CPU time that QEMU's process used
from the work's first line on the console to its own end, they give the speed of each. The work needs no card and no world.

`idle_minute` is the host's time for 60 s of virtual time without work. `memcached` is a usual run with card and world: its instructions
divided by the CPU time of both processes. Plain QEMU has no equal of it, because its clients run in real time.
"""

import dataclasses
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tools import build, progress
from tools.bench import modelled
from tools.bench.rows import Row, aligned
from tools.errors import Failure
from tools.machine import POWER_OFF, SUCCESS, Machine
from tools.model import cpu_model, experiment, plugin

MODEL = "e5-2690"
CORES = (1, 4)
RUNS = 3
ROUNDS = {1: 16_000, 4: 4_000}  # of each core: the same work in all
IDLE_SECONDS = 60
RUN_SECONDS = 600
BEFORE, AFTER = 1, 2  # numbers of the image's snapshots
SLOWDOWN_MAX = 3.0
IDLE_SECONDS_MAX = 1.0
LOADED_RATE, LOADED_WINDOW_MS = 200_000, 500.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """One run. cpu_s, passed_s: CPU time of QEMU's process, and time of the host, from the last line "begin" to the end of QEMU. said: the
    work's result. instructions: of the work; 0 on plain QEMU, which does not count them."""

    cpu_s: float
    passed_s: float
    said: str
    instructions: int = 0


def children_s() -> float:
    """CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_image(image: Path, cores: int, with_model: bool, words: Sequence[str]) -> Measured:
    cpu = cpu_model.load(MODEL)
    begun_cpu_s = begun = 0.0
    said = ""

    def note(line: str) -> None:
        nonlocal begun_cpu_s, begun, said
        if line.startswith("begin "):
            begun_cpu_s, begun = machine.cpu_seconds(), time.monotonic()
        said += line.removeprefix("end work, ") if line.startswith("end work, ") else ""

    with tempfile.TemporaryDirectory(prefix="neap-speed-") as scratch:
        directory = Path(scratch)
        machine = Machine(
            image,
            cores=cores,
            memory="256M",
            arguments=words,
            card=False,
            one_thread=with_model,
            cpu=cpu.qemu_cpu(),
            qemu_options=plugin.options(cpu, directory) if with_model else (),
            on_line=note,
        )
        others_s = children_s()
        with machine:
            status = machine.wait_exit(RUN_SECONDS)
            ended_cpu_s, ended = children_s() - others_s, time.monotonic()
        if status not in (POWER_OFF, SUCCESS):  # the image knows the port of SUCCESS by the model's CPUID only
            raise Failure(f"{image.stem} ended with status {status}", details=machine.lines[-20:])
        marks = {one["mark"]: one for one in plugin.snapshots(directory) if one["event"] == "mark"}
    counted = [sum(core["instructions"] for core in marks[mark]["cpus"]) for mark in (BEFORE, AFTER)] if with_model else [0, 0]
    return Measured(ended_cpu_s - begun_cpu_s, ended - begun, said, counted[1] - counted[0])


def rows_of(cores: int, plain: Sequence[Measured], with_model: Sequence[Measured], idle: Sequence[Measured]) -> list[Row]:
    """The rows of one number of cores, from medians. Raises Failure if two runs did different work."""
    if len({(one.instructions, one.said) for one in with_model}) != 1 or any(one.said != with_model[0].said for one in plain):
        raise Failure(f"on {cores} cores, runs of the same work gave different results")
    instructions = with_model[0].instructions
    model_s, plain_s = (statistics.median(one.cpu_s for one in runs) for runs in (with_model, plain))
    idle_s = statistics.median(one.passed_s for one in idle)
    name = f"{cores}_core{'s' * (cores != 1)}"
    return [
        Row(f"{name}.work", "million instructions", instructions / 1e6),
        Row(f"{name}.model", "million instructions per second of the host's CPU", instructions / model_s / 1e6),
        Row(f"{name}.plain", "the same, QEMU without the model", instructions / plain_s / 1e6),
        Row(f"{name}.slowdown", "plain divided by model", model_s / plain_s, SLOWDOWN_MAX),
        Row(f"{name}.idle_minute", f"seconds of the host for {IDLE_SECONDS} s of virtual time", idle_s, IDLE_SECONDS_MAX),
    ]


def loaded() -> Row:
    """memcached under load, with card and world."""
    wanted = experiment.Experiment(MODEL, rate=LOADED_RATE, window_ms=LOADED_WINDOW_MS)
    before = children_s()
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        experiment.run(wanted, build.image("memcached"), Path(scratch))
        instructions = sum(core["instructions"] for core in plugin.snapshots(Path(scratch))[-1]["cpus"])
    cpu_s = children_s() - before
    unit = f"million instructions per second of the host's CPU, 1 core, {LOADED_RATE} requests/s, start and world included"
    return Row("memcached.model", unit, instructions / cpu_s / 1e6)


def rows() -> list[Row]:
    modelled.prepare("memcached", "bench_model_speed")
    image = build.BUILD / "image/bench/bench_model_speed.elf"
    found: list[Row] = []
    for cores in CORES:
        work, pause = f"rounds={ROUNDS[cores]}", f"idle_time={IDLE_SECONDS}s"
        with progress.step(f"{RUNS} runs with the model and {RUNS} without it, {cores} cores"):
            triples = [
                (
                    run_image(image, cores, False, [work]),
                    run_image(image, cores, True, [work]),
                    run_image(image, cores, True, ["rounds=1", pause]),
                )
                for _ in range(RUNS)
            ]
        found += rows_of(cores, *zip(*triples))
    return [*found, loaded()]


def show(found: Sequence[Row]) -> str:
    title = f"modelled ({MODEL}) beside QEMU without the model, medians of {RUNS} runs in alternation"
    cells = [("name", "value", "target", "unit")]
    for row in found:
        value = row.value or 0.0
        target = "" if row.target is None else f"< {row.target:g}"
        cells.append((row.name, f"{value:.3g}" if value < 10 else f"{value:.0f}", target, row.unit))
    return f"{title}\n{aligned(cells)}"
