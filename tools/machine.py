# SPDX-License-Identifier: BSL-1.0
"""A machine that boots an image: QEMU with the soft card, for `./neap run` and for tests.

    with Machine(Path("build/image/hello.elf"), cores=2) as machine:
        machine.wait_for_line(r"neap: hello .* on 2 cores", timeout=10)
        assert machine.wait_exit(timeout=10) == SUCCESS

QEMU and the soft card end with the `with` block, or when this process is killed. All their files (sockets, serial log, QEMU's messages) are
in a private directory of the run. If the directory cannot be removed, the next run removes it. Two machines never share a port.

The default network needs no root: soft card <-> UNIX socket <-> QEMU's user network, with ports forwarded on 127.0.0.1. The guest does not
reach other hosts unless `outside=True`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from tools import cache, machine_registry, progress, qemu, queue_network
from tools.card_control import CardControl
from tools.errors import DiskFull, Failure, UsageError
from tools.firmware import Start
from tools.process import kill_session, spawn, stop, tail, wait_unreaped
from tools.qmp import Qmp

# Values that an image writes to port 0xf4 (isa-debug-exit); wait_exit() returns them.
SUCCESS = 16
FAILURE = 17
PANIC = 18
BAD_COMMAND_LINE = 19
# Values of wait_exit() if the machine ends without a write to port 0xf4.
POWER_OFF = 0
RESET = -1

REPOSITORY = Path(__file__).resolve().parent.parent
SOFT_CARD = REPOSITORY / "build/soft82599/release/soft82599"
LOOPBACK = "127.0.0.1"
CARD_START_SECONDS = 20.0
QEMU_START_SECONDS = 30.0
QEMU_END_SECONDS = 5.0
KVM_LOOK_SECONDS = 0.5
KEPT_LINES_MAX = 200_000
RUN_PREFIX = "neap-run-"
CARD_KINDS = (DEFAULT_CARD, VIRTIO) = ("82599", "virtio")
CARD_VARIABLE = "NEAP_CARD"
# IFF_MULTI_QUEUE of Linux's tun driver, in /sys/class/net/NAME/tun_flags.
TAP_MULTI_QUEUE = 0x100
# A UNIX socket's path may have 108 bytes; the names below the base directory take up to 40 of them.
RUN_BASE_BYTES_MAX = 64


class MachineError(Failure):
    """The event for which the caller waited did not occur. `details` hold the last lines of the console, of QEMU and of the card."""


class AcceleratorError(MachineError):
    """KVM cannot run the guest: the host's own virtualisation is incomplete."""


