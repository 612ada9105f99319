# SPDX-License-Identifier: BSL-1.0
"""`idle=monitor` in a whole system: memcached answers without interrupts of the card, and the log shows that memory writes woke the cores.

The emulator's MWAIT returns at once. With `mwait=assumed` the kernel repeats it until the watched line is written or an interrupt arrives.
"""

import contextlib
import random
from collections import Counter

import pytest
from observed import INTERRUPT, POLL, ObservedServer
from wire import Wire

pytestmark = [pytest.mark.image_only, pytest.mark.names_the_82599]  # its counters and moderation

CORES = 2
CONNECTIONS_A_CORE = 2
ROUNDS = 12
VALUE_BYTES = (1, 100, 5000, 60_000)
# Numbers of `idle_state` and `cause` in docs/log-format.md.
MONITOR = 7
NOT_ASLEEP, BY_INTERRUPT, BY_MEMORY, BY_TIMER, BY_CORE, UNKNOWN = range(6)


def store_and_fetch(wires: list[Wire]) -> int:
    """Stores, fetches and compares values of several sizes on each connection in turn. Returns the number of requests."""
    content = random.Random(1)
    for turn in range(ROUNDS):
        for number, wire in enumerate(wires):
            value = content.randbytes(VALUE_BYTES[turn % len(VALUE_BYTES)])
            wire.store(b"key-%d" % number, value)
            assert wire.fetch(b"key-%d" % number) == value
    return 2 * ROUNDS * len(wires)


def test_only_the_cards_writes_wake_a_monitoring_core_and_the_log_shows_it() -> None:
    words = ["memory=64M", "log=64K", "log_idle=on", "mwait=assumed", "idle=halt"]
    with (
        ObservedServer(cores=CORES, memory="512M", arguments=words) as server,
        contextlib.ExitStack() as stack,
        server.control() as control,
    ):
        wires = [stack.enter_context(wire) for wire in server.connect_to_each_core(range(CORES), CONNECTIONS_A_CORE)]
        assert "idle=monitor" in control.ok_answer("idle,monitor")
        server.start_trace()
        control.ok_answer("start")
        # Start and stop of a run read the card's counters.
        server.machine.card_command("reset-counters")
        requests = store_and_fetch(wires)
        accesses = server.machine.card_counters()
        control.ok_answer("stop")
        messages = server.stop_trace()
        assert "idle=halt" in control.ok_answer("idle,halt")
        logs = [server.log(core) for core in range(CORES)]

    assert not any(messages[core] for core in range(CORES)), "interrupts of the queues"
    assert not any(accesses["reads"].values()), "a register was read with traffic"
    assert {name[:3] for name, count in accesses["writes"].items() if count} == {"RDT", "TDT"}
    causes: Counter[int] = Counter()
    for log in logs:
        kinds = Counter(record.kind for record in log.records)
        assert kinds[INTERRUPT] == 0
        assert kinds[POLL] > 0, f"core {log.core} had no frames"
        assert all(state == MONITOR for state, _cause in log.sleeps)
        causes.update(cause for _state, cause in log.sleeps)
    print(f"{requests} requests; what ended {sum(causes.values())} sleeps: {dict(causes)}")
    assert causes[BY_MEMORY] >= requests / 4, causes
    assert causes[BY_CORE] > 0, "the log's start and end reach the cores by an interrupt"
    assert causes[BY_INTERRUPT] == causes[UNKNOWN] == 0, causes
