# SPDX-License-Identifier: BSL-1.0
"""Frames of all kinds to ixgbe_echo.cpp and back, while settings change and faults occur, with an account of every lost frame.

Each frame carries a number, so answers can be matched in any order. At the end, the unanswered frames are compared with the reported
losses. The soft card's `statistics` report the losses on the wire and by the card's faults. The driver reports its own losses (`lost=N`,
refusals while there is no link). A loss that neither the card nor the driver reports is a failure.
"""

from __future__ import annotations

import random
import re
import struct
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.target.ixgbe.echo import Echo
from tests.target.ixgbe.echo_frames import CARD_IP, CARD_MAC, ECHO, PEER_IP, PEER_MAC, SET, setting_frame, tcp_frame, udp_echoed, udp_frame
from tools.checksums import checksum

PAUSE = b"\x88\x08"
ARP_REQUEST = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1)
ARP_REPLY = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 2)
UDP_PORTS = range(1000, 1012)
TCP_PORTS = range(2000, 2006)
# Number of consecutive segments, which the card may join. After them the sequence number jumps.
BURST = 3
ORDINARY_BYTES_MAX = 1514
# The maximum number of frames in flight. Every queue has room for all of them.
WINDOW = 48
# After this long without an answer, unanswered frames count as lost for the time being.
STALL_SECONDS = 0.2
# At the end, when no fault is active, this limit applies instead of STALL_SECONDS.
SETTLED_SECONDS = 1.0
# A request for a setting, or its answer, may be lost. The request is repeated after this many reads without an answer.
READS_PER_REQUEST = 400
READ_SECONDS = 0.005
REQUESTS_MAX = 30


@dataclass
class Stream:
    """One TCP connection: its next sequence number, and the number of segments left in its burst."""

    sequence: int = 1
    left: int = BURST


@dataclass
class Account:
    """Counts of lost frames, by the cause of the loss."""

    sent: int = 0
    never_answered: int = 0
    wire: Counter = field(default_factory=Counter)
    driver: Counter = field(default_factory=Counter)

    @property
    def unexplained(self) -> int:
        return self.never_answered - sum(self.wire.values()) - sum(self.driver.values())

    def __str__(self) -> str:
        def parts(counts: Counter) -> str:
            return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count) or "nothing"

        wire, driver = parts(self.wire), parts(self.driver)
        return f"{self.sent} frames, {self.never_answered} never answered; the wire lost: {wire}; the driver says: {driver}"


