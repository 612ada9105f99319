# SPDX-License-Identifier: BSL-1.0
"""NetPIPE between two modelled machines on one virtual clock.

`neap-world` joins the cards of both machines by its switch and lets neither pass the other (sim/world/src/pair.rs). One machine answers,
the other measures, prints a line for each size of message, and ends. The plugin takes a snapshot at the end of each line of the console.
So the energy of a size is the difference of the snapshots at two lines, of each machine on its own console.

Both ends run Neap, or Linux with Debian's NPtcp. NPtcp prints no line at the end that answers, so there only the other end has figures of a
size. With `Pairing.sizes` both systems are measured in the same way: two runs with different numbers of round trips, whose difference is
the cost of the further ones. A size's start and the console's work are in both runs, and cancel out.

The snapshots count each repetition of a string instruction, such as Linux's copies of 64 KiB, where a CPU counts one instruction. With
`Pairing.profile` the instructions are therefore those of the plugin's profile between two lines, which also gives their layers.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tools import build, machine, progress
from tools.bench.netpipe import GUEST_PORT, RESULT
from tools.bench.rows import aligned
from tools.errors import Failure, UsageError
from tools.foreign import parse_json, read_bounded, shown_lines
from tools.model import cpu_model, ending, layers, linux, linux_profile, plugin, profile
from tools.model.experiment import CORES_MAX, TIME_OUT_SECONDS, WORLD_RESULT, System
from tools.model.results import RESULT_BYTES_MAX
from tools.process import tail

RECEIVER, TRANSMITTER = "receiver", "transmitter"
ADDRESSES = {RECEIVER: "10.0.0.1", TRANSMITTER: "10.0.0.2"}
# The measurement's own words, where the command line has none: the studies' number of round trips, and sizes up to 64 KB.
USUAL_WORDS = {"repeats": "5000", "to": "64K", "perturbation": "0"}
# Words that the run gives to each machine itself.
OWN_WORDS = ("ip", "mode", "peer", "port", "wait")
# NetPIPE measures each size three times, and takes the fastest.
TRIALS = 3
VIRTUAL_LIMIT = "3600s"
# With `Pairing.sizes`: round trips of a trial in the shorter run, and of a size in the longer run beyond these.
SHORT_REPEATS = 50
MORE_REPEATS = 100
# NPtcp's options for the words of a sweep.
NPTCP_OPTIONS = {"from": "-l", "to": "-u", "repeats": "-n", "perturbation": "-p"}
NPTCP_RANGES = {"from": (1, 1 << 28), "to": (1, 1 << 28), "repeats": (1, 1_000_000), "perturbation": (0, 1 << 20)}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
PROFILE = "profile-%.txt"  # % is the number of the console's line
LINUX_FINISHED = "linux: NPtcp has finished"
# The receiver ends soon after the transmitter.
END_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Pairing:
    """The settings of a run. Equal settings and equal images give an equal result.

    network: the world's --network. arguments: words of both images' command lines: of the policy, and NetPIPE's own.
    sizes: the bytes of messages, powers of two, whose costs are measured by two runs. They replace NetPIPE's own words.
    repeats: with `sizes`, the round trips of a trial by which the runs differ.
    profile: the instructions are those of the profile, and they have layers. The run is the same, and takes longer.
    debian_13_kernel: of Linux, for the symbols of its profile.
    virtual_limit: the run's longest time.
    """

    model: str
    cores: int = 1
    memory: str = "512M"
    seed: int = 1
    network: str = ""
    arguments: Sequence[str] = ()
    sizes: Sequence[int] = ()
    repeats: int = MORE_REPEATS
    profile: bool = False
    debian_13_kernel: bool = False
    virtual_limit: str = VIRTUAL_LIMIT

    def check(self) -> None:
        """Raises UsageError for a setting that cannot be."""
        if self.model not in cpu_model.names() and not self.model.endswith(".toml"):
            raise UsageError(f"--model takes {', '.join(cpu_model.names())} or the path of a .toml file, not '{self.model}'")
        if not 1 <= self.cores <= CORES_MAX:
            raise UsageError(f"--model: a modelled machine has 1 to {CORES_MAX} cores, not {self.cores}")
        if not 0 <= self.seed < 1 << 64:
            raise UsageError(f"--seed takes a number from 0 to 2^64 - 1, not {self.seed}")
        for word in self.arguments:
            if (name := word.split("=")[0]) in OWN_WORDS:
                raise UsageError(f"{name}=: between two modelled machines the run itself chooses it", "leave the word out")

        if wrong := next((size for size in self.sizes if size < 2 or size & (size - 1)), None):
            raise UsageError(f"the size of a message is a power of two from 2 on, not {wrong}")
        if self.sizes and (own := next((word for word in self.arguments if word.split("=")[0] in NPTCP_OPTIONS), None)):
            raise UsageError(f"{own}: the sizes and the repeats are given beside the words", "leave the word out")
        if self.repeats < 1:
            raise UsageError(f"a size is measured by 1 round trip or more, not {self.repeats}")

    def sweep(self, repeats: int) -> Pairing:
        """The run that measures `sizes`, without them. It begins with a smaller size, because no line marks the first one's start."""
        words = [f"from={min(self.sizes) // 2}", f"to={max(self.sizes)}", f"repeats={repeats}", "perturbation=0"]
        return dataclasses.replace(self, sizes=(), arguments=[*words, *self.arguments])

    def words(self, role: str, system: System) -> list[str]:
        """The words of one machine's command line. Raises UsageError for words that Linux does not have."""
        given = {word.split("=")[0] for word in self.arguments}
        words = [*(f"{name}={value}" for name, value in USUAL_WORDS.items() if name not in given), *self.arguments]
        if system.is_linux:
            return self._linux_words(role, words)
        own = [f"ip={ADDRESSES[role]}/24"]
        if role == TRANSMITTER:
            own += ["mode=client", f"peer={ADDRESSES[RECEIVER]}:{GUEST_PORT}", "wait=30s"]
        return [*own, *words]

    def has_profile(self, role: str, system: System) -> bool:
        """Only of a machine that prints results. The receiver's NPtcp prints none."""
        return self.profile and (role == TRANSMITTER or not system.is_linux)

    def _linux_words(self, role: str, words: Sequence[str]) -> list[str]:
        options: list[str] = []
        settings: list[str] = []
        for word in words:
            name, _, value = word.partition("=")
            if name in NPTCP_OPTIONS:
                options += [NPTCP_OPTIONS[name], str(_number(name, value))]
            else:
                settings.append(word)
        run = [f"neap.run={role}", f"neap.peer={ADDRESSES[RECEIVER]}", f"neap.netpipe={','.join(options)}"]
        return linux.kernel_words(f"{ADDRESSES[role]}/24", settings, run)


