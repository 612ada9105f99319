# SPDX-License-Identifier: BSL-1.0
"""The driver's settings and repairs while frames flow, on a card that says what a driver does wrong (`--strict`).

Frames of many flows are on their way all the time. Within a flow none may overtake another, so an answer tells which frames before it are
lost: exactly as many as the driver says a change cost, and none otherwise.
"""

from __future__ import annotations

import random
import re
import struct
from collections import deque

import pytest

from tests.target.ixgbe.ixgbe_echo_test import (
    CARD_IP,
    CARD_MAC,
    ECHO,
    PEER_IP,
    PEER_MAC,
    Echo,
    booted,
    checksum,
    echo_frame,
    echoed,
    exchange,
    udp_echoed,
    udp_frame,
)
from tests.target.ixgbe.ixgbe_soak import SETTINGS, Soak, told_in_full
from tests.target.ixgbe.ixgbe_soak import WORDS as SOAK_WORDS
from tests.target.ixgbe.mixed_traffic import MixedTraffic, Said

SET = b"\x88\xb7"
ANSWER_AT = 14
STRICT = ("--strict",)
OTHER_MAC = bytes.fromhex("020000000077")
PAUSE_ADDRESS = bytes.fromhex("0180c2000001")
FLOWS = 16
WINDOW = 48
PATIENCE_SECONDS = 30
# Longer than a busy host leaves a machine alone: what is sent beyond the window could find no room in a ring.
STALL_SECONDS = 5.0


class Traffic:
    """Datagrams of many flows, a bounded number unanswered, each answer compared with what it must be."""

    def __init__(self, echo: Echo, lossy: bool = False):
        """lossy: the wire may lose a question or its answer."""
        assert echo.peer
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
                    self._stalled = waiting  # lost, perhaps; the flow's next answer tells
            port = 1000 + self.sent % FLOWS
            frame = udp_frame(self.sent, port, 60 + self.sent * 7 % 1400)
            self.sent += 1
            self.peer.send(frame)
            self._waiting[port].append(udp_echoed(frame))

    def set(self, text: str) -> str:
        """Asks for a setting with traffic before, during and after; gives the answer."""
        self.send(50)
        self.peer.send(CARD_MAC + PEER_MAC + SET + text.encode().ljust(60, b"\0"))
        for look in range(2000):
            self.send(10)
            self._receive(0.05)
            if self._answers:
                return self._answers.pop()
            if self._lossy and look % 100 == 99:
                self.peer.send(CARD_MAC + PEER_MAC + SET + text.encode().ljust(60, b"\0"))
        raise AssertionError(f"no answer to {text}")

    def set_in_silence(self, text: str) -> str:
        """With nothing on its way: for what moves flows to other cores, where frames may overtake those of before."""
        self.settle()
        self.peer.send(CARD_MAC + PEER_MAC + SET + text.encode().ljust(60, b"\0"))
        while not self._answers:
            assert self._receive(PATIENCE_SECONDS), f"no answer to {text}"
        return self._answers.pop()

    def settle(self) -> None:
        """Until every flow's last frame is answered; sends one more where that is lost."""
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
        raise AssertionError("a frame that nobody sent, changed, doubled or overtaken")


def lost_by_driver(echo: Echo) -> int:
    """What all answers and repairs together said."""
    said = [re.search(r"(?:answer: ok \S+|started anew,|card reset,) lost=(\d+)", line) for line in echo.machine.lines]
    return sum(int(match[1]) for match in said if match)


def lost_of(answer: str) -> int:
    match = re.fullmatch(r"ok \S+ lost=(\d+)", answer)
    assert match, answer
    return int(match[1])


def no_rule_is_broken(echo: Echo) -> None:
    assert echo.machine.card_command("violations")["total"] == 0, echo.machine.card_command("violations")


