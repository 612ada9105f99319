# SPDX-License-Identifier: BSL-1.0
"""A run of an image on the model machine: with one load, or with several in one boot.

Three processes share one virtual clock. `neap-world` holds the soft 82599, a switch and clients with their load. QEMU's plugin gives each
emulated core its clock, sleep states and energy, and tells the world the time. This process starts both, waits, and merges their results.
All figures are those of a model: they show how settings compare, not what a machine would draw (docs/model-machine.md).

Linux needs much longer to boot than a window lasts. `run_sequence` therefore runs several loads after one another in one boot.
"""

import dataclasses
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools import build, machine, progress
from tools.errors import EXIT_FAILURE, UsageError
from tools.foreign import shown_lines
from tools.log.folder import RUN, describe_run, log_files
from tools.model import cpu_model, ending, linux, plugin, results
from tools.process import tail

SERVER = "10.0.0.2"
WORLD_RESULT = "world.json"
RESULT = "result.json"
LOG = "log"
INTERRUPTS = "interrupts.jsonl"
TRACE = "trace.txt"
PROFILE = "profile.txt"
SEQUENCE = "sequence.json"
TIME_OUT_SECONDS = 1800.0
WORLD_END_SECONDS = 20.0
CORES_MAX = 16


def sequence_profile(number: int | str) -> str:
    """The name of a load's profile in a sequence."""
    return f"profile-{number}.txt"


def sequence_log(number: int, load: "Load") -> Path:
    """The folder of a load's logs below a sequence's folder."""
    return Path(LOG) / f"{number}-{load.name}"


@dataclasses.dataclass(frozen=True)
class Load:
    """One load of a sequence.

    name: letters, digits and . _ -. mix: a preset of the load generator. rate: requests per second; 0 measures idle connections.
    keys, value_bytes, key_bytes, update, arrivals: in place of the mix's. update: share of sets, 0 to 1. arrivals: as of neap-world.
    window_ms, warm_up_ms: virtual time. log: whether the window's logs are fetched. settings: lines for control before the load.
    options: neap-world's other options of a load by their names, such as {"any-connection": True, "popularity": "zipf", "time-out": "2s"}.
    """

    name: str
    mix: str = "etc"
    rate: float = 10_000.0
    connections: int = 16
    depth: int = 4
    protocol: str = "text"
    keys: int | None = None
    value_bytes: int | None = None
    key_bytes: int | None = None
    update: float | None = None
    arrivals: str | None = None
    warm_up_ms: float = 20.0
    window_ms: float = 100.0
    seed: int = 1
    log: bool = False
    settings: Sequence[str] = ()
    options: Mapping[str, str | float | bool] = dataclasses.field(default_factory=dict)

    def words(self) -> dict[str, str | bool]:
        """neap-world's options of the load, by name."""
        given = {
            "load": self.mix,
            "rate": f"{self.rate:.15g}",
            "connections": self.connections,
            "depth": self.depth,
            "protocol": self.protocol,
            "keys": self.keys,
            "value-size": self.value_bytes,
            "key-size": self.key_bytes,
            "update": self.update,
            "arrivals": self.arrivals,
            "warmup": f"{self.warm_up_ms:.15g}ms",
            "window": f"{self.window_ms:.15g}ms",
            **self.options,
        }
        return {name: value if isinstance(value, bool) else str(value) for name, value in given.items() if value is not None}

    def member(self) -> dict[str, object]:
        """The load in a sequence's file."""
        return {"name": self.name, **self.words(), "seed": self.seed, "log": self.log, "settings": list(self.settings)}

    def check(self) -> None:
        """Raises UsageError for a number that cannot be."""
        for name, value, minimum, maximum in (
            ("--rate", self.rate, 0, 1e8),
            ("--load-seconds", self.window_ms / 1e3, 1e-9, 3600.0),
            ("--connections", self.connections, 1, 16_384),
        ):
            if not minimum <= value <= maximum:
                above = f"from {minimum:g}" if minimum != 1e-9 else "above 0,"
                where = f"load {self.name}: " if self.name else ""
                raise UsageError(f"{where}{name} takes a number {above} up to {maximum:g}, not {value:g}")
        if not 0 <= self.seed < 1 << 64:
            raise UsageError(f"--seed takes a number from 0 to 2^64 - 1, not {self.seed}")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The settings of a run. Equal settings and an equal image give an equal result. A sequence has its loads from elsewhere: the fields of
    a load (load, rate, window_ms, warm_up_ms, connections, depth, protocol, keys, value_bytes) are then not used.

    load: the mix, a preset of the load generator. rate: requests per second; 0: idle connections. protocol: text, meta, binary, http.
    window_ms, warm_up_ms: virtual time.
    arguments: words of the image's command line. trace_interrupts: leaves the card's interrupts in INTERRUPTS, one JSON object a line.
    keys, value_bytes: number of keys and size of all values, in place of the mix's.
    faults: words of neap-world's --fault. world_options: its other options.
    stall: mean distance and largest length, in us, of random times for which a core is held.
    trace: the cores' sleeps are written to TRACE; that does not change the run.
    smt: `cores` counts threads, two on each modelled core.
    instructions_max: a guest that executes more on all cores together is ended. Unlike a time of the host, that repeats.
    profile: the window's instructions by address are written to PROFILE, of a sequence to `sequence_profile`; that does not change the run.
    moved_lines: of the profile of several cores, also the cache lines that move between them. The run then takes twice as long or longer.
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
    moved_lines: bool = True

    def check(self) -> None:
        """Raises UsageError for a setting that cannot be."""
        if self.model not in cpu_model.names() and not self.model.endswith(".toml"):
            raise UsageError(f"--model takes {', '.join(cpu_model.names())} or the path of a .toml file, not '{self.model}'")
        if not 1 <= self.cores <= CORES_MAX:
            raise UsageError(f"--model: a modelled machine has 1 to {CORES_MAX} cores, not {self.cores}")
        if self.smt and self.cores % 2:
            raise UsageError(f"--smt: each core has two threads, so --cores takes an even number of them, not {self.cores}")
        self.only_load().check()
        if any(word.startswith("ip=") for word in self.arguments):
            raise UsageError(f"ip=: on the model machine the image's address is {SERVER}", "leave the word out")

    def only_load(self) -> Load:
        """The load of a run that is no sequence."""
        return Load(
            name="",
            mix=self.load,
            rate=self.rate,
            connections=self.connections,
            depth=self.depth,
            protocol=self.protocol,
            keys=self.keys,
            value_bytes=self.value_bytes,
            warm_up_ms=self.warm_up_ms,
            window_ms=self.window_ms,
            seed=self.seed,
        )

    def about(self) -> dict[str, object]:
        return {"model": self.model, **{name: value for name, value in dataclasses.asdict(self).items() if name != "model"}}


