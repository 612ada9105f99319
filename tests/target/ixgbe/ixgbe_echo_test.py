# SPDX-License-Identifier: BSL-1.0
"""Our 82599 driver on the soft card, without a network stack: ixgbe_echo.cpp sends back the peer's frames, and every byte is compared.

The card's own counters of register accesses show which registers the driver uses while traffic flows.
"""

import random
import re
import struct

import pytest

from tests.target.images import SOFT_CARD
from tests.target.ixgbe.echo import ANSWER_SECONDS, IMAGE, START_SECONDS, Echo, booted, exchange
from tests.target.ixgbe.echo_frames import (
    CARD_IP,
    CARD_IP6,
    CARD_MAC,
    ECHO,
    PEER_IP,
    PEER_IP6,
    PEER_MAC,
    SET,
    echo_frame,
    echoed,
    ip6_echoed,
    setting_frame,
    tcp6_frame,
    tcp_frame,
    udp6_frame,
    udp_echoed,
    udp_frame,
)
from tools.machine import FAILURE, Machine

RSS_KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")


def numbered_segment(number: int, source_port: int, destination_port: int, size: int) -> bytes:
    """Returns a TCP segment that carries its number, `size` bytes in all."""
    payload = struct.pack(">I", number) + random.Random(number).randbytes(size - 58)
    return tcp_frame(payload, source_port, destination_port, number, 0, number)


def toeplitz(data: bytes) -> int:
    key = int.from_bytes(RSS_KEY, "big")
    result = 0
    for i in range(len(data) * 8):
        if data[i // 8] >> (7 - i % 8) & 1:
            result ^= key >> (len(RSS_KEY) * 8 - 32 - i) & 0xFFFFFFFF
    return result


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
        ("tx_interrupt=on wthresh=4", 2_000),
        ("rsc=on", 2_000),
    ],
)
def test_thousands_of_frames_over_ring_wraps_come_back_without_a_register_read(words: str, count: int):
    sizes = random.Random(3)
    frames = [echo_frame(i, sizes.choice([60, 61, 64, 512, 1513, 1514, sizes.randint(60, 1514)])) for i in range(count)]
    rings = "receive_descriptors=128 transmit_descriptors=128 receive_buffers=256"
    with booted(words=f"{rings} {words}") as echo:
        exchange(echo.peer, frames[:100], echoed)
        echo.machine.card_command("reset-counters")
        exchange(echo.peer, frames[100:], echoed)
        reads, writes = traffic_accesses(echo)
        core = echo.finish()[0]
    assert reads == {}, "a register was read with traffic"
    assert set(writes) == {"RDT[0]", "TDT[0]"}, "traffic needs tails and nothing else"
    assert (core["frames"], core["sent"]) == (count + 1, count)
    assert core["refused"] == core["dropped"] == core["hangs"] == 0
    # There is at most one tail write per queue and per event that found frames.
    assert writes["TDT[0]"] <= core["batches"]
    assert writes["RDT[0]"] <= core["batches"] + 1


def test_heads_that_go_back_free_nothing_and_are_counted():
    """The fault makes late head write-backs overwrite newer values, as PCIe's relaxed ordering permits. No frame may be lost or reported as
    sent too early."""
    fault = "stale-head 300000 all"
    with booted(words="transmit_descriptors=128 head_write_back=on", card_options=("--fault", fault)) as echo:
        exchange(echo.peer, [echo_frame(i, 60 + i * 7 % 1400) for i in range(3_000)], echoed, window=8)
        stale = echo.machine.card_command("statistics").get("fault.stale_heads", 0)
        assert echo.machine.card_command("violations")["total"] == 0
        echo.machine.card_command("fault off")
        # One more frame makes the card write a correct head, so that the last frames are reported as sent.
        exchange(echo.peer, [echo_frame(5_000, 60)], echoed)
        core = echo.finish()[0]
    assert stale > 20, "no head went back: this run shows nothing"
    assert core["wrong_heads"] > 0
    assert core["sent"] == 3_001


