# SPDX-License-Identifier: BSL-1.0
"""`./neap bench linux-card`: a Linux guest on the soft card beside the same guest on QEMU's own `igb`.

The question is whether a card in a separate process is slower than a card inside QEMU. Both guests run at once. Each guest has one CPU, the
same fixed interrupt moderation, and a tap device in its own network namespace. Measurements alternate between the guests, so load on the
host affects both equally, and the median of the rounds counts. Neither tap device accepts large segments for the host to split (vnet_hdr),
because the soft card does not support that.

The content of the traffic is checked by tests, not here, because under emulation the check would cost more than the transfer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import sys
from typing import TYPE_CHECKING

from tools import build, packages, progress, qemu
from tools.bench.rows import Row
from tools.errors import Failure

if TYPE_CHECKING:
    from linux_guest.guest import LinuxGuest
    from linux_guest.namespace import Namespace

ROUNDS = 3
SECONDS = 2
MODERATION_US = 20
IN_FLIGHT = 64
DATAGRAM_BYTES = 64
PORT = 5010
OURS, PEER = "soft82599", "igb"
OFFLOADS = ("rx", "tx", "sg", "tso", "gso", "gro")
# Name of each measurement, arguments of the traffic program, name of the value in its output, unit.
KINDS = (
    ("tcp_in", "up", "bytes", "MB/s"),
    ("tcp_out", "down", "bytes", "MB/s"),
    ("small", f"echo {IN_FLIGHT}", "answers", f"answers/s, {DATAGRAM_BYTES} B, {IN_FLIGHT} in flight"),
    ("round_trip", "echo 1", "median_us", f"us, {DATAGRAM_BYTES} B, median"),
)


@dataclasses.dataclass
class Side:
    """One guest, its network, and the traffic program at the host's end of that network."""

    guest: LinuxGuest
    namespace: Namespace
    traffic: str
    address: str
    # A script for the guest that waits until the namespace answers.
    reach: str

    def bring_up(self) -> None:
        driver = "ixgbe" if self.guest.machine.card else "igb"
        self.guest.output_of(
            f"modprobe {driver} && ip link set eth0 up && ip addr add {self.address}/24 dev eth0 && "
            f"for i in $(seq 100); do [ $(cat /sys/class/net/eth0/carrier) = 1 ] && break; sleep 0.1; done; "
            f"{self.reach} && ethtool -C eth0 rx-usecs {MODERATION_US} && "
            f"{{ setsid traffic serve {PORT} >/dev/null 2>&1 & }}",
            seconds=180,
        )

    def set_offloads(self, on: bool) -> None:
        words = " ".join(f"{name} {'on' if on else 'off'}" for name in OFFLOADS)
        self.guest.output_of(f"ethtool -K eth0 {words}; {self.reach}", seconds=180)

    def measure(self, words: str, printed: str) -> float:
        """Measures and returns one value: a rate per second, or microseconds."""
        way, _, in_flight = words.partition(" ")
        last = f"{in_flight} {DATAGRAM_BYTES}" if in_flight else "1 unchecked"
        words_printed = self.namespace.run(f"{self.traffic} {way} {self.address} {PORT} {SECONDS} {last}", seconds=180).split()
        values = {name: int(value) for name, value in zip(words_printed[::2], words_printed[1::2])}
        if printed.endswith("_us"):
            return values[printed]
        return values[printed] / values["ms"] * 1000 / (1e6 if printed == "bytes" else 1)


def rows() -> list[Row]:
    """Returns the table. A ratio below 1 means that the soft card is faster than the peer."""
    packages.require("card", "rust")
    build.build_soft_card()
    qemu.command()
    sys.path.insert(0, str(build.REPOSITORY / "tests"))
    from linux_guest import guest_image  # noqa: PLC0415
    from linux_guest.driver import reached  # noqa: PLC0415
    from linux_guest.guest import LinuxGuest  # noqa: PLC0415
    from linux_guest.namespace import Namespace  # noqa: PLC0415

    image = guest_image.build()
    with contextlib.ExitStack() as stack:
        sides: dict[str, Side] = {}
        for name in (OURS, PEER):
            namespace = stack.enter_context(Namespace())
            with progress.step(f"booting Linux on {name}"):
                guest = stack.enter_context(LinuxGuest(image, card=name, namespace=namespace))
                sides[name] = Side(guest, namespace, str(image.traffic), "10.0.3.2", reached(namespace.address))
                sides[name].bring_up()
        return [row for on in (True, False) for row in _with_offloads(sides, on)]


def _with_offloads(sides: dict[str, Side], on: bool) -> list[Row]:
    state = "on" if on else "off"
    values: dict[tuple[str, str], list[float]] = {}
    for side in sides.values():
        side.set_offloads(on)
    with progress.step(f"measuring with offloads {state}, {ROUNDS} rounds"):
        sides[OURS].guest.machine.card_command("reset-counters")
        for _ in range(ROUNDS):
            for kind, words, printed, _unit in KINDS:
                for name, side in sides.items():
                    values.setdefault((kind, name), []).append(side.measure(words, printed))
    table = []
    for kind, _words, printed, unit in KINDS:
        ours, peer = (statistics.median(values[kind, name]) for name in (OURS, PEER))
        if not ours or not peer:
            raise Failure(f"{kind} with offloads {state}: nothing passed")
        table += [Row(f"{kind}.{state}.{OURS}", unit, ours), Row(f"{kind}.{state}.{PEER}", unit, peer)]
        rate = not printed.endswith("_us")
        # A process boundary may cost a round trip; it must not cost throughput.
        ratio = peer / ours if rate else ours / peer
        table.append(
            Row(f"{kind}.{state}.ratio", f"{'igb / ours' if rate else 'ours / igb'}, below 1: ours is faster", ratio, 1 if rate else None)
        )
    return table + _accesses(sides[OURS].guest, state)


def _accesses(guest: LinuxGuest, state: str) -> list[Row]:
    """Returns the driver's register accesses in the measurements with these offloads. Each access costs an exit from the guest's CPU."""
    counters = guest.machine.card_counters()
    table = []
    for direction in ("reads", "writes"):
        counts = counters[direction]
        most = ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda pair: -pair[1])[:3])
        table.append(Row(f"{direction}.{state}.{OURS}", f"register {direction}; most: {most}", sum(counts.values())))
    return table
