# SPDX-License-Identifier: BSL-1.0
"""The driver's settings and repairs while frames flow, on a card that reports errors of a driver (`--strict`).

Frames of many flows are in flight all the time. Within a flow no frame may overtake another, so an answer shows which earlier frames are
lost. Exactly as many frames must be lost as the driver reports for a change.
"""

import itertools
import random
import struct

import pytest

from tests.target.ixgbe.echo import Echo, booted, exchange, no_rule_is_broken
from tests.target.ixgbe.echo_frames import (
    CARD_MAC,
    ECHO,
    PEER_MAC,
    SET,
    echo_frame,
    echoed,
    setting_frame,
    tcp_frame,
    udp_echoed,
    udp_frame,
)
from tests.target.ixgbe.flow_traffic import FLOWS, PATIENCE_SECONDS, Traffic, lost_of
from tests.target.ixgbe.ixgbe_soak import SETTINGS, Soak, events_shown_on_failure
from tests.target.ixgbe.ixgbe_soak import WORDS as SOAK_WORDS
from tests.target.ixgbe.mixed_traffic import ConsoleCounts, MixedTraffic

OTHER_MAC = bytes.fromhex("020000000077")
PAUSE_ADDRESS = bytes.fromhex("0180c2000001")


def test_every_setting_changes_under_traffic_and_reports_lost_frames() -> None:
    stopping = ["rx_ring=1024", "rx_ring=4096", "tx_ring=256", "pthresh=16", "hthresh=4", "wthresh=4", "wthresh=0", "head_write_back=on"]
    stopping += ["rsc=on", "tx_ring=512", "rx_ring=256", "preset=study", "preset=default"]
    running = ["tx_interrupt=on", "rx_budget=8", "promiscuous=on"]
    running += ["itr=100", "flow_control=both", "poll_budget=50", "promiscuous=off", "itr=16"]
    running += ["tx_interrupt=off", "idle=poll", "flow_control=receive", "idle=halt", "flow_control=off", "dca=off"]
    with booted(cores=2) as echo:
        traffic = Traffic(echo)
        at_boot = values_of(traffic)
        reported = 0
        for step, text in enumerate(stopping):
            reported += lost_of(traffic.set(text))
            assert lost_of(traffic.set(running[step % len(running)])) == 0
        for text in ("itr=40,1", "idle=poll,1", "poll_budget=20,0", "idle=halt,1", "itr=16"):
            assert lost_of(traffic.set(text)) == 0
        assert traffic.set("no_such=1") == "error: no such setting"
        reported += lost_of(traffic.set("preset=default"))
        defaults = values_of(traffic)
        reported += lost_of(traffic.set("preset=study"))
        studys = values_of(traffic)
        traffic.send(500)
        traffic.settle()
        counters = echo.finish()
    assert (traffic.lost, traffic.answered) == (reported, traffic.sent - reported)
    assert all(core["hangs"] == core["dropped"] == core["bad_checksums"] == 0 for core in counters.values())
    # The preset `study` has the values of the driver in the published studies. Only these differ from the defaults.
    assert defaults == {**at_boot, "rsc": 1}
    assert studys == {**at_boot, "pthresh": 0, "hthresh": 0, "tx_interrupt": 1}


def values_of(traffic: Traffic) -> dict[str, int]:
    return {name: int(value) for name, value in (word.split("=") for word in traffic.set("values").split())}


