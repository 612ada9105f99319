# SPDX-License-Identifier: BSL-1.0
"""Checks, in every test that boots a machine, that our own driver breaks no rule of the card.

The soft card detects driver actions whose outcome is undefined on a real card, and reports them when it exits (`--strict`). So every
machine that boots one of our images also tests our driver. The drivers of Linux and iPXE are not checked. A test that breaks a rule on
purpose sets `machine.breaks_a_rule = True`.
"""

import contextlib
from collections.abc import Iterator

import pytest

from tools.machine import Machine

# The soft card's exit status after a broken rule.
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
            # The log is opened before the run's directory is removed. If the machine was stopped earlier, the file no longer exists.
            log = logs.enter_context(open(path, errors="replace")) if path and path.is_file() else None
            stop(machine)
            if log and card.returncode == RULE_BROKEN and not getattr(machine, "breaks_a_rule", False):
                raise AssertionError(f"our driver broke a rule of the card's:\n{log.read()[-4000:]}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "start_card", start_strictly)
        patch.setattr(Machine, "stop", stop_and_look)
        yield
