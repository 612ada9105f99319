# SPDX-License-Identifier: BSL-1.0
"""`./neap run APP`: builds an application of this checkout or of another folder, and runs it so that it answers on 127.0.0.1.

All errors in the command line are reported before anything is built. Then two threads run in parallel. One thread builds the image, with
the compiler and sources that the image needs. The other thread prepares the machine (QEMU, the soft card). The console is shown as it
arrives.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tools import (
    build,
    debugger,
    emulated_cpu,
    installed,
    load,
    machine,
    machine_words,
    outside,
    packages,
    process,
    progress,
    qemu,
    toolchain,
    trace,
    vfio,
    web_archive,
)
from tools.errors import EXIT_FAILURE, Failure, UsageError
from tools.foreign import shown_lines
from tools.machine_registry import CONTROL_PORT

# Default forwards: pairs of host port and guest port. A user's forward of the same guest port replaces the pair.
DEFAULT_FORWARDS = {
    "memcached": ((11211, 11211),),
    "netpipe": ((5003, 5003),),
    "counters": ((7008, 7008),),
    "tpcc": ((11211, 11211),),
    "webserver": ((8080, 8080),),
}
# Applications that have no network and therefore no control server.
WITHOUT_CONTROL = ("hello",)
# Applications whose protocol the load generator supports.
LOADABLE = tuple(load.PRESETS)
# Applications that --model runs on two modelled machines, one as the peer of the other.
PAIRED = ("netpipe",)
# Applications that --model runs on one modelled machine without a card or clients.
ALONE = ("wakeup",)
CORES_MAX = 256
# Bounds of --slow. With 10000, an image's link was up after 52 s; with 1000, after 6 s.
SLOW_MIN, SLOW_MAX = 2, 1000
MEMORY = re.compile(r"[1-9][0-9]{0,6}[MG]")


@dataclasses.dataclass
class Options:
    application: str
    cores: int = 1
    memory: str = "512M"
    forwards: Sequence[str] = ()
    arguments: Sequence[str] = ()
    debug: bool = False
    accelerator: str | None = None
    cpu: str | None = None
    card: str | None = None
    tap: str | None = None
    slow: int | None = None
    card_model: str | None = None
    vfio: str | None = None
    debugger: bool = False
    trace: int | None = None
    load: load.Offer | None = None
    model: str | None = None
    seed: int | None = None
    smt: bool = False
    record: str | None = None
    faults: Sequence[str] = ()
    script: str | None = None


def run(options: Options) -> int:
    """Runs an application until it ends, its load ends, or the user interrupts it. Returns the launcher's exit status."""
    from tools.model import linux

    folder = outside.folder(options.application)
    is_linux = folder is None and options.application in linux.APPLICATIONS
    if is_linux and options.model is None:
        raise UsageError(f"{options.application} runs on the model machine only", "--model e5-2690 --load etc --rate 25000")
    if folder is None and not is_linux:
        build.require_application(options.application)
    if not 1 <= options.cores <= CORES_MAX:
        raise UsageError(f"--cores takes 1 to {CORES_MAX}, not {options.cores}")
    if not MEMORY.fullmatch(options.memory):
        raise UsageError(f"--memory takes a size like 512M or 2G, not '{options.memory}'")
    if options.load is not None:
        if folder is None and not is_linux and options.application not in LOADABLE:
            known = f"{', '.join(LOADABLE[:-1])} and {LOADABLE[-1]}"
            raise UsageError(f"--load: only {known} accept it, {options.application} does not")
        options.load.check(None if folder else "memcached" if is_linux else options.application)
        if options.debugger:
            raise UsageError("--load and --gdb: a machine that waits for a debugger does not answer", "leave one of them out")
        if options.vfio is not None:
            raise UsageError("--load: no port of this host leads to a real card", "./neap load HOST:PORT, from a machine on its network")
    with web_archive.modules(options.application, options.script) as modules:
        if options.model is not None:
            return _run_modelled(options, folder, modules)
        return _run_in_real_time(options, folder, modules)


