# SPDX-License-Identifier: BSL-1.0
"""`./neap run APP`: from a checkout, or an application's own folder, to an application that answers on 127.0.0.1.

Whatever can be refused is refused before anything is built. What is missing is then made in two lanes side by side: the image with
the compiler and sources that it needs, and the machine to run it on (QEMU, the soft card). The console is shown as it comes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tools import build, debugger, load, machine, outside, packages, process, progress, qemu, toolchain, trace, vfio
from tools.errors import EXIT_FAILURE, Failure, UsageError
from tools.foreign import shown_lines
from tools.running import CONTROL_PORT

# host port -> guest port, where the user names none for that guest port.
DEFAULT_FORWARDS = {"memcached": ((11211, 11211),), "netpipe": ((5003, 5003),)}
# Applications without a network, so without a control server.
WITHOUT_CONTROL = ("hello",)
# What the load generator can speak with.
LOADABLE = ("memcached",)
MAX_CORES = 256
MEMORY = re.compile(r"[1-9][0-9]{0,6}[MG]")


@dataclasses.dataclass
class Options:
    """What the command line of `run` says."""

    application: str
    cores: int = 1
    memory: str = "512M"
    forwards: Sequence[str] = ()
    arguments: Sequence[str] = ()
    debug: bool = False
    accelerator: str | None = None
    vfio: str | None = None
    debugger: bool = False
    trace: int | None = None
    load: load.Offer | None = None


def run(options: Options) -> int:
    """Runs an application until it ends, a load on it is over, or we are interrupted; gives the launcher's exit status."""
    folder = outside.folder(options.application)
    if folder is None:
        build.require_application(options.application)
    if not 1 <= options.cores <= MAX_CORES:
        raise UsageError(f"--cores takes 1 to {MAX_CORES}, not {options.cores}")
    if not MEMORY.fullmatch(options.memory):
        raise UsageError(f"--memory takes a size like 512M or 2G, not '{options.memory}'")
    if options.load is not None:
        options.load.check()
        if folder is None and options.application not in LOADABLE:
            raise UsageError(f"--load: {options.application} is no memcached", f"applications that are: {', '.join(LOADABLE)}")
        if options.debugger:
            raise UsageError("--load and --gdb: a machine that waits for a debugger answers nobody", "leave one of them out")
        if options.vfio is not None:
            raise UsageError("--load: no port of this host leads to a real card", "./neap load HOST:PORT, from a machine on its network")
    if options.vfio is not None and options.forwards:
        raise UsageError("--forward: no port of this host leads to a real card", "its clients reach it over its own cable")
    card = vfio.require_card(options.vfio, options.memory, options.accelerator or "kvm") if options.vfio is not None else None
    accelerator = choose_accelerator(options.accelerator or ("kvm" if card else "tcg"))
    forwards = [] if card else choose_forwards(options.application if folder is None else "", options.forwards)
    require_free_ports(forwards)

    if options.trace is not None:
        require_traceable(options.trace, options.cores, options.arguments)
        if accelerator != "tcg":
            raise UsageError("--trace watches emulated cores", "leave --accel and --vfio out")
    if options.debugger:
        debugger.require()
    require_build_packages()
    try:
        return _run_on(options, folder, card, accelerator, forwards)
    except machine.AcceleratorError as error:
        if options.accelerator != "auto":
            raise
        progress.say(f"neap: {error.message}; starting over with emulated cores (tcg)")
    return _run_on(options, folder, card, "tcg", forwards)