def test_every_setting_changes_under_traffic_and_says_what_it_cost() -> None:
    stopping = ["rx_ring=1024", "rx_ring=4096", "tx_ring=256", "pthresh=16", "hthresh=4", "wthresh=4", "wthresh=0", "head_write_back=on"]
    stopping += ["rsc=on", "tx_ring=512", "rx_ring=256", "preset=study", "preset=default"]
    running = ["rx_budget=8", "promiscuous=on", "itr=100", "flow_control=both", "poll_budget=50", "promiscuous=off", "itr=16", "idle=poll"]
    running += ["flow_control=receive", "idle=halt", "flow_control=off", "dca=off"]
    with booted(cores=2, card_options=STRICT) as echo:
        traffic = Traffic(echo)
        told = 0
        for step, text in enumerate(stopping):
            told += lost_of(traffic.set(text))
            assert lost_of(traffic.set(running[step % len(running)])) == 0
        for text in ("itr=40,1", "idle=poll,1", "poll_budget=20,0", "idle=halt,1", "itr=16"):
            assert lost_of(traffic.set(text)) == 0
        assert traffic.set("no_such=1") == "error: no such setting"
        told += lost_of(traffic.set("preset=default"))
        defaults = values_of(traffic)
        told += lost_of(traffic.set("preset=study"))
        studys = values_of(traffic)
        traffic.send(500)
        traffic.settle()
        no_rule_is_broken(echo)
        counters = echo.finish()
    assert traffic.lost == told
    assert traffic.answered == traffic.sent - told
    assert all(core["hangs"] == core["dropped"] == core["bad_checksums"] == 0 for core in counters.values())
    # What the studies' driver had: rings of 512, a budget of 64, TXDCTL with nothing but its enable, offloads off.
    assert defaults == DEFAULTS
    assert studys == {**DEFAULTS, "pthresh": 0, "hthresh": 0}


DEFAULTS = dict.fromkeys(("wthresh", "head_write_back", "rsc", "promiscuous", "flow_control", "dca", "vlan"), 0)
DEFAULTS |= {"rx_ring": 512, "tx_ring": 512, "rx_budget": 64, "pthresh": 32, "hthresh": 8}


def values_of(traffic: Traffic) -> dict[str, int]:
    """All settings of the card, as it says them itself."""
    return {name: int(value) for name, value in (word.split("=") for word in traffic.set("values").split())}


@pytest.mark.parametrize(
    "before, text, why",
    [
        ((), "rx_ring=100", "a power of two of descriptors, 64 to 4096"),
        ((), "wthresh=9", "WTHRESH is 0 to 8"),
        (("pthresh=36",), "wthresh=8", "no more than 40"),
        (("head_write_back=on",), "wthresh=1", "head write-back with WTHRESH 0 alone"),
        (("itr=0",), "rsc=on", "RSC needs an itr of 6us or more"),
        (("rsc=on",), "itr=4", "RSC needs an itr of 6us or more"),
        (("wthresh=8",), "itr=0", "WTHRESH above 1 needs an itr"),
        ((), "steer=udp:7", "needs the core"),
        ((), "steer=udp:7,3", "core 3 does not run"),
        ((), "rx_ring=512,0", "holds for all cores"),
        ((), "preset=mine", "study default"),
        ((), "vlan=4095", "1 to 4094, off"),
        ((), "flow_control=up", "off receive transmit both"),
        ((), "dca=on", "this CPU has no direct cache access"),
    ],
)
def test_what_the_card_does_not_take_is_refused_with_the_reason(
    refusing: tuple[Echo, Traffic], before: tuple[str, ...], text: str, why: str
) -> None:
    echo, traffic = refusing
    assert lost_of(traffic.set("preset=default")) >= 0
    assert lost_of(traffic.set("itr=16")) == 0
    for setting in before:
        lost_of(traffic.set(setting))
    answer = traffic.set(text)
    assert answer.startswith("error: "), answer
    assert why in answer
    traffic.settle()
    no_rule_is_broken(echo)


@pytest.fixture(scope="module")
def refusing():
    with booted(cores=2, card_options=STRICT) as echo:
        yield echo, Traffic(echo)


