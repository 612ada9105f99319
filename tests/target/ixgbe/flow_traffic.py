# SPDX-License-Identifier: BSL-1.0
"""UDP traffic of many flows to ixgbe_echo.cpp while settings change.

Within a flow no frame may overtake another. So an answer shows which earlier frames of its flow were lost.
"""

import re
import struct
from collections import deque

from tests.target.ixgbe.echo import Echo
from tests.target.ixgbe.echo_frames import SET, setting_frame, udp_echoed, udp_frame

ANSWER_AT = 14
FLOWS = 16
WINDOW = 48
PATIENCE_SECONDS = 30
# A busy host stops a machine for less than this. With a smaller value, late frames count as lost, and new frames are sent in their place.
STALL_SECONDS = 5.0


class Traffic:
    """Datagrams of many flows, a limited number of them unanswered. Each answer is compared with its expected bytes."""

    def __init__(self, echo: Echo, lossy: bool = False):
        """`lossy`: True if the wire may lose a request for a setting, or the request's answer."""
        self._lossy = lossy
        self.peer = echo.peer
        self.sent = self.answered = self.lost = 0
        self._waiting = {port: deque() for port in range(1000, 1000 + FLOWS)}
        self._answers: list[str] = []
        self._stalled = 0

    def send(self, frames: int) -> None:
        for _ in range(frames):
            while (waiting := sum(map(len, self._waiting.values()))) - self._stalled >= WINDOW:
                if not self._receive(STALL_SECONDS):
                    self._stalled = waiting  # the unanswered frames may be lost; the next answer of each flow shows it
            port = 1000 + self.sent % FLOWS
            frame = udp_frame(self.sent, port, 60 + self.sent * 7 % 1400)
            self.sent += 1
            self.peer.send(frame)
            self._waiting[port].append(udp_echoed(frame))

    def set(self, text: str) -> str:
        """Requests a setting, with traffic before, during and after the change. Returns the answer."""
        self.send(50)
        self.peer.send(setting_frame(text))
        for look in range(2000):
            self.send(10)
            self._receive(0.05)
            if self._answers:
                return self._answers.pop()
            if self._lossy and look % 100 == 99:
                self.peer.send(setting_frame(text))
        raise AssertionError(f"no answer to {text}")

    def set_in_silence(self, text: str) -> str:
        """Requests a setting with no frame in flight. Used for settings that move flows, because frames may then overtake others."""
        self.settle()
        self.peer.send(setting_frame(text))
        while not self._answers:
            assert self._receive(PATIENCE_SECONDS), f"no answer to {text}"
        return self._answers.pop()

    def settle(self) -> None:
        """Waits until every flow's last frame is answered. If that frame was lost, sends another one."""
        for _ in range(30):
            while (waiting := [port for port, frames in self._waiting.items() if frames]) and self._receive(1.0):
                pass
            if not waiting:
                return
            self.send(FLOWS)
        raise AssertionError(f"no answers on {waiting}")

    def _receive(self, timeout: float) -> bool:
        reply = self.peer.receive(timeout)
        if reply is None:
            return False
        if reply[12:14] == SET:
            self._answers.append(reply[ANSWER_AT:].split(b"\0")[0].decode())
            return True
        waiting = self._waiting[struct.unpack_from(">H", reply, 36)[0]]
        while waiting:
            if waiting.popleft() == reply:
                self.answered += 1
                self._stalled = min(self._stalled, sum(map(len, self._waiting.values())))
                return True
            self.lost += 1
        raise AssertionError("a frame that was not sent, or was changed, doubled or overtaken")


def lost_of(answer: str) -> int:
    match = re.fullmatch(r"ok \S+ lost=(\d+)", answer)
    assert match, answer
    return int(match[1])
