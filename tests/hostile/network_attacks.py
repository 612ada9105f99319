# SPDX-License-Identifier: BSL-1.0
"""Attacks by a machine on the same network: forged and half-open connections, many clients of control, a DHCP server of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hostile import frames
from hostile.attack import CONTROL, MEMCACHED, PAUSE_SECONDS, Attack, client, reset, send_some
from hostile.dhcp_server import DhcpServer

if TYPE_CHECKING:
    from hostile.scene import Scene


class ForgedSegments(Attack):
    """Segments with another client's address and guessed sequence numbers. Their TCP options announce a maximum segment size of one
    byte."""

    row = 8
    load_words = ("--value-size", "30000")
    kinds: Sequence[tuple[int, bytes]] = (
        (frames.ACK, frames.mss_option(1)),
        (frames.PSH | frames.ACK, frames.mss_option(1)),
        (frames.SYN, frames.mss_option(1)),
        (frames.RST, b""),
        (frames.ACK, b"\x03\x03\x0e\x00"),
        (frames.FIN | frames.ACK, frames.mss_option(0)),
    )

    ports_seconds = 1.0

    def begin(self) -> None:
        self._count = 0
        self._ports: list[int] = []
        self._ports_until = 0.0

    def press(self) -> None:
        if time.monotonic() >= self._ports_until:
            self._ports = self.scene.bystander_ports()
            self._ports_until = time.monotonic() + self.ports_seconds
        for port in self._ports:
            flags, options = self.kinds[self._count % len(self.kinds)]
            sequence, acknowledgement = (self.scene.peer.random.randrange(1 << 32) for _ in range(2))
            self.scene.peer.send_tcp((self.scene.own_address, port), MEMCACHED, sequence, acknowledgement, flags, 1000, b"x", options)
            self._count += 1
        time.sleep(10 * PAUSE_SECONDS)


class SynFlood(Attack):
    """SYNs from addresses that never answer."""

    row = 10
    batch = 20
    networks = ("198.51.100", "203.0.113")  # TEST-NET-2 and -3 (RFC 5737); the kernel has no route to them

    def press(self) -> None:
        draw = self.scene.peer.random
        for _ in range(self.batch):
            source = f"{draw.choice(self.networks)}.{draw.randrange(1, 255)}", draw.randrange(1024, 65536)
            port = MEMCACHED if draw.random() < 0.8 else CONTROL
            self.scene.peer.send_tcp(source, port, draw.randrange(1 << 32), 0, frames.SYN, 1000, options=frames.mss_option(1460))
        time.sleep(5 * PAUSE_SECONDS)


class ControlCrowd(Attack):
    """More clients of control than control accepts, all without the token. They keep sending lines."""

    row = 11
    count = 40
    raw_count = 200

    def begin(self) -> None:
        self._next = 0

    def press(self) -> None:
        self._next += 1
        if len(self.connections) < self.count:
            with contextlib.suppress(OSError):
                self.connections.append(client(self.scene, CONTROL))
        for at, connection in enumerate(self.connections):
            if at % 8 == self._next % 8 and not send_some(connection, b"help\nstatus\n"):
                reset(connection)
                self.connections[at] = client(self.scene, CONTROL)
        if len(self.raw) < self.raw_count:
            source = (self.scene.foreign_address(self._next % 64), 40_000 + self._next)
            with contextlib.suppress(TimeoutError):
                self.raw.append(self.scene.peer.connect(source, CONTROL))
        for connection in self.raw[self._next % 10 :: 10]:
            if not connection.ended:
                connection.send(b"help\n")
        self.scene.peer.poll(5 * PAUSE_SECONDS)


class ShortLeases(Attack):
    """A DHCP server that refuses its own offers for some seconds, and then gives leases of `lease_seconds`."""

    row = 12
    seconds_min = 25.0
    lease_seconds = 12
    refusal_seconds = 10.0
    # While requests are refused, a client with backoff sends three or four messages of each kind (RFC 2131, 4.1).
    messages_max = 12
    # A client renews its lease after half of the lease time. During the measurement it must make at least this many renewals.
    renewals_min = 2

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        addresses = scene.device, scene.own_address, scene.address
        self._server = DhcpServer(*addresses, refusal_seconds=self.refusal_seconds, lease_seconds=self.lease_seconds)
        self._server.start()

    @classmethod
    def address_word(cls, _address: str, _gateway: str) -> str:
        return "ip=dhcp"

    def findings(self) -> dict[str, int]:
        """Returns the number of messages above the limit while requests were refused, and the number of missing renewals."""
        return {
            "messages_in_excess": max(0, self._server.messages_while_refusing - self.messages_max),
            "renewals_missing": max(0, 1 + self.renewals_min - self._server.leases),
        }

    def end_of_scene(self) -> None:
        self._server.end()