class MixedTraffic:
    """UDP, TCP, ARP and large frames without IP, a limited number of them unanswered. `seed` decides sizes and kinds."""

    def __init__(self, echo: Echo, seed: int, meanwhile: Callable[[], None] = lambda: None):
        """`meanwhile` is called repeatedly while this object waits for an answer."""
        self._meanwhile = meanwhile
        self.echo = echo
        self.peer = echo.peer
        self._chance = random.Random(seed)
        self._next = 1
        self.answered = self.corrupt = self.late = self.joined = 0
        self._out: dict[int, tuple[str, bytes]] = {}  # not answered, oldest first: kind and expected answer
        self._given_up = 0  # how many frames of `_out` count as lost
        self._newest: dict[str, int] = {}  # the newest answered frame of each flow
        self._streams = {port: Stream() for port in TCP_PORTS}
        self.setting_requests = self.setting_answers = self.pauses = 0  # requests and answers about settings; pause frames of the card

    @property
    def sent(self) -> int:
        return self._next - 1

    # ---- sending ----

    def send(self, frames: int) -> None:
        for _ in range(frames):
            while len(self._out) - self._given_up >= WINDOW:
                if not self._receive(STALL_SECONDS):
                    self._given_up = len(self._out)
            self._send_one()
        while self._receive(0.0):
            pass

    def _send_one(self) -> None:
        number = self._next
        self._next += 1
        kind = self._chance.randrange(20)
        if kind == 0:
            flow, frame, expected = "arp", *self._arp(number)
        elif kind <= 3:
            flow, frame, expected = "echo", *self._plain(number)
        elif kind <= 11:
            port = self._chance.choice(TCP_PORTS)
            flow, frame, expected = f"tcp {port}", *self._segment(number, port)
        else:
            port = self._chance.choice(UDP_PORTS)
            frame = udp_frame(number, port, self._chance.randint(60, 1514))
            flow, expected = f"udp {port}", udp_echoed(frame)
        self.peer.send(frame)
        self._out[number] = flow, expected

    def _arp(self, number: int) -> tuple[bytes, bytes]:
        """Returns a request and its answer. The sender's IP address is the number."""
        sender = struct.pack(">I", number)
        ask = b"\xff" * 6 + PEER_MAC + b"\x08\x06" + ARP_REQUEST + PEER_MAC + sender + bytes(6) + CARD_IP
        reply = PEER_MAC + CARD_MAC + b"\x08\x06" + ARP_REPLY + CARD_MAC + CARD_IP + PEER_MAC + sender
        return ask.ljust(60, b"\0"), reply.ljust(60, b"\0")

    def _plain(self, number: int) -> tuple[bytes, bytes]:
        bytes_ = self._chance.choice((60, 61, 500, 1514, 2048, 4100, 9014))
        rest = ECHO + struct.pack(">I", number) + random.Random(number).randbytes(bytes_ - 18)
        return CARD_MAC + PEER_MAC + rest, PEER_MAC + CARD_MAC + rest

    def _segment(self, number: int, port: int) -> tuple[bytes, bytes]:
        """Returns a segment and its expected answer. Number and length precede each payload, so that joined payloads can be separated."""
        stream = self._streams[port]
        length = self._chance.randint(8, 1400)
        payload = struct.pack(">IH", number, length) + random.Random(number).randbytes(length - 6)
        frame = tcp_frame(payload, port, 80, stream.sequence)
        expected = struct.pack(">I", stream.sequence) + payload
        stream.sequence = (stream.sequence + length) & 0xFFFFFFFF
        stream.left -= 1
        if stream.left == 0:
            stream.sequence, stream.left = (stream.sequence + 100_000) & 0xFFFFFFFF, BURST
        return frame, expected

    # ---- receiving ----

    def _receive(self, timeout: float) -> bool:
        reply = self.peer.receive(timeout)
        if reply is None:
            return False
        if reply[12:14] == SET:
            self.setting_answers += 1
        elif reply[12:14] == PAUSE:
            self.pauses += 1
        elif (parts := self._separated(reply)) is None or not all(self._is_right(*part) for part in parts):
            self.corrupt += 1
        else:
            for number, _ in parts:
                self._take(number)
            self.joined += len(parts) - 1
        return True

    def _take(self, number: int) -> None:
        flow = self._out.pop(number)[0]
        self.answered += 1
        self._given_up = min(self._given_up, len(self._out))
        if self._newest.get(flow, 0) > number:
            self.late += 1
        self._newest[flow] = max(number, self._newest.get(flow, 0))

    def _is_right(self, number: int, content: bytes) -> bool:
        return number in self._out and self._out[number][1] == content

    @staticmethod
    def _separated(reply: bytes) -> list[tuple[int, bytes]] | None:
        """Returns numbers and contents of the frames that `reply` answers; None if it answers none."""
        ethertype = reply[12:14]
        if ethertype == ECHO:
            return [(struct.unpack_from(">I", reply, 14)[0], reply)]
        if ethertype == b"\x08\x06":
            return [(struct.unpack_from(">I", reply, 38)[0], reply[:60])]
        if ethertype == b"\x08\x00" and reply[23] == 17:
            return [(struct.unpack_from(">I", reply, 42)[0], reply)]
        if ethertype != b"\x08\x00" or reply[23] != 6 or len(reply) < 60:
            return None
        total = struct.unpack_from(">H", reply, 16)[0]
        ip, tcp, payload = reply[14:34], reply[34:54], reply[54 : 14 + total]
        pseudo = CARD_IP + PEER_IP + struct.pack(">BBH", 0, 6, total - 20)
        addresses = reply[:12] == PEER_MAC + CARD_MAC and ip[12:20] == CARD_IP + PEER_IP and tcp[:2] == struct.pack(">H", 80)
        if not addresses or checksum(ip) != 0 or checksum(pseudo + tcp + payload) != 0:
            return None
        sequence = struct.unpack_from(">I", tcp, 4)[0]
        parts = []
        while payload:
            number, length = struct.unpack_from(">IH", payload) if len(payload) >= 8 else (0, 0)
            if not 8 <= length <= len(payload):
                return None
            parts.append((number, struct.pack(">I", sequence) + payload[:length]))
            sequence, payload = (sequence + length) & 0xFFFFFFFF, payload[length:]
        return parts

    # ---- settings ----

    def ask(self, text: str) -> None:
        """Requests a setting without waiting. The answer is also printed on the console."""
        self.setting_requests += 1
        self.peer.send(setting_frame(text))

    def set(self, text: str) -> None:
        """Requests a setting, with traffic meanwhile, until it is answered."""
        while self._receive(0.0):
            pass
        answers = self.setting_answers
        for look in range(REQUESTS_MAX * READS_PER_REQUEST):
            if look % READS_PER_REQUEST == 0:
                self.ask(text)
            if len(self._out) - self._given_up < WINDOW:
                self._send_one()
            if not self._receive(READ_SECONDS) and look % READS_PER_REQUEST == READS_PER_REQUEST - 1:
                self._given_up = len(self._out)
            if self.setting_answers != answers:
                return
            self._meanwhile()
        raise AssertionError(f"no answer to {text}")

    # ---- the account ----

    def settle(self) -> None:
        """MUST be called while no fault is active. Waits until the image has answered the last frames of each flow. Then no frame is in
        flight."""
        flows = {*(f"udp {port}" for port in UDP_PORTS), *(f"tcp {port}" for port in TCP_PORTS), "arp", "echo"}
        for _ in range(100):
            first = self._next
            self._given_up = len(self._out)
            while self._next < first + 400:
                self.send(1)
            while any(number >= first for number in self._out) and self._receive(SETTLED_SECONDS):
                pass
            answered = {flow for flow, newest in self._newest.items() if newest >= first}
            if answered >= flows and not any(number >= first for number in self._out):
                return
        raise AssertionError("no answers though no fault is on")

    def account(self, statistics: dict[str, int], console: ConsoleCounts, cores: dict[int, dict[str, int]]) -> Account:
        """`statistics`: those of the soft card at the end. `console`: the counted messages. `cores`: counters that the image printed."""
        account = Account(sent=self.sent, never_answered=len(self._out))
        # Requests for settings and their answers are frames as well.
        account.sent += self.setting_requests
        account.never_answered += self.setting_requests - self.setting_answers
        for name in ("rx_dropped", "tx_dropped", "rx_corrupted", "tx_corrupted", "rx_delayed_overflow", "tx_delayed_overflow"):
            account.wire[name] = statistics.get(f"fault.{name}", 0)
        for name in ("without_link", "by_reset", "by_hang"):
            account.wire[name] = statistics.get(f"unseen.{name}", 0)
        account.wire["socket"] = statistics.get("wire.frames_lost", 0)
        account.driver["lost="] = console.lost
        account.driver["refused without a link"] = sum(core["refused"] for core in cores.values())
        # Joined segments have one answer. If the answer is lost, all of these segments remain unanswered.
        account.driver["in joined segments"] = statistics.get("coalesced_segments", 0) - statistics.get("coalesced_frames", 0) - self.joined
        # A card that was reset accepts only frames of ordinary size until it is configured again. The card's count of longer frames is
        # lost, because the driver clears all counters when it starts the card.
        if console.resets:
            long = sum(len(expected) > ORDINARY_BYTES_MAX for _flow, expected in self._out.values())
            account.wire["too long for a card in reset"] = max(0, min(long, account.unexplained))
        return account


class ConsoleCounts:
    """Counts the messages on the image's console, and keeps the last lines."""

    def __init__(self) -> None:
        self.lost = self.changes = self.refused = self.restarts = self.resets = 0
        self.last: deque[str] = deque(maxlen=200)  # console lines and faults, in order

    def line(self, line: str) -> None:
        self.last.append(line)
        if match := re.search(r"ixgbe_echo: answer: (ok|error)", line):
            self.changes += match[1] == "ok"
            self.refused += match[1] != "ok"
        self.restarts += "started anew, lost=" in line
        self.resets += "card reset, lost=" in line or "the card is reset" in line
        if match := re.search(r"(?:answer: ok \S+|started anew,|card reset,) lost=(\d+)", line):
            self.lost += int(match[1])
