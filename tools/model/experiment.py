# SPDX-License-Identifier: BSL-1.0
"""One run of an image on the model machine.

Three processes share one virtual clock. `neap-world` holds the soft 82599, a switch and clients with their load. QEMU's plugin gives each
emulated core its clock, sleep states and energy, and tells the world the time. This process starts both, waits, and merges their results.
All figures are those of a model: they show how settings compare, not what a machine would draw (docs/model-machine.md).
"""

import dataclasses
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import build, machine, progress
from tools.errors import EXIT_FAILURE, UsageError
from tools.foreign import shown_lines
from tools.log.folder import RUN, describe_run, log_files
from tools.model import cpu_model, linux, plugin, results

SERVER = "10.0.0.2"
SERVER_WORDS = (f"ip={SERVER}/24",)
WORLD_RESULT = "world.json"
RESULT = "result.json"
LOG = "log"
INTERRUPTS = "interrupts.jsonl"
TRACE = "trace.txt"
PROFILE = "profile.txt"
TIME_OUT_SECONDS = 1800.0
CORES_MAX = 16


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The settings of a run. Equal settings and an equal image give an equal result.

    load: the mix, a preset of the load generator. rate: requests per second. protocol: text, meta or binary.
    window_ms, warm_up_ms: virtual time.
    arguments: words of the image's command line. trace_interrupts: leaves the card's interrupts in INTERRUPTS, one JSON object a line.
    keys, value_bytes: number of keys and size of all values, in place of the mix's.
    faults: words of neap-world's --fault. world_options: its other options.
    stall: mean distance and largest length, in us, of random times for which a core is held.
    trace: the cores' sleeps are written to TRACE; that does not change the run.
    smt: `cores` counts threads, two on each modelled core.
    instructions_max: a guest that executes more on all cores together is ended. Unlike a time of the host, that repeats.
    profile: the window's instructions by address are written to PROFILE; that does not change the run.
    """

    model: str
    load: str = "etc"
    rate: float = 10_000.0
    window_ms: float = 100.0
    warm_up_ms: float = 20.0
    cores: int = 1
    memory: str = "512M"
    connections: int = 16
    depth: int = 4
    protocol: str = "text"
    seed: int = 1
    arguments: Sequence[str] = ()
    trace_interrupts: bool = False
    keys: int | None = None
    value_bytes: int | None = None
    faults: Sequence[str] = ()
    world_options: Sequence[str] = ()
    stall: tuple[int, int] | None = None
    trace: bool = False
    smt: bool = False
    instructions_max: int | None = None
    profile: bool = False

    def check(self) -> None:
        """Raises UsageError for a setting that cannot be."""
        if self.model not in cpu_model.names() and not self.model.endswith(".toml"):
            raise UsageError(f"--model takes {', '.join(cpu_model.names())} or the path of a .toml file, not '{self.model}'")
        if not 1 <= self.cores <= CORES_MAX:
            raise UsageError(f"--model: a modelled machine has 1 to {CORES_MAX} cores, not {self.cores}")
        if self.smt and self.cores % 2:
            raise UsageError(f"--smt: each core has two threads, so --cores takes an even number of them, not {self.cores}")
        for name, value, maximum in (
            ("--rate", self.rate, 1e8),
            ("--load-seconds", self.window_ms / 1e3, 3600.0),
            ("--connections", self.connections, 4096),
        ):
            if not 0 < value <= maximum:
                raise UsageError(f"{name} takes a number above 0, up to {maximum:g}, not {value:g}")
        if not 0 <= self.seed < 1 << 64:
            raise UsageError(f"--seed takes a number from 0 to 2^64 - 1, not {self.seed}")
        if any(word.startswith("ip=") for word in self.arguments):
            raise UsageError(f"ip=: on the model machine the image's address is {SERVER}", "leave the word out")

    def about(self) -> dict[str, object]:
        return {"model": self.model, **{name: value for name, value in dataclasses.asdict(self).items() if name != "model"}}


@dataclasses.dataclass(frozen=True)
class System:
    """The system that the machine boots: Neap's image, or Linux with memcached in its initramfs."""

    kernel: Path
    initramfs: Path | None = None

    @property
    def is_linux(self) -> bool:
        return self.initramfs is not None

    def words(self, arguments: Sequence[str]) -> list[str]:
        """The command line. Raises UsageError for a setting that Linux does not have."""
        return linux.kernel_words(f"{SERVER}/24", arguments) if self.is_linux else [*SERVER_WORDS, *arguments]


@dataclasses.dataclass(frozen=True)
class Programs:
    """The programs of a model machine beside QEMU. A long campaign takes copies, so that no build changes them."""

    world: Path
    plugin: Path

    @classmethod
    def built(cls) -> "Programs":
        return cls(build.WORLD, plugin.library())