def _run_on(options: Options, folder: Path | None, card: vfio.Card | None, accelerator: str, forwards: Sequence[tuple[int, int]]) -> int:
    """One machine, from the building of its image to its end."""
    forwards = list(forwards)
    preset = "image-debug" if options.debug else "image"
    with contextlib.ExitStack() as running:
        # Held until QEMU has read the image: after that, another neap may build over it.
        with _built(options.application, folder, preset, card is None, options.load is not None) as application:
            served = control_port(application.name, options.arguments)
            named = [guest for _, guest in forwards]
            if card is None:
                forwards += [(port, port) for port in application.ports if port not in named]
                require_free_ports(forwards)
                forwards += control_forward(served, forwards)
            console = Console(application.name, forwards)
            qemu_options = list(card.qemu_options() if card else ())
            if options.trace is not None:
                qemu_options += running.enter_context(trace.tracing(application.image, options.trace))
            vm = machine.Machine(
                application.image,
                cores=options.cores,
                memory=options.memory,
                forward=forwards,
                arguments=options.arguments,
                card=card is None,
                outside=True,
                accelerator=accelerator,
                qemu_options=qemu_options,
                debugger=options.debugger,
                on_line=console.show,
            )
            if card:
                vfio.say_limits(card)
            console.stop_machine_with = vm.stop
            running.enter_context(vm)
            vm.describe(application.name, served)
            if options.debugger:
                debugger.debug(application.image, vm.debugger_socket)
                return 0
        if options.load is not None:
            return load.offer(options.load, vm, application.name, served)
        return guest_status(vm.wait_exit(None))


@contextlib.contextmanager
def _built(name: str, folder: Path | None, preset: str, soft_card: bool, loaded: bool) -> Iterator[outside.Application]:
    """The image, built, and the machine (and who loads it), prepared; nobody builds over the image within the `with`."""

    def prepare() -> None:
        (prepare_machine if soft_card else prepare_qemu)()
        if loaded:
            build.build_load()

    if folder is None:
        with build.building(preset):
            in_parallel([lambda: build.build_locked(preset, [f"{name}.elf"]), prepare])
            yield outside.Application(name, build.image(name, preset))
        return
    made: list[outside.Application] = []
    with contextlib.ExitStack() as locks:
        in_parallel([lambda: made.append(locks.enter_context(outside.built(folder, preset))), prepare])
        yield made[0]


def choose_accelerator(wanted: str) -> str:
    """'auto' -> what this host has, said on the console; a host without KVM refuses 'kvm'."""
    if wanted == "tcg":
        return wanted
    problem = vfio.kvm_problem()
    if problem is None:
        if wanted == "auto":
            progress.say(
                "neap: KVM: the machine's cores are this CPU's own; an idle one keeps its host core to itself (MWAIT is the guest's)"
            )
        return "kvm"
    if wanted == "kvm":
        raise problem
    progress.say(f"neap: emulated cores (tcg): {problem.message}")
    return "tcg"


def require_build_packages() -> None:
    """The host packages for images and the machine; those for the toolchain only if it has to be built."""
    groups = ["build", "card", "rust"]
    if toolchain.find() is None:
        groups.append("toolchain")
    packages.require(*groups)


def prepare_qemu() -> None:
    progress.say(f"neap: QEMU {qemu.version_of(qemu.command())}")


def prepare_machine() -> None:
    """QEMU and the soft card."""
    prepare_qemu()
    build.build_soft_card()


def require_traceable(core: int, cores: int, arguments: Sequence[str]) -> None:
    """Raises UsageError unless core `core` of Neap's is the emulator's CPU of that number, which is what a trace watches."""
    for word in arguments:
        name, _, value = word.partition("=")
        if name != "cores":
            continue
        if not value.isdigit():
            raise UsageError(f"--trace takes the emulator's number of a core, and {word} numbers them anew", "leave one of the two out")
        cores = min(cores, int(value) or cores)  # the machine itself refuses 0
    if not 0 <= core < cores:
        raise UsageError(f"--trace takes a core from 0 to {cores - 1}, not {core}", "--cores N gives the machine more")