def test_a_flow_is_steered_to_a_named_core_and_back() -> None:
    with booted(cores=4, card_options=STRICT) as echo:
        traffic = Traffic(echo)
        traffic.send(400)
        assert lost_of(traffic.set_in_silence("steer=udp:7,3")) == 0
        before = traffic.sent
        traffic.send(400)
        traffic.settle()
        steered = traffic.sent - before
        assert lost_of(traffic.set_in_silence("steer=off,3")) == 0
        traffic.send(400)
        traffic.settle()
        no_rule_is_broken(echo)
        counters = echo.finish()
    assert traffic.lost == 0
    assert counters[3]["frames"] >= steered
    assert all(counters[core]["frames"] > 0 for core in range(4)), "before and after, RSS spreads them"


def test_frames_for_others_come_while_the_card_is_promiscuous_and_only_then() -> None:
    with booted(cores=2, card_options=STRICT) as echo:
        traffic = Traffic(echo)
        for number, setting in enumerate(("off", "on", "off")):
            assert lost_of(traffic.set(f"promiscuous={setting}")) == 0
            traffic.settle()
            foreign = OTHER_MAC + echo_frame(number, 300, seed=1)[6:]
            ours = echo_frame(number, 300, seed=2)
            traffic.peer.send(foreign)
            traffic.peer.send(ours)
            if setting == "on":
                assert traffic.peer.receive() == echoed(foreign)
            assert traffic.peer.receive() == echoed(ours)
        no_rule_is_broken(echo)
        echo.finish()
    assert traffic.lost == 0


def tcp_segments(sequence: int, payloads: list[bytes]) -> list[bytes]:
    """Segments of one connection that follow each other, as the card joins them."""
    frames = []
    for payload in payloads:
        header = struct.pack(">HHIIBBHHH", 1234, 80, sequence, 1, 5 << 4, 0x10, 1000, 0, 0)
        pseudo = PEER_IP + CARD_IP + struct.pack(">BBH", 0, 6, len(header) + len(payload))
        header = header[:16] + struct.pack(">H", checksum(pseudo + header + payload)) + header[18:]
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(header) + len(payload), 0, 0, 64, 6, 0, PEER_IP, CARD_IP)
        ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
        frames.append(CARD_MAC + PEER_MAC + b"\x08\x00" + ip + header + payload)
        sequence += len(payload)
    return frames


def test_segments_are_joined_and_no_byte_is_lost_or_moved() -> None:
    content = random.Random(5)
    with booted(words="frame_bytes=9014 rsc=on itr=1000us compare=off", card_options=STRICT) as echo:
        assert echo.peer
        segments = frames = 0
        sequence = 1
        for _ in range(60):
            payloads = [content.randbytes(1400) for _ in range(5)]
            for frame in tcp_segments(sequence, payloads):
                echo.peer.send(frame)
            sequence += 7000
            segments += len(payloads)
            received = b""
            while len(received) < 7000:
                reply = echo.peer.receive(PATIENCE_SECONDS)
                assert reply is not None, "a segment is lost"
                assert struct.unpack_from(">H", reply, 16)[0] == len(reply) - 14, "the card brought the length up to date"
                received += reply[54:]
                frames += 1
            assert received == b"".join(payloads)
        no_rule_is_broken(echo)
        counters = echo.finish()
    assert frames < segments, "nothing was joined: this run shows nothing"
    assert counters[0]["dropped"] == counters[0]["bad_checksums"] == 0


def test_a_hung_transmit_queue_is_found_and_started_anew() -> None:
    with booted(cores=2, card_options=STRICT) as echo:
        assert echo.peer
        exchange(echo.peer, [echo_frame(i, 300) for i in range(50)], echoed)
        echo.machine.card_command("fault hang tx 0")
        for i in range(20):
            echo.peer.send(echo_frame(i, 300))
        line = echo.machine.wait_for_line(r"ixgbe: queues of core 0 started anew, lost=(\d+)", 2 * PATIENCE_SECONDS)
        assert line.endswith("lost=20")
        echo.machine.card_command("fault off")
        exchange(echo.peer, [echo_frame(i, 300, seed=1) for i in range(200)], echoed)
        no_rule_is_broken(echo)
        counters = echo.finish()
    assert counters[0]["hangs"] >= 1
    assert counters[1]["hangs"] == 0


