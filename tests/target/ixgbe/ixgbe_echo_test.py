# SPDX-License-Identifier: BSL-1.0
"""Our 82599 driver on the soft card, without a network stack: ixgbe_echo.cpp sends back what this peer sends, every byte is compared.

The peer speaks at the card's stream socket (4-byte length before each frame). What the driver may touch while traffic flows is read from
the card's own counters of register accesses.
"""

from __future__ import annotations

import os
import random
import re
import select
import shutil
import socket
import struct
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent.parent
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from tools.machine import FAILURE, SUCCESS, Machine  # noqa: E402

BUILD = Path(os.environ.get("NEAP_TARGET_IMAGES", REPOSITORY / "build/image-debug"))
IMAGE = BUILD / "tests/target/ixgbe/ixgbe_echo.elf"
SOFT_CARD = Path(os.environ["NEAP_SOFT_CARD"]) if "NEAP_SOFT_CARD" in os.environ else None

CARD_MAC = bytes.fromhex("028259900042")
PEER_MAC = bytes.fromhex("020000000001")
CARD_IP = bytes([10, 0, 0, 2])
PEER_IP = bytes([10, 0, 0, 1])
ECHO = b"\x88\xb5"
STOP = b"\x88\xb6"
SET = b"\x88\xb7"
START_SECONDS = 60
ANSWER_SECONDS = 60
RSS_KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")


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
                wait_for_link(machine)
            try:
                yield echo
            finally:
                if echo.peer:
                    echo.peer.close()
    finally:
        shutil.rmtree(folder)


def wait_for_link(machine: Machine) -> None:
    machine.wait_for_line(r"link up", ANSWER_SECONDS)


def echo_frame(number: int, size: int, seed: int = 0) -> bytes:
    content = random.Random(number * 1_000_003 + seed).randbytes(size - 18)
    return CARD_MAC + PEER_MAC + ECHO + struct.pack(">I", number) + content


def echoed(frame: bytes) -> bytes:
    return frame[6:12] + CARD_MAC + frame[12:]


def checksum(data: bytes) -> int:
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp_frame(number: int, source_port: int, size: int) -> bytes:
    """A UDP datagram with good checksums, `size` bytes in all."""
    payload = struct.pack(">I", number) + random.Random(number).randbytes(size - 46)
    udp_bytes = 8 + len(payload)
    pseudo = PEER_IP + CARD_IP + struct.pack(">BBH", 0, 17, udp_bytes)
    udp = struct.pack(">HHHH", source_port, 7, udp_bytes, 0)
    udp = udp[:6] + struct.pack(">H", checksum(pseudo + udp + payload) or 0xFFFF)
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + udp_bytes, number & 0xFFFF, 0, 64, 17, 0, PEER_IP, CARD_IP)
    header = header[:10] + struct.pack(">H", checksum(header)) + header[12:]
    return CARD_MAC + PEER_MAC + b"\x08\x00" + header + udp + payload


def tcp_frame(number: int, source_port: int, destination_port: int, size: int) -> bytes:
    """A TCP segment with good checksums, `size` bytes in all."""
    payload = struct.pack(">I", number) + random.Random(number).randbytes(size - 58)
    header = struct.pack(">HHIIBBHHH", source_port, destination_port, number, 0, 5 << 4, 0x10, 1000, 0, 0)
    pseudo = PEER_IP + CARD_IP + struct.pack(">BBH", 0, 6, len(header) + len(payload))
    header = header[:16] + struct.pack(">H", checksum(pseudo + header + payload)) + header[18:]
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(header) + len(payload), number & 0xFFFF, 0, 64, 6, 0, PEER_IP, CARD_IP)
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    return CARD_MAC + PEER_MAC + b"\x08\x00" + ip + header + payload


def udp_echoed(frame: bytes) -> bytes:
    """Swapping addresses and ports leaves every checksum as it was: so the card must find the same ones."""
    ip, udp = frame[14:34], frame[34:42]
    return frame[6:12] + CARD_MAC + frame[12:14] + ip[:12] + ip[16:20] + ip[12:16] + udp[2:4] + udp[:2] + udp[4:] + frame[42:]


