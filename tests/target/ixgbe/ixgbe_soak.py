# SPDX-License-Identifier: BSL-1.0
"""`./neap soak driver`: settings and faults at random while frames flow, for as long as is asked for (NEAP_SOAK_SECONDS)."""

from __future__ import annotations

import os
import random
import re
import time

from tests.target.ixgbe.ixgbe_echo_test import booted
from tests.target.ixgbe.ixgbe_settings_test import STRICT, Traffic, lost_by_driver, no_rule_is_broken

SETTINGS = (
    *("rx_ring=256", "rx_ring=1024", "tx_ring=256", "tx_ring=1024", "rx_budget=4", "rx_budget=64", "pthresh=8", "pthresh=32"),
    *("hthresh=1", "hthresh=8", "wthresh=0", "wthresh=1", "wthresh=8", "head_write_back=on", "head_write_back=off", "rsc=on", "rsc=off"),
    *("promiscuous=on", "promiscuous=off", "preset=study", "steer=udp:9,2", "steer=off,2", "itr=0", "itr=16", "itr=200", "poll_budget=100"),
    *("poll_budget=0", "idle=poll", "idle=halt"),
)
FAULTS = ("off", "drop rx next 5", "drop tx next 5", "drop both chance 0.01 7", "late 200000", "hang tx 1")
SHORT_CHANGES = 40


def test_soak_of_random_settings_and_faults_loses_nothing_unsaid() -> None:
    chance = random.Random(int(os.environ.get("NEAP_SOAK_SEED", "1")))
    end = time.monotonic() + float(os.environ.get("NEAP_SOAK_SECONDS", "0"))
    with booted(cores=4, card_options=STRICT) as echo:
        traffic = Traffic(echo, lossy=True)
        changes = accepted = 0
        while changes < SHORT_CHANGES or time.monotonic() < end:
            if changes % 8 == 7:
                echo.machine.card_command(f"fault {chance.choice(FAULTS)}")
            answer = traffic.set(chance.choice(SETTINGS))
            assert re.match(r"ok \S+ lost=\d+$|error: \w+: ", answer), answer
            accepted += answer.startswith("ok")
            changes += 1
        echo.machine.card_command("fault off")
        for text in ("itr=16", "idle=halt", "preset=default"):
            traffic.set(text)
        traffic.settle()
        statistics = echo.machine.card_command("statistics")
        wire = statistics.get("fault.rx_dropped", 0) + statistics.get("fault.tx_dropped", 0)
        no_rule_is_broken(echo)
        echo.finish()
    assert accepted > changes // 2
    # Of the frames that the wire lost some were questions or answers.
    assert lost_by_driver(echo) <= traffic.lost <= lost_by_driver(echo) + wire