def choose_forwards(application: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """The ports to forward: the application's own, unless the user forwards that guest port elsewhere, and the user's."""
    named = [parse_forward(word) for word in words]
    guests = [guest for _, guest in named]
    forwards = [pair for pair in DEFAULT_FORWARDS.get(application, ()) if pair[1] not in guests] + named
    hosts = [host for host, _ in forwards]
    for host in hosts:
        if hosts.count(host) > 1:
            raise UsageError(f"--forward: port {host} is named twice")
    return forwards


def parse_forward(word: str) -> tuple[int, int]:
    """'8080:80' -> (8080, 80). Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,5}):([0-9]{1,5})", word)
    if not match or not all(1 <= int(part) <= 65535 for part in match.groups()):
        raise UsageError(f"--forward takes HOST:GUEST, two ports from 1 to 65535, not '{word}'")
    return int(match.group(1)), int(match.group(2))


def control_port(application: str, words: Sequence[str]) -> int | None:
    """The guest's port on which control is served, None if it is not: by the last `control=` among the image's words."""
    if application in WITHOUT_CONTROL:
        return None
    said = [word.removeprefix("control=") for word in words if word.startswith("control=")]
    if not said:
        return CONTROL_PORT
    # What the image will not understand it refuses itself.
    return int(said[-1]) if said[-1].isdecimal() and 1 <= int(said[-1]) <= 65535 else None


def control_forward(guest: int | None, forwards: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The forward of the control port, unless the user has one: the same port here if it is free, else some free one."""
    if guest is None or guest in [named for _, named in forwards]:
        return []
    taken = [host for host, _ in forwards]
    return [(guest if guest not in taken and machine.port_is_free(guest) else machine.free_port(), guest)]


def require_free_ports(forwards: Sequence[tuple[int, int]]) -> None:
    for host, guest in forwards:
        if not machine.port_is_free(host):
            raise Failure(
                f"port {host} on {machine.LOOPBACK} is in use or not allowed", f"choose another one: --forward {host + 1}:{guest}"
            )


def in_parallel(lanes: Sequence[Callable[[], object]]) -> None:
    """Runs callables side by side. The first one that fails stops the commands of the others, and its error is raised."""
    failures: list[BaseException] = []

    def run_lane(lane: Callable[[], object]) -> None:
        try:
            lane()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run_lane, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # in short pieces, so that an interrupt is seen, and a lane's next command too
            if failures:
                process.kill_running_groups()
    if failures:
        raise failures[0]


class Console:
    """Shows the machine's console on standard output, and says where the application answers once it listens.

    A line may quote what came over the network, so it is escaped.
    """

    def __init__(self, application: str, forwards: Sequence[tuple[int, int]]):
        self._listening = re.compile(rf"^({re.escape(application)}|control): listening on [^ ,]*:([0-9]{{1,5}})\b")
        self._forwards = {guest: host for host, guest in forwards}
        self.stop_machine_with: Callable[[], None] | None = None

    def show(self, line: str) -> None:
        try:
            sys.stdout.write(shown_lines(line) + "\n")
            sys.stdout.flush()
        except (BrokenPipeError, ValueError):
            # Whoever read our output has left; the machine has nobody to talk to.
            if self.stop_machine_with:
                threading.Thread(target=self.stop_machine_with, daemon=True).start()
            return
        if not (match := self._listening.match(line)) or not (host := self._forwards.get(int(match.group(2)))):
            return
        if match.group(1) == "control":
            progress.say(f"neap: control on {machine.LOOPBACK}:{host}")
        else:
            progress.say(f"neap: answers on {machine.LOOPBACK}:{host} (Ctrl-C ends it)")


def guest_status(code: int) -> int:
    """The launcher's exit status for a guest's end: 0 for success and power-off, the guest's own code for its failures."""
    if code in (machine.SUCCESS, machine.POWER_OFF):
        return 0
    if code == machine.RESET:
        progress.say("neap: the machine was reset: a reboot, or a fault that its kernel could not handle")
        return EXIT_FAILURE
    return code
