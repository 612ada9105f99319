# SPDX-License-Identifier: BSL-1.0
"""A peer below TCP: it sends frames directly, with addresses that the host's kernel does not have.

The host's kernel follows the rules of TCP: it reads, acknowledges, and resets unknown connections. An attacker does not follow them. So
RawPeer implements just enough of TCP to open a connection, and can then send any frame. `poll` also answers ARP requests for its addresses.
"""

from __future__ import annotations

import contextlib
import errno
import random
import socket
import time

from hostile import frames
from hostile.frames import ACK, PSH, RST, SYN, Segment

ANSWER_SECONDS = 10.0
RECEIVE_BYTES = 1 << 16
RECEIVE_BUFFER_BYTES = 8 << 20
MAC = bytes.fromhex("020000666666")
ETH_P_ALL = 3
SO_RCVBUFFORCE = 33  # socket(7)


class RawPeer(contextlib.AbstractContextManager):
    """The attacker: a packet socket on `device`. `target`: the image's address and MAC. A context manager."""

    def __init__(self, device: str, target: str, target_mac: bytes) -> None:
        self.target = target
        self._target_mac = target_mac
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        self._socket.bind((device, 0))
        self._socket.setblocking(False)
        self._owned: set[bytes] = set()
        self._connections: dict[tuple[str, int, int], RawConnection] = {}
        self.random = random.Random(82599)

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def own(self, address: str) -> None:
        """Answers ARP requests for `address` from now on."""
        self._owned.add(socket.inet_aton(address))

    def send_frame(self, frame: bytes) -> None:
        while True:
            try:
                self._socket.send(frame)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ENOBUFS):  # these two errors mean that the device's queue is full
                    raise
                time.sleep(0.001)

    def send_ip(self, source: str, protocol: int, payload: bytes) -> None:
        for packet in frames.ip_packets(source, self.target, protocol, payload, identification=self.random.randrange(1, 65536)):
            self.send_frame(frames.ethernet(self._target_mac, MAC, frames.ETHERTYPE_IP, packet))

    def send_tcp(
        self, source: tuple[str, int], port: int, sequence: int, acknowledgement: int, flags: int, window: int,
        payload: bytes = b"", options: bytes = b"",
    ) -> None:  # fmt: skip
        segment = frames.tcp(source, (self.target, port), sequence, acknowledgement, flags, window, payload, options)
        self.send_ip(source[0], frames.PROTOCOL_TCP, segment)

    def connect(self, source: tuple[str, int], port: int, *, window: int = 65535, options: bytes = b"") -> RawConnection:
        """Opens a connection by the three-way handshake. Raises TimeoutError."""
        connection = RawConnection(self, source, port, window)
        self._connections[(source[0], source[1], port)] = connection
        self.own(source[0])
        deadline = time.monotonic() + ANSWER_SECONDS
        while not connection.open:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no SYN-ACK for {source[0]}:{source[1]} within {ANSWER_SECONDS:g} s")
            self.send_tcp(source, port, connection.next_sequence - 1, 0, SYN, window, options=options)
            self.poll(0.5, until=lambda: connection.open)
        return connection

    def poll(self, seconds: float, until=lambda: False) -> None:
        """Processes arrived frames for at most `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                frame = self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                if until() or time.monotonic() >= deadline:
                    return
                time.sleep(0.0005)
                continue
            self._take_in(frame)

    def _take_in(self, frame: bytes) -> None:
        if frame[6:12] != self._target_mac:
            return
        if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\x00\x01" and frame[38:42] in self._owned:
            self.send_frame(frames.arp_reply(MAC, frame[38:42], frame[22:28], frame[28:32]))
            return
        segment = frames.parse_tcp(frame)
        if segment is None:
            return
        connection = self._connections.get((*segment.destination, segment.source[1]))
        if connection is not None:
            connection.take_in(segment)


class RawConnection:
    """One TCP connection of a RawPeer. Each of its segments announces `window`, unscaled."""

    def __init__(self, peer: RawPeer, source: tuple[str, int], port: int, window: int) -> None:
        self._peer = peer
        self.source = source
        self.port = port
        self.window = window
        self.open = False
        self.ended = False
        self.next_sequence = (peer.random.randrange(1 << 32) + 1) & frames.SEQUENCE_MASK
        self.acknowledgement = 0
        self.acknowledges = True

    def take_in(self, segment: Segment) -> None:
        if segment.flags & RST:
            self.ended = True
        elif segment.flags & SYN and not self.open:
            self.acknowledgement = (segment.sequence + 1) & frames.SEQUENCE_MASK
            self.open = True
            self.send_flags(ACK)
        elif segment.payload and segment.sequence == self.acknowledgement and self.acknowledges:
            self.acknowledgement = (self.acknowledgement + len(segment.payload)) & frames.SEQUENCE_MASK
            self.send_flags(ACK)

    def send(self, payload: bytes) -> None:
        """Sends one segment of any length. A segment longer than a frame is sent as IP fragments."""
        self._send(PSH | ACK, payload)
        self.next_sequence = (self.next_sequence + len(payload)) & frames.SEQUENCE_MASK

    def send_flags(self, flags: int) -> None:
        self._send(flags, b"")

    def reset(self) -> None:
        self.send_flags(RST | ACK)
        self.ended = True

    def _send(self, flags: int, payload: bytes) -> None:
        self._peer.send_tcp(self.source, self.port, self.next_sequence, self.acknowledgement, flags, self.window, payload)


def mac_of(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
