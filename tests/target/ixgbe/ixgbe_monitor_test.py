# SPDX-License-Identifier: BSL-1.0
"""Cores sleep in MWAIT while frames flow, with `idle=monitor` (the card's write of a descriptor wakes the core) and in C-states.

With `mwait=assumed` the kernel treats the emulator's MWAIT, which returns at once, as an MWAIT that sleeps. The kernel repeats the
instruction until the watched line has changed or an interrupt was taken, and checks nothing else. So a core that watches the wrong line
sleeps for ever, as on a real CPU, and the test misses a frame, a timer or an answer.
"""

import pytest

from tests.target.ixgbe.echo import ANSWER_SECONDS, Echo, Peer, booted, exchange, no_rule_is_broken
from tests.target.ixgbe.echo_frames import echo_frame, echoed, udp_echoed, udp_frame
from tests.target.ixgbe.flow_traffic import Traffic, lost_of

CORES = 2
# A CPU model for which Neap has a list of C-states. Neap needs the list here, because this emulator's CPUID reports no C-states.
SANDY_BRIDGE = "max,vendor=GenuineIntel,family=6,model=45"
WORDS = "mwait=assumed"
SMALL_RINGS = "receive_descriptors=64 transmit_descriptors=64"
FRAMES = 150
QUEUE_WRITES = {f"{register}[{core}]" for register in ("RDT", "TDT") for core in range(CORES)}
TRACE_ENTRIES = 100_000


def one_by_one(peer: Peer, frames: int, seed: int = 0) -> None:
    """Sends each frame after the previous answer, so the frame finds its core asleep or about to sleep. Flows of both cores alternate."""
    exchange(peer, [udp_frame(seed * 100_000 + i, 1000 + i % 16, 60 + i * 11 % 1400) for i in range(frames)], udp_echoed, window=1)


def interrupts_of_queues(echo: Echo) -> int:
    """Returns how many interrupt messages the queues sent since the trace began. Ends the trace."""
    echo.machine.card_command("trace stop")
    messages = 0
    while True:
        piece = echo.machine.card_command("trace read")
        assert piece["lost"] == 0, "the trace was too short"
        messages += sum("held" in entry and entry["vector"] < CORES for entry in piece["entries"])
        if piece["left"] == 0:
            return messages


def test_a_core_that_monitors_is_woken_by_the_cards_write_alone() -> None:
    """The frames fill the ring many times, so each cache line of the ring is watched."""
    with booted(CORES, f"{WORDS} {SMALL_RINGS} idle=monitor") as echo:
        one_by_one(echo.peer, 32)
        echo.machine.card_command("reset-counters")
        echo.machine.card_command(f"trace start {TRACE_ENTRIES}")
        one_by_one(echo.peer, FRAMES, seed=1)
        exchange(echo.peer, [echo_frame(i, 60 + i * 7 % 1400) for i in range(FRAMES)], echoed, window=32)
        assert interrupts_of_queues(echo) == 0
        counters = echo.machine.card_counters()
        cores = echo.finish()
    assert not any(counters["reads"].values()), "a register was read with traffic"
    writes = {name: count for name, count in counters["writes"].items() if count}
    assert set(writes) == QUEUE_WRITES, "traffic needs tails and nothing else"
    for number, core in cores.items():
        assert core["frames"] > 64, "the ring did not come round"
        assert core["refused"] == core["dropped"] == core["hangs"] == 0
        assert writes[f"TDT[{number}]"] <= core["batches"]
        assert writes[f"RDT[{number}]"] <= core["batches"] + 1


def test_timers_and_other_cores_reach_a_core_that_monitors() -> None:
    """There are no frames except requests and answers. A change of a setting is answered after both cores have applied it."""
    with booted(CORES, f"{WORDS} idle=monitor") as echo:
        traffic = Traffic(echo)
        for turn in range(12):
            core = turn % CORES
            assert traffic.set_in_silence(f"timer,{core}") == f"ok timer on core {core}"
            assert lost_of(traffic.set_in_silence(f"poll_budget={turn % 3},{core}")) == 0
        echo.finish()


@pytest.fixture(scope="module")
def every_state():
    with booted(CORES, f"{WORDS} idle=halt", cpu=SANDY_BRIDGE) as echo:
        yield echo, Traffic(echo)


STATES = ("halt", "c1", "c1e", "c3", "c6", "c7", "poll", "monitor", "deepest")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("poll_budget_us", [0, 200])
def test_each_idle_state_is_entered_and_left_under_traffic_without_a_loss(
    every_state: tuple[Echo, Traffic], state: str, poll_budget_us: int
) -> None:
    """Each case starts in the state in which the previous case ended. The frames of each case find the cores asleep."""
    echo, traffic = every_state
    lost = traffic.lost
    for text in (f"poll_budget={poll_budget_us}", f"idle={state}"):
        assert lost_of(traffic.set(text)) == 0
    traffic.settle()
    one_by_one(traffic.peer, 8)
    assert traffic.lost == lost
    no_rule_is_broken(echo)


RINGS = ("rx_ring=1024", "rx_ring=256", "head_write_back=on", "rsc=on", "preset=default")


def test_a_ring_that_moves_is_watched_where_it_is() -> None:
    """After a change of the ring size, and after a queue or the card is set up again, the next frame is answered without an interrupt."""
    with booted(CORES, f"{WORDS} idle=monitor") as echo:
        traffic = Traffic(echo)
        peer = traffic.peer
        echo.machine.card_command(f"trace start {TRACE_ENTRIES}")
        for seed, text in enumerate(RINGS):
            assert lost_of(traffic.set(text)) >= 0
            traffic.settle()
            one_by_one(peer, 8, seed)

        echo.machine.card_command("fault hang tx 0")
        peer.send(echo_frame(1, 300))
        echo.machine.wait_for_line("ixgbe: queues of core 0 started anew, lost=1", ANSWER_SECONDS)
        echo.machine.card_command("fault off")
        one_by_one(peer, 16, seed=20)

        echo.machine.card_command("fault ecc")
        echo.machine.wait_for_line(r"ixgbe: card reset, lost=\d+", ANSWER_SECONDS)
        until_answered(peer)
        one_by_one(peer, 16, seed=21)

        echo.machine.card_command("link flap 20000000 2")
        until_answered(peer)
        one_by_one(peer, 16, seed=22)
        assert interrupts_of_queues(echo) == 0
        cores = echo.finish()
    assert cores[0]["hangs"] >= 1


def until_answered(peer: Peer) -> None:
    """Sends a frame of each flow until it is answered, because the link may still be down. At the end no frame is in flight."""
    for port in (1000, 1001):
        probe = udp_frame(7_000_000 + port, port, 100)
        for _ in range(100):
            peer.send(probe)
            if (reply := peer.receive(0.5)) is not None:
                assert reply == udp_echoed(probe)
                break
        else:
            raise AssertionError("no frame is answered any more")
        while (reply := peer.receive(1.0)) is not None:
            assert reply == udp_echoed(probe)