def usual_card() -> str:
    """Returns the kind of card of a machine that names none: that of $NEAP_CARD, or the soft card. Raises UsageError for another word."""
    kind = os.environ.get(CARD_VARIABLE) or DEFAULT_CARD
    if kind not in CARD_KINDS:
        raise UsageError(f"{CARD_VARIABLE}={kind} names no card", f"{CARD_VARIABLE} is {' or '.join(CARD_KINDS)}")
    return kind


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Machine:
    """One run of one image. The run begins with `start()`, or with the block of a `with` statement.

    image: the ELF file (or a Linux kernel, with `initrd`) for -kernel; None if `start_from` names the boot medium.
    cores: virtual CPUs, each a thread of QEMU. threads_per_core: with 2, CPUs 2n and 2n + 1 share a core. memory: like "512M".
    forward: (host port, guest port) pairs on 127.0.0.1; 0 stands for a free host port, see `port()`.
    arguments: the words of the image's command line.
    card: the machine has a network card. card_kind: "82599", the soft card, or "virtio", QEMU's own device, with a queue for each core;
    None: the soft card if `soft_card` is given, otherwise that of `usual_card`.
    card_queues: of virtio. None: one for each core, if the tap device has several, or this host lets the user network have them
    (tools/queue_network.py).
    net: "user" (see above), "none" (link down), "tap:NAME", "listen:PATH", "connect:PATH" (these also with virtio), or another value of
    the soft card's --net.
    mac: the card's address. card_options: more words for the soft card, e.g. ["--time-scale", "0.01"]; for virtio, more properties of
    QEMU's device, e.g. ["rss=on"].
    cpu, machine_type: values of QEMU's -cpu and -machine. nodes: NUMA nodes with equal shares of memory and cores.
    restarts: if True, a reset starts the machine again, as on a board; otherwise a reset ends the run.
    outside: the user network reaches other hosts. qemu_options: words for QEMU before the card's words, such as an IOMMU.
    modules: files that the loader puts beside an image, in this order, as its boot modules.
    start_from: firmware, discs and a server of boot files (tools/firmware.py). An image without them starts by QEMU's smallest firmware.
    accelerator: "tcg" emulates the CPU; "kvm" uses the host's CPU, and then the guest can execute MWAIT.
    one_thread: with "tcg", all cores share one thread of QEMU's, as the model machine needs (tools/model/plugin.py).
    debugger: the machine waits before its first instruction for a gdb at `debugger_socket`.
    on_line: called with each line of the console as it arrives, from a thread of this class.
    """

    card_ready: ClassVar[bytes] = b"soft82599: ready"  # the line that the card's program prints

    image: Path | None = dataclasses.field(kw_only=False)
    cores: int = 1
    threads_per_core: int = 1
    memory: str = "512M"
    forward: Iterable[tuple[int, int]] = ()
    arguments: Sequence[str] = ()
    card: bool = True
    card_queues: int | None = None
    card_kind: str | None = None
    net: str = "user"
    mac: str | None = None
    card_options: Iterable[str] = ()
    cpu: str = "max"
    machine_type: str = "q35"
    nodes: int = 1
    restarts: bool = False
    outside: bool = False
    accelerator: str = "tcg"
    one_thread: bool = False
    initrd: Path | None = None
    modules: Sequence[Path] = ()
    start_from: Start = dataclasses.field(default_factory=Start)
    qemu_options: Sequence[str] = ()
    debugger: bool = False
    on_line: Callable[[str], None] | None = None
    qemu_command: Sequence[str] | None = None
    soft_card: Path | None = None

    def __post_init__(self) -> None:
        self.net = self.net if self.card else "none"
        self.card_kind = self.card_kind or (usual_card() if self.soft_card is None else DEFAULT_CARD)
        self.card_options = list(self.card_options)
        self.forward = list(self.forward)
        self.directory: Path | None = None
        self._lines: list[str] = []
        self._lines_dropped = 0
        self._changed = threading.Condition()
        self._console_ended = False
        self._qemu: subprocess.Popen | None = None
        self._card_process: subprocess.Popen | None = None
        self._reader: threading.Thread | None = None
        self._qmp: Qmp | None = None
        self._control: CardControl | None = None
        self._run_lock: int | None = None
        self._resources = contextlib.ExitStack()
        self._wire: tuple[list[int], int] | None = None  # of a virtio card with several queues: tools/queue_network.py

    # ---- start and stop ----

    def __enter__(self) -> Machine:
        self.start()
        return self

    def __exit__(self, *_exception) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the card, then QEMU. If either fails to start, raises MachineError or Failure and leaves nothing running."""
        if self.image and not self.image.is_file():
            raise Failure(f"there is no image {self.image}", "./neap build makes it")
        try:
            with _full_disk_named():
                self.directory, self._run_lock = _new_run_directory()
                if self.has_soft_card:
                    self.start_card()
                self._start_qemu()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends QEMU and the card, and removes the run's directory. The console lines read so far stay available."""
        if self._qmp:
            self._qmp.close()
        if self._control:
            self._control.close()
            self._control = None
        self._wire = None
        for process in (self._qemu, self._card_process):
            if process:
                stop(process)
        if self._reader:
            self._reader.join(5)
        if self.directory:
            cache.remove(self.directory)
        self._resources.close()
        if self._run_lock is not None:
            os.close(self._run_lock)
            self._run_lock = None

    def describe(self, application: str, control_port: int | None) -> None:
        """Lets `./neap ctl` and similar commands find this run by its name. `control_port`: the guest's control port, if any."""
        assert self.directory
        ports = {guest: host for host, guest in self.forward}
        with _full_disk_named():
            machine_registry.describe(
                self.directory, machine_registry.Running(application, os.getpid(), ports, ports.get(control_port or 0))
            )

    @property
    def debugger_socket(self) -> Path:
        """The path of QEMU's socket for gdb, after the start."""
        assert self.directory
        return self.directory / "gdb"

    @property
    def qemu_log(self) -> Path:
        """The path of QEMU's messages, after the start."""
        assert self.directory
        return self.directory / "qemu.log"

    @property
    def has_soft_card(self) -> bool:
        return self.card and self.card_kind != VIRTIO

    @property
    def running(self) -> bool:
        return self._qemu is not None and self._qemu.poll() is None

    def cpu_seconds(self) -> float:
        """Returns the host's CPU time that QEMU has used so far, in all its threads. 0 after its end."""
        assert self._qemu
        try:
            stat = Path(f"/proc/{self._qemu.pid}/stat").read_text()
        except OSError:
            return 0.0
        # The program's name, in parentheses, may have spaces. utime and stime are fields 14 and 15 of proc(5).
        fields = stat[stat.rindex(")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stops QEMU's process with all its threads, and lets it go on at the end of the `with` block. Time passes for the guest meanwhile.
        Input that arrives is waiting for QEMU's first turn, in which a halted core cannot run yet: so all of it shares an event."""
        assert self._qemu
        try:
            os.kill(self._qemu.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self._qemu.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._qemu.pid, signal.SIGCONT)

    # ---- the console ----

    @property
    def lines(self) -> list[str]:
        """The last KEPT_LINES_MAX lines of the console, without line ends."""
        with self._changed:
            return list(self._lines)

    def wait_for_line(self, pattern: str, timeout: float, start: int = 0) -> str:
        """Returns the first console line, from line number `start` on, that matches the regular expression `pattern`. The line may have
        arrived already. Raises MachineError after `timeout` seconds, or if the machine ends without such a line."""
        expression = re.compile(pattern)
        deadline = time.monotonic() + timeout
        looked_at = start
        with self._changed:
            while True:
                for line in self._lines[max(0, looked_at - self._lines_dropped) :]:
                    if expression.search(line):
                        return line
                looked_at = self._lines_dropped + len(self._lines)
                if self._console_ended:
                    raise self._error(f"the machine ended before it printed /{pattern}/")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._error(f"no line like /{pattern}/ within {timeout:g} s")
                self._changed.wait(left)

    def wait_exit(self, timeout: float | None) -> int:
        """Waits for the image's end and returns its code: SUCCESS, FAILURE, PANIC, BAD_COMMAND_LINE, POWER_OFF or RESET. RESET is a reboot
        or a triple fault. Raises MachineError after `timeout` seconds (None: no limit), or if QEMU itself failed."""
        assert self._qemu and self._qmp, "the machine was not started"
        if not (self._wait_with_kvm(timeout) if self.accelerator == "kvm" else wait_unreaped(self._qemu, timeout)):
            raise self._error(f"the machine did not end within {timeout:g} s")
        status = self._qemu.wait()
        if self._reader:
            self._reader.join(5)
        if status == 0:
            return RESET if self._qmp.shutdown_reason() == "guest-reset" else POWER_OFF
        # isa-debug-exit turns code c into status 2c + 1; a status of 1 is an error of QEMU.
        if status > 1 and status % 2 == 1:
            return status >> 1
        raise self._error(f"QEMU ended by signal {-status}" if status < 0 else f"QEMU failed with status {status}")

    def _wait_with_kvm(self, timeout: float | None) -> bool:
        """Waits for the machine's end, or for an internal error of KVM, after which QEMU does not end by itself."""
        assert self._qemu and self._qmp
        deadline = None if timeout is None else time.monotonic() + timeout
        while not wait_unreaped(self._qemu, KVM_LOOK_SECONDS):
            if self._qmp.stopped.is_set() and self._qmp.command("query-status")["status"] == "internal-error":
                error = self._error("")
                raise AcceleratorError(
                    "KVM on this host cannot run the image (internal error)", "--accel tcg emulates the CPU", error.details
                )
            if deadline is not None and time.monotonic() > deadline:
                return False
        return True

    # ---- the network and the card ----

    def port(self, guest_port: int) -> int:
        """Returns the port on 127.0.0.1 that reaches `guest_port`."""
        for host_port, forwarded in self.forward:
            if forwarded == guest_port:
                return host_port
        raise KeyError(f"guest port {guest_port} is not forwarded")

    def card_command(self, text: str):
        """Sends one command to the card's control socket. Returns the decoded JSON answer, or for `state` the text."""
        if self._control is None:
            assert self.has_soft_card and self.directory, "no soft card is running"
            self._control = CardControl(self.directory / "control")
        return self._control.command(text)

    def card_counters(self) -> dict[str, dict[str, int]]:
        """Returns {"reads": {register: n}, "writes": {register: n}} since the start or the last `reset-counters`."""
        return self.card_command("counters")

    def kill_card(self) -> None:
        """Removes the card suddenly: its process is killed. From then on the guest reads all ones."""
        assert self._card_process
        kill_session(self._card_process)

    def qmp(self, command: str, **arguments):
        """Sends one command to QEMU's monitor (QMP), for instance `qmp("inject-nmi")`. Returns the command's return value."""
        assert self._qmp
        return self._qmp.command(command, **arguments)

    # ---- internal ----

    def network_words(self) -> list[str]:
        """Returns the card's options for its guest and its network."""
        assert self.directory
        return ["--once", "--net", f"listen:{self.directory / 'net'}" if self.net == "user" else self.net]

    def start_card(self) -> None:
        """Starts the card. After kill_card() it starts a new card, which replaces the files of the killed card."""
        assert self.directory
        program = self.soft_card or SOFT_CARD
        if not program.is_file():
            raise Failure(f"there is no soft card at {program}", "./neap build makes it")
        argv = [str(program), "--socket-path", str(self.directory / "card"), "--control", str(self.directory / "control")]
        argv += [*self.network_words(), *(["--mac", self.mac] if self.mac else []), *self.card_options]
        with open(self.directory / "card.log", "wb") as log:
            card = spawn(argv, stdout=subprocess.PIPE, stderr=log)
        self._card_process = card
        ready = threading.Event()
        finished = threading.Event()

        def read() -> None:
            for line in card.stdout:
                if line.strip() == self.card_ready:
                    ready.set()
                    finished.set()
            finished.set()

        threading.Thread(target=read, daemon=True).start()
        finished.wait(CARD_START_SECONDS)
        if not ready.is_set():
            raise self._error("the soft card did not start")

    def _start_qemu(self) -> None:
        assert self.directory
        monitor = self.directory / "qmp"
        self._make_wire()
        argv = [*self._qemu_words(), *self._qemu_arguments(monitor)]
        with open(self.directory / "qemu.log", "wb") as log:
            self._qemu = spawn(argv, stdout=subprocess.PIPE, stderr=log, pass_fds=self._wire_files())
        self._reader = threading.Thread(target=self._read_console, daemon=True)
        self._reader.start()
        try:
            self._qmp = Qmp.connect(monitor, self._qemu, QEMU_START_SECONDS)
        except Failure as failure:
            # QEMU listens before it has read all its options. After an error in one, its message is complete when it has ended.
            wait_unreaped(self._qemu, QEMU_END_SECONDS)
            raise self._error(f"QEMU did not start: {failure.message}") from None
        if self._qmp is None:
            raise self._error("QEMU did not start")
        if self.net == "user" and any(host == 0 for host, _ in self.forward):
            # QEMU bound a port that the host's kernel chose. If we chose one, another process might bind it first.
            chosen = [forward for forward in self._qmp.forwards() if forward not in self.forward]
            of_guest = {guest: [host for host, other in chosen if other == guest] for _, guest in chosen}
            self.forward = [(host or of_guest[guest].pop(), guest) for host, guest in self.forward]
        # QEMU waited for `cont` (-S), so that even the shortest run cannot end before we are connected to its monitor.
        if not self.debugger:
            self._qmp.command("cont")

    def _qemu_words(self) -> Sequence[str]:
        """Returns the start of QEMU's command line. QEMU's own card needs no special QEMU, but a plugin needs the QEMU it was built for."""
        plain = self.card_kind == VIRTIO and "-plugin" not in self.qemu_options
        return self.qemu_command or (qemu.plain_command() if plain else qemu.command())

    def _qemu_arguments(self, monitor: Path) -> list[str]:
        assert self.directory
        argv = ["-nodefaults", "-no-user-config", "-display", "none", "-S", *([] if self.restarts else ["-no-reboot"])]
        if self.accelerator == "kvm":
            argv += ["-accel", "kvm", "-cpu", "host", "-overcommit", "cpu-pm=on"]
        else:
            argv += ["-accel", f"tcg,thread={'single' if self.one_thread else 'multi'}", "-cpu", self.cpu]
        topology = f",sockets=1,cores={self.cores // 2},threads=2" if self.threads_per_core == 2 else ""
        argv += ["-smp", f"{self.cores}{topology}", "-m", self.memory, *self._memory_arguments()]
        argv += ["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]
        argv += ["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]
        argv += ["-qmp", f"unix:{monitor},server=on,wait=off"]
        if self.debugger:
            argv += ["-gdb", f"unix:{self.debugger_socket},server=on,wait=off"]
        argv += self.start_from.qemu_arguments(self.directory)
        if self._starts_with_small_firmware():
            argv += qemu.small_firmware(tuple(self._qemu_words()))
        if self.image:
            argv += ["-kernel", self._linked(self.image, self.image.name)]
        if self.initrd:
            argv += ["-initrd", str(self.initrd)]
        elif self.modules:
            argv += ["-initrd", ",".join(self._linked(module, f"{number}-{module.name}") for number, module in enumerate(self.modules))]
        if self.arguments:
            argv += ["-append", " ".join(self.arguments)]
        argv += self.qemu_options
        if self.card and not self.has_soft_card:
            return [*argv, *self._virtio_words()]
        if self.card:
            device = {"driver": "vfio-user-pci", "socket": {"path": str(self.directory / "card"), "type": "unix"}, "id": "nic"}
            argv += ["-device", json.dumps(device)]
        if self.net == "user":
            argv += ["-netdev", self._user_network()]
            argv += ["-netdev", f"stream,id=card,server=off,addr.type=unix,addr.path={self.directory / 'net'}"]
            argv += ["-netdev", "hubport,id=hub-user,hubid=0,netdev=user", "-netdev", "hubport,id=hub-card,hubid=0,netdev=card"]
        return argv

    def _user_network(self) -> str:
        forwards = "".join(f",hostfwd=tcp:{LOOPBACK}:{host}-:{guest}" for host, guest in self.forward)
        restrict = "off" if self.outside else "on"
        return f"user,id=user,restrict={restrict}{forwards}{self.start_from.server_words()}"

    def _make_wire(self) -> None:
        """Gives a virtio card on the user network a queue for each core, if `card_queues` or this host does not forbid that."""
        queues = self.cores if self.card_queues is None and self.qemu_command is None else self.card_queues or 1
        if not self.card or self.has_soft_card or self.net != "user" or queues == 1:
            return
        if not qemu.has_many_queues(tuple(self._qemu_words())):
            return
        try:
            self._wire = self._resources.enter_context(queue_network.joined(queues))
        except Failure as failure:
            progress.say(f"neap: the card has one queue, for one of the {self.cores} cores: {failure}")

    def _wire_files(self) -> list[int]:
        return [*self._wire[0], self._wire[1]] if self._wire else []

    def _virtio_words(self) -> list[str]:
        """Returns QEMU's arguments for its own virtio-net. The modern interface only; a vector for each queue, and one for the rest."""
        queues = 1
        words = []
        if self._wire:
            card, wire = self._wire
            queues = len(card)
            words = ["-netdev", self._user_network(), "-netdev", f"tap,id=wire,fd={wire},vhost=off"]
            words += ["-netdev", "hubport,id=hub-user,hubid=0,netdev=user", "-netdev", "hubport,id=hub-wire,hubid=0,netdev=wire"]
            words += ["-netdev", f"tap,id=card,fds={':'.join(str(file) for file in card)},vhost=off"]
        elif self.net == "user":
            words = ["-netdev", self._user_network()]
        elif self.net.startswith("tap:"):
            name = self.net.removeprefix("tap:")
            queues = self.card_queues or (self.cores if tap_has_queues(name) else 1)
            words = ["-netdev", f"tap,id=user,ifname={name},script=no,downscript=no" + (f",queues={queues}" if queues > 1 else "")]
        elif wire := re.fullmatch("(listen|connect):(.+)", self.net):
            server = "on" if wire[1] == "listen" else "off"
            words = ["-netdev", f"stream,id=user,server={server},addr.type=unix,addr.path={wire[2]}"]
        elif self.net != "none":
            raise Failure(f"a virtio card has no network like {self.net}", "user, none, tap:NAME, listen:PATH or connect:PATH")
        properties = ["virtio-net-pci", "id=nic", "disable-legacy=on", f"vectors={2 * queues + 2}", *(["mq=on"] if queues > 1 else [])]
        properties += [f"netdev={'card' if self._wire else 'user'}"] if words else []
        # The ROM with which firmware boots from the card. Its file is in another package, which a host may lack.
        properties += ["romfile="] if self.start_from == Start() else []
        properties += [f"mac={self.mac}"] if self.mac else []
        return [*words, "-device", ",".join([*properties, *self.card_options])]

    def _linked(self, file: Path, name: str) -> str:
        """Returns the path of a link without spaces, which end a file's name in its command line, and commas, which separate modules."""
        link = Path(self.directory or "", re.sub("[ ,]", "-", name))
        link.symlink_to(file.absolute())
        return str(link)

    def _starts_with_small_firmware(self) -> bool:
        """True if the machine needs no more of its firmware than to start `image`.

        SeaBIOS executes six million instructions before the image, three times those of the image itself; qboot executes 160,000. But
        qboot gives PCI devices no addresses, starts from no disc or network, and runs no option ROM, such as that of a screen. Neap gives
        its card an address itself (kernel/x86/pci.cpp). Linux, and machines with devices of the caller, keep SeaBIOS. Among these are
        machines with a real card (vfio-pci), for which KVM heeds the MTRRs, which qboot leaves off.
        """
        plain = self.image is not None and self.initrd is None and self.start_from == Start()
        given = any(word in ("-device", "-bios", "-machine", "-M", "-drive", "-vga") for word in self.qemu_options)
        return plain and not given and self.machine_type == "q35" and self.qemu_command is None

    def _memory_arguments(self) -> list[str]:
        """Returns QEMU's arguments for RAM that the soft card can map, in the requested number of NUMA nodes."""
        if self.nodes == 1:
            return ["-machine", f"{self.machine_type},memory-backend=ram", *self._backend("ram", self.memory)]
        size = re.fullmatch(r"(\d+)([MG])", self.memory)
        assert size and self.cores >= self.nodes, "memory in M or G, and a core for each node"
        each = int(size[1]) * (1024 if size[2] == "G" else 1) // self.nodes
        argv = ["-machine", self.machine_type]
        for node in range(self.nodes):
            first, end = (self.cores * at // self.nodes for at in (node, node + 1))
            argv += [*self._backend(f"ram{node}", f"{each}M"), "-numa", f"node,nodeid={node},cpus={first}-{end - 1},memdev=ram{node}"]
        return argv

    @staticmethod
    def _backend(name: str, size: str) -> list[str]:
        return ["-object", f"memory-backend-memfd,id={name},size={size},share=on"]

    def _read_console(self) -> None:
        assert self._qemu and self._qemu.stdout and self.directory
        # The file is unbuffered, because other processes read the log meanwhile.
        with open(self.directory / "console.log", "wb", buffering=0) as log:
            logged = True
            for raw in self._qemu.stdout:
                try:
                    if logged:
                        log.write(raw)
                except OSError as error:
                    # The machine goes on, and so does its console: without a reader, QEMU would wait.
                    logged = False
                    progress.say(f"neap: {self.directory}/console.log ends here: {error.strerror}")
                line = raw.decode(errors="replace").rstrip("\r\n")
                with self._changed:
                    self._lines.append(line)
                    if len(self._lines) > KEPT_LINES_MAX:
                        half = KEPT_LINES_MAX // 2
                        del self._lines[:half]
                        self._lines_dropped += half
                    self._changed.notify_all()
                if self.on_line:
                    self.on_line(line)
        with self._changed:
            self._console_ended = True
            self._changed.notify_all()

    def _error(self, message: str) -> MachineError:
        with self._changed:
            details = [f"console | {line}" for line in self._lines[-20:]]
        if self.directory:
            for name in ("qemu", "card"):
                lines = [line for line in tail(self.directory / f"{name}.log", 8) if "has no nics" not in line and "no peer" not in line]
                details += [f"{name:7} | {line}" for line in lines]
        for name, process in (("QEMU", self._qemu), ("the soft card", self._card_process)):
            if process and process.poll() is not None:
                details.append(f"{name} has ended with status {process.returncode}")
        return MachineError(message, details=details)


def tap_has_queues(name: str) -> bool:
    """True if the host's tap device was made with `multi_queue`. Raises Failure if there is no such device."""
    try:
        return int(Path(f"/sys/class/net/{name}/tun_flags").read_text(), 0) & TAP_MULTI_QUEUE != 0
    except (OSError, ValueError):
        hint = f"ip tuntap add {name} mode tap multi_queue user $USER, and an address for it"
        raise Failure(f"there is no tap device {name} on this host", hint) from None


def free_port() -> int:
    """Returns a TCP port of 127.0.0.1 that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def port_is_free(port: int) -> bool:
    """True if QEMU could listen on the port now. Binds with SO_REUSEADDR like QEMU, so a port in TIME_WAIT counts as free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


@contextlib.contextmanager
def _full_disk_named() -> Iterator[None]:
    """Turns "no space left" in a run's directory into DiskFull, which names the place."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        hint = "make room, or set XDG_RUNTIME_DIR to a directory with a short name on another disk"
        raise DiskFull(f"no space left in {run_base()}, where a run has its sockets and logs", hint) from None


def run_base() -> Path:
    """Returns the parent of runs' directories: the user's runtime directory or the temporary one. Its path must be short enough for UNIX
    sockets."""
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:  # none of the usual ones can be written to
        temporary = None
    for candidate in (os.environ.get("XDG_RUNTIME_DIR"), temporary, "/tmp", "/dev/shm"):
        if not candidate or not os.path.isabs(candidate) or " " in candidate or len(candidate) > RUN_BASE_BYTES_MAX:
            continue
        if os.access(candidate, os.W_OK | os.X_OK):
            return Path(candidate)
    raise Failure("no directory for sockets can be written to", "set XDG_RUNTIME_DIR or TMPDIR to a writable directory with a short name")


def _new_run_directory() -> tuple[Path, int]:
    """Makes a private directory with a lock, which shows that this process lives. Removes directories whose processes have ended."""
    base = run_base()
    for old in base.glob(f"{RUN_PREFIX}*"):
        with contextlib.suppress(OSError):  # another neap may be removing it as well
            if not old.is_dir() or old.is_symlink() or old.stat().st_uid != os.getuid():
                continue
            if (held := cache.try_lock(old / "lock")) is not None:
                shutil.rmtree(old, ignore_errors=True)
                os.close(held)
    # A directory without a locked file would look abandoned, so the directory is locked before it gets its name.
    making = Path(tempfile.mkdtemp(prefix="neap-new-", dir=base))
    lock = cache.try_lock(making / "lock")
    assert lock is not None
    directory = making.with_name(making.name.replace("neap-new-", RUN_PREFIX, 1))
    making.rename(directory)
    return directory, lock