def toeplitz(data: bytes) -> int:
    key = int.from_bytes(RSS_KEY, "big")
    result = 0
    for i in range(len(data) * 8):
        if data[i // 8] >> (7 - i % 8) & 1:
            result ^= key >> (len(RSS_KEY) * 8 - 32 - i) & 0xFFFFFFFF
    return result


def exchange(peer: Peer, frames: list[bytes], expect, window: int = 32) -> None:
    """Sends `frames`, at most `window` unanswered, and compares what comes back, in order."""
    answered = 0
    for sent, frame in enumerate(frames):
        peer.send(frame)
        while sent + 1 - answered >= window or (sent + 1 == len(frames) and answered < len(frames)):
            reply = peer.receive()
            assert reply is not None, f"no answer to frame {answered} of {len(frames)}"
            assert reply == expect(frames[answered]), f"frame {answered} came back changed"
            answered += 1


def traffic_accesses(echo: Echo) -> tuple[dict[str, int], dict[str, int]]:
    counters = echo.machine.card_counters()
    return ({name: n for name, n in counters[kind].items() if n} for kind in ("reads", "writes"))


def test_arp_is_answered():
    with booted() as echo:
        ask = b"\xff" * 6 + PEER_MAC + b"\x08\x06" + struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + PEER_MAC + PEER_IP + bytes(6) + CARD_IP
        echo.peer.send(ask.ljust(60, b"\0"))
        reply = echo.peer.receive()
        assert reply is not None
        assert reply[:14] == PEER_MAC + CARD_MAC + b"\x08\x06"
        assert reply[14:42] == struct.pack(">HHBBH", 1, 0x0800, 6, 4, 2) + CARD_MAC + CARD_IP + PEER_MAC + PEER_IP
        echo.finish()


@pytest.mark.parametrize(
    "words, count",
    [
        ("", 10_000),
        ("idle=poll", 2_000),
        ("poll_budget=1ms", 2_000),
        ("head_write_back=on", 2_000),
        ("wthresh=4", 2_000),
        ("rsc=on", 2_000),
    ],
)
def test_thousands_of_frames_over_ring_wraps_come_back_without_a_register_read(words: str, count: int):
    sizes = random.Random(3)
    frames = [echo_frame(i, sizes.choice([60, 61, 64, 512, 1513, 1514, sizes.randint(60, 1514)])) for i in range(count)]
    rings = "receive_descriptors=128 transmit_descriptors=128 receive_buffers=256"
    with booted(words=f"{rings} {words}", card_options=("--strict",)) as echo:
        exchange(echo.peer, frames[:100], echoed)
        echo.machine.card_command("reset-counters")
        exchange(echo.peer, frames[100:], echoed)
        reads, writes = traffic_accesses(echo)
        assert echo.machine.card_command("violations")["total"] == 0
        core = echo.finish()[0]
    assert reads == {}, "a register was read with traffic"
    assert set(writes) == {"RDT[0]", "TDT[0]"}, "traffic needs tails and nothing else"
    assert core["frames"] == count + 1
    assert core["sent"] == count
    assert core["refused"] == core["dropped"] == core["hangs"] == 0
    # At most one tail write for each queue and event that found something.
    assert writes["TDT[0]"] <= core["batches"]
    assert writes["RDT[0]"] <= core["batches"] + 1


def test_heads_that_go_back_free_nothing_and_are_counted():
    """Older heads land on newer ones, as relaxed ordering would let them: no frame may be lost, or be told as sent too early."""
    fault = "stale-head 300000 all"
    words = "transmit_descriptors=128 head_write_back=on"
    with booted(words=words, card_options=("--strict", "--fault", fault)) as echo:
        frames = [echo_frame(i, 60 + i * 7 % 1400) for i in range(3_000)]
        exchange(echo.peer, frames, echoed, window=8)
        stale = echo.machine.card_command("statistics").get("fault.stale_heads", 0)
        assert echo.machine.card_command("violations")["total"] == 0
        echo.machine.card_command("fault off")
        # A head that is right again ends the last wait.
        exchange(echo.peer, [echo_frame(5_000, 60)], echoed)
        core = echo.finish()[0]
    assert stale > 20, "no head went back: this run shows nothing"
    assert core["wrong_heads"] > 0
    assert core["sent"] == 3_001


def test_the_card_is_reset_before_it_may_touch_memory():
    """A card that an earlier owner left running would write by that owner's rings as soon as bus mastering came on."""
    with booted(card_options=("--log-level", "debug")) as echo:
        log = (echo.machine.directory / "card.log").read_text()
        writes = echo.machine.card_command("counters")["writes"]
        echo.finish()
    steps = [(where, int(value, 16)) for where, value in re.findall(r"write (CTRL|0x4) = (0x[0-9a-f]+)", log)]
    # Bits of the datasheet's 8.2.3.1.1 and of PCI's command register.
    quiet, reset, master = (
        [i for i, step in enumerate(steps) if step[0] == where and step[1] >> bit & 1]
        for where, bit in (("CTRL", 2), ("CTRL", 26), ("0x4", 2))
    )
    assert quiet and reset and master, steps
    assert quiet[0] < reset[0] < master[0], f"not master disable, reset, bus mastering (5.2.5.3.2): {steps}"
    for register in ("RTTBCNRC", "RTTDT1C", "QDE"):
        assert writes[register] == 128, f"{register} of an earlier owner's queues is left"


def test_bursts_larger_than_the_budget_strand_nothing():
    with booted(words="receive_descriptors=1024 receive_buffers=2048 itr_us=1000") as echo:
        for burst in range(10):
            exchange(echo.peer, [echo_frame(burst * 1000 + i, 60) for i in range(400)], echoed, window=400)
        core = echo.finish()[0]
    assert core["frames"] == 4001
    assert core["budget_exits"] > 0, "no burst was longer than a budget: this run shows nothing"


def test_checksums_are_checked_and_made_by_the_card():
    frames = [udp_frame(i, 1000 + i % 7, 60 + i % 1400) for i in range(500)]
    with booted() as echo:
        exchange(echo.peer, frames, udp_echoed)
        for place in (24, 40, 50):  # IP checksum, UDP checksum, payload
            bad = bytearray(udp_frame(1, 1000, 100))
            bad[place] ^= 1
            echo.peer.send(bytes(bad))
        exchange(echo.peer, [udp_frame(77, 1000, 100)], udp_echoed)
        core = echo.finish()[0]
    assert core["bad_checksums"] == 3
    assert core["contexts"] == 1, "equal offloads share a context"


@pytest.mark.parametrize("cores, rss_cores", [(3, 0), (4, 0), (4, 2)])
def test_rss_sends_each_flow_to_the_core_that_toeplitz_says(cores: int, rss_cores: int):
    ports = [random.Random(9).randint(1024, 65535) + i for i in range(64)]
    expected = dict.fromkeys(range(cores), 0)
    for port in ports:
        entry = toeplitz(PEER_IP + CARD_IP + struct.pack(">HH", port & 0xFFFF, 7)) % 128
        expected[entry % (rss_cores or cores)] += 20
    with booted(cores=cores, words=f"rss_cores={rss_cores}") as echo:
        unanswered: dict[bytes, list[bytes]] = {}
        for number in range(20):
            for port in ports:
                frame = udp_frame(number, port & 0xFFFF, 60 + number * 50)
                echo.peer.send(frame)
                unanswered.setdefault(frame[34:36], []).append(udp_echoed(frame))
            for _ in ports:
                reply = echo.peer.receive()
                assert reply is not None
                assert reply == unanswered[reply[36:38]].pop(0), "lost, changed or reordered within its flow"
        counters = echo.finish()
    counters[0]["frames"] -= 1  # the stop frame
    assert {core: counters[core]["frames"] for core in counters} == expected


def test_cores_without_a_receive_queue_send_and_get_their_memory_back():
    """RSS can name 16. What further cores send leaves by a queue, and ends by an interrupt, of their own; also after queues and card were
    set up anew."""

    def ask(text: str) -> tuple[str, list[int]]:
        """The answer, and which cores sent something on their own meanwhile."""
        echo.peer.send(CARD_MAC + PEER_MAC + SET + text.encode().ljust(60, b"\0"))
        senders = []
        while (frame := echo.peer.receive(ANSWER_SECONDS)) is not None:
            assert frame[:12] == PEER_MAC + CARD_MAC
            if frame[12:14] == SET:
                return frame[14:].split(b"\0")[0].decode(), senders
            assert frame[12:14] == ECHO
            senders.append(frame[14])
        raise AssertionError(f"no answer to {text}")

    def all_send() -> None:
        for core in (15, 16, 17):
            assert ask(f"send,{core}") == (f"ok sent by core {core}", [core])

    with booted(cores=18, words="idle=halt", card_options=("--strict",)) as echo:
        echo.machine.breaks_a_rule = True  # by `dma_error`
        all_send()
        assert ask("tx_ring=256") == ("ok tx_ring=256 lost=0", [])
        all_send()
        assert ask("itr=8us,17") == ("error: itr: this core has no receive queue: only the first 16 have", [])
        before = len(echo.machine.lines)
        echo.peer.send(CARD_MAC + PEER_MAC + SET + b"dma_error".ljust(60, b"\0"))  # its answer goes with the card
        echo.machine.wait_for_line("ixgbe: card reset, lost=", ANSWER_SECONDS, before)
        for core in (15, 16, 17):
            echo.machine.wait_for_line(f"ixgbe_echo: core {core} has a link", ANSWER_SECONDS, before)
        all_send()
        exchange(echo.peer, [udp_frame(i, 1000, 60 + i) for i in range(50)], udp_echoed)
        assert set(echo.machine.card_command("violations")["counts"]) == {"dma_fault"}
        counters = echo.finish()
    assert [counters[core]["sent"] for core in (16, 17)] == [3, 3]
    assert all(counters[core]["frames"] == 0 and counters[core]["interrupts"] > 0 for core in (16, 17))


@pytest.mark.parametrize("cores, reserved", [(3, 2), (3, 0), (1, 0)])
def test_a_reserved_core_gets_its_port_and_nothing_that_rss_spreads(cores: int, reserved: int):
    """Beside TCP to that port: UDP to the same port, and TCP from it, are nobody's but RSS's."""
    ours = [tcp_frame(i, 1024 + 37 * i, 5002, 60 + i) for i in range(200)]
    others = [tcp_frame(i, 5002, 1024 + 37 * i, 60 + i) for i in range(200)]
    left = [core for core in range(cores) if core != reserved] or [0]
    expected = dict.fromkeys(range(cores), 0)
    expected[reserved] += len(ours)
    for frame in others:
        expected[left[toeplitz(frame[26:38]) % 128 % len(left)]] += 1
    with booted(cores=cores, words=f"reserved_core={reserved}") as echo:
        exchange(echo.peer, ours + others, udp_echoed, window=1)
        counters = echo.finish()
    counters[0]["frames"] -= 1  # the stop frame, which nobody hashes
    assert {core: counters[core]["frames"] for core in counters} == expected


@pytest.mark.parametrize("words, complaint", [("reserved_core=2", "has no receive queue"), ("reserved_core=1 reserved_port=0", "port 0")])
def test_a_core_that_cannot_be_reserved_is_said(words: str, complaint: str):
    with Machine(IMAGE, cores=2, arguments=words.split(), net="none", soft_card=SOFT_CARD) as machine:
        machine.wait_for_line(complaint, START_SECONDS)
        assert machine.wait_exit(ANSWER_SECONDS) == FAILURE


def test_frames_over_several_descriptors():
    sizes = [60, 1514, 2047, 2048, 2049, 4096, 4097, 8999, 9014]
    frames = [echo_frame(i, sizes[i % len(sizes)]) for i in range(900)]
    with booted(words="frame_bytes=9014") as echo:
        exchange(echo.peer, frames, echoed, window=16)
        core = echo.finish()[0]
    assert core["frames"] == 901


def test_a_dry_pool_loses_frames_but_neither_buffers_nor_the_queue():
    """All buffers are on the ring or with the echo: frames that come faster than they leave find no descriptor."""
    with booted(words="receive_descriptors=64 receive_buffers=64") as echo:
        replies = 0
        for burst in range(6):
            for i in range(200):
                echo.peer.send(echo_frame(burst * 200 + i, 1000))
            while echo.peer.receive(timeout=0.5) is not None:
                replies += 1
        exchange(echo.peer, [echo_frame(i, 500, seed=5) for i in range(200)], echoed, window=16)
        core = echo.finish()[0]
    assert core["frames"] == replies + 200 + 1
    assert core["hangs"] == 0


def test_no_link_at_boot_and_links_that_come_and_go():
    with booted(cores=2, connect=False) as echo:
        assert any("link down" in line for line in echo.machine.lines)
        for round_ in range(3):
            start = len(echo.machine.lines)
            peer = echo.connect()
            echo.machine.wait_for_line("ixgbe: link up, 10000 Mb/s", ANSWER_SECONDS, start)
            for core in range(2):
                echo.machine.wait_for_line(f"ixgbe_echo: core {core} has a link", ANSWER_SECONDS, start)
            exchange(peer, [echo_frame(i, 300, seed=round_) for i in range(50)], echoed)
            if round_ == 2:
                break
            start = len(echo.machine.lines)
            peer.close()
            echo.machine.wait_for_line("ixgbe: link down", ANSWER_SECONDS, start)
        echo.finish()


def test_odd_moderation_is_rounded_and_said():
    with booted(words="itr_us=99") as echo:
        echo.machine.wait_for_line("moderation of 99 us rounded to 100 us", 1)
        exchange(echo.peer, [echo_frame(i, 100) for i in range(50)], echoed)
        echo.finish()


def test_a_polling_core_takes_no_interrupt():
    with booted(cores=2, words="idle=poll") as echo:
        exchange(echo.peer, [udp_frame(i, 1000 + i % 16, 200) for i in range(200)], udp_echoed, window=1)
        counters = echo.finish()
    assert sum(core["frames"] for core in counters.values()) == 201
    assert [core["interrupts"] for core in counters.values()] == [0, 0]


def test_no_frame_is_lost_while_policy_changes():
    """One frame at a time: one that an interrupt turned off and on again stranded would never be answered."""
    with booted(cores=2, words="change_policy=on") as echo:
        exchange(echo.peer, [udp_frame(i, 1000 + i % 16, 60 + i % 1000) for i in range(500)], udp_echoed, window=1)
        exchange(echo.peer, [echo_frame(i, 200) for i in range(1000)], echoed, window=32)
        counters = echo.finish()
        changes = next(int(match[1]) for line in echo.machine.lines if (match := re.search(r"(\d+) changes of policy", line)))
    assert sum(core["frames"] for core in counters.values()) == 1501
    assert all(core["refused"] == core["dropped"] == core["hangs"] == 0 for core in counters.values())
    assert changes > 20, "too few to have met a frame"


@pytest.mark.parametrize(
    "words, complaint",
    [
        ("itr=2ms", "itr: the card takes 0us to 1024us, in steps of 2us"),
        ("idle=monitor", "idle: monitor needs an MWAIT that sleeps; accepted here: halt poll deepest"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_at_boot(words: str, complaint: str):
    with Machine(IMAGE, arguments=words.split(), net="none", soft_card=SOFT_CARD) as machine:
        machine.wait_for_line(re.escape(complaint), START_SECONDS)
        assert machine.wait_exit(ANSWER_SECONDS) == FAILURE
