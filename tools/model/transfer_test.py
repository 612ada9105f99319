# SPDX-License-Identifier: BSL-1.0
"""The plan of transfers and what their client prints; no machine runs."""

from pathlib import Path

import pytest

from tools.errors import UsageError
from tools.model import pair, transfer
from tools.model.experiment import System
from tools.model.transfer import Idle, Network, Outcome, Setting, Transfer

NEAP = System(Path("neap.elf"))
LINUX = System(Path("vmlinuz"), Path("initramfs"))


def test_a_network_becomes_the_worlds_list() -> None:
    assert Network().words() == "delay_ns=25000,rate_mbps=100,queue_bytes=1073741824,queue_frames=1000"
    delayed = Network(1000, delay_ms=50, loss=0.01, reorder=0.05, jitter_ms=3, queue_frames=20).words()
    assert delayed.startswith("delay_ns=25025000,rate_mbps=1000,"), "a frame crosses two cables"
    assert delayed.endswith("queue_frames=20,loss=0.01,reorder=0.05,jitter_ns=3000000")


def test_a_plan_sets_the_network_before_each_step() -> None:
    steps = [Transfer("a", Network(loss=0.01), True, 1001, seed=7, seconds=5), Transfer("b", Network(), False, 8), Idle("c", 9)]
    lines = transfer.plan(steps).splitlines()
    assert lines[0].startswith("network 1 delay_ns=25000") and lines[1].startswith("down first 65536 ")
    assert lines[3].startswith("network 7 ") and "loss=0.01" in lines[3]
    assert lines[4] == "down a 1000 7 5", "a multiple of eight bytes"
    assert lines[7].startswith("up b 8 1 ") and lines[-1] == "idle c 9"
    assert [line.split()[0] for line in lines] == ["network", "down", "pause", "network", "down", "pause"] + [
        *("network", "up", "pause"),
        *("network", "idle"),
    ]


def test_the_clients_lines_become_outcomes() -> None:
    steps = [Transfer(name, Network(), True, 8) for name in ("out.1", "in.1", "gone")] + [Idle("idle")]
    console = [
        "linux: something",
        "transfer: first ok 65536 5 00ff",
        "transfer: out.1 ok 10000000 850015452 f3a360abc140600a",
        "transfer: in.1 failed receiving: Connection timed out",
        "transfer: idle ok 0 419273 0 1 0 0 4096 17",
    ]
    found = transfer.outcomes(steps, console)
    assert list(found) == ["out.1", "in.1", "gone", "idle"]
    assert found["out.1"].mbps == pytest.approx(94.116, abs=1e-3) and not found["out.1"].failed
    assert found["in.1"].failed == "receiving: Connection timed out"
    assert found["gone"].failed == "the client printed no result"
    assert found["idle"] == Outcome(seconds=0.000419273, held_bytes_max=4096, retransmissions=17)


def test_a_guest_may_have_a_gateway() -> None:
    assert NEAP.words(["itr=16us"]) == ["ip=10.0.0.2/24", "itr=16us"]
    assert System(Path("neap.elf"), gateway="10.0.0.16").words([]) == ["ip=10.0.0.2/24,10.0.0.16"]


def test_each_end_gets_its_words() -> None:
    setting = Setting(congestion="reno", mtu=576, neap_words=["itr=16us"])
    assert setting.words(pair.RECEIVER, NEAP) == ["ip=10.0.0.1/24", "itr=16us"]
    words = setting.words(pair.TRANSMITTER, LINUX)
    assert {"neap.run=client", "neap.peer=10.0.0.1", "neap.congestion=reno", "neap.mtu=576", "neap.address=10.0.0.2/24"} <= set(words)
    assert "neap.run=server" in setting.words(pair.RECEIVER, LINUX)
    with pytest.raises(UsageError, match="--congestion"):
        Setting(congestion="vegas").check()