class ModelMachine(machine.Machine):
    """A Machine whose card is in a world, and whose CPUs the plugin models. Its results are written below `out`."""

    card_ready = b"neap-world: ready"

    def __init__(
        self,
        system: System,
        experiment: Experiment,
        out: Path,
        on_line: Callable[[str], None] | None = None,
        programs: Programs | None = None,
        debugger: bool = False,
    ):
        self._programs = programs or Programs.built()
        self._system = system
        self._experiment = experiment
        self._out = out
        self._cpu_model = cpu_model.load(experiment.model, smt=experiment.smt)
        super().__init__(
            system.kernel,
            initrd=system.initramfs,
            cores=experiment.cores,
            threads_per_core=self._cpu_model.threads,
            memory=experiment.memory,
            arguments=system.words(experiment.arguments),
            net="modelled",
            cpu=self._cpu_model.qemu_cpu(),
            one_thread=True,
            on_line=on_line,
            soft_card=self._programs.world,
            debugger=debugger,
        )

    def start_card(self) -> None:
        assert self.directory
        wanted, link = self._experiment, self.directory / "link"
        self.card_options = [
            *("--driven", str(link), "--server", SERVER, "--load", wanted.load, "--rate", f"{wanted.rate:.15g}"),
            *("--connections", str(wanted.connections), "--depth", str(wanted.depth), "--seed", str(wanted.seed)),
            *("--protocol", wanted.protocol),
            *("--warmup", f"{wanted.warm_up_ms:.15g}ms", "--window", f"{wanted.window_ms:.15g}ms"),
            *("--out", str(self._out / WORLD_RESULT)),
            *(() if self._system.is_linux else ("--log", str(self._out / LOG))),
            *(word for fault in wanted.faults for word in ("--fault", fault)),
            *wanted.world_options,
        ]
        for option, value in (("--keys", wanted.keys), ("--value-size", wanted.value_bytes)):
            if value is not None:
                self.card_options += [option, str(value)]
        if wanted.trace_interrupts:
            self.card_options += ["--interrupts", str(self._out / INTERRUPTS)]
        super().start_card()
        trace = self._out / TRACE if wanted.trace else None
        made = self._programs.plugin
        self.qemu_options = plugin.options(
            self._cpu_model,
            self._out,
            link=link,
            seed=wanted.seed,
            trace=trace,
            stall=wanted.stall,
            instructions_max=wanted.instructions_max,
            profile=self._out / PROFILE if wanted.profile else None,
            made=made,
        )

    def failed(self, message: str) -> machine.MachineError:
        """An error with the last lines of console, QEMU and world."""
        return self._error(message)

    def network_words(self) -> list[str]:
        """None: the network is in the world, and the options of the load describe it."""
        return []


def run(
    experiment: Experiment,
    image: Path | System,
    out: Path,
    on_line: Callable[[str], None] | None = None,
    programs: Programs | None = None,
    time_out_seconds: float = TIME_OUT_SECONDS,
) -> results.Result:
    """Runs one experiment and gives its result. `out` MUST be an empty folder; the run's files are left there. Raises Failure."""
    system = image if isinstance(image, System) else System(image)
    with ModelMachine(system, experiment, out, on_line, programs) as vm:
        status = vm.wait_exit(time_out_seconds)
        if status != machine.POWER_OFF:
            raise vm.failed(f"the modelled machine ended early, with status {status}")
    if not system.is_linux:
        # So that ./neap log reads the folder as a collected run.
        described = describe_run(log_files(out / LOG), **{"from": "the model machine", "mode": "get"})
        (out / LOG / RUN).write_text(json.dumps(described, indent=1) + "\n")
    return results.read(out / WORLD_RESULT, out / plugin.SNAPSHOTS)


def show(experiment: Experiment, application: str, image: Path | System, out: Path | None, *, as_record: bool = False) -> int:
    """Runs one experiment and prints it. `out`: keeps the figures and the cores' logs there, and `as_record` all that a replay needs.
    Returns the launcher's exit status."""
    cores = f"{experiment.cores} {'thread' if experiment.smt else 'core'}{'s' * (experiment.cores != 1)}"
    title = f"modelled ({experiment.model}, {cores}, seed {experiment.seed}): {application}"
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        directory = out or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        result = run(experiment, image, directory, lambda line: progress.say(shown_lines(line)))
        results.write(result, directory / RESULT, experiment.about())
        if as_record:
            from tools.model import record

            assert isinstance(image, Path)
            record.write(application, image, experiment, directory)
    print(results.table(result, f"{title}, {experiment.load} at {experiment.rate:g} requests/s"))
    if out is not None:
        logs = f", the cores' logs in {out / LOG}" if (out / LOG).is_dir() else ""
        progress.say(f"neap: the figures are in {out / RESULT}{logs}")
    return 0 if result.world["failed"] == 0 else EXIT_FAILURE
