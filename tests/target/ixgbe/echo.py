# SPDX-License-Identifier: BSL-1.0
"""Shared by tests of our 82599 driver: a booted ixgbe_echo.cpp, which sends back every frame, and its peer at the card's stream socket.

On the socket, 4 bytes of length precede each frame.
"""

from __future__ import annotations

import random
import re
import select
import shutil
import socket
import struct
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from hostile import frames

from tests.target.images import SOFT_CARD, image_path
from tools.machine import SUCCESS, Machine

IMAGE = image_path("ixgbe/ixgbe_echo")
STRICT = ("--strict",)
CARD_MAC = bytes.fromhex("028259900042")
PEER_MAC = bytes.fromhex("020000000001")
CARD_ADDRESS, PEER_ADDRESS = "10.0.0.2", "10.0.0.1"
CARD_IP, PEER_IP = socket.inet_aton(CARD_ADDRESS), socket.inet_aton(PEER_ADDRESS)
TCP_WINDOW = 1000
ECHO = b"\x88\xb5"
STOP = b"\x88\xb6"
SET = b"\x88\xb7"
START_SECONDS = 60
ANSWER_SECONDS = 60


class Peer:
    """The other end of the cable."""

    def __init__(self, path: Path):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.connect(str(path))
        self._input = b""

    def send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">I", len(frame)) + frame)

    def receive(self, timeout: float = ANSWER_SECONDS) -> bytes | None:
        """The next frame, or None after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            if len(self._input) >= 4:
                end = 4 + struct.unpack(">I", self._input[:4])[0]
                if len(self._input) >= end:
                    frame, self._input = self._input[4:end], self._input[end:]
                    return frame
            if not select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            data = self._socket.recv(1 << 16)
            assert data, "the card closed the connection"
            self._input += data

    def close(self) -> None:
        self._socket.close()


class Echo:
    """A booted image, its machine and (after `connect`) its peer."""

    def __init__(self, machine: Machine, net: Path):
        self.machine = machine
        self._net = net
        self.peer: Peer | None = None

    def connect(self) -> Peer:
        self.peer = Peer(self._net)
        return self.peer

    def finish(self) -> dict[int, dict[str, int]]:
        """Ends the run; gives each core's counters. The image itself checks that no buffer is missing."""
        assert self.peer
        self.peer.send(CARD_MAC + PEER_MAC + STOP + b"stop".ljust(46, b"\0"))
        assert self.machine.wait_exit(ANSWER_SECONDS) == SUCCESS, "\n".join(self.machine.lines)
        cores = {}
        for line in self.machine.lines:
            if match := re.search(r"ixgbe_echo: core (\d+) (frames=.*)", line):
                cores[int(match[1])] = {name: int(value) for name, value in (word.split("=") for word in match[2].split())}
        return cores


@contextmanager
def booted(cores: int = 1, words: str = "", connect: bool = True, card_options: tuple[str, ...] = (), on_line=None, cpu: str = "max"):
    folder = Path(tempfile.mkdtemp(prefix="neap-echo-"))
    try:
        net = folder / "net"
        with Machine(
            IMAGE,
            cores=cores,
            memory="512M",
            arguments=words.split(),
            net=f"listen:{net}",
            mac=CARD_MAC.hex(":"),
            card_options=card_options,
            soft_card=SOFT_CARD,
            on_line=on_line,
            cpu=cpu,
        ) as machine:
            echo = Echo(machine, net)
            if connect:
                echo.connect()
            machine.wait_for_line(f"ixgbe_echo: ready on {min(cores, 16)} cores", START_SECONDS)
            if connect:
                machine.wait_for_line("link up", ANSWER_SECONDS)
            try:
                yield echo
            finally:
                if echo.peer:
                    echo.peer.close()
    finally:
        shutil.rmtree(folder)


def echo_frame(number: int, size: int, seed: int = 0) -> bytes:
    content = random.Random(number * 1_000_003 + seed).randbytes(size - 18)
    return CARD_MAC + PEER_MAC + ECHO + struct.pack(">I", number) + content


def echoed(frame: bytes) -> bytes:
    return frame[6:12] + CARD_MAC + frame[12:]


def ip_frame(protocol: int, payload: bytes, identification: int = 0) -> bytes:
    packet = frames.ip_packets(PEER_ADDRESS, CARD_ADDRESS, protocol, payload, identification=identification & 0xFFFF)[0]
    return frames.ethernet(CARD_MAC, PEER_MAC, frames.ETHERTYPE_IP, packet)


def udp_frame(number: int, source_port: int, size: int) -> bytes:
    """A UDP datagram with valid checksums, `size` bytes in all."""
    payload = struct.pack(">I", number) + random.Random(number).randbytes(size - 46)
    datagram = frames.udp((PEER_ADDRESS, source_port), (CARD_ADDRESS, 7), payload)
    pseudo = PEER_IP + CARD_IP + struct.pack(">BBH", 0, frames.PROTOCOL_UDP, len(datagram))
    checksum = struct.pack(">H", frames.checksum(pseudo + datagram) or 0xFFFF)
    return ip_frame(frames.PROTOCOL_UDP, datagram[:6] + checksum + datagram[8:], number)


def tcp_frame(
    payload: bytes, source_port: int, destination_port: int, sequence: int, acknowledgement: int = 1, identification: int = 0
) -> bytes:
    """A TCP segment with valid checksums."""
    addresses = (PEER_ADDRESS, source_port), (CARD_ADDRESS, destination_port)
    segment = frames.tcp(*addresses, sequence, acknowledgement, frames.ACK, TCP_WINDOW, payload)
    return ip_frame(frames.PROTOCOL_TCP, segment, identification)


def udp_echoed(frame: bytes) -> bytes:
    """Swaps addresses and ports. That changes no checksum, so the card must compute the same checksums."""
    ip, udp = frame[14:34], frame[34:42]
    return frame[6:12] + CARD_MAC + frame[12:14] + ip[:12] + ip[16:20] + ip[12:16] + udp[2:4] + udp[:2] + udp[4:] + frame[42:]


def exchange(peer: Peer, frames: list[bytes], expect, window: int = 32) -> None:
    """Sends `frames`, at most `window` of them unanswered, and compares the answers, in order."""
    answered = 0
    for sent, frame in enumerate(frames):
        peer.send(frame)
        while sent + 1 - answered >= window or (sent + 1 == len(frames) and answered < len(frames)):
            reply = peer.receive()
            assert reply is not None, f"no answer to frame {answered} of {len(frames)}"
            assert reply == expect(frames[answered]), f"frame {answered} came back changed"
            answered += 1


def setting_frame(text: str) -> bytes:
    """Asks the image for a setting, or for one of its other actions."""
    return CARD_MAC + PEER_MAC + SET + text.encode().ljust(60, b"\0")


def no_rule_is_broken(echo: Echo) -> None:
    assert echo.machine.card_command("violations")["total"] == 0, echo.machine.card_command("violations")
