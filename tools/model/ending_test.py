# SPDX-License-Identifier: BSL-1.0
"""A machine that ended early is explained by the line of the part that gave up first. The lines are those of real runs."""

import pytest

from tools import machine
from tools.model import ending

ENDED = "neap-world: the machine ended during set-up of load 0 (etc), at 35643642 ns of virtual time"
REFUSED = 'load 0 (etc): control at 10.0.0.2:5002 answered itr,5000000us with "error: itr: the card takes 0us to 1024us"'


@pytest.mark.parametrize(
    ("status", "console", "written", "reason"),
    [
        (1, ["memcached: listening on 10.0.0.2:11211"], [f"neap-world: {REFUSED}"], REFUSED),
        (
            machine.FAILURE,
            ["net: link up", "observe: dca: this CPU has no direct cache access", "memcached: no control: a setting was refused", ""],
            [ENDED],
            "observe: dca: this CPU has no direct cache access; memcached: no control: a setting was refused",
        ),
        (
            machine.BAD_COMMAND_LINE,
            ["neap: command line: foo=bar", "foo= is not known", "accepted:", "cores="],
            [ENDED],
            "foo= is not known",
        ),
        (
            machine.PANIC,
            ["panic on core 1: heap: a write outside", "  at f()", "  at g()"],
            [ENDED],
            "panic on core 1: heap: a write outside",
        ),
        (
            machine.POWER_OFF,
            ["linux: module ixgbe 1 0x1", "linux: core 0 refused the ratio 99", "linux: map 0 1 2", "reboot: Power down"],
            [ENDED],
            "linux: core 0 refused the ratio 99",
        ),
        (3, ["net: link up"], ["neap-machine: the world cannot go on", f"neap-world: {REFUSED}"], REFUSED),
        (1, [], ["neap-machine: the world cannot go on"], ""),
    ],
)
def test_the_part_that_gave_up_first_is_named(status: int, console: list[str], written: list[str], reason: str):
    assert ending.reason(status, console, written) == reason