def test_a_card_that_cannot_reach_memory_is_reset_and_goes_on() -> None:
    with booted(cores=2, words="compare=off", card_options=STRICT) as echo:
        echo.machine.breaks_a_rule = True  # tests/conftest.py: a frame from nowhere is one
        peer = echo.peer
        assert peer
        exchange(peer, [echo_frame(i, 300) for i in range(50)], echoed)
        peer.send(CARD_MAC + PEER_MAC + SET + b"dma_error".ljust(60, b"\0"))
        echo.machine.wait_for_line("EICR.PCI_EXCEPTION", PATIENCE_SECONDS)
        echo.machine.wait_for_line(r"ixgbe: card reset, lost=\d+", PATIENCE_SECONDS)
        first = echo_frame(7777, 100)
        for _ in range(100):  # until the link is up again
            peer.send(first)
            if (reply := peer.receive(0.5)) == echoed(first):
                break
        assert reply == echoed(first)
        while peer.receive(1.0) is not None:
            pass
        exchange(peer, [udp_frame(i, 1000 + i % 16, 300) for i in range(64)], udp_echoed, window=1)
        counts = echo.machine.card_command("violations")["counts"]
        counters = echo.finish()
    assert set(counts) == {"dma_fault"}, counts
    assert all(core["frames"] > 0 for core in counters.values())


def test_memory_of_the_card_that_fails_and_an_eeprom_that_is_spoilt_are_said_and_survived() -> None:
    with booted(cores=2, words=SOAK_WORDS, card_options=(*STRICT, "--fault", "eeprom")) as echo:
        assert any("EEPROM's checksum is " in line for line in echo.machine.lines)
        traffic = MixedTraffic(echo, seed=3)
        traffic.send(300)
        echo.machine.card_command("fault ecc")
        echo.machine.wait_for_line("EICR.ECC: the card's memory failed", PATIENCE_SECONDS)
        echo.machine.wait_for_line(r"ixgbe: card reset, lost=\d+", PATIENCE_SECONDS)
        traffic.settle()
        no_rule_is_broken(echo)
        assert not any("PCI_EXCEPTION" in line for line in echo.machine.lines), "the one is not the other"
        echo.finish()


def tagged(frame: bytes, vlan: int) -> bytes:
    return frame[:12] + b"\x81\x00" + struct.pack(">H", vlan) + frame[12:]


def test_frames_of_a_vlan_alone_pass_in_both_directions() -> None:
    """Set while frames flow: tags come and go with the card, others' and untagged frames do not reach the stack."""
    frames = [udp_frame(i, 1000 + i % FLOWS, 60 + i * 7 % 1400) for i in range(200)]
    frames += [echo_frame(i, size) for i, size in enumerate((60, 1514, 100))]
    # The card's count of sent bytes has the tags in it, the driver's has not.
    with booted(cores=2, words="compare=off", card_options=STRICT) as echo:
        peer = echo.peer
        assert peer
        traffic = Traffic(echo)
        traffic.send(200)
        traffic.settle()
        peer.send(CARD_MAC + PEER_MAC + SET + b"vlan=7".ljust(60, b"\0"))
        answer = peer.receive()
        assert answer is not None and answer[:18] == PEER_MAC + CARD_MAC + b"\x81\x00\x00\x07" + SET, "the first with a tag"
        others = [frames[0], tagged(frames[1], 8), tagged(frames[2], 7 + 4088), echo_frame(9999, 200)]
        for frame in others:
            peer.send(frame)
        for i in range(0, len(frames), 2):
            for frame in frames[i : i + 2]:
                peer.send(tagged(frame, 0x2007))  # whatever its priority
            replies = {peer.receive() for _ in frames[i : i + 2]}
            expected = {tagged(udp_echoed(frame) if frame[12:14] == b"\x08\x00" else echoed(frame), 7) for frame in frames[i : i + 2]}
            assert replies == expected
        peer.send(tagged(CARD_MAC + PEER_MAC + SET + b"vlan=off".ljust(60, b"\0"), 7))
        answer = peer.receive()
        assert answer is not None and answer[12:14] == SET
        traffic = Traffic(echo)
        traffic.send(200)
        traffic.settle()
        assert traffic.lost == 0
        no_rule_is_broken(echo)
        counters = echo.finish()
    assert all(core["bad_checksums"] == core["dropped"] == 0 for core in counters.values())
    assert sum(core["untagged"] for core in counters.values()) == 2


