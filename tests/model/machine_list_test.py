# SPDX-License-Identifier: BSL-1.0
"""The machine list on a modelled CPU: Neap and Linux read C-states, frequencies and limits in different ways, and find the same.

QEMU's own CPUs have none of these registers, so only the model machine shows these members on both systems.
"""

import contextlib
from pathlib import Path

import pytest
from linux_guest import guest_image, machine_list
from linux_guest.guest import LinuxGuest
from servers import CONTROL_PORT, NeapServer

from tools.control_client import Lost, Refused
from tools.machine import LOOPBACK
from tools.machine_list import commands, differences
from tools.model import cpu_model, plugin

MODEL = "e5-2690"
CORES = 2
MEMORY = "512M"
TRIES = 10
HARDWARE = {
    "clock": "modelled", "cpu_signature": "06-2d-07", "c_state_limit": "unlimited", "c_states": ["c1", "c1e", "c3", "c6", "c7"],
    "c_state_deepest": "c7", "frequency_min_mhz": 1200, "frequency_base_mhz": 2900, "frequency_max_mhz": 3800, "turbo": True,
    "power_limit_1_mw": 135_000, "power_limit_2_mw": 162_000, "hwp": False, "tsc_invariant": True,
}  # fmt: skip


def neap_list(folder: Path) -> dict:
    cpu = cpu_model.load(MODEL)
    folder.mkdir()
    options = {"cpu": cpu.qemu_cpu(), "one_thread": True, "qemu_options": plugin.options(cpu, folder)}
    with NeapServer(cores=CORES, memory=MEMORY, **options) as server:
        # An idle machine's virtual time runs ahead of the host's, so control's limit for a first line may pass before the host sends it.
        for _ in range(TRIES - 1):
            with contextlib.suppress(Lost, Refused):
                return commands.ask(LOOPBACK, server.machine.port(CONTROL_PORT))
        return commands.ask(LOOPBACK, server.machine.port(CONTROL_PORT))


def linux_list(folder: Path) -> dict:
    cpu = cpu_model.load(MODEL)
    folder.mkdir()
    image = machine_list.with_program(guest_image.build(), folder)
    words = ["tsc=reliable"]
    guest = LinuxGuest(image, card=None, cores=CORES, memory=MEMORY, kernel_words=words, qemu_options=plugin.options(cpu, folder))
    guest.machine.cpu, guest.machine.one_thread = cpu.qemu_cpu(), True
    with guest:
        guest.output_of("modprobe msr")
        return machine_list.list_of(guest)


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    folder = tmp_path_factory.mktemp("lists")
    return neap_list(folder / "neap"), linux_list(folder / "linux")


def test_both_systems_read_the_models_registers(lists: tuple[dict, dict]) -> None:
    for found in lists:
        assert {name: found.get(name) for name in HARDWARE} == HARDWARE, found["system"]


def test_no_member_of_the_hardware_differs(lists: tuple[dict, dict]) -> None:
    assert [one for one in differences(*lists) if one.forbids] == []
