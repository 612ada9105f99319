# SPDX-License-Identifier: BSL-1.0
"""Private networks of tests: network namespaces, empty or with one tap device. The tap device is the wire of a card.

The host's kernel is then the card's peer, with an independent TCP. The namespace belongs to a child process that only sleeps. When that
process ends for any reason, the kernel removes the namespace and everything in it. So a killed run leaves nothing behind, and two runs
cannot collide. For a user other than root, the namespace is in a user namespace, if the kernel allows that.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools import qemu
from tools.errors import Failure
from tools.machine import SOFT_CARD, VIRTIO, usual_card
from tools.process import kill_session, output_of, spawn

TAP = "tap0"
# This queue is longer than any TCP window. With a shorter queue, frames are lost if the peer sends faster than the guest receives.
QUEUE_FRAMES = 20_000


class Network:
    """An empty network namespace, as a context manager. To join two networks by veth pairs, pass the first as `beside` to the second. For a
    user other than root, networks are inside a user namespace. Joined networks MUST be inside the same user namespace."""

    def __init__(self, beside: Network | None = None) -> None:
        self._beside = beside
        self._resources = contextlib.ExitStack()
        self._enter: list[str] = []

    def __enter__(self):
        user = [] if os.geteuid() == 0 or self._beside else ["--user", "--map-root-user"]
        holder = (self._beside or self).spawn(["unshare", *user, "--net", "sh", "-c", "echo ready; exec sleep infinity"])
        self._resources.callback(kill_session, holder)
        try:
            if holder.stdout.readline() != b"ready\n":
                raise Failure("this user may not make a network namespace", "run it as root")
            self.pid = holder.pid
            user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
            self._enter = ["nsenter", f"--target={self.pid}", *user, "--net"]
            self.set_up()
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._resources.close()

    def set_up(self) -> None:
        self.run("ip link set lo up")

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Returns the command line that runs `argv` in the namespace."""
        return [*self._enter, *argv]

    def run(self, script: str, *, seconds: float = 60) -> str:
        """Returns the output of a shell script in the namespace. Raises Failure on error."""
        return output_of(self.inside(["sh", "-c", script]), timeout_seconds=seconds)

    def spawn(self, argv: Sequence[str]) -> subprocess.Popen:
        """Starts a process in the namespace, and ends it when the calling process ends. The caller reads its standard output."""
        return spawn(self.inside(argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Namespace(Network):
    """A network with the device TAP, which is up and has `address` ("10.0.3.1/24") and `address6`. `directory` exists while the context is
    open. many_queues: several cores of a virtio card can use TAP, and the soft card cannot; None: as the usual card needs it."""

    def __init__(
        self, address: str = "10.0.3.1/24", address6: str = "fd00:3::1/64", mtu: int = 1500, *, many_queues: bool | None = None
    ) -> None:
        super().__init__()
        self.many_queues = usual_card() == VIRTIO if many_queues is None else many_queues
        self.address = address.partition("/")[0]
        self._setup = [
            f"ip tuntap add {TAP} mode tap{' multi_queue' if self.many_queues else ''}",
            f"ip link set {TAP} mtu {mtu} txqueuelen {QUEUE_FRAMES} up",
            f"ip addr add {address} dev {TAP}",
            f"ip addr add {address6} dev {TAP} nodad",
        ]

    def set_up(self) -> None:
        super().set_up()
        self.directory = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="neap-net-")))
        self.run("\n".join(["set -e", *self._setup]))

    def program(self, path: Path) -> Path:
        """Makes an executable file that runs `path` in the namespace, for callers that need a single file name."""
        script = self.directory / path.name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(self.inside([str(path)]))} "$@"\n')
        script.chmod(0o755)
        return script

    def card(self, cores: int, *, joins: bool = True) -> dict[str, Any]:
        """Returns the options of a Machine of so many cores, for its usual card on TAP. joins: a virtio card joins and cuts segments.
        The soft card does so only when told."""
        if usual_card() != VIRTIO:
            return {"cores": cores, "net": f"tap:{TAP}", "soft_card": self.program(SOFT_CARD)}
        without = [] if joins else ["guest_tso4=off", "guest_tso6=off", "host_tso4=off", "host_tso6=off"]
        command = self.inside(qemu.plain_command())
        return {"cores": cores, "net": f"tap:{TAP}", "card_queues": max(cores, 2), "qemu_command": command, "card_options": without}

    @contextlib.contextmanager
    def tagged(self, tag: int, address: str) -> Iterator[str]:
        """Makes a device of a VLAN on TAP, with an address ("10.0.5.1/24"). Yields the device's name."""
        name = f"tag{tag}"
        tagger = self.spawn([sys.executable, str(Path(__file__).with_name("tagger.py")), TAP, str(tag), name])
        try:
            if tagger.stdout.readline() != b"ready\n":
                raise Failure(f"no device for VLAN {tag}: {tagger.stdout.read().decode(errors='replace')}")
            self.run(f"ip link set {name} up && ip addr add {address} dev {name}")
            yield name
        finally:
            kill_session(tagger)
