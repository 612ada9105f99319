# SPDX-License-Identifier: BSL-1.0
"""A running Linux guest that takes shell scripts.

A test boots it once and runs many scripts. The first serial port is the kernel's console, which a failing test shows. The second port
carries scripts to the guest and their output back (init.sh describes this protocol). So no output is mixed with console messages. A script
that hangs is ended inside the guest by its own time limit, and the guest stays usable.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import select
import socket
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from tools import qemu
from tools.errors import Failure
from tools.machine import DEFAULT_CARD, Machine, free_port
from tools.machine import SOFT_CARD as SOFT_CARD_PROGRAM

from .guest_image import GuestImage
from .namespace import TAP, Namespace

BOOT_SECONDS = 300  # a boot takes ten seconds on an idle machine
# Extra time of the channel beyond a script's own limit: `timeout` waits 5 s before it kills, and the serial port is slow under emulation.
CHANNEL_SECONDS = 30
CHANNEL_TRIES = 5  # an incomplete request or answer is sent again
READY = "ready"
ANSWER_BYTES_MAX = 16 << 20
SOFT_CARD = "soft82599"
# random.trust_cpu and no_timer_check save seconds of a boot under emulation. With panic=-1 and no reboot, a panic ends QEMU. A busy host
# can stop a CPU of the guest for half a minute, so the time-outs for lockups are long.
KERNEL_WORDS = [
    "console=ttyS0", "panic=-1", "mitigations=off", "random.trust_cpu=on", "no_timer_check", "loglevel=5", "watchdog_thresh=60",
    "rcupdate.rcu_cpu_stall_timeout=120",
]  # fmt: skip


@dataclass(frozen=True)
class Result:
    """The result of a script: its exit status and its whole output, including standard error."""

    status: int
    output: str

    @property
    def ok(self) -> bool:
        return self.status == 0


class ChannelSilent(Failure):
    """The guest sent no complete line in time."""


class LinuxGuest:
    """One virtual machine. A context manager: leaving it ends the machine.

    card: SOFT_CARD, or one of QEMU's own (`igb`, `e1000e`), for comparison; None: no card.
    forward_ports: TCP ports of the guest that tests use; see `port`.
    namespace: the network namespace whose tap device is the card's wire; None: the wire is QEMU's user network.
    iommu: Intel's VT-d between the card and the guest's memory, used by the kernel.
    """

    def __init__(
        self,
        image: GuestImage,
        *,
        card: str | None = SOFT_CARD,
        cores: int = 1,
        memory: str = "512M",
        forward_ports: Sequence[int] = (),
        kernel_words: Sequence[str] = (),
        card_options: Sequence[str] = (),
        namespace: Namespace | None = None,
        iommu: bool = False,
        qemu_options: Sequence[str] = (),
    ) -> None:
        # An abstract name leaves no file behind, however this process ends. Each network namespace has its own abstract names.
        name = f"neap-guest-{uuid.uuid4()}"
        abstract = namespace is None
        self._channel_address = b"\0" + name.encode() if abstract else str(namespace.directory / name).encode()
        path = name if abstract else self._channel_address.decode()
        options = ["-chardev", f"socket,id=scripts,path={path},abstract={'on' if abstract else 'off'},server=on,wait=off"]
        options += ["-serial", "chardev:scripts"]
        forward = [(free_port(), guest_port) for guest_port in forward_ports]
        words = [*KERNEL_WORDS, *kernel_words]
        if iommu:
            options += ["-device", "intel-iommu,intremap=on,caching-mode=on"]
            words += ["intel_iommu=on", "iommu.strict=1"]
        if card not in (SOFT_CARD, None):
            rules = "".join(f",hostfwd=tcp:127.0.0.1:{host}-:{guest}" for host, guest in forward)
            backend = f"tap,ifname={TAP},script=no,downscript=no,vnet_hdr=off" if namespace else f"user,restrict=on{rules}"
            options += ["-netdev", f"{backend},id=emulated", "-device", f"{card},netdev=emulated"]
        self.machine = Machine(
            image.kernel,
            initrd=image.initramfs,
            cores=cores,
            memory=memory,
            forward=forward,
            arguments=words,
            card=card == SOFT_CARD,
            card_kind=DEFAULT_CARD,
            net=f"tap:{TAP}" if namespace else "user",
            soft_card=namespace.program(SOFT_CARD_PROGRAM) if namespace else None,
            qemu_command=namespace.inside(qemu.command()) if namespace and card != SOFT_CARD else None,
            card_options=card_options,
            qemu_options=[*options, *qemu_options],
        )
        self._channel: socket.socket | None = None
        self._received = b""
        self._scripts = 0

    def __enter__(self) -> LinuxGuest:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def port(self, guest_port: int) -> int:
        """Returns the port on 127.0.0.1 that reaches `guest_port`."""
        return self.machine.port(guest_port)

    def run(self, script: str, *, seconds: int = 30) -> Result:
        """Runs a shell script in the guest. Returns when it has ended, or was ended after `seconds` (status 143 or 137). Raises Failure if
        the guest itself does not answer."""
        assert self._channel is not None
        self._scripts += 1
        name = f"s{self._scripts}"
        request = f"{name} {seconds} {base64.b64encode(script.encode()).decode()}"
        line = f"{_sum(request)} {request}\n".encode()
        for attempt in range(CHANNEL_TRIES):
            self._channel.sendall(line)
            # A later attempt fetches the existing answer. The guest runs the script now only if the earlier request was lost.
            answer = self._answer(name, seconds + CHANNEL_SECONDS, last=attempt == CHANNEL_TRIES - 1)
            if answer:
                return answer
        raise self._failure(f"no whole answer to script {name} in {CHANNEL_TRIES} attempts")

    def _answer(self, name: str, seconds: float, *, last: bool) -> Result | None:
        """Returns the answer to script `name`; None if it must be requested again."""
        while True:
            try:
                line = self._line(seconds, f"script {name}")
            except ChannelSilent:
                if last:
                    raise
                return None
            total, _, rest = line.partition(" ")
            fields = rest.split(" ")
            if line in ("", READY):
                continue
            if total != _sum(rest) or len(fields) != 4:
                return None
            if fields[:2] == ["result", name]:
                return Result(int(fields[2]), base64.b64decode(fields[3]).decode(errors="replace"))
            # A line with another name is a second copy of an earlier answer.

    def output_of(self, script: str, *, seconds: int = 30) -> str:
        """Like `run`, for a script that must succeed: returns its output. On failure raises AssertionError with that output."""
        result = self.run(script, seconds=seconds)
        assert result.ok, f"in the guest, status {result.status} of:\n{script}\n{result.output}"
        return result.output

    def stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self.machine.stop()

    def _start(self) -> None:
        self.machine.start()
        deadline = time.monotonic() + BOOT_SECONDS
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        while True:
            with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
                self._channel.connect(self._channel_address)
                break
            if not self.machine.running or time.monotonic() > deadline:
                raise self._failure("did not start")
            time.sleep(0.02)
        while self._line(deadline - time.monotonic(), "boot") != READY:
            pass  # output of firmware or kernel on the second port before the guest's first process starts

    def _line(self, seconds: float, what: str) -> str:
        assert self._channel is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._channel], [], [], left)[0]:
                raise ChannelSilent(f"Linux guest: no answer within {seconds:.0f} s ({what})", details=self._console())
            data = self._channel.recv(1 << 16)
            if not data:
                raise self._failure(f"the machine ended ({what})")
            self._received += data
            if len(self._received) > ANSWER_BYTES_MAX:
                raise self._failure(f"more than {ANSWER_BYTES_MAX} bytes in one answer ({what})")
        line, _, self._received = self._received.partition(b"\n")
        return line.decode(errors="replace").strip("\r")

    def _failure(self, message: str) -> Failure:
        return Failure(f"Linux guest: {message}", details=self._console())

    def _console(self) -> list[str]:
        return [f"console | {line}" for line in self.machine.lines[-25:]]


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
