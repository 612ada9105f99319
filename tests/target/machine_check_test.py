# SPDX-License-Identifier: BSL-1.0
"""Machine checks that QEMU's monitor injects (hardware_errors_are_named.cpp)."""

from tests.target.images import image_path
from tools.machine import PANIC, Machine

IMAGE = image_path("hardware_errors_are_named")
TIMEOUT_SECONDS = 90
# Each status has VAL, EN, ADDRV (bits 63, 60 and 58) and the code of a memory error. The second one also has UC (61, uncorrected) and PCC
# (57, the core's state is corrupt).
CORRECTED_STATUS, UNCORRECTED_STATUS = "0x940000000000009f", "0xb60000000000009f"


def inject_error(machine: Machine, core: int, bank: int, status: str, broadcast: bool = False) -> None:
    """Injects a machine check by QEMU's monitor. The words after the status are IA32_MCG_STATUS, the address and further details."""
    words = f"mce {'-b ' if broadcast else ''}{core} {bank} {status} 0x5 0x1234000 0"
    assert machine.qmp("human-monitor-command", **{"command-line": words}) == ""


def test_a_machine_check_is_named_by_the_core_that_sees_it() -> None:
    with Machine(IMAGE, cores=2, memory="256M", card=False) as machine:
        machine.wait_for_line("^ready$", TIMEOUT_SECONDS)
        inject_error(machine, 1, 3, CORRECTED_STATUS)
        machine.wait_for_line("^neap: machine check, core 1, bank 3: memory error, corrected, status 0x94", TIMEOUT_SECONDS)
        machine.wait_for_line("^counted 1$", TIMEOUT_SECONDS)
        inject_error(machine, 1, 3, CORRECTED_STATUS)
        machine.wait_for_line("^counted 2$", TIMEOUT_SECONDS)  # the kernel cleared the bank, so the second error is no overflow
        inject_error(machine, 1, 4, UNCORRECTED_STATUS)
        assert machine.wait_exit(TIMEOUT_SECONDS) == PANIC
        lines = machine.lines
    named = "bank 4: memory error, uncorrected, the core's state is corrupt, status 0xb60000000000009f, address 0x1234000"
    assert {f"neap: machine check, core 1, {named}", f"panic on core 1: machine check: {named}"} <= set(lines), lines
    assert any(line.startswith("core 0 was") for line in lines), lines


def test_a_machine_check_on_all_cores_is_one_panic() -> None:
    with Machine(IMAGE, cores=4, memory="256M", card=False, arguments=["cores=0-2", "look=no"], cpu="Skylake-Server") as machine:
        machine.wait_for_line("^ready$", TIMEOUT_SECONDS)
        inject_error(machine, 2, 4, UNCORRECTED_STATUS, broadcast=True)
        assert machine.wait_exit(TIMEOUT_SECONDS) == PANIC
        lines = machine.lines
    assert len([line for line in lines if line.startswith("panic on core")]) == 1, lines
    assert not any("exceptions in the report" in line for line in lines), lines


def test_an_error_from_before_the_start_is_reported() -> None:
    with Machine(IMAGE, cores=2, memory="256M", card=False, arguments=["look=no"], restarts=True) as machine:
        machine.wait_for_line("^ready$", TIMEOUT_SECONDS)
        inject_error(machine, 1, 3, CORRECTED_STATUS)
        before = len(machine.lines)
        machine.qmp("system_reset")
        machine.wait_for_line("^ready$", TIMEOUT_SECONDS, before)
        again = len(machine.lines)
        machine.qmp("system_reset")
        machine.wait_for_line("^ready$", TIMEOUT_SECONDS, again)
        first, second = machine.lines[before:again], machine.lines[again:]
    reported = "neap: machine check from before this start, core 1, bank 3: memory error, corrected"
    assert any(line.startswith(reported) for line in first), first
    assert not any("machine check" in line for line in second), second