def _number(name: str, text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})([KM]?)", text)
    low, high = NPTCP_RANGES[name]
    value = int(match[1]) * UNITS[match[2]] if match else -1
    if not low <= value <= high:
        raise UsageError(f"{name}= takes a number from {low} to {high}, K and M allowed, not '{text}'")
    return value


@dataclasses.dataclass(frozen=True)
class Spent:
    """One machine from one size's line to the next. `card_wakeups`: those by an interrupt of the card. `layers`: instructions by layer
    (layers.py), empty without a profile. In a difference of two runs, a layer can be negative by some instructions."""

    seconds: float
    package_j: float
    wakeups: int
    card_wakeups: int
    instructions: int
    layers: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __sub__(self, other: Spent) -> Spent:
        names = [field.name for field in dataclasses.fields(self) if field.name != "layers"]
        numbers = {name: getattr(self, name) - getattr(other, name) for name in names}
        of_layers = {name: self.layers.get(name, 0) - other.layers.get(name, 0) for name in {**self.layers, **other.layers}}
        return Spent(**numbers, layers=of_layers)

    @property
    def watts(self) -> float:
        return self.package_j / self.seconds


@dataclasses.dataclass(frozen=True)
class Point:
    """One size. `latency_us`: one way, of the fastest trial. `mbps`: in NetPIPE's unit, 2^20 bit/s. `spent`: by role; empty for the first
    size, because no line of the receiver marks its start. With Linux it has the transmitter only. `spent` is of `TRIALS * repeats` round
    trips."""

    size: int
    repeats: int
    latency_us: float
    mbps: float
    spent: dict[str, Spent]

    @property
    def uj_per_round_trip(self) -> float | None:
        """Of both machines, over all trials of this size."""
        return 1e6 * sum(spent.package_j for spent in self.spent.values()) / (TRIALS * self.repeats) if self.spent else None


