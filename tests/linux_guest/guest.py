# SPDX-License-Identifier: BSL-1.0
"""A running Linux guest that takes shell scripts.

A test boots it once and then asks it many things. The first serial port is the kernel's console and goes to a file, which a failing test shows; the
second one carries scripts in and what they printed out (see init.sh for the two kinds of line). So no answer has to be dug out of console output,
and a script that hangs is ended inside the guest, by its own time limit, while the guest stays usable.
"""

from __future__ import annotations

import base64
import contextlib
import select
import shlex
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tools.errors import Failure
from tools.process import spawn, stop, tail

from .guest_image import GuestImage

BOOT_SECONDS = 90
# What the channel may take beyond a script's own limit: `timeout` waits 5 s before it insists, and the serial port is slow under emulation.
CHANNEL_SECONDS = 30
ANSWER_BYTES_MAX = 16 << 20


@dataclass(frozen=True)
class Result:
    """What a script did: its exit status and everything it printed, standard error included."""

    status: int
    output: str

    @property
    def ok(self) -> bool:
        return self.status == 0


def user_network(forward: list[tuple[int, int]]) -> str:
    """QEMU's user network with TCP ports forwarded from 127.0.0.1 to its first guest: [(host port, guest port)]."""
    return "user,id=user" + "".join(f",hostfwd=tcp:127.0.0.1:{host}-10.0.2.15:{guest}" for host, guest in forward)


def emulated_card(model: str, forward: list[tuple[int, int]] | None = None) -> list[str]:
    """QEMU's arguments for one of its own cards (`igb`, `e1000e`) on the user network."""
    return ["-netdev", user_network(forward or []), "-device", f"{model},netdev=user"]


def soft_card(card_socket: Path, network_socket: Path | None = None, forward: list[tuple[int, int]] | None = None) -> list[str]:
    """QEMU's arguments for a card behind vfio-user; its wire leads to the user network if `network_socket` is given."""
    device = f'{{"driver":"vfio-user-pci","socket":{{"path":"{card_socket}","type":"unix"}},"id":"card"}}'
    arguments = ["-device", device]
    if network_socket is not None:
        arguments += [
            "-netdev", user_network(forward or []),
            "-netdev", f"stream,id=wire,server=off,addr.type=unix,addr.path={network_socket}",
            "-netdev", "hubport,id=hub-user,hubid=0,netdev=user",
            "-netdev", "hubport,id=hub-wire,hubid=0,netdev=wire",
        ]  # fmt: skip
    return arguments


class LinuxGuest:
    """One virtual machine. A context manager: leaving it ends the machine. `folder` takes its sockets and logs."""

    def __init__(self, image: GuestImage, qemu: list[str], network: list[str], folder: Path, *, cores: int = 1, memory: str = "512M",
                 command_line: str = "") -> None:  # fmt: skip
        self.console_log = folder / "console.log"
        self.qemu_log = folder / "qemu.log"
        self._channel_path = folder / "scripts.sock"
        self._channel: socket.socket | None = None
        self._received = b""
        self._next_id = 0
        self._process: subprocess.Popen | None = None
        # random.trust_cpu and no_timer_check save seconds of a boot under emulation; panic=-1 with -no-reboot turns a panic into QEMU's end.
        words = f"console=ttyS0 panic=-1 mitigations=off random.trust_cpu=on no_timer_check loglevel=5 {command_line}"
        self._argv = [
            *qemu, "-M", "q35,memory-backend=memory", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(cores), "-m", memory,
            "-object", f"memory-backend-memfd,id=memory,size={memory},share=on", "-nodefaults", "-display", "none", "-no-reboot",
            "-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", words.strip(),
            "-chardev", f"file,id=console,path={self.console_log}", "-serial", "chardev:console",
            "-chardev", f"socket,id=scripts,path={self._channel_path},server=on,wait=off", "-serial", "chardev:scripts",
            *network,
        ]  # fmt: skip

    def __enter__(self) -> LinuxGuest:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def run(self, script: str, *, seconds: int = 30) -> Result:
        """Runs a shell script in the guest and returns when it has ended, or been ended after `seconds` (status 143 or 137).

        Raises Failure if the guest itself does not answer.
        """
        assert self._channel is not None
        self._next_id += 1
        name = f"s{self._next_id}"
        encoded = base64.b64encode(script.encode()).decode()
        self._channel.sendall(f"{name} {seconds} {encoded}\n".encode())
        answer = self._line(seconds + CHANNEL_SECONDS, f"script {name}").split(" ")
        if len(answer) != 4 or answer[:2] != ["result", name]:
            raise self._failure(f"answered {' '.join(answer)[:80]!r} to script {name}")
        return Result(int(answer[2]), base64.b64decode(answer[3]).decode(errors="replace"))

    def output_of(self, script: str, *, seconds: int = 30) -> str:
        """As `run`, for a script that has to succeed: returns what it printed. Raises AssertionError with that if it fails."""
        result = self.run(script, seconds=seconds)
        assert result.ok, f"in the guest, status {result.status} of:\n{script}\n{result.output}"
        return result.output

    def console_tail(self, lines: int = 30) -> str:
        """The end of the kernel's console."""
        return "\n".join(tail(self.console_log, lines))

    def stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            stop(self._process)

    def _start(self) -> None:
        for path in (self._channel_path, self.console_log):
            path.unlink(missing_ok=True)
        with self.qemu_log.open("wb") as log:
            log.write(f"$ {shlex.join(self._argv)}\n".encode())
            log.flush()
            self._process = spawn(self._argv, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + BOOT_SECONDS
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        while True:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                self._channel.connect(str(self._channel_path))
                break
            if not self.running or time.monotonic() > deadline:
                raise self._failure("did not start")
            time.sleep(0.02)
        while self._line(deadline - time.monotonic(), "boot") != "ready":
            pass  # what firmware or the kernel may send to the second port before the guest's first process has it

    def _line(self, seconds: float, what: str) -> str:
        assert self._channel is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            readable = left > 0 and select.select([self._channel], [], [], left)[0]
            if not readable:
                raise self._failure(f"no answer within {seconds:.0f} s ({what})")
            data = self._channel.recv(1 << 16)
            if not data:
                raise self._failure(f"the machine ended ({what})")
            self._received += data
            if len(self._received) > ANSWER_BYTES_MAX:
                raise self._failure(f"more than {ANSWER_BYTES_MAX} bytes in one answer ({what})")
        line, _, self._received = self._received.partition(b"\n")
        return line.decode(errors="replace").strip("\r")

    def _failure(self, message: str) -> Failure:
        return Failure(f"Linux guest: {message}", details=[*tail(self.qemu_log, 5), *tail(self.console_log, 25)])
