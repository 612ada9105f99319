# SPDX-License-Identifier: BSL-1.0
"""`./neap bench counts`: whether the model machine's counts of instructions are exact, and how far they repeat.

Comparisons of Neap and Linux rest on counts, so each way of counting is compared with another one, for both systems:

- A loop of known length is counted between two marks (CPUID) to the last instruction.
- Another plugin in the same QEMU counts a whole run, boot included: each instruction calls it (bench/instruction_counter.c). The model
  counts by QEMU's instruction budget. An instruction that faults begins twice, so the two may differ by a little.
- The other plugin does not change the run.
- Runs with two seeds differ little in instructions per request. The seeds choose keys and the random numbers that a guest gets.
- In the profile, memcached's system call that sends a reply is executed once for each request (Linux), and little has no known layer.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools import build
from tools.bench import instructions, model_judges, modelled
from tools.bench.request import LOADS
from tools.bench.rows import Row
from tools.errors import Failure
from tools.machine import POWER_OFF, SUCCESS, Machine
from tools.model import cpu_model, experiment, layers, linux, linux_profile, plugin, profile, results

MODEL = "e5-2690"
LOAD = "get.16"
SEEDS = (1, 2)
RUN_SECONDS = 300
# Targets: counts below 1 are equal.
EQUAL = 1.0
SECOND_COUNTER_PERCENT = 0.1
SEEDS_PERCENT = 1.0
OTHER_PERCENT = 5.0
REPLY_CALL = "__x64_sys_sendmsg"
TRIES = 3


class CountedMachine(experiment.ModelMachine):
    """A model machine whose instructions another plugin counts, too, into the file `counts_file`."""

    counts_file: Path

    def start_card(self) -> None:
        super().start_card()
        self.qemu_options = [*self.qemu_options, *instructions.live_counter_options(self.counts_file)]


def known_on_neap() -> list[Row]:
    """An image's loop of known length."""
    build.build("image", ["bench_known_count.elf"])
    cpu = cpu_model.load(MODEL)
    with tempfile.TemporaryDirectory(prefix="neap-model-") as name:
        machine = Machine(
            build.BUILD / "image/bench/bench_known_count.elf",
            memory="256M",
            card=False,
            one_thread=True,
            cpu=cpu.qemu_cpu(),
            qemu_options=plugin.options(cpu, Path(name)),
        )
        with machine:
            if (status := machine.wait_exit(RUN_SECONDS)) != SUCCESS:
                raise Failure(f"the image with a known count ended with status {status}", details=machine.lines[-10:])
            known = next(int(line.split()[1]) for line in machine.lines if line.startswith("known_count "))
        marks = {one["mark"]: one["cpus"][0]["instructions"] for one in plugin.snapshots(Path(name)) if one["event"] == "mark"}
    return [Row("counts.neap.known", f"instructions too many or too few, of {known}", abs(marks[2] - marks[1] - known), EQUAL)]


def known_on_linux() -> list[Row]:
    """The same at user level of Debian's Linux.

    The shell that starts the program has work left after the start of its child. That work must not run between the marks. So another shell
    sleeps until it is done, and becomes the program itself."""
    with tempfile.TemporaryDirectory(prefix="neap-judges-") as name, model_judges.guest("Debian 12", Path(name)) as on:
        from linux_guest import known_count  # noqa: PLC0415, as the guest has made it importable

        counted = []
        for _ in range(TRIES):
            first = on.new_marks()
            done = on.between(first, on.linux.output_of(f"(sleep 0.05; exec {known_count.PROGRAM} 1 user {first})"))
            counted.append(done.of_core("user_instructions"))
    known = known_count.MARKED_INSTRUCTIONS
    return [Row("counts.linux.known", f"instructions too many or too few, of {known}", max(abs(count - known) for count in counted), EQUAL)]


def second_counter(name: str, system: experiment.System, seed: int) -> tuple[int, int, str]:
    """Runs memcached under load with both plugins. Returns the model's count, the other plugin's, and the digest of the run."""
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        out = Path(scratch)
        machine = CountedMachine(system, wanted(seed), out)
        machine.counts_file = out / "counts"
        with machine as vm:
            if (status := vm.wait_exit(experiment.TIME_OUT_SECONDS)) != POWER_OFF:
                raise vm.failed(f"{name} with two counters ended with status {status}")
        last: dict[str, Any] = plugin.snapshots(out)[-1]
        other = instructions.read_live(machine.counts_file)
    return sum(cpu["instructions"] for cpu in last["cpus"]), other, last["digest"]


def wanted(seed: int) -> experiment.Experiment:
    load = next(load for load in LOADS if load.name == LOAD)
    return dataclasses.replace(load.experiment(), seed=seed)


@dataclasses.dataclass(frozen=True)
class Run:
    per_request: float
    digest: str
    other_percent: float
    reply_calls: int | None
    answered: int


def run(system: experiment.System, seed: int) -> Run:
    """A run without the other plugin."""
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        out = Path(scratch)
        console: list[str] = []
        result: results.Result = experiment.run(wanted(seed), system, out, console.append)
        digest = plugin.snapshots(out)[-1]["digest"]
        file = out / experiment.PROFILE
        calls = None
        if system.is_linux:
            symbols = linux_profile.symbols(console)
            by_layer = linux_profile.layers(file, symbols)
            at = symbols.address_of(REPLY_CALL)
            calls = profile.counts(file).get(at, (0, 0))[0]
        else:
            by_layer = layers.of_neap(profile.read(file, system.kernel))
    return Run(result.instructions / result.answered, digest, 100 * by_layer[layers.OTHER] / by_layer.total(), calls, result.answered)


def of_system(name: str, system: experiment.System) -> list[Row]:
    runs = [run(system, seed) for seed in SEEDS]
    model, other, digest = second_counter(name, system, SEEDS[0])
    per_request = [one.per_request for one in runs]
    found = [
        Row(
            f"counts.{name}.second_counter",
            f"% deviation of another plugin's count, of {model}",
            percent(other, model),
            SECOND_COUNTER_PERCENT,
        ),
        Row(f"counts.{name}.second_counter_changes", "runs that the other plugin changed", float(digest != runs[0].digest), EQUAL),
        Row(
            f"counts.{name}.seeds",
            f"% between two seeds, {LOAD}, {per_request[0]:.1f} and {per_request[1]:.1f} instructions a request",
            percent(*per_request),
            SEEDS_PERCENT,
        ),
        Row(f"counts.{name}.other", "% of a request's instructions without a layer", max(one.other_percent for one in runs), OTHER_PERCENT),
    ]
    calls = [abs(one.reply_calls - one.answered) for one in runs if one.reply_calls is not None]
    if calls:
        found.append(Row(f"counts.{name}.replies", "calls that send, too many or too few for the requests answered", max(calls), EQUAL))
    return found


def percent(value: float, of: float) -> float:
    return 100 * abs(value / of - 1)


def systems() -> dict[str, experiment.System]:
    modelled.prepare("memcached")
    return {"neap": experiment.System(build.image("memcached")), "linux": experiment.System(*linux.image())}


def rows() -> list[Row]:
    found: Sequence[list[Row]] = [
        known_on_neap(),
        known_on_linux(),
        *(of_system(name, system) for name, system in systems().items()),
    ]
    return [row for part in found for row in part]
