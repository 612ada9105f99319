# SPDX-License-Identifier: BSL-1.0
"""The program of known_count.c: its numbers, and how it gets into a guest.

It is sent over the script channel, so that the images of guests that do not need it stay the same.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from tools.process import output_of

from .guest import LinuxGuest

PROGRAM = "/tmp/known_count"
ROUNDS = 5_000_000
KNOWN_INSTRUCTIONS = 3 + 1 + 2 * ROUNDS + 3
# Between the two marks at user level: CPUID, the rounds, and two instructions that load its operands again.
MARKED_INSTRUCTIONS = 1 + 2 * ROUNDS + 2
COUNTED_OUTSIDE = 8

_SOURCE = Path(__file__).with_name("known_count.c")
_COMPILER = [
    "gcc",
    "-std=gnu17",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-static",
    "-nostdlib",
    "-fno-stack-protector",
    "-fno-pie",
    "-no-pie",
]


def install(guest: LinuxGuest) -> None:
    """Puts the program into the guest, as PROGRAM."""
    with tempfile.TemporaryDirectory() as name:
        made = Path(name) / "known_count"
        output_of([*_COMPILER, "-s", "-o", str(made), str(_SOURCE)])
        text = base64.b64encode(made.read_bytes()).decode()
    guest.output_of(f"echo {text} | base64 -d > {PROGRAM}; chmod +x {PROGRAM}")