def test_the_card_is_reset_before_it_may_touch_memory():
    """A card that an earlier driver left running writes to that driver's rings as soon as bus mastering is enabled."""
    with booted(card_options=("--log-level", "debug")) as echo:
        log = (echo.machine.directory / "card.log").read_text()
        writes = echo.machine.card_command("counters")["writes"]
        echo.finish()
    steps = [(where, int(value, 16)) for where, value in re.findall(r"write (CTRL|0x4) = (0x[0-9a-f]+)", log)]
    # Bits of CTRL (datasheet 8.2.3.1.1) and of PCI's command register.
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


# The offsets of bytes that a checksum protects. IPv4: its own checksum, that of UDP, payload. IPv6: an address, UDP's checksum, payload.
@pytest.mark.parametrize(
    "make, expect, shortest, places",
    [(udp_frame, udp_echoed, 60, (24, 40, 50)), (udp6_frame, ip6_echoed, 70, (30, 60, 70))],
    ids=["ipv4", "ipv6"],
)
def test_checksums_are_checked_and_inserted_by_the_card(make, expect, shortest: int, places: tuple[int, ...]):
    frames = [make(i, 1000 + i % 7, shortest + i % 1400) for i in range(500)]
    with booted() as echo:
        exchange(echo.peer, frames, expect)
        for place in places:
            bad = bytearray(make(1, 1000, 100))
            bad[place] ^= 1
            echo.peer.send(bytes(bad))
        exchange(echo.peer, [make(77, 1000, 100)], expect)
        core = echo.finish()[0]
    assert core["bad_checksums"] == 3
    assert core["contexts"] == 1, "equal offloads share a context"


@pytest.mark.parametrize("size", [1, 1000, 1001, 8900])
def test_the_card_cuts_segments_of_ipv6(size: int):
    payload, last_only = random.Random(size).randbytes(size), 0x09
    sequence = 0xFFFFFF00
    with booted(words="frame_bytes=9014 segment_bytes=1000") as echo:
        echo.peer.send(tcp6_frame(payload, 4000, 7, sequence, 0x10 | last_only))  # with FIN and PSH
        for at in range(0, size, 1000):
            last = at + 1000 >= size
            wanted = tcp6_frame(payload[at : at + 1000], 4000, 7, (sequence + at) & 0xFFFFFFFF, 0x10 | (last_only if last else 0))
            assert echo.peer.receive() == ip6_echoed(wanted), f"segment at {at}"
        core = echo.finish()[0]
    assert core["sent"] == (size + 999) // 1000, "the driver counts segments, as the card does"


# With 3 cores, the size of the RSS table decides the core of most flows.
@pytest.mark.parametrize(
    "cores, rss_cores, model, entries",
    [(3, 0, "82599", 128), (4, 0, "82599", 128), (4, 2, "82599", 128), (3, 0, "x540", 128), (3, 0, "x550", 512)],
)
@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_rss_sends_each_flow_to_the_core_that_toeplitz_says(cores: int, rss_cores: int, model: str, entries: int, ipv6: bool):
    make, expect, shortest, ports_at = (udp6_frame, ip6_echoed, 70, 54) if ipv6 else (udp_frame, udp_echoed, 60, 34)
    addresses = PEER_IP6 + CARD_IP6 if ipv6 else PEER_IP + CARD_IP
    ports = [random.Random(9).randint(1024, 65535) + i for i in range(64)]
    expected = dict.fromkeys(range(cores), 0)
    for port in ports:
        entry = toeplitz(addresses + struct.pack(">HH", port & 0xFFFF, 7)) % entries
        expected[entry % (rss_cores or cores)] += 20
    with booted(cores=cores, words=f"rss_cores={rss_cores}", card_options=("--model", model)) as echo:
        unanswered: dict[bytes, list[bytes]] = {}
        for number in range(20):
            for port in ports:
                frame = make(number, port & 0xFFFF, shortest + number * 50)
                echo.peer.send(frame)
                unanswered.setdefault(frame[ports_at : ports_at + 2], []).append(expect(frame))
            for _ in ports:
                reply = echo.peer.receive()
                assert reply is not None
                assert reply == unanswered[reply[ports_at + 2 : ports_at + 4]].pop(0), "lost, changed or reordered within its flow"
        counters = echo.finish()
    counters[0]["frames"] -= 1  # the stop frame
    assert {core: counters[core]["frames"] for core in counters} == expected
    assert all(counters[core]["wrong_core"] == 0 for core in counters), "receiving_core_ipv6 named another core"


