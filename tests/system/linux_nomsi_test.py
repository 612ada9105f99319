# SPDX-License-Identifier: BSL-1.0
"""Linux without message-signalled interrupts: the card has one interrupt line. The driver's interrupt test covers the card's interrupts
only in that case."""

import re
from collections.abc import Iterator

import pytest
from linux_guest.driver import BRING_UP, PATIENT_SECONDS, PING, SELF_TEST_PASSED, complaints, self_test
from linux_guest.guest import LinuxGuest
from linux_guest.guest_image import GuestImage

pytestmark = pytest.mark.names_the_82599

# The messages that the driver logs if the kernel has no message-signalled interrupts.
EXPECTED = re.compile("Failed to allocate MSI|Disabling (SR-IOV|RSS) support")


@pytest.fixture(scope="module")
def linux(linux_image: GuestImage) -> Iterator[LinuxGuest]:
    with LinuxGuest(linux_image, kernel_words=["pci=nomsi"]) as guest:
        guest.output_of(BRING_UP, seconds=PATIENT_SECONDS)
        yield guest


def line_interrupts(guest: LinuxGuest) -> int:
    row = re.search(r"^\s*\d+:\s+(\d+)\s+IO-APIC.*eth0$", guest.output_of("cat /proc/interrupts"), re.MULTILINE)
    assert row, "the card has no line"
    return int(row[1])


def test_frames_arrive_with_the_interrupt_line(linux: LinuxGuest) -> None:
    before = line_interrupts(linux)
    for _ in range(3):
        linux.output_of(PING, seconds=PATIENT_SECONDS)
    assert line_interrupts(linux) >= before + 3


@pytest.mark.parametrize("kind", ["online", "offline"])
def test_the_drivers_own_test_passes_every_line(linux: LinuxGuest, kind: str) -> None:
    assert self_test(linux, kind) == SELF_TEST_PASSED
    linux.output_of(BRING_UP + PING, seconds=PATIENT_SECONDS)


def test_the_driver_unloads_and_loads_again(linux: LinuxGuest) -> None:
    linux.output_of("modprobe -r ixgbe; " + BRING_UP + PING, seconds=PATIENT_SECONDS)


def test_the_kernel_complains_of_nothing(linux: LinuxGuest) -> None:
    assert [line for line in complaints(linux) if not EXPECTED.search(line)] == []