@dataclasses.dataclass(frozen=True)
class System:
    """The system that the machine boots: Neap's image, or Linux with a server in its initramfs. gateway: of Neap, an address or empty.
    modules: of Neap, the boot modules, such as the script of a web server. server: of Linux, words of linux-start.sh that choose another
    server than memcached."""

    kernel: Path
    initramfs: Path | None = None
    gateway: str = ""
    modules: Sequence[Path] = ()
    server: Sequence[str] = ()

    @property
    def is_linux(self) -> bool:
        return self.initramfs is not None

    def words(self, arguments: Sequence[str]) -> list[str]:
        """The command line. Raises UsageError for a setting that Linux does not have."""
        if self.is_linux:
            return linux.kernel_words(f"{SERVER}/24", arguments, self.server)
        return [f"ip={SERVER}/24{',' if self.gateway else ''}{self.gateway}", *arguments]


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
        sequence: Sequence[Load] | None = None,
        ask: Sequence[str] = (),
    ):
        self._programs = programs or Programs.built()
        self._system = system
        self._experiment = experiment
        self._sequence = sequence
        self._ask = ask
        self._out = out
        self._cpu_model = cpu_model.load(experiment.model, smt=experiment.smt)
        super().__init__(
            system.kernel,
            initrd=system.initramfs,
            modules=system.modules,
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
            *("--driven", str(link), "--server", SERVER, "--seed", str(wanted.seed), "--out", str(self._out / WORLD_RESULT)),
            *self._load_options(),
            *(word for line in self._ask for word in ("--ask", line)),
            *(word for fault in wanted.faults for word in ("--fault", fault)),
            *wanted.world_options,
        ]
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
            profile=self._out / (PROFILE if self._sequence is None else sequence_profile("%")) if wanted.profile else None,
            moved_lines=wanted.moved_lines,
            made=made,
        )

    def _load_options(self) -> list[str]:
        """Those of the load or of the sequence, and of the logs."""
        log = ["--log", str(self._out / LOG)]
        if self._sequence is None:
            given = self._experiment.only_load().words().items()
            words = [
                word for name, value in given if value is not False for word in ([f"--{name}"] if value is True else [f"--{name}", value])
            ]
            return words if self._system.is_linux else [*words, *log]
        file = self._out / SEQUENCE
        file.write_text(json.dumps([load.member() for load in self._sequence], indent=1) + "\n")
        return ["--sequence", str(file), *(log if any(load.log for load in self._sequence) else ())]

    def failed(self, message: str) -> machine.MachineError:
        """An error with the last lines of console, QEMU and world."""
        return self._error(message)

    def written(self) -> list[str]:
        """The last lines of QEMU and the world."""
        assert self.directory
        return [line for name in ("qemu", "card") for line in tail(self.directory / f"{name}.log")]

    def has_result(self) -> bool:
        """True if the world wrote its result, which it does at the end of a whole run. The machine MUST have ended."""
        if self._card_process:
            machine.wait_unreaped(self._card_process, WORLD_END_SECONDS)
        return (self._out / WORLD_RESULT).is_file()

    def ended_early(self, status: int, where: str) -> machine.MachineError:
        """Returns the error for a run without a whole result, with the reason. `where`: the load that was under way."""
        # The world's message may begin with the load.
        said = ending.reason(status, self.lines, self.written()).removeprefix(f"{where.removeprefix(', in ')}: ")
        return self.failed(f"the modelled machine ended early{where}: {said or f'status {status}, without a word'}")

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
        _wait(vm, out, None, time_out_seconds)
    if not system.is_linux:
        _describe_logs(out / LOG)
    return results.read(out / WORLD_RESULT, out / plugin.SNAPSHOTS)


