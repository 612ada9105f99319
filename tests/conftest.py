# SPDX-License-Identifier: BSL-1.0
"""For all tests with machines: the order of their files, and a check that our own driver breaks no rule of the card.

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
# The files that take longest, in each layer. tests/system and tests/model both have an experiment_test.
LONGEST = [
    "system/linux_trace_test", "system/launcher_test", "system/hostile_test", "system/memcached_suite_test", "system/linux_traffic_test",
    "system/load_test", "system/web_hostile_test", "system/web_clients_test", "system/cloud_boot_test",
    "system/stock_clients_test", "system/linux_ethtool_test", "system/boot_test", "system/linux_machine_test", "system/outside_test",
    "system/bench_test", "system/linux_driver_test", "system/boot_serve_test", "system/log_test", "system/linux_removal_test",
    "system/image_test", "system/experiment_test", "system/linux_nomsi_test", "system/netpipe_test",
    "model/linux_arms_test", "model/compare_test", "model/linux_trace_test", "model/linux_log_test", "model/linux_test",
    "target/core_start_test", "target/target_test", "model/linux_memcached_test", "model/sequence_test", "net/net_echo_test",
    "model/experiment_test", "ixgbe/ixgbe_echo_test", "ixgbe/ixgbe_settings_test", "ixgbe/ixgbe_monitor_test",
]  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # pytest's workers take one file after another. The files that take longest start first, so that no worker ends long after the others.
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(f"{item.path.parent.name}/{item.path.stem}", len(places)))


@pytest.fixture(scope="session", autouse=True)
def no_rule_of_the_card_is_broken() -> Iterator[None]:
    start_card, stop = Machine.start_card, Machine.stop

    def start_strictly(machine: Machine) -> None:
        ours = machine.image and not machine.initrd
        if ours and not any(option.startswith(STRICT) for option in machine.card_options):
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
