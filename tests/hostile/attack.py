# SPDX-License-Identifier: BSL-1.0
"""Common parts of all attacks: their steps, and how they open, use and end connections of the host's kernel.

An attack begins, repeats its step while another client (the bystander) measures its latency, and ends by resetting the connections. Stored
items are deleted. All attacks limit their own rate, because the host's two cores also emulate the machine. An attack that starves the
emulator measures only the host.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hostile.raw_peer import RawConnection
    from hostile.scene import Scene

MEMCACHED, CONTROL = 11211, 5002
SMALLEST_RECEIVE_BUFFER = 2048
PAUSE_SECONDS = 0.002
CONNECT_SECONDS = 20.0


def client(scene: Scene, port: int = MEMCACHED, *, reads: bool = True) -> socket.socket:
    """Opens a connection of the host's kernel. With `reads=False` the connection has the smallest window that the kernel allows."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if not reads:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALLEST_RECEIVE_BUFFER)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.settimeout(CONNECT_SECONDS)
    made.connect((scene.address, port))
    return made


def reset(connection: socket.socket) -> None:
    """Closes the connection with a RST, after which no end keeps state of the connection."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def send_some(connection: socket.socket, data: bytes) -> int:
    """Sends as much of `data` as the kernel accepts now, and returns the number of bytes: 0 if it accepts none, or if the connection has
    ended."""
    connection.setblocking(False)
    try:
        return connection.send(data)
    except OSError:
        return 0


def store(connection: socket.socket, key: bytes, value: bytes) -> None:
    """Stores a value in memcached. Raises AssertionError if memcached refuses the value."""
    connection.settimeout(CONNECT_SECONDS)
    connection.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
    answer = connection.recv(100)
    assert answer == b"STORED\r\n", answer


class Attack:
    """One row of the table in docs/threat-model.md. `words` are the words that this attack adds to the image's command line."""

    row = 0
    words: Sequence[str] = ("memory=64M",)
    # Keys that the attack leaves in the store.
    keys: Sequence[bytes] = ()
    # Bytes by which the heap may grow during the attack; None: no limit.
    limit_bytes: int | None = None
    # RAM of the machine.
    memory = "768M"
    # More arguments for the load generator that runs as the bystander.
    load_words: Sequence[str] = ()

    # The minimum duration of the bystander's measurement.
    seconds_min = 0.0
    # The time within which memory use and connections return to the level before the attack.
    level_seconds = 45.0
    stays: frozenset[str] = frozenset()  # counters that may stay above their level
    # True if the attack may evict the bystander's items.
    may_miss = False

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.connections: list[socket.socket] = []
        self.raw: list[RawConnection] = []
        # Numbers that are reported, and not judged.
        self.measured: dict[str, int] = {}

    @classmethod
    def address_word(cls, address: str, gateway: str) -> str:
        """Returns the word of the command line that sets the image's address."""
        return f"ip={address}/24,{gateway}"

    def prepare(self) -> None:
        """Runs before memory use is read for the first time."""

    def begin(self) -> None:
        """Opens the attack's connections."""

    def press(self) -> None:
        """Performs one step of a few milliseconds."""
        time.sleep(PAUSE_SECONDS)

    def bounds(self, _stats: dict[str, int]) -> dict[str, int]:
        """Returns the documented limits of counters. No sample of control's `stats` may exceed them, `_stats` is one of these samples."""
        return {}

    def after_load(self) -> None:
        """Runs after the bystander's measurement. The attack's connections are still open, and no other client is connected."""

    def end(self) -> None:
        for connection in self.raw:
            connection.reset()
        self.raw.clear()
        for connection in self.connections:
            reset(connection)
        self.connections.clear()

    def findings(self) -> dict[str, int]:
        """Returns counts that are specific to this attack. Each MUST be 0."""
        return {}

    def end_of_scene(self) -> None:
        """Runs after the last measurement."""