def run_sequence(
    experiment: Experiment,
    loads: Sequence[Load],
    image: Path | System,
    out: Path,
    on_line: Callable[[str], None] | None = None,
    programs: Programs | None = None,
    time_out_seconds: float = TIME_OUT_SECONDS,
    ask: Sequence[str] = (),
) -> list[results.Result]:
    """Runs the loads one after the other in one boot, and gives a result for each, in their order. `ask`: lines for control after the first
    load's set-up; each result has the answers. `out` MUST be an empty folder, which gets the profiles and the folders of logs, each with
    its RESULT. Raises Failure, which names the load."""
    experiment.check()
    if not loads:
        raise UsageError("a sequence needs at least one load")
    for load in loads:
        load.check()
    system = image if isinstance(image, System) else System(image)
    with ModelMachine(system, experiment, out, on_line, programs, sequence=loads, ask=ask) as vm:
        _wait(vm, out, loads, time_out_seconds)
    found = results.read_sequence(out / WORLD_RESULT, out / plugin.SNAPSHOTS)
    for number, (load, result) in enumerate(zip(loads, found, strict=True)):
        if load.log:
            # The readers of logs find the window and the latencies there.
            results.write(result, out / sequence_log(number, load) / RESULT, {"model": experiment.model, "load": load.member()})
            _describe_logs(out / sequence_log(number, load))
    return found


def _wait(vm: ModelMachine, out: Path, loads: Sequence[Load] | None, time_out_seconds: float) -> None:
    """Waits for the machine's end in order. Raises Failure, which names the load of a sequence that was under way."""
    try:
        status = vm.wait_exit(time_out_seconds)
    except machine.MachineError as error:
        if loads is None:
            raise
        why = "".join(f": {line}" for line in ending.messages(vm.written())[-1:])
        raise machine.MachineError(f"{error.message}{_under_way(out, loads)}{why}", error.hint, error.details) from None
    # Linux powers off after a failure, too.
    if status != machine.POWER_OFF or not vm.has_result():
        raise vm.ended_early(status, _under_way(out, loads))


def _under_way(out: Path, loads: Sequence[Load] | None) -> str:
    if loads is None:
        return ""
    snapshots = plugin.snapshots(out)
    number = snapshots[-1]["load"] if snapshots else 0
    return f", in load {number} ({loads[number].name})"


def _describe_logs(folder: Path) -> None:
    """So that ./neap log reads the folder as a collected run."""
    described = describe_run(log_files(folder), **{"from": "the model machine", "mode": "get"})
    (folder / RUN).write_text(json.dumps(described, indent=1) + "\n")


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