def _run_in_real_time(options: Options, folder: Path | None, modules: Sequence[Path]) -> int:
    """Checks the options of a machine in real time, and runs it."""
    if (options.card, options.card_model, options.vfio) == (None, None, None) and machine.usual_card() != machine.DEFAULT_CARD:
        options = dataclasses.replace(options, card=machine.usual_card())
    for name, given in (("--record", options.record is not None), ("--fault", bool(options.faults)), ("--smt", options.smt)):
        if given:
            raise UsageError(f"{name} belongs to --model", "./neap run memcached --model e5-2690 --load etc --rate 100000")
    if options.seed is not None:
        raise UsageError("--seed belongs to --model", "./neap run memcached --model e5-2690 --load etc --rate 100000 --seed 2")
    if options.cpu is not None and (options.vfio is not None or (options.accelerator or "tcg") != "tcg"):
        raise UsageError("--cpu is for emulated cores: with KVM the machine has this host's CPU", "leave --accel and --vfio out")
    if options.slow is not None:
        require_slow(options.slow, options.vfio, options.card)
    require_card_words(options)
    if options.vfio is not None and options.forwards:
        raise UsageError("--forward: no port of this host leads to a real card", "its clients reach it over its own cable")
    card = vfio.require_card(options.vfio, options.memory, options.accelerator or "kvm") if options.vfio is not None else None
    accelerator = choose_accelerator(options.accelerator or ("kvm" if card else "tcg"))
    forwards = [] if card or options.tap else choose_forwards(options.application if folder is None else "", options.forwards)
    require_free_ports(forwards)

    if options.trace is not None:
        require_traceable(options.trace, options.cores, options.arguments)
        if accelerator != "tcg":
            raise UsageError("--trace watches emulated cores", "leave --accel and --vfio out")
    if options.debugger:
        debugger.require()
    if options.cpu is not None:
        emulated_cpu.require(options.cpu, machine_qemu(options))
    with_rust = options.load is not None or (card is None and options.card != "virtio")
    require_build_packages(with_rust=with_rust, with_images=folder is not None or options.trace is not None or options.debugger)
    try:
        return _run_on(options, folder, card, accelerator, forwards, modules)
    except machine.AcceleratorError as error:
        if options.accelerator != "auto":
            raise
        progress.say(f"neap: {error.message}; starting over with emulated cores (tcg)")
    return _run_on(options, folder, card, "tcg", forwards, modules)