@pytest.mark.parametrize(
    "before, text, why",
    [
        ((), "rx_ring=100", "a power of two of descriptors, 64 to 4096"),
        ((), "wthresh=9", "0 to 8 descriptors"),
        ((), "rx_budget=0", "1 to 4096 descriptors"),
        (("tx_interrupt=on", "pthresh=36"), "wthresh=8", "no more than 40"),
        ((), "wthresh=2", "WTHRESH above 1 needs tx_interrupt=on"),
        (("tx_interrupt=on", "wthresh=2"), "tx_interrupt=off", "WTHRESH above 1 needs tx_interrupt=on"),
        (("head_write_back=on",), "wthresh=1", "head write-back with WTHRESH 0 alone"),
        (("itr=0",), "rsc=on", "RSC needs an itr of 6us or more"),
        (("rsc=on",), "itr=4", "RSC needs an itr of 6us or more"),
        (("tx_interrupt=on", "wthresh=8"), "itr=0", "WTHRESH above 1 needs an itr"),
        ((), "steer=udp:7", "needs the core"),
        ((), "steer=udp:7,3", "core 3 does not run"),
        ((), "rx_ring=512,0", "holds for all cores"),
        ((), "preset=mine", "study default"),
        ((), "vlan=4095", "1 to 4094, off"),
        ((), "flow_control=up", "off receive transmit both"),
        ((), "dca=on", "this CPU has no direct cache access"),
    ],
)
def test_a_setting_that_the_card_does_not_take_is_refused_with_the_reason(
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
    with booted(cores=2) as echo:
        yield echo, Traffic(echo)


def test_rsc_yields_to_a_short_itr_unless_it_was_asked_for(refusing: tuple[Echo, Traffic]) -> None:
    echo, traffic = refusing
    lost_of(traffic.set("itr=16"))
    lost_of(traffic.set("preset=default"))
    assert values_of(traffic)["rsc"] == 1
    assert lost_of(traffic.set("itr=4,1")) >= 0
    assert values_of(traffic)["rsc"] == 0
    lost_of(traffic.set("preset=default"))
    assert values_of(traffic)["rsc"] == 0, "the preset has no RSC that the present itr forbids"
    assert lost_of(traffic.set("itr=16")) == 0
    assert values_of(traffic)["rsc"] == 0
    lost_of(traffic.set("rsc=on"))
    assert "RSC needs an itr of 6us or more" in traffic.set("itr=4")
    assert values_of(traffic)["rsc"] == 1
    traffic.settle()
    no_rule_is_broken(echo)


def test_a_flow_is_steered_to_a_named_core_and_back() -> None:
    with booted(cores=4) as echo:
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
        counters = echo.finish()
    assert traffic.lost == 0
    assert counters[3]["frames"] >= steered
    assert all(counters[core]["frames"] > 0 for core in range(4)), "before and after, RSS spreads them"


def test_frames_for_others_come_while_the_card_is_promiscuous_and_only_then() -> None:
    with booted(cores=2) as echo:
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
        echo.finish()
    assert traffic.lost == 0


def tcp_segments(sequence: int, payloads: list[bytes]) -> list[bytes]:
    """Returns consecutive segments of one connection, which the card can join."""
    starts = itertools.accumulate((len(payload) for payload in payloads), initial=sequence)
    return [tcp_frame(payload, 1234, 80, start) for start, payload in zip(starts, payloads)]


def test_segments_are_joined_and_no_byte_is_lost_or_moved() -> None:
    content = random.Random(5)
    with booted(words="frame_bytes=9014 rsc=on itr=1000us compare=off") as echo:
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
        counters = echo.finish()
    assert frames < segments, "nothing was joined: this run shows nothing"
    assert counters[0]["dropped"] == counters[0]["bad_checksums"] == 0


def test_a_hung_transmit_queue_is_detected_and_restarted() -> None:
    with booted(cores=2) as echo:
        exchange(echo.peer, [echo_frame(i, 300) for i in range(50)], echoed)
        echo.machine.card_command("fault hang tx 0")
        for i in range(20):
            echo.peer.send(echo_frame(i, 300))
        assert echo.machine.wait_for_line(r"ixgbe: queues of core 0 started anew, lost=(\d+)", 2 * PATIENCE_SECONDS).endswith("lost=20")
        echo.machine.card_command("fault off")
        exchange(echo.peer, [echo_frame(i, 300, seed=1) for i in range(200)], echoed)
        counters = echo.finish()
    assert counters[1]["hangs"] == 0 < counters[0]["hangs"]


def test_a_card_that_cannot_reach_memory_is_reset_and_goes_on() -> None:
    with booted(cores=2, words="compare=off") as echo:
        echo.machine.breaks_a_rule = True  # allows the DMA fault below (tests/conftest.py)
        peer = echo.peer
        exchange(peer, [echo_frame(i, 300) for i in range(50)], echoed)
        peer.send(setting_frame("dma_error"))
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


def test_failing_card_memory_and_a_corrupt_eeprom_are_reported_and_survived() -> None:
    with booted(cores=2, words=SOAK_WORDS, card_options=("--fault", "eeprom")) as echo:
        assert any("EEPROM's checksum is " in line for line in echo.machine.lines)
        traffic = MixedTraffic(echo, seed=3)
        traffic.send(300)
        echo.machine.card_command("fault ecc")
        echo.machine.wait_for_line("EICR.ECC: the card's memory failed", PATIENCE_SECONDS)
        echo.machine.wait_for_line(r"ixgbe: card reset, lost=\d+", PATIENCE_SECONDS)
        traffic.settle()
        assert not any("PCI_EXCEPTION" in line for line in echo.machine.lines), "the one is not the other"
        echo.finish()


def tagged(frame: bytes, vlan: int) -> bytes:
    return frame[:12] + b"\x81\x00" + struct.pack(">H", vlan) + frame[12:]


def test_frames_of_a_vlan_alone_pass_in_both_directions() -> None:
    """The VLAN is set while frames flow: the card inserts and removes tags. Frames with another tag or none do not reach the stack."""
    frames = [udp_frame(i, 1000 + i % FLOWS, 60 + i * 7 % 1400) for i in range(200)]
    frames += [echo_frame(i, size) for i, size in enumerate((60, 1514, 100))]
    # The card's count of sent bytes includes the tags, but the driver's count does not.
    with booted(cores=2, words="compare=off") as echo:
        peer = echo.peer
        traffic = Traffic(echo)
        traffic.send(200)
        traffic.settle()
        peer.send(setting_frame("vlan=7"))
        answer = peer.receive()
        assert answer is not None and answer[:18] == PEER_MAC + CARD_MAC + b"\x81\x00\x00\x07" + SET, "the first with a tag"
        others = [frames[0], tagged(frames[1], 8), tagged(frames[2], 7 + 4088), echo_frame(9999, 200)]
        for frame in others:
            peer.send(frame)
        for i in range(0, len(frames), 2):
            for frame in frames[i : i + 2]:
                peer.send(tagged(frame, 0x2007))  # with any priority
            replies = {peer.receive() for _ in frames[i : i + 2]}
            expected = {tagged(udp_echoed(frame) if frame[12:14] == b"\x08\x00" else echoed(frame), 7) for frame in frames[i : i + 2]}
            assert replies == expected
        peer.send(tagged(setting_frame("vlan=off"), 7))
        answer = peer.receive()
        assert answer is not None and answer[12:14] == SET
        traffic = Traffic(echo)
        traffic.send(200)
        traffic.settle()
        assert traffic.lost == 0
        counters = echo.finish()
    assert all(core["bad_checksums"] == core["dropped"] == 0 for core in counters.values())
    assert sum(core["untagged"] for core in counters.values()) == 2


def pause_frame(source: bytes, quanta: int) -> bytes:
    return PAUSE_ADDRESS + source + b"\x88\x08\x00\x01" + struct.pack(">H", quanta) + bytes(42)


# The frames fill 504 of 512 KB and 369 of 384 KB of the packet buffer, to leave room for frames in flight.
@pytest.mark.parametrize(("model", "count"), [("82599", 56), ("x540", 41)])
def test_pause_frames_are_sent_and_obeyed_and_nothing_is_lost_meanwhile(model: str, count: int) -> None:
    """A hung queue fills the packet buffer: the card requests a pause, and in the end every frame is answered."""
    frames = [echo_frame(i, 9014) for i in range(count)]
    with booted(cores=2, words="frame_bytes=9014 flow_control=both", card_options=("--model", model)) as echo:
        peer = echo.peer
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
        # The longest pause (0xFFFF) is 3.4 ms.
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
        echo.finish()


def test_a_short_soak_of_settings_and_faults_reports_every_loss() -> None:
    """Like `./neap soak driver`, but with each fault in turn, and changes after a fixed number of frames."""
    console = ConsoleCounts()
    faults = ("drop both chance 0.02 1", "corrupt both chance 0.02 2", "reorder both chance 0.05 3", "delay rx 3000000 chance 0.05 4")
    faults += ("hang tx 1", "hang rx 2", "late 200000", "lose any chance 0.2 5", "link flap 20000000 2", "ecc")
    with events_shown_on_failure(console), booted(cores=4, words=SOAK_WORDS, on_line=console.line) as echo:
        soak = Soak(echo, console, seed=7)
        for fault in faults:
            soak.fault(fault)
            for _ in range(4):
                soak.traffic.send(30)
                soak.release_queues()
                soak.traffic.ask(soak.chance.choice(SETTINGS))
            soak.traffic.set("rx_budget=64")
            if not fault.startswith("hang"):
                soak.fault("off")
        print(soak.finish())
    assert console.changes > console.refused
    assert console.resets >= 1


def test_a_removed_card_is_reported_and_the_machine_runs_on() -> None:
    with booted() as echo:
        exchange(echo.peer, [echo_frame(i, 300) for i in range(50)], echoed)
        echo.machine.card_command("fault hang tx 0")
        echo.peer.send(echo_frame(50, 300))
        echo.machine.card_command("fault away")
        echo.machine.wait_for_line("card is gone", 2 * PATIENCE_SECONDS)
        echo.machine.wait_for_line("link down", PATIENCE_SECONDS)
        echo.machine.wait_for_line("ixgbe_echo: core 0 has no link", PATIENCE_SECONDS)
        assert echo.machine.running
