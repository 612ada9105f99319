# SPDX-License-Identifier: BSL-1.0
"""`apps/wakeup` on one modelled machine, and its latencies beside those of the CPU's model.

The machine has no card and no clients: it measures, prints its table and ends. The model's table (sim/machine/models/NAME.toml) is the
truth: a core that wakes up waits for the exit latency of its state before its next instruction. So a measured latency is that time and the
instructions between it and the clock's readings: the message to the other core, the interrupt's handler. A write takes up to 2 us longer,
because the model looks at watched lines at the end of the writing core's turn (docs/model-machine.md, "Clock").
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import progress
from tools.bench.rows import aligned
from tools.errors import Failure, UsageError
from tools.foreign import shown_lines
from tools.machine import SUCCESS, Machine
from tools.model import cpu_model, plugin
from tools.model.sleeps import C_STATES

CORES_MAX = plugin.CORES_MAX
TIME_OUT_SECONDS = 1800.0
# States in which the whole package sleeps, if all of its cores do (sim/machine/package.cpp).
PACKAGE_STATES = ("C6", "C7")
# The C-state in which an idle core with `monitor` sleeps, unless `monitor_state=` is on the command line (docs/policy.md).
MONITOR_STATE = "c1"
# Instructions between the doorbell and the clock reading. The timer's way is the longest: the interrupt's entry, the handler, the return
# from `machine::sleep` and the clock reading are 175 to 183 instructions of the release image. The rest is room for another compiler.
INSTRUCTIONS = 250
# The longest turn of a core, `quantum` in sim/machine/machine.hpp. A core that writes to a watched line ends its turn first.
TURN_US = 2.0

_ROW = re.compile(r"wakeup: (?P<state>[a-z0-9]+) +(?P<doorbell>ipi|write|timer|timer-all) +(?P<figures>\d+(?: +\d+){5})")
_END = "wakeup: end of the table"
_OPTION = "wakeup: boot option for this machine: "


@dataclass(frozen=True)
class Latency:
    """A line of the image's table; latencies in nanoseconds. `repeated`: rounds that another event disturbed."""

    state: str
    doorbell: str
    rounds: int
    min: int
    median: int
    p99: int
    max: int
    repeated: int

    @property
    def name(self) -> str:
        return f"{self.state}.{self.doorbell}"


@dataclass(frozen=True)
class Wakeup:
    """The settings of a run. Equal settings and an equal image give equal results. arguments: words of the image's command line."""

    model: str
    cores: int = 2
    memory: str = "512M"
    seed: int = 1
    smt: bool = False
    arguments: Sequence[str] = ()

    def check(self) -> None:
        """Raises UsageError for a setting that cannot be."""
        if self.model not in cpu_model.names() and not self.model.endswith(".toml"):
            raise UsageError(f"--model takes {', '.join(cpu_model.names())} or the path of a .toml file, not '{self.model}'")
        if not 2 <= self.cores <= CORES_MAX:
            raise UsageError(
                f"wakeup on a modelled machine needs 2 to {CORES_MAX} cores, not {self.cores}: one sleeps, another one rings", "--cores 2"
            )
        if self.smt and self.cores % 2:
            raise UsageError(f"--smt: each core has two threads, so --cores takes an even number of them, not {self.cores}")
        if not 0 <= self.seed < 1 << 64:
            raise UsageError(f"--seed takes a number from 0 to 2^64 - 1, not {self.seed}")


def parse(lines: Sequence[str]) -> list[Latency]:
    """The table of an image's console. Raises Failure if it is missing or not whole."""
    if _END not in lines:
        raise Failure("wakeup printed no whole table", details=list(lines[-10:]))
    found = []
    for line in lines:
        if match := _ROW.fullmatch(line):
            found.append(Latency(match["state"], match["doorbell"], *(int(figure) for figure in match["figures"].split())))
    if not found:
        raise Failure("wakeup printed an empty table", details=list(lines[-10:]))
    return found