def _run_modelled(options: Options, folder: Path | None, modules: Sequence[Path]) -> int:
    """Runs an application on one modelled machine or two (tools/model). Prints the figures, and writes a load's to --load-out's folder."""
    from tools.model import cpu_model, experiment, linux, pair, plugin, record, wakeup

    paired = options.load is None and options.application in PAIRED
    alone = options.load is None and folder is None and options.application in ALONE
    if options.load is None and not paired and not alone:
        raise UsageError("--model needs --load, because its virtual time has no users", "--load etc --rate 100000")
    if options.cpu is not None:
        raise UsageError(
            f"--model and --cpu: the modelled {options.model} has a CPUID of its own, and figures for no other CPU",
            "leave --cpu out, or --model for a machine without modelled figures",
        )
    if options.card is not None or options.card_model is not None:
        word = "--card" if options.card is not None else "--card-model"
        raise UsageError(f"--model and {word}: the model machine's card is the soft 82599", f"leave {word} out")
    if options.slow is not None:
        raise UsageError("--model and --slow: the model machine's card and CPU share one virtual clock", "leave --slow out")
    given = (options.forwards, options.accelerator, options.vfio, options.debugger, options.trace is not None)
    names = ("--forward", "--accel", "--vfio", "--gdb", "--trace")
    if wrong := [name for name, is_given in zip(names, given, strict=True) if is_given]:
        raise UsageError(f"--model: {wrong[0]} is for machines in real time", "leave one of them out")
    seed = 1 if options.seed is None else options.seed

    def prepare() -> None:
        plugin.library()
        build.build_world()

    if paired:
        if options.faults or options.record is not None:
            raise UsageError("--fault and --record are for --load, not for two machines", "leave them out: equal seeds give equal runs")
        pairing = pair.Pairing(options.model, cores=options.cores, memory=options.memory, seed=seed, arguments=options.arguments)
        pairing.check()
        require_build_packages(with_images=folder is not None)
        with _built(options.application, folder, "image-debug" if options.debug else "image", prepare) as application:
            return pair.show(pairing, application.image)
    if alone:
        if options.faults or options.record is not None:
            raise UsageError("--fault and --record are for --load, wakeup has no card", "leave them out: equal seeds give equal runs")
        sleeping = wakeup.Wakeup(options.model, options.cores, options.memory, seed, options.smt, options.arguments)
        sleeping.check()
        require_build_packages()
        with _built(options.application, folder, "image-debug" if options.debug else "image", plugin.library) as application:
            return wakeup.show(sleeping, application.image)
    wanted = experiment.Experiment(
        model=options.model,
        load=options.load.preset,
        protocol=options.load.protocol,
        rate=options.load.rate,
        window_ms=options.load.seconds * 1e3,
        cores=options.cores,
        memory=options.memory,
        seed=seed,
        smt=options.smt,
        arguments=options.arguments,
        faults=options.faults,
    )
    wanted.check()
    is_linux = folder is None and options.application in linux.APPLICATIONS
    if is_linux:
        linux.check(options.arguments, cpu_model.load(options.model))
    out = options.load.out
    if options.record is not None:
        if modules:
            raise UsageError("--record keeps no script", "leave --script out, or --record: equal settings and seeds give equal runs")
        if is_linux:
            raise UsageError("--record is for Neap's images, not for Linux", "leave --record out: equal settings and seeds give equal runs")
        if out is not None:
            raise UsageError("--record and --load-out: a record has the figures too", "leave --load-out out")
        out = Path(options.record)
        record.require_new(out)
    require_build_packages(with_images=folder is not None or is_linux)
    if is_linux:
        prepare()
        system = experiment.System(*linux.image(linux.APPLICATIONS[options.application]))
        return experiment.show(wanted, options.application, system, options.load.out)
    with _built(options.application, folder, "image-debug" if options.debug else "image", prepare) as application:
        system = experiment.System(application.image, modules=modules) if modules else application.image
        return experiment.show(wanted, application.name, system, out, as_record=options.record is not None)


def _run_on(
    options: Options,
    folder: Path | None,
    card: vfio.Card | None,
    accelerator: str,
    forwards: Sequence[tuple[int, int]],
    modules: Sequence[Path],
) -> int:
    """Runs one machine, from the build of its image to the machine's end."""
    forwards = list(forwards)
    preset = "image-debug" if options.debug else "image"

    def prepare() -> None:
        progress.say(f"neap: QEMU {qemu.version_of(machine_qemu(options))}")
        if card is None and options.card != "virtio":
            build.build_soft_card()
        if options.load is not None:
            build.build_load()

    with contextlib.ExitStack() as running:
        # The lock is held until QEMU has read the image. After that, another neap may replace the image.
        with _built(options.application, folder, preset, prepare) as application:
            served = control_port(application.name, options.arguments)
            named = [guest for _, guest in forwards]
            if card is None and options.tap is None:
                forwards += [(port, port) for port in application.ports if port not in named]
                require_free_ports(forwards)
                forwards += control_forward(served, forwards)
            console = Console(application.name, forwards)
            qemu_options = list(card.qemu_options() if card else ())
            if options.trace is not None:
                qemu_options += running.enter_context(trace.tracing(application.image, options.trace))
            if options.slow is not None:
                progress.say(slow_line(options.slow))
            vm = machine.Machine(
                application.image,
                cores=options.cores,
                memory=options.memory,
                forward=forwards,
                arguments=[*options.arguments, *slow_words(options.slow)],
                card=card is None,
                card_kind=options.card or machine.DEFAULT_CARD,
                net=f"tap:{options.tap}" if options.tap else "user",
                card_options=soft_card_words(options),
                outside=True,
                accelerator=accelerator,
                cpu=options.cpu or emulated_cpu.DEFAULT,
                qemu_options=qemu_options,
                modules=modules,
                debugger=options.debugger,
                on_line=console.show,
            )
            if card:
                vfio.report_limits(card)
            console.stop_machine_with = vm.stop
            running.enter_context(vm)
            if options.cpu is not None:
                emulated_cpu.report_lacking(options.cpu, vm.qemu_log)
            vm.describe(application.name, served)
            if options.debugger:
                debugger.debug(application.image, vm.debugger_socket)
                return 0
        if options.load is not None:
            return load.offer(options.load, vm, application.name, served)
        return guest_status(vm.wait_exit(None))