def test_cores_without_a_receive_queue_send_and_get_their_memory_back():
    """RSS supports 16 cores. Further cores have their own transmit queues and interrupts, also after queues and card are set up again."""

    def ask(text: str) -> tuple[str, list[int]]:
        """Returns the answer, and the cores that sent a frame of their own meanwhile."""
        echo.peer.send(setting_frame(text))
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

    with booted(cores=18, words="idle=halt") as echo:
        echo.machine.breaks_a_rule = True  # allows the error that `dma_error` causes (tests/conftest.py)
        all_send()
        assert ask("tx_ring=256") == ("ok tx_ring=256 lost=0", [])
        all_send()
        assert ask("itr=8us,17") == ("error: itr: this core has no receive queue: only the first 16 have", [])
        before = len(echo.machine.lines)
        echo.peer.send(setting_frame("dma_error"))  # the answer is lost in the card's reset
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
    """The reserved core gets TCP to port 5002. RSS distributes all other traffic, such as UDP to port 5002 and TCP from port 5002."""
    ours = [numbered_segment(i, 1024 + 37 * i, 5002, 60 + i) for i in range(200)]
    others = [numbered_segment(i, 5002, 1024 + 37 * i, 60 + i) for i in range(200)]
    left = [core for core in range(cores) if core != reserved] or [0]
    expected = dict.fromkeys(range(cores), 0)
    expected[reserved] += len(ours)
    for frame in others:
        expected[left[toeplitz(frame[26:38]) % 128 % len(left)]] += 1
    with booted(cores=cores, words=f"reserved_core={reserved}") as echo:
        exchange(echo.peer, ours + others, udp_echoed, window=1)
        counters = echo.finish()
    counters[0]["frames"] -= 1  # the stop frame, which has no hash
    assert {core: counters[core]["frames"] for core in counters} == expected


def test_frames_over_several_descriptors():
    sizes = [60, 1514, 2047, 2048, 2049, 4096, 4097, 8999, 9014]
    frames = [echo_frame(i, sizes[i % len(sizes)]) for i in range(900)]
    with booted(words="frame_bytes=9014") as echo:
        exchange(echo.peer, frames, echoed, window=16)
        core = echo.finish()[0]
    assert core["frames"] == 901


def test_a_dry_pool_loses_frames_but_neither_buffers_nor_the_queue():
    """All buffers are on the ring or in use by the echo. Frames that arrive faster than the echo returns them find no descriptor."""
    with booted(words="receive_descriptors=64 receive_buffers=64") as echo:
        replies = 0
        for burst in range(6):
            for i in range(200):
                echo.peer.send(echo_frame(burst * 200 + i, 1000))
            while echo.peer.receive(timeout=0.5) is not None:
                replies += 1
        exchange(echo.peer, [echo_frame(i, 500, seed=5) for i in range(200)], echoed, window=16)
        core = echo.finish()[0]
    assert (core["frames"], core["hangs"]) == (replies + 200 + 1, 0)


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


def test_an_odd_itr_is_rounded_and_reported():
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
    """At first only one frame is in flight at a time. If a change of policy loses that frame's interrupt, the frame is never answered."""
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
        ("reserved_core=2", "has no receive queue"),
        ("reserved_core=1 reserved_port=0", "port 0"),
        ("itr=2ms", "itr: the card takes 0us to 1024us, in steps of 2us"),
        ("idle=monitor", "idle: monitor needs an MWAIT that sleeps; accepted here: halt poll deepest"),
    ],
)
def test_a_core_that_cannot_be_reserved_and_an_impossible_policy_are_refused_at_boot(words: str, complaint: str):
    with Machine(IMAGE, cores=2, arguments=words.split(), net="none", soft_card=SOFT_CARD) as machine:
        machine.wait_for_line(re.escape(complaint), START_SECONDS)
        assert machine.wait_exit(ANSWER_SECONDS) == FAILURE
