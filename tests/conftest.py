# SPDX-License-Identifier: BSL-1.0
"""What holds for every test with a machine: our own driver breaks no rule of the card's.

The soft card knows where a real one would leave the outcome undefined, and says at its end whether a driver went there (`--strict`). So
each machine that boots an image of ours is a test of that, whatever else it is for. Linux's and iPXE's drivers are their authors' affair.
A test that breaks one on purpose says so: `machine.breaks_a_rule = True`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from tools.machine import Machine  # noqa: E402

# The soft card's status when a rule was broken.
RULE_BROKEN = 3
STRICT = "--strict"


@pytest.fixture(scope="session", autouse=True)
def no_rule_of_the_card_is_broken() -> Iterator[None]:
    start_card, stop = Machine.start_card, Machine.stop

    def start_strictly(machine: Machine) -> None:
        ours = machine.image and not machine.initrd
        if ours and STRICT not in machine.card_options:
            machine.card_options.append(STRICT)
        start_card(machine)

    def stop_and_look(machine: Machine) -> None:
        with contextlib.ExitStack() as logs:
            card = machine._card_process
            path = machine.directory / "card.log" if card and machine.directory else None
            # Open before it goes with the run's directory; it has gone where the machine was stopped before.
            log = logs.enter_context(open(path, errors="replace")) if path and path.is_file() else None
            stop(machine)
            if log and card.returncode == RULE_BROKEN and not getattr(machine, "breaks_a_rule", False):
                raise AssertionError(f"our driver broke a rule of the card's:\n{log.read()[-4000:]}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "start_card", start_strictly)
        patch.setattr(Machine, "stop", stop_and_look)
        yield