@contextlib.contextmanager
def _built(name: str, folder: Path | None, preset: str, prepare: Callable[[], None]) -> Iterator[outside.Application]:
    """Builds the image, and runs `prepare` in parallel. Inside the `with` block, no other `./neap` replaces the image."""
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
    """Resolves 'auto' to the accelerator of this host, and reports it. Raises Failure for 'kvm' on a host without KVM."""
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


def require_build_packages(*, with_rust: bool = True, with_images: bool = False) -> None:
    """Makes sure that the host packages for images and (if it must be built) for the toolchain are installed. `with_rust`: also those for
    the programs in Rust, which are the soft card, the model machine's world and the load generator. An installed Neap has all of these
    products. `with_images`: images that it lacks are wanted, or their symbols, so MovesToCopy is raised there."""
    if installed.release() and not with_images:
        return
    groups = ["build", "card", "rust"] if with_rust and not build.has_programs() else ["build"]
    if toolchain.must_be_built():
        groups.append("toolchain")
    packages.require(*groups)


def require_traceable(core: int, cores: int, arguments: Sequence[str]) -> None:
    """Raises UsageError unless Neap's core `core` is the emulated CPU of the same number, because a trace records an emulated CPU."""
    for word in arguments:
        name, _, value = word.partition("=")
        if name != "cores":
            continue
        if not value.isdigit():
            raise UsageError(f"--trace takes the emulator's number of a core, and {word} numbers them anew", "leave one of the two out")
        cores = min(cores, int(value) or cores)  # the machine itself refuses 0
    if not 0 <= core < cores:
        raise UsageError(f"--trace takes a core from 0 to {cores - 1}, not {core}", "--cores N gives the machine more")


def machine_qemu(options: Options) -> tuple[str, ...]:
    """Returns the start of QEMU's command line. Only the soft card and the plugin for `--trace` need a QEMU of their own."""
    return qemu.plain_command() if options.card == "virtio" and options.trace is None else qemu.command()


def require_card_words(options: Options) -> None:
    """Raises UsageError for words that the chosen card does not have."""
    if options.card is not None and options.vfio is not None:
        raise UsageError("--card and --vfio name two cards", "leave one of them out")
    if options.card_model is not None and options.vfio is not None:
        raise UsageError("--card-model is for the soft card: a real card is the model that it is", "leave --card-model or --vfio out")
    if options.card_model is not None and options.card == "virtio":
        raise UsageError("--card-model is for the soft card, and virtio has no models", "leave --card-model or --card out")
    if options.tap is None:
        return
    if options.card != "virtio":
        raise UsageError("--tap is for a virtio card", "--card virtio --tap NAME")
    if options.forwards or options.load is not None:
        raise UsageError("--tap: no port of 127.0.0.1 leads to a machine on a tap device", "its clients use its own address")
    machine_words.tap_has_queues(options.tap)


