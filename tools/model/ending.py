# SPDX-License-Identifier: BSL-1.0
"""Why a modelled machine ended early, as one line for tables and messages: the words of the part that gave up first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools import machine

WORLD = "neap-world: "
# The world's line when the machine gave up first. Then the console has the reason.
MACHINE_FIRST = re.compile(r"the machine ended\b|both machines|the other machine")
PANIC = re.compile(r"^panic on core|Kernel panic - not syncing")
# linux-start.sh prints its own reason so, but also lists for the profile.
LINUX = re.compile(r"linux: (?!module |map )")
# Neap's refusal of a word is above the list of the accepted ones.
ACCEPTED = "accepted:"
LAST_LINES = 2


def reason(status: int, console: Sequence[str], world: Sequence[str]) -> str:
    """`status`: of Machine.wait_exit. `world`: the last lines of the world. Empty if nothing was written."""
    said = next((line for line in reversed(world) if line.startswith(WORLD)), "")
    if said and not MACHINE_FIRST.search(said):
        return said.removeprefix(WORLD)
    lines = [line.strip() for line in console if line.strip()]
    if found := next(filter(PANIC.search, lines), ""):
        return found
    if status == machine.BAD_COMMAND_LINE and ACCEPTED in lines[1:]:
        return lines[lines.index(ACCEPTED, 1) - 1]
    if found := next(filter(LINUX.match, reversed(lines)), ""):
        return found
    return "; ".join(lines[-LAST_LINES:])