def pause_frame(source: bytes, quanta: int) -> bytes:
    return PAUSE_ADDRESS + source + b"\x88\x08\x00\x01" + struct.pack(">H", quanta) + bytes(42)


def test_pause_frames_are_sent_and_obeyed_and_nothing_is_lost_meanwhile() -> None:
    """A queue that hangs fills the packet buffer: the card asks for a pause, and in the end every frame is answered."""
    frames = [echo_frame(i, 9014) for i in range(56)]  # 504 KB, of which the buffer takes 512 with room for what is on its way
    with booted(cores=2, words="frame_bytes=9014 flow_control=both", card_options=STRICT) as echo:
        peer = echo.peer
        assert peer
        exchange(peer, frames[:4], echoed)
        echo.machine.card_command("fault hang rx 0")
        for frame in frames:
            peer.send(frame)
        assert peer.receive() == pause_frame(CARD_MAC, 0xFFFF)
        echo.machine.card_command("fault free rx 0")
        replies = [peer.receive() for _ in range(len(frames) + 1)]
        while pause_frame(CARD_MAC, 0) not in replies:
            replies.append(peer.receive())
            assert replies[-1] is not None, "no XON"
        assert [reply for reply in replies if reply is not None and reply[12:14] == ECHO] == [echoed(frame) for frame in frames]
        # The longest pause is some milliseconds.
        peer.send(pause_frame(PEER_MAC, 0xFFFF))
        exchange(peer, frames[:4], echoed)
        statistics = echo.machine.card_command("statistics")
        assert statistics.get("LXOFFTXC", 0) >= 1 and statistics.get("LXONTXC", 0) >= 1
        assert statistics.get("LXOFFRXC", 0) + statistics.get("LXOFFRXCNT", 0) >= 1
        assert lost_of(Traffic(echo).set("flow_control=off")) == 0
        while peer.receive(1.0) is not None:
            pass
        peer.send(pause_frame(PEER_MAC, 0xFFFF))
        exchange(peer, frames[:4], echoed)
        assert echo.machine.card_command("statistics").get("LXOFFRXC", 0) == statistics.get("LXOFFRXC", 0), "obeyed though it is off"
        no_rule_is_broken(echo)
        echo.finish()


def test_a_short_soak_of_settings_and_faults_loses_nothing_unsaid() -> None:
    """As `./neap soak driver` does it, but each fault in its turn, and changes after so many frames."""
    said = Said()
    faults = ("drop both chance 0.02 1", "corrupt both chance 0.02 2", "reorder both chance 0.05 3", "delay rx 3000000 chance 0.05 4")
    faults += ("hang tx 1", "hang rx 2", "late 200000", "lose any chance 0.2 5", "link flap 20000000 2", "ecc")
    with told_in_full(said), booted(cores=4, words=SOAK_WORDS, card_options=STRICT, on_line=said.line) as echo:
        soak = Soak(echo, said, seed=7)
        for fault in faults:
            soak.fault(fault)
            for _ in range(4):
                soak.traffic.send(30)
                soak.let_go()
                soak.traffic.ask(soak.chance.choice(SETTINGS))
            soak.traffic.set("rx_budget=64")
            if not fault.startswith("hang"):
                soak.fault("off")
        print(soak.finish())
    assert said.changes > said.refused
    assert said.resets >= 1


def test_a_card_that_is_gone_is_said_and_the_machine_lives_on() -> None:
    with booted(card_options=STRICT) as echo:
        assert echo.peer
        exchange(echo.peer, [echo_frame(i, 300) for i in range(50)], echoed)
        echo.machine.card_command("fault hang tx 0")
        echo.peer.send(echo_frame(50, 300))
        echo.machine.card_command("fault away")
        echo.machine.wait_for_line("card is gone", 2 * PATIENCE_SECONDS)
        echo.machine.wait_for_line("link down", PATIENCE_SECONDS)
        echo.machine.wait_for_line("ixgbe_echo: core 0 has no link", PATIENCE_SECONDS)
        assert echo.machine.running