def model_us(cpu: cpu_model.CpuModel, state: str, doorbell: str) -> float:
    """The model's latency in us of a wake-up; 0 for a core that polls. With `timer-all` no core is awake, so the package sleeps too."""
    if state == "poll":
        return 0.0
    slept = C_STATES[MONITOR_STATE if state == "monitor" else state]
    latency = float(cpu.values[f"sleep.{slept}.exit_latency_us"])
    if doorbell == "timer-all" and slept in PACKAGE_STATES:
        latency += float(cpu.values["sleep.package_exit_latency_us"])
    return latency


def instruction_us(cpu: cpu_model.CpuModel) -> float:
    """The time of an instruction in us, at the frequency of the start: the base frequency or, if the CPU chooses it, the lowest one. The
    image sets no frequency by itself, and a core that sleeps nearly always has no utilization."""
    ratio = cpu.values["frequency.min_ratio" if cpu.values["frequency.hwp"] else "frequency.base_ratio"]
    cycles_us = cpu.values["pace.cycles_per_instruction"] / (100.0 * ratio)
    return cycles_us + cpu.values["pace.unscaled_ps_per_instruction"] / 1e6


def limit_us(cpu: cpu_model.CpuModel, state: str, doorbell: str, instructions: int = INSTRUCTIONS) -> float:
    """What a measured latency stays below, in us, at the frequency of the start: the model's latency, `instructions`, and with a write the
    rest of the writing core's turn. A core that polls needs no turn of the other core to end: both read the TSC, and a core that reads it
    waits until no other core is behind."""
    seen_late = doorbell == "write" and state != "poll"
    return model_us(cpu, state, doorbell) + instructions * instruction_us(cpu) + (TURN_US if seen_late else 0.0)


def boot_option(lines: Sequence[str]) -> str:
    """The boot option of an image's console that gives the measured times to a later start: `wake_up_times=c1:2us,...`. Raises Failure."""
    for line in lines:
        if line.startswith(_OPTION):
            return line.removeprefix(_OPTION)
    raise Failure("wakeup printed no boot option", details=list(lines[-10:]))


def run(wanted: Wakeup, image: Path, out: Path, on_line: Callable[[str], None] | None = None) -> list[Latency]:
    """Runs the image once. `out` MUST be an empty folder; the model's snapshots are left there. Raises Failure."""
    return parse(console(wanted, image, out, on_line))


def console(wanted: Wakeup, image: Path, out: Path, on_line: Callable[[str], None] | None = None) -> list[str]:
    """As `run`; returns the lines of the console."""
    cpu = cpu_model.load(wanted.model, smt=wanted.smt)
    with Machine(
        image,
        cores=wanted.cores,
        threads_per_core=cpu.threads,
        memory=wanted.memory,
        arguments=list(wanted.arguments),
        card=False,
        one_thread=True,
        cpu=cpu.qemu_cpu(),
        qemu_options=plugin.options(cpu, out, seed=wanted.seed),
        on_line=on_line,
    ) as vm:
        status = vm.wait_exit(TIME_OUT_SECONDS)
        lines = list(vm.lines)
    if status != SUCCESS:
        raise Failure(f"wakeup ended with status {status}", details=lines[-10:])
    return lines


def table(found: Sequence[Latency], cpu: cpu_model.CpuModel) -> str:
    """The measured latencies beside those of the model, in us."""
    cells = [("state", "doorbell", "rounds", "min us", "median us", "p99 us", "max us", "model us", "median - model", "")]
    for one in found:
        truth = model_us(cpu, one.state, one.doorbell)
        figures = [f"{ns / 1000:.3f}" for ns in (one.min, one.median, one.p99, one.max)]
        cells.append((one.state, one.doorbell, str(one.rounds), *figures, f"{truth:g}", f"{one.median / 1000 - truth:+.3f}", ""))
    return aligned(cells)


def show(wanted: Wakeup, image: Path) -> int:
    """Runs the image once and prints the table beside the model's. Returns the launcher's exit status."""
    cpu = cpu_model.load(wanted.model, smt=wanted.smt)
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        found = run(wanted, image, Path(scratch), lambda line: progress.say(shown_lines(line)))
    unit = "threads" if wanted.smt else "cores"
    print(f"modelled ({wanted.model}, {wanted.cores} {unit}, seed {wanted.seed}): wake-up latency, virtual time")
    print(table(found, cpu))
    return 0