def require_slow(slow: int, address: str | None, card: str | None = None) -> None:
    """Raises UsageError unless the soft card can run `slow` times slower."""
    if not SLOW_MIN <= slow <= SLOW_MAX:
        raise UsageError(f"--slow takes {SLOW_MIN} to {SLOW_MAX}, not {slow}", "--slow 100 makes an interval of 16 us last 1.6 ms")
    if card == "virtio":
        raise UsageError("--slow is for the soft card: QEMU's own card has no moderation", "leave one of --slow and --card out")
    if address is not None:
        raise UsageError("--slow is for the soft card: a real card has a clock of its own", "leave one of --slow and --vfio out")


def soft_card_words(options: Options) -> list[str]:
    """Returns the options of the soft card's program."""
    words = [] if options.slow is None else slow_card(options.slow)
    return words if options.card_model is None else [*words, "--model", options.card_model]


def slow_card(slow: int) -> list[str]:
    """Returns the soft card's options for a clock that is `slow` times slower."""
    return ["--time-scale", repr(1 / slow)]


def slow_words(slow: int | None) -> list[str]:
    """Returns the word of the command line by which the image learns of the slow clock, for its logs."""
    return [] if slow is None else [f"slow={slow}"]


def slow_line(slow: int) -> str:
    """Returns the line that says at the start what the slow clock does to the run's figures."""
    return (
        f"neap: --slow {slow}: the card's clock is {slow} times slower than the CPU's; itr=16us lasts {16 * slow / 1000:g} ms. "
        "The log's header records this."
    )


def choose_forwards(application: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the ports to forward: the user's, and the application's defaults for guest ports that the user does not forward."""
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
    """Returns the guest's control port, from the last `control=` in the image's command line; None if control is off."""
    if application in WITHOUT_CONTROL:
        return None
    values = [word.removeprefix("control=") for word in words if word.startswith("control=")]
    if not values:
        return CONTROL_PORT
    # An invalid value is left to the image, which refuses it.
    return int(values[-1]) if values[-1].isdecimal() and 1 <= int(values[-1]) <= 65535 else None


def control_forward(guest: int | None, forwards: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the forward of the control port; none if the user forwards that port. The host port has the same number, if that is free."""
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
    """Runs callables in parallel. The first error stops the commands of the other callables, and is raised."""
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
            thread.join(0.2)  # short waits, so that interrupts are noticed and commands that begin after a failure are killed
            if failures:
                process.kill_running_commands()
    if failures:
        raise failures[0]


def in_lanes(function: Callable[[Any], Any], items: Iterable[Any], lanes: int) -> list[Any]:
    """Calls `function` for each item, `lanes` calls at a time. Returns the results in the order in which the calls end."""
    waiting = collections.deque(items)
    results: list[Any] = []

    def lane() -> None:
        while waiting:
            try:
                item = waiting.popleft()
            except IndexError:
                return  # another thread has taken the last item
            results.append(function(item))

    in_parallel([lane] * lanes)
    return results


class Console:
    """Shows the machine's console on standard output, with escapes, because its lines may quote a peer. Also shows the application's
    address once the application listens."""

    def __init__(self, application: str, forwards: Sequence[tuple[int, int]]):
        self._listening = re.compile(rf"^({re.escape(application)}|control): listening on [^ ,]*:([0-9]{{1,5}})\b")
        self._forwards = {guest: host for host, guest in forwards}
        self.stop_machine_with: Callable[[], None] | None = None

    def show(self, line: str) -> None:
        try:
            sys.stdout.write(shown_lines(line) + "\n")
            sys.stdout.flush()
        except (BrokenPipeError, ValueError):
            # The process that reads standard output has closed it. Nothing reads the console any more, so the machine is stopped.
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
    """Returns the launcher's exit status for a guest's end: 0 for success and power-off, the guest's own code for its failures."""
    if code in (machine.SUCCESS, machine.POWER_OFF):
        return 0
    if code == machine.RESET:
        progress.say("neap: the machine was reset: a reboot, or a fault that its kernel could not handle")
        return EXIT_FAILURE
    return code
