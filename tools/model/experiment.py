# SPDX-License-Identifier: BSL-1.0
"""One run of an image on the model machine.

Three processes share one virtual clock. `neap-world` holds the soft 82599, a switch and clients with their load. QEMU's plugin gives each
emulated core its clock, sleep states and energy, and tells the world the time. This process starts both, waits, and merges their results.
All figures are those of a model: they show how settings compare, not what a machine would draw (docs/model-machine.md).
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import machine
from tools.errors import Failure, UsageError
from tools.model import cpu_model, plugin, results

WORLD = machine.REPOSITORY / "build/world/release/neap-world"
SERVER = "10.0.0.2"
SERVER_WORDS = (f"ip={SERVER}/24",)
LOG = "log"
TIME_OUT_SECONDS = 1800.0
CORES_MAX = 16


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The settings of a run. Equal settings and an equal image give an equal result.

    load, rate: the mix (a preset of the load generator) and its requests per second. window_ms, warm_up_ms: virtual time.
    arguments: words of the image's command line. linux: run Debian's kernel in place of an image.
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
    seed: int = 1
    arguments: Sequence[str] = ()

    def check(self) -> None:
        """Raises UsageError for a setting that cannot be."""
        if self.model not in cpu_model.names():
            raise UsageError(f"--model takes {', '.join(cpu_model.names())}, not '{self.model}'")
        if not 1 <= self.cores <= CORES_MAX:
            raise UsageError(f"--model: a modelled machine has 1 to {CORES_MAX} cores, not {self.cores}")
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


class ModelMachine(machine.Machine):
    """A Machine whose card is in a world, and whose CPUs the plugin models."""

    def prepare(self, experiment: Experiment, out: Path) -> None:
        """MUST be called before the start. The results are written below `out`."""
        self.experiment = experiment
        self.out = out
        self.accelerator = "icount"
        self.soft_card = WORLD
        self.cpu = cpu_model.load(experiment.model).qemu_cpu

    def start_card(self) -> None:
        assert self.directory
        wanted, link = self.experiment, self.directory / "link"
        self.net = "modelled"
        self.card_options = [
            *("--driven", str(link), "--server", SERVER, "--load", wanted.load, "--rate", f"{wanted.rate:.15g}"),
            *("--connections", str(wanted.connections), "--depth", str(wanted.depth), "--seed", str(wanted.seed)),
            *("--warmup", f"{wanted.warm_up_ms:.15g}ms", "--window", f"{wanted.window_ms:.15g}ms"),
            *("--out", str(self.out / "world.json"), "--log", str(self.out / LOG)),
        ]
        super().start_card()
        flat = self.directory / "model"
        cpu_model.load(wanted.model).write(flat)
        self.qemu_options = [*self.qemu_options, *plugin.options(model=flat, link=link, out=self.out / "snapshots.json", seed=wanted.seed)]


def run(experiment: Experiment, image: Path, out: Path, on_line: Callable[[str], None] | None = None) -> results.Result:
    """Runs one experiment and gives its result; its files are in `out`, which MUST be an empty folder. Raises Failure."""
    vm = ModelMachine(
        image, cores=experiment.cores, memory=experiment.memory, arguments=[*SERVER_WORDS, *experiment.arguments], on_line=on_line
    )
    vm.prepare(experiment, out)
    with vm:
        status = vm.wait_exit(TIME_OUT_SECONDS)
    if status != machine.POWER_OFF:
        raise Failure(f"the modelled machine ended early, with status {status}")
    return results.read(out / "world.json", out / "snapshots.json")
