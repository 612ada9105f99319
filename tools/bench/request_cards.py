# SPDX-License-Identifier: BSL-1.0
"""Rows of `./neap bench request`: GETs of 100 bytes on 16 connections over virtio-net, beside the 82599, by layer.

The model machine has no virtio-net, so both cards are measured in real time, in the same way: QEMU's plugin counts the instructions of the
image by address (bench/instruction_counter.c) while a client sends bursts, one GET on each connection. QEMU is frozen until all frames of
a burst wait for it. So one event handles a burst, as in the other rows, and the host's load hardly matters. The counts contain the timers
of the real time between bursts.

In the first row both cards are on a tap device in a network namespace, and Linux's TCP is the peer. virtio-net then has checksums and TSO.
Without the right to make a namespace, the row has QEMU's user network instead, and says so. In the second row both cards are on the user
network, whose own TCP is the peer. It acknowledges in frames of their own, and virtio-net has no checksums there. Each row names the
features that the device offered.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools import build, progress, qemu, toolchain
from tools.bench import instructions
from tools.bench.rows import Row, aligned
from tools.errors import Failure
from tools.machine import CARD_KINDS, LOOPBACK, SOFT_CARD, Machine
from tools.machine_registry import CONTROL_PORT
from tools.model import linux, profile
from tools.process import output_of, spawn, stop

if TYPE_CHECKING:
    from linux_guest.namespace import Namespace

ON_TAP, ON_USER_NETWORK = ROWS = ("get.16.virtio", "get.16.virtio_user_network")
CONNECTIONS = 16
KEY_BYTES = 16
VALUE_BYTES = 100
WARM_UP_BURSTS = 100
BURSTS = 300
PORT = 11211
HOST, IMAGE = "10.0.3.1", "10.0.3.2"
TAP = "tap0"  # of linux_guest/namespace.py
START_SECONDS = 120.0
# The time in which the core becomes idle after the last reply, and that in which the frames of a burst reach the card's queue. Those of the
# soft card reach the guest's memory.
IDLE_SECONDS = 0.005
ARRIVAL_SECONDS = 0.003
FUNCTIONS = 4
CLIENT = Path(__file__).with_name("burst_client.py")
FEATURES = re.compile(r"virtio: network card,.* features (.*)$")
EXECUTABLE = re.compile(r"^ +LOAD +\S+ +0x([0-9a-f]+) +\S+ +\S+ +0x([0-9a-f]+) +R E ", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Measured:
    """The result with one card. interrupts: of the card's queue, and frames: received; a few of both are for control before and after the
    window. features: that the virtio device offered; empty for the 82599."""

    profile: profile.Profile
    requests: int
    interrupts: int
    frames: int
    features: str

    @property
    def instructions(self) -> float:
        return self.profile.total / self.requests


# Behind the table of rows: a table by layer for each of them.
shown: list[str] = []


def on_tap(image: Path) -> list[Row]:
    with _network() as network:
        return _rows(ON_TAP, image, network)


def on_user_network(image: Path) -> list[Row]:
    return _rows(ON_USER_NETWORK, image, None)


def _rows(name: str, image: Path, network: Namespace | None) -> list[Row]:
    """Returns the row, and appends the table of its layers to `shown`."""
    build.build_soft_card()
    where = "on a tap device" if network else "on QEMU's user network"
    found = {}
    for kind in CARD_KINDS:
        with progress.step(f"GETs on {CONNECTIONS} connections, {kind} {where}"):
            found[kind] = run(image, kind, network)
    reference, virtio = (found[kind] for kind in CARD_KINDS)
    rate = " and ".join(
        f"{one.requests / one.interrupts:.1f} an interrupt with {one.frames / one.requests:.2f} frames" for one in (virtio, reference)
    )
    about = f"GET {VALUE_BYTES} B, {CONNECTIONS} connections, virtio-net {where} ({virtio.features}); {rate}"
    shown.append(layers(name, virtio, reference))
    peer = f"the soft 82599 {where}, in the same run"
    return [Row(f"request.{name}", f"instructions a request, {about}", virtio.instructions, None, reference.instructions, peer)]


@contextlib.contextmanager
def _network() -> Iterator[Namespace | None]:
    """Yields a network namespace with a tap device; None if this user may not make one."""
    linux.find_guest()
    from linux_guest.namespace import Namespace  # noqa: PLC0415, as it has become importable

    with contextlib.ExitStack() as made:
        network = None
        try:
            network = made.enter_context(Namespace(f"{HOST}/24"))
        except Failure as failure:
            progress.say(f"neap: no tap device ({failure.message}): both cards are on QEMU's user network")
        yield network


def run(image: Path, kind: str, network: Namespace | None) -> Measured:
    """Measures one card, on the tap device of `network` or on QEMU's user network."""
    low, high = text_range(image)
    with tempfile.TemporaryDirectory(prefix="neap-bench-") as name, contextlib.ExitStack() as running:
        directory = Path(name)
        file, window = directory / "counts-by-address", directory / "window"
        options = instructions.counter_options(directory / "counts", profile=(low, high, file))
        machine = running.enter_context(Machine(image, card_kind=kind, qemu_options=options, **_wiring(kind, network)))
        machine.wait_for_line(rf"memcached: listening on [0-9.]+:{PORT}", START_SECONDS)
        address = (IMAGE, PORT) if network else (LOOPBACK, machine.port(PORT))
        argv = [sys.executable, str(CLIENT), *map(str, (*address, CONNECTIONS, KEY_BYTES, VALUE_BYTES))]
        client = spawn(_in(network, argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        running.callback(stop, client)
        _expect(client, b"ready\n")
        for _ in range(WARM_UP_BURSTS):
            _burst(machine, client)
        before, first = _statistics(machine, network), _copy(machine, file)
        for _ in range(BURSTS):
            _burst(machine, client)
        last, after = _copy(machine, file), _statistics(machine, network)
        grown = ((low + at, end - begin) for at, (begin, end) in enumerate(zip(first, last, strict=True)) if end != begin)
        window.write_text("".join(f"{at:x} {count} 0\n" for at, count in grown))
        features = next((match[1] for line in machine.lines if (match := FEATURES.match(line))), "")
        found = profile.read(window, image)
    names = (f"{'virtio' if kind == 'virtio' else 'ixgbe'}.pair.interrupts", "net.frames_received")
    interrupts, frames = (after[name] - before[name] for name in names)
    return Measured(found, BURSTS * CONNECTIONS, interrupts, frames, features)


def _wiring(kind: str, network: Namespace | None) -> dict[str, Any]:
    """Returns the arguments of Machine that connect a card. On a tap device, the soft card's program or QEMU runs in the namespace."""
    if network is None:
        return {"forward": [(0, PORT), (0, CONTROL_PORT)]}
    wiring = {"net": f"tap:{TAP}", "card_queues": 1, "arguments": [f"ip={IMAGE}/24", "ip6=off"]}
    if kind == "virtio":
        return {**wiring, "qemu_command": network.inside(qemu.command())}
    return {**wiring, "soft_card": network.program(SOFT_CARD)}


def _in(network: Namespace | None, argv: Sequence[str]) -> Sequence[str]:
    return network.inside(argv) if network else argv


def _burst(machine: Machine, client: subprocess.Popen) -> None:
    """Sends a burst to the frozen machine, and lets the idle machine answer it."""
    time.sleep(IDLE_SECONDS)
    with machine.frozen():
        client.stdin.write(b"\n")
        client.stdin.flush()
        _expect(client, b"sent\n")
        time.sleep(ARRIVAL_SECONDS)
    _expect(client, b"done\n")


def _expect(client: subprocess.Popen, line: bytes) -> None:
    if (got := client.stdout.readline()) != line:
        raise Failure(f"the client of the bursts failed: {got.decode(errors='replace').strip() or 'no message'}")


def _copy(machine: Machine, file: Path) -> array.array:
    """Returns the counts by address so far."""
    time.sleep(IDLE_SECONDS)
    with machine.frozen():
        return array.array("Q", file.read_bytes())


def _statistics(machine: Machine, network: Namespace | None) -> dict[str, int]:
    """Returns the counters of the image's control."""
    target = IMAGE if network else f"{LOOPBACK}:{machine.port(CONTROL_PORT)}"
    text = output_of(_in(network, [sys.executable, str(build.REPOSITORY / "neap"), "ctl", target, "stats"]))
    return {name: int(value) for name, value in re.findall(r"([a-z_0-9.]+)=([0-9]+)", text)}


def text_range(image: Path) -> tuple[int, int]:
    """Returns the first address of an image's code, and the one behind its last."""
    segments = EXECUTABLE.findall(output_of([str(toolchain.require() / "bin/x86_64-neap-elf-readelf"), "-lW", str(image)]))
    if not segments:
        raise Failure(f"{image} has no code")
    return min(int(start, 16) for start, _ in segments), max(int(start, 16) + int(size, 16) for start, size in segments)


def layers(name: str, virtio: Measured, reference: Measured) -> str:
    """The layers of both cards, those of virtio by size, and the largest functions of each."""
    cells = [(f"{name}: layer", "virtio-net", "82599", "the largest functions of virtio-net; of the 82599")]
    of_both = [Counter(measured.profile.layers()) for measured in (virtio, reference)]
    for layer, _ in (of_both[0] | of_both[1]).most_common():
        counts = [f"{of[layer] / measured.requests:.0f}" for of, measured in zip(of_both, (virtio, reference), strict=True)]
        cells.append((layer, *counts, "; ".join(_functions(measured, layer) for measured in (virtio, reference))))
    cells.append(("all", f"{virtio.instructions:.0f}", f"{reference.instructions:.0f}", ""))
    return aligned(cells)


def _functions(measured: Measured, layer: str) -> str:
    largest = measured.profile.functions(layer).most_common(FUNCTIONS)
    return ", ".join(f"{name.rpartition('::')[2] or name} {count / measured.requests:.0f}" for name, count in largest)
