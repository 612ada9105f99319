# SPDX-License-Identifier: BSL-1.0
"""Why a modelled machine ended early, as one line for tables and messages: the words of the part that gave up first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools import machine

# Messages of the world and of QEMU's plugin. Some only follow from the end of the other; they depend on the host, and may come too late.
PARTS = ("neap-world: ", "neap-machine: ")
CONSEQUENCES = (
    *("neap-world: the machine ended", "neap-world: this program was told to end"),
    *("neap-machine: the world cannot go on", "neap-machine: the world has ended the link"),
)
PANIC = re.compile(r"^panic on core|Kernel panic - not syncing")
# linux-start.sh prints its own reason so, but also lists for the profile.
LINUX = re.compile(r"linux: (?!module |map )")
# Neap's refusal of a word is above the list of the accepted ones.
ACCEPTED = "accepted:"
LAST_LINES = 2


def messages(lines: Sequence[str]) -> list[str]:
    """Returns the lines by which the world or the plugin gave up. `lines`: what the world and QEMU wrote."""
    return [line for line in lines if line.startswith(PARTS) and not line.startswith(CONSEQUENCES)]


def reason(status: int, console: Sequence[str], written: Sequence[str]) -> str:
    """`status`: of Machine.wait_exit. `written`: the last lines of the world and of QEMU. Empty if nothing says why."""
    if found := messages(written):
        return found[-1].partition(": ")[2]
    lines = [line.strip() for line in console if line.strip()]
    if panic := next(filter(PANIC.search, lines), ""):
        return panic
    if status == machine.BAD_COMMAND_LINE and ACCEPTED in lines[1:]:
        return lines[lines.index(ACCEPTED, 1) - 1]
    if linux := next(filter(LINUX.match, reversed(lines)), ""):
        return linux
    return "; ".join(lines[-LAST_LINES:])
