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
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from tools import cache, machine_registry, machine_words, progress, qemu, queue_network, run_directory
from tools.card_control import CardControl
from tools.errors import Failure, UsageError
from tools.firmware import Start
from tools.machine_words import LOOPBACK
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
CARD_START_SECONDS = 20.0
QEMU_START_SECONDS = 30.0
QEMU_END_SECONDS = 5.0
KVM_LOOK_SECONDS = 0.5
KEPT_LINES_MAX = 200_000
CARD_KINDS = (DEFAULT_CARD, VIRTIO) = ("82599", "virtio")
CARD_VARIABLE = "NEAP_CARD"


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
        self.wire: tuple[list[int], int] | None = None  # of a virtio card with several queues: tools/queue_network.py

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
            with run_directory.full_disk_named():
                self.directory, self._run_lock = run_directory.make()
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
        self.wire = None
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
        with run_directory.full_disk_named():
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
        argv = [*self.qemu_words(), *machine_words.qemu_arguments(self, monitor)]
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

    def qemu_words(self) -> Sequence[str]:
        """Returns the start of QEMU's command line. QEMU's own card needs no special QEMU, but a plugin needs the QEMU it was built for."""
        plain = self.card_kind == VIRTIO and "-plugin" not in self.qemu_options
        return self.qemu_command or (qemu.plain_command() if plain else qemu.command())

    def _make_wire(self) -> None:
        """Gives a virtio card on the user network a queue for each core, if `card_queues` or this host does not forbid that."""
        queues = self.cores if self.card_queues is None and self.qemu_command is None else self.card_queues or 1
        if not self.card or self.has_soft_card or self.net != "user" or queues == 1:
            return
        if not qemu.has_many_queues(tuple(self.qemu_words())):
            return
        try:
            self.wire = self._resources.enter_context(queue_network.joined(queues))
        except Failure as failure:
            progress.say(f"neap: the card has one queue, for one of the {self.cores} cores: {failure}")

    def _wire_files(self) -> list[int]:
        return [*self.wire[0], self.wire[1]] if self.wire else []

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
