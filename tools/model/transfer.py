# SPDX-License-Identifier: BSL-1.0
"""Transfers over a network with impairments, between two modelled machines on one virtual clock.

The server is Neap's image bench_transfer or Linux, and the client is always Linux (tests/linux_guest/transfer.c). So a stack's two
directions are measured against the same peer, and beside Linux as the server on the same link. The network is in the world: a cable of a
rate, a queue and a delay in each direction, and frames that are lost, sent twice, damaged or overtaken by chance. The client sets it by a
frame before each transfer, with the seed of its random numbers. So one boot serves several transfers, and equal steps give an equal result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tools import build, cache, machine
from tools.errors import Failure, UsageError
from tools.model import ending, linux, pair
from tools.model.experiment import WORLD_RESULT, System
from tools.process import output_of, tail

IMAGE = "bench_transfer"
SERVER, CLIENT = "server", "client"
ROLES = {SERVER: pair.RECEIVER, CLIENT: pair.TRANSMITTER}
ADDRESSES = {SERVER: pair.ADDRESSES[pair.RECEIVER], CLIENT: pair.ADDRESSES[pair.TRANSMITTER]}
CONGESTION = ("cubic", "reno")
# Both systems: moderation of the card's interrupts, the highest frequency. As in `./neap compare`.
NEAP_WORDS = ("itr=16us", "pstate=38", "idle=menu")
LINUX_WORDS = ("itr=16us", "governor=performance")
MTU_USUAL = 1500
# The longest run of virtual time, and of the host's.
VIRTUAL_LIMIT = "500000s"
TIME_OUT_SECONDS = 7200.0
SERVER_END_SECONDS = 60.0
ALL_ENDED = "linux: all transfers have ended"
# Frames of an earlier transfer leave the network, and a last acknowledgement may be repeated.
PAUSE_MS = 2000
# The one-way time of the shortest cable. Below some 20 us the machines meet so often that a transfer takes the host many times as long.
LEAST_DELAY_NS = 50_000
# netem's limit, which counts frames.
QUEUE_FRAMES = 1000
QUEUE_BYTES = 1 << 30

_LINE = re.compile(r"transfer: (?P<name>\S+) (?:ok (?P<bytes>\d+) (?P<ns>\d+) (?P<sum>[0-9a-f]+)(?P<more>(?: \d+)*)|failed (?P<why>.+))$")


@dataclasses.dataclass(frozen=True)
class Network:
    """One link, the same in both directions. delay_ms: one way, beside 0.05 ms of the cables. loss, duplicate, corrupt, reorder: shares of
    the frames; those of `reorder` are late by up to `jitter_ms`. queue_frames: that wait for the link; beyond it frames are lost."""

    rate_mbps: int = 100
    delay_ms: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    reorder: float = 0.0
    jitter_ms: float = 2.0
    queue_frames: int = QUEUE_FRAMES

    def words(self) -> str:
        """The list of neap-world's option --network."""
        # A frame crosses two cables, one on each side of the switch.
        delay_ns = (LEAST_DELAY_NS + round(self.delay_ms * 1e6)) // 2
        words = [f"delay_ns={delay_ns}", f"rate_mbps={self.rate_mbps}", f"queue_bytes={QUEUE_BYTES}", f"queue_frames={self.queue_frames}"]
        chances = {"loss": self.loss, "duplicate": self.duplicate, "corrupt": self.corrupt, "reorder": self.reorder}
        words += [f"{name}={value:.9g}" for name, value in chances.items() if value]
        if self.reorder:
            words.append(f"jitter_ns={max(1, round(self.jitter_ms * 1e6))}")
        return ",".join(words)


@dataclasses.dataclass(frozen=True)
class Transfer:
    """One step. name: without spaces, unique. out: the server sends. seconds: its virtual time limit. seed: of network and data."""

    name: str
    network: Network
    out: bool
    byte_count: int
    seed: int = 1
    seconds: int = 36_000

    def lines(self) -> list[str]:
        kind = "down" if self.out else "up"
        step = f"{kind} {self.name} {self.byte_count // 8 * 8} {self.seed} {self.seconds}"
        return [f"network {self.seed} {self.network.words()}", step, f"pause {PAUSE_MS}"]


@dataclasses.dataclass(frozen=True)
class Idle:
    """Waits on a good network until the server holds no bytes and has no other connection; fails after `seconds` of virtual time."""

    name: str
    seconds: int = 900

    def lines(self) -> list[str]:
        return [f"network 1 {Network().words()}", f"idle {self.name} {self.seconds}"]


Step = Transfer | Idle


def plan(steps: Iterable[Step]) -> str:
    """The client's plan. It begins with a transfer on a good network, after which both ends know each other's address."""
    first = Transfer("first", Network(), out=True, byte_count=65_536)
    return "".join(f"{line}\n" for step in (first, *steps) for line in step.lines())


@dataclasses.dataclass(frozen=True)
class Outcome:
    """failed: the reason, empty if all bytes arrived and the sums agree. seconds: virtual, at the receiver. lost, queue_full: frames, both
    ways together. held_bytes_max, retransmissions: of `Idle`."""

    failed: str = ""
    byte_count: int = 0
    seconds: float = math.nan
    held_bytes_max: int = 0
    retransmissions: int = 0

    @property
    def mbps(self) -> float:
        """Goodput: bytes of the application."""
        return self.byte_count * 8 / 1e6 / self.seconds


