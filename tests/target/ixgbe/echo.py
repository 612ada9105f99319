# SPDX-License-Identifier: BSL-1.0
"""Shared by tests of our 82599 driver: a booted ixgbe_echo.cpp, which sends back every frame, and its peer at the card's stream socket.

On the socket, 4 bytes of length precede each frame.
"""

import contextlib
import re
import select
import socket
import struct
import tempfile
import time
from pathlib import Path

from tests.target.images import SOFT_CARD, image_path
from tests.target.ixgbe.echo_frames import CARD_MAC, PEER_MAC, STOP
from tools.machine import SUCCESS, Machine

IMAGE = image_path("ixgbe/ixgbe_echo")
START_SECONDS = 60
ANSWER_SECONDS = 60


class Peer:
    """The card's peer, at the stream socket."""

    def __init__(self, path: Path):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.connect(str(path))
        self._input = b""

    def send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">I", len(frame)) + frame)

    def receive(self, timeout: float = ANSWER_SECONDS) -> bytes | None:
        """Returns the next frame, or None after `timeout` seconds."""
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
        self._peer: Peer | None = None

    @property
    def peer(self) -> Peer:
        assert self._peer, "the cable is not connected"
        return self._peer

    def connect(self) -> Peer:
        self._peer = Peer(self._net)
        return self._peer

    def close(self) -> None:
        if self._peer:
            self._peer.close()

    def finish(self) -> dict[int, dict[str, int]]:
        """Ends the run and returns each core's counters. The image itself checks that no buffer is missing."""
        if not getattr(self.machine, "breaks_a_rule", False):
            no_rule_is_broken(self)
        self.peer.send(CARD_MAC + PEER_MAC + STOP + b"stop".ljust(46, b"\0"))
        assert self.machine.wait_exit(ANSWER_SECONDS) == SUCCESS, "\n".join(self.machine.lines)
        cores = {}
        for line in self.machine.lines:
            if match := re.search(r"ixgbe_echo: core (\d+) (frames=.*)", line):
                cores[int(match[1])] = {name: int(value) for name, value in (word.split("=") for word in match[2].split())}
        return cores


@contextlib.contextmanager
def booted(cores: int = 1, words: str = "", connect: bool = True, card_options: tuple[str, ...] = (), on_line=None, cpu: str = "max"):
    with contextlib.ExitStack() as stack:
        net = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="neap-echo-"))) / "net"
        options = {"card_options": card_options, "soft_card": SOFT_CARD, "on_line": on_line, "cpu": cpu, "memory": "512M"}
        machine = Machine(IMAGE, cores=cores, arguments=words.split(), net=f"listen:{net}", mac=CARD_MAC.hex(":"), **options)
        echo = Echo(stack.enter_context(machine), net)
        stack.callback(echo.close)
        if connect:
            echo.connect()
        machine.wait_for_line(f"ixgbe_echo: ready on {min(cores, 16)} cores", START_SECONDS)
        if connect:
            machine.wait_for_line("link up", ANSWER_SECONDS)
        yield echo


def exchange(peer: Peer, frames: list[bytes], expect, window: int = 32) -> None:
    """Sends `frames` with fewer than `window` of them unanswered. Compares each answer with `expect(frame)`, in the order of the frames."""
    answered = 0
    for sent, frame in enumerate(frames):
        peer.send(frame)
        while sent + 1 - answered >= window or (sent + 1 == len(frames) and answered < len(frames)):
            reply = peer.receive()
            assert reply is not None, f"no answer to frame {answered} of {len(frames)}"
            assert reply == expect(frames[answered]), f"frame {answered} came back changed"
            answered += 1


def no_rule_is_broken(echo: Echo) -> None:
    assert echo.machine.card_command("violations")["total"] == 0, echo.machine.card_command("violations")