@dataclasses.dataclass(frozen=True)
class Result:
    points: list[Point]
    world: dict[str, Any]
    digest: str


class Paired(Protocol):
    """The facts of a run that both machines need."""

    @property
    def model(self) -> str: ...
    @property
    def cores(self) -> int: ...
    @property
    def memory(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def network(self) -> str: ...
    @property
    def virtual_limit(self) -> str: ...
    def words(self, role: str, system: System) -> list[str]: ...
    def has_profile(self, role: str, system: System) -> bool: ...


class PairedMachine(machine.Machine):
    """A Machine whose card is in a world of two. `first`: the machine that started the world; None for that machine itself. peer_free: the
    second machine's driver may break rules of the card's, since it is not Neap's."""

    card_ready = b"neap-world: ready"

    def __init__(
        self,
        system: System,
        wanted: Paired,
        role: str,
        out: Path,
        first: PairedMachine | None,
        on_line: Callable[[str], None],
        peer_free: bool = False,
    ):
        self._peer_free = peer_free
        self._wanted = wanted
        self._out = out
        self._profile = out / PROFILE if wanted.has_profile(role, system) else None
        self._first = first
        self._world_tried, self._world_started = threading.Event(), False
        self._cpu_model = cpu_model.load(wanted.model)
        super().__init__(
            system.kernel,
            initrd=system.initramfs,
            cores=wanted.cores,
            memory=wanted.memory,
            arguments=wanted.words(role, system),
            net="modelled",
            cpu=self._cpu_model.qemu_cpu(),
            one_thread=True,
            on_line=on_line,
            soft_card=build.WORLD,
        )

    def start_card(self) -> None:
        assert self.directory
        if self._first is None:
            self.card_options = [
                *("--driven", str(self.directory / "link"), "--seed", str(self._wanted.seed), "--network", self._wanted.network),
                *("--peer-driven", str(self.directory / "peer-link"), "--peer-socket-path", str(self.directory / "peer-card")),
                *("--set-up-limit", self._wanted.virtual_limit, "--out", str(self._out / WORLD_RESULT)),
                *(["--peer-free"] if self._peer_free else []),
            ]
            try:
                super().start_card()
                self._world_started = True
            finally:
                self._world_tried.set()
        else:
            self._first._world_tried.wait(machine.CARD_START_SECONDS + 10)
            if not self._first._world_started or (there := self._first.directory) is None:
                raise Failure("the world of both machines did not start")
            for own, name in (("card", "peer-card"), ("link", "peer-link")):
                (self.directory / own).symlink_to(there / name)
        link = self.directory / "link"
        self.qemu_options = plugin.options(
            self._cpu_model, self._out, link=link, seed=self._wanted.seed, lines=True, profile=self._profile, moved_lines=False
        )

    def failed(self, message: str) -> machine.MachineError:
        """An error with the last lines of console, QEMU and world."""
        return self._error(message)

    def network_words(self) -> list[str]:
        """None: the network is in the world."""
        return []


def run(wanted: Pairing, image: Path | System, out: Path, on_line: Callable[[str, str], None] = lambda role, line: None) -> Result:
    """Runs NetPIPE once, or twice for `wanted.sizes`. `out` MUST be an empty folder. `on_line`: called with the role and each line of a
    console. Raises Failure, and UsageError for words that Linux does not have."""
    system = image if isinstance(image, System) else System(image)
    if not wanted.sizes:
        return _run(wanted, system, out, on_line)
    wanted.check()
    found = []
    for name, repeats in (("short", SHORT_REPEATS), ("long", SHORT_REPEATS + wanted.repeats)):
        (out / name).mkdir()
        found.append(_run(wanted.sweep(repeats), system, out / name, on_line, wanted.sizes))
    return difference(*found, wanted)


def difference(short: Result, long: Result, wanted: Pairing) -> Result:
    """The cost of `wanted.repeats` round trips a trial, from a run with them and one without. Latency is that of the longer run. Raises
    Failure if a size is missing."""
    shorter = {point.size: point for point in short.points}
    longer = {point.size: point for point in long.points}
    if missing := [size for size in wanted.sizes if size not in shorter or size not in longer]:
        raise Failure(f"NetPIPE did not measure {missing} bytes")
    points = []
    for size in wanted.sizes:
        after, before = longer[size].spent, shorter[size].spent
        spent = {role: after[role] - before[role] for role in after if role in before}
        points.append(dataclasses.replace(longer[size], repeats=wanted.repeats, spent=spent))
    return Result(points, long.world, f"{short.digest}-{long.digest}")


def _run(
    wanted: Pairing, system: System, out: Path, on_line: Callable[[str, str], None], profiled_sizes: Sequence[int] | None = None
) -> Result:
    """profiled_sizes: those that have layers with `wanted.profile`; None: all. To find the layers of a size takes the host a while."""
    folders = {role: out / role for role in ADDRESSES}
    for folder in folders.values():
        folder.mkdir()
    first = PairedMachine(system, wanted, RECEIVER, folders[RECEIVER], None, functools.partial(on_line, RECEIVER))
    second = PairedMachine(system, wanted, TRANSMITTER, folders[TRANSMITTER], first, functools.partial(on_line, TRANSMITTER))
    machines = {RECEIVER: first, TRANSMITTER: second}
    with contextlib.ExitStack() as stack:
        for one in machines.values():
            stack.callback(one.stop)
        start_all(list(machines.values()))
        for role in (TRANSMITTER, RECEIVER):
            _wait(machines[role], role, system, machines[RECEIVER])
        world = world_result(out / RECEIVER / WORLD_RESULT, machines[RECEIVER])
        lines = {role: one.lines for role, one in machines.items() if role == TRANSMITTER or not system.is_linux}
    profiles = {role: Profiles(folders[role], system, lines[role], wanted, profiled_sizes) for role in lines if wanted.profile}
    return merge(lines, {role: plugin.snapshots(folder) for role, folder in folders.items()}, world, profiles)


def start_all(machines: Sequence[PairedMachine]) -> None:
    """Starts the machines of a pair, the one with the world first."""
    # Beside each other: the first one's QEMU answers nothing while its CPUs wait for the second machine.
    with concurrent.futures.ThreadPoolExecutor(len(machines)) as pool:
        for begun in [pool.submit(one.start) for one in machines]:
            begun.result()


def _wait(one: PairedMachine, role: str, system: System, world: PairedMachine) -> None:
    """Waits for a machine's end. Raises Failure with the reason. `world`: the machine that started the world."""
    status = one.wait_exit(TIME_OUT_SECONDS if role == TRANSMITTER else END_SECONDS)
    # The receiver serves until the transmitter leaves. Linux powers off after a failure, too, so the transmitter's last line counts.
    if role == RECEIVER:
        good = status == machine.POWER_OFF
    else:
        good = status == machine.POWER_OFF and LINUX_FINISHED in one.lines if system.is_linux else status == machine.SUCCESS
    if not good:
        logs = [each.directory / name for each, name in ((one, "qemu.log"), (world, "card.log")) if each.directory]
        said = ending.reason(status, one.lines, [line for log in logs for line in tail(log)])
        raise one.failed(f"NetPIPE's {role} ended early: {said or f'status {status}, without a word'}")


def world_result(path: Path, first: PairedMachine) -> dict[str, Any]:
    """The world's result. It is written when both machines have left."""
    card = first._card_process
    assert card
    if not machine.wait_unreaped(card, 20) or card.wait() != 0:
        raise Failure("the world of both machines did not end in order")
    try:
        return parse_json(read_bounded(path, RESULT_BYTES_MAX))
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: {error}") from None


class Profiles:
    """The profiles of one machine, in `folder`. `console`: all its lines, which on Linux have the addresses of modules and of NPtcp."""

    def __init__(self, folder: Path, system: System, console: Sequence[str], wanted: Pairing, sizes: Sequence[int] | None):
        self._folder, self._system, self._sizes = folder, system, sizes
        self._symbols = linux_profile.symbols(console, wanted.debian_13_kernel) if system.is_linux else None

    def layers(self, size: int, lines: Iterable[int]) -> Counter[str] | None:
        """The instructions by layer of these lines of the console, from 1. None for a size that is not wanted. Raises Failure if a line has
        no profile."""
        if self._sizes is not None and size not in self._sizes:
            return None
        found: Counter[str] = Counter()
        for line in lines:
            file = self._folder / PROFILE.replace("%", str(line))
            if self._symbols:
                found += linux_profile.layers(file, self._symbols)
            else:
                found += layers.of_neap(profile.read(file, self._system.kernel))
        return found


def merge(
    lines: dict[str, list[str]],
    snapshots: dict[str, list[dict[str, Any]]],
    world: dict[str, Any],
    profiles: Mapping[str, Profiles] | None = None,
) -> Result:
    """Joins the lines of each console with the snapshots at their ends, and with the profiles between them. `lines`: of the machines that
    print results. Raises Failure if lines and snapshots are not of the same run."""
    found: dict[str, list[tuple[re.Match[str], Spent | None]]] = {}
    for role, printed in lines.items():
        at = {one["mark"]: one for one in snapshots[role] if one["event"] == "line"}
        if len(at) != len(printed):
            raise Failure(f"{role}: there are {len(at)} snapshots of {len(printed)} lines")
        numbers = [(number, match) for number, line in enumerate(printed, 1) if (match := RESULT.match(line)) and match["us"]]
        found[role] = [(match, None) for _, match in numbers[:1]]
        for (before, _), (number, match) in itertools.pairwise(numbers):
            spent = _difference(at[before], at[number])
            by_layer = profiles[role].layers(int(match["bytes"]), range(before + 1, number + 1)) if profiles else None
            if by_layer is not None:
                spent = dataclasses.replace(spent, instructions=by_layer.total(), layers=dict(by_layer))
            found[role].append((match, spent))
    sizes = {role: [match["bytes"] for match, _ in measured] for role, measured in found.items()}
    if not sizes[TRANSMITTER] or any(others != sizes[TRANSMITTER] for others in sizes.values()):
        raise Failure(f"the machines measured {' and '.join(str(len(one)) for one in sizes.values())} sizes")
    points = []
    for number, (match, _) in enumerate(found[TRANSMITTER]):
        both = {role: spent for role in found if (spent := found[role][number][1])}
        points.append(Point(int(match["bytes"]), int(match["repeats"]), float(match["us"]), float(match["rate"]), both))
    digests = [one["digest"] for one in world["machines"]] + [snapshots[role][-1]["digest"] for role in ADDRESSES]
    return Result(points, world, "-".join(digests))


def _difference(before: dict[str, Any], after: dict[str, Any]) -> Spent:
    def more(count: Callable[[dict[str, Any]], int]) -> int:
        return sum(map(count, after["cpus"])) - sum(map(count, before["cpus"]))

    return Spent(
        seconds=(after["virtual_ns"] - before["virtual_ns"]) / 1e9,
        package_j=after["package_j"] - before["package_j"],
        wakeups=more(lambda cpu: cpu["wakeups"]),
        card_wakeups=more(lambda cpu: cpu["wakeups_by"]["card"]),
        instructions=more(lambda cpu: cpu["instructions"]),
    )


def table(result: Result, title: str) -> str:
    cells = [("bytes", "round trips", "us one way", "Mb/s", "transmitter W", "receiver W", "uJ a round trip", "wake-ups", "")]
    for point in result.points:
        energy = ["-"] * 4
        if point.spent:
            watts = [f"{point.spent[role].watts:.2f}" if role in point.spent else "-" for role in (TRANSMITTER, RECEIVER)]
            energy = [*watts, f"{point.uj_per_round_trip:.2f}", str(sum(spent.wakeups for spent in point.spent.values()))]
        cells.append((str(point.size), f"{TRIALS} x {point.repeats}", f"{point.latency_us:.2f}", f"{point.mbps:.2f}", *energy, ""))
    return f"{title}\n{aligned(cells)}"


def show(wanted: Pairing, image: Path) -> int:
    """Runs NetPIPE once and prints it. Returns the launcher's exit status."""

    def on_line(role: str, line: str) -> None:
        progress.say(f"{role:11} | {shown_lines(line)}")

    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        result = run(wanted, image, Path(scratch), on_line)
    cores = f"{wanted.cores} core{'s' * (wanted.cores != 1)}"
    print(table(result, f"modelled ({wanted.model}, {cores} each, seed {wanted.seed}): NetPIPE between two machines, virtual time"))
    print(f"lost frames {sum(sum(one['losses'].values()) for one in result.world['machines'])}; digest {result.digest}")
    return 0