def outcomes(steps: Sequence[Step], console: Iterable[str], missing: str = "the client printed no result") -> dict[str, Outcome]:
    """The client's lines, by the steps' names. A step without a line has failed, by `missing`."""
    found: dict[str, Outcome] = {}
    for line in console:
        match = _LINE.search(line)
        if not match:
            continue
        if match["why"]:
            found[match["name"]] = Outcome(failed=match["why"])
            continue
        more = [int(word) for word in match["more"].split()] or [0] * 5
        found[match["name"]] = Outcome("", int(match["bytes"]), int(match["ns"]) / 1e9, more[3], more[4])
    return {step.name: found.get(step.name, Outcome(failed=missing)) for step in steps}


@dataclasses.dataclass(frozen=True)
class Setting:
    """The settings that all transfers of a run share. congestion: of Linux, at both ends. mtu: of Linux. neap_words: of the image."""

    model: str = "e5-2690"
    cores: int = 1
    memory: str = "512M"
    seed: int = 1
    congestion: str = "cubic"
    mtu: int = MTU_USUAL
    neap_words: Sequence[str] = NEAP_WORDS
    network: str = ""
    virtual_limit: str = VIRTUAL_LIMIT

    def check(self) -> None:
        """Raises UsageError for a setting that cannot be."""
        if self.congestion not in CONGESTION:
            raise UsageError(f"--congestion takes {' or '.join(CONGESTION)}, not '{self.congestion}'")

    def words(self, role: str, system: System) -> list[str]:
        own = SERVER if role == pair.RECEIVER else CLIENT
        if not system.is_linux:
            return [f"ip={ADDRESSES[own]}/24", *self.neap_words]
        run = [f"neap.run={own}", f"neap.peer={ADDRESSES[SERVER]}", f"neap.congestion={self.congestion}", f"neap.mtu={self.mtu}"]
        return linux.kernel_words(f"{ADDRESSES[own]}/24", LINUX_WORDS, run)

    def has_profile(self, role: str, system: System) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class Result:
    outcomes: dict[str, Outcome]
    world: dict[str, Any]
    digest: str


def neap_system() -> System:
    """Builds the image. Raises Failure."""
    build.build("image", [f"{IMAGE}.elf"])
    return System(build.BUILD / "image/bench/transfer" / f"{IMAGE}.elf")


def program() -> Path:
    """The program of both ends on Linux, linked statically. Raises Failure."""
    source = build.REPOSITORY / "tests/linux_guest/transfer.c"
    entry = cache.Entry("linux-transfer", cache.digest(source.read_bytes()))
    with entry.making() as needed:
        if needed:
            compiler = ["gcc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-static"]
            output_of([*compiler, "-o", str(entry.path / "transfer"), str(source)])
    return entry.path / "transfer"


def linux_system(folder: Path, text: str = "") -> System:
    """Linux with the program, and the plan `text` for a client. The initramfs is written to `folder`."""
    kernel, initramfs = linux.image()
    linux.find_guest()
    from linux_guest.cpio import CpioWriter  # noqa: PLC0415

    stream = io.BytesIO()
    archive = CpioWriter(stream)
    archive.file("bin/transfer", program().read_bytes(), mode=0o755)
    archive.file("plan", text.encode())
    archive.close()
    # The kernel unpacks several archives. Each begins at a multiple of four bytes.
    first = initramfs.read_bytes()
    out = folder / "initramfs"
    out.write_bytes(first + bytes(-len(first) % 4) + gzip.compress(stream.getvalue(), 1, mtime=0))
    return System(kernel, out)


def run(
    setting: Setting, server: System | None, steps: Sequence[Step], out: Path, on_line: Callable[[str, str], None] = lambda role, line: None
) -> Result:
    """Runs the steps between two machines. `server`: Neap's image; None: Linux. `out` MUST be an empty folder. Raises Failure if the run
    ended early; a transfer that failed is in the result."""
    setting.check()
    folders = {role: out / role for role in ROLES}
    for folder in folders.values():
        folder.mkdir()
    systems = {SERVER: server or linux_system(folders[SERVER]), CLIENT: linux_system(folders[CLIENT], plan(steps))}
    machines: dict[str, pair.PairedMachine] = {}
    for role, name in ROLES.items():
        machines[role] = pair.PairedMachine(
            systems[role], setting, name, folders[role], machines.get(SERVER), functools.partial(on_line, role), peer_free=True
        )
    with contextlib.ExitStack() as stack:
        for one in machines.values():
            stack.callback(one.stop)
        pair.start_all(list(machines.values()))
        _wait(machines[CLIENT], CLIENT, machines[SERVER], TIME_OUT_SECONDS)
        _wait(machines[SERVER], SERVER, machines[SERVER], SERVER_END_SECONDS)
        world = pair.world_result(folders[SERVER] / WORLD_RESULT, machines[SERVER])
        printed = machines[CLIENT].lines
    return Result(outcomes(steps, printed), world, "-".join(one["digest"] for one in world["machines"]))


def _wait(one: pair.PairedMachine, role: str, first: pair.PairedMachine, seconds: float) -> None:
    status = one.wait_exit(seconds)
    # Linux powers off after a failure, too, so the client's last line counts. The server serves until the client leaves.
    if status == machine.POWER_OFF and (role == SERVER or ALL_ENDED in one.lines):
        return
    logs = [each.directory / name for each, name in ((one, "qemu.log"), (first, "card.log")) if each.directory]
    said = ending.reason(status, one.lines, [line for log in logs for line in tail(log)])
    raise Failure(
        f"the {role} of the transfers ended early: {said or f'status {status}, without a word'}",
        details=[*first.lines[-20:], *one.lines[-20:]],
    )
