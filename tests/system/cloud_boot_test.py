# SPDX-License-Identifier: BSL-1.0
"""Memcached from `./neap iso`'s disc image on machines like those of a KVM cloud (docs/clouds.md).

Such a machine has SeaBIOS or OVMF, a volume on virtio-blk, virtio-scsi or IDE, a virtio-net, and an address from DHCP. No `-kernel` and no
soft card is used. The image is the same file for each: a hybrid of CD and disk.
"""

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

import distribution_qemu
import pytest
from boot_test import MEBIBYTE, first_answer

from tools import build, qemu
from tools.firmware import BIOS, UEFI, Start
from tools.machine import Machine
from tools.process import output_of

pytestmark = pytest.mark.image_only

MEMORY_M = 75
BUILD_SECONDS = 600
# A volume is larger than the image that is written to it. The backup of the image's partition table is then not at the volume's end.
VOLUME_BYTES = 1 << 30
TRANSITIONAL, MODERN = 0x1000, 0x1041  # device IDs of virtio-net (virtio 1.2, 4.1.2.1)
# libvirt attaches each card of a q35 machine to a port of its own.
PORT = ("-device", "pcie-root-port,id=slot1,chassis=1")


@dataclasses.dataclass(frozen=True)
class Cloud:
    """A machine. bus: of the volume (tools/firmware.py). from_cd: the image is a CD and no volume. legacy: the card is transitional and
    not modern-only. port: the card is behind a port of PCI Express, which can have no transitional card by default."""

    firmware: str
    machine_type: str
    bus: str
    from_cd: bool = False
    legacy: bool = False
    port: bool = False
    own_qemu: bool = False

    def __str__(self) -> str:
        words = [self.firmware, self.machine_type, self.bus, "cd" * self.from_cd, "transitional" if self.legacy else "modern"]
        return "-".join(word for word in [*words, "port" * self.port, "distribution" * self.own_qemu] if word)


CLOUDS = [
    *(
        Cloud(firmware, machine_type, "virtio", legacy=legacy)
        for firmware in (BIOS, UEFI)
        for machine_type in ("pc", "q35")
        for legacy in (False, True)
    ),
    Cloud(BIOS, "pc", "scsi", legacy=True),
    Cloud(UEFI, "q35", "scsi"),
    Cloud(BIOS, "q35", "scsi", from_cd=True),
    Cloud(BIOS, "pc", "ide", legacy=True),
    Cloud(BIOS, "pc", "ide", from_cd=True),
    Cloud(UEFI, "q35", "ide", from_cd=True),
    Cloud(BIOS, "q35", "virtio", port=True),
    Cloud(UEFI, "q35", "virtio", port=True),
    Cloud(BIOS, "pc", "virtio", legacy=True, own_qemu=True),
    Cloud(UEFI, "q35", "virtio", port=True, own_qemu=True),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="neap-cloud-test-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def disc(place: Path) -> Path:
    """The image, named as a raw disk."""
    out = place / "memcached.img"
    argv = [str(build.REPOSITORY / "neap"), "iso", "memcached", "--dirty", "--out", str(out), "--", f"memory={MEMORY_M}M"]
    output_of(argv, timeout_seconds=BUILD_SECONDS)
    return out


@pytest.fixture(scope="module")
def volume(place: Path, disc: Path) -> Path:
    """A larger volume that begins with the image."""
    path = place / "volume"
    path.write_bytes(disc.read_bytes())
    with path.open("r+b") as file:
        file.truncate(VOLUME_BYTES)
    return path


@pytest.fixture(scope="module")
def own_qemu(place: Path) -> Path:
    return distribution_qemu.program(place)


def card_id(machine: Machine) -> int:
    """The PCI device ID of the machine's card."""

    def devices(buses: list[dict]) -> Iterator[dict]:
        for bus in buses:
            for device in bus["devices"]:
                yield device
                yield from devices([device["pci_bridge"]]) if "devices" in device.get("pci_bridge", {}) else ()

    return next(device["id"]["device"] for device in devices(machine.qmp("query-pci")) if device["qdev_id"] == "nic")


@pytest.mark.parametrize("cloud", CLOUDS, ids=str)
def test_memcached_answers(
    cloud: Cloud, disc: Path, volume: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, record_property
) -> None:
    command = (str(request.getfixturevalue("own_qemu")),) if cloud.own_qemu else qemu.command()
    medium = {"cdrom": disc} if cloud.from_cd else {"disk": volume}
    wanted = TRANSITIONAL if cloud.legacy else MODERN

    def look(machine: Machine) -> None:
        assert card_id(machine) == wanted
        assert any(" on 2 cores" in line for line in machine.lines)
        assert any("(DHCP)" in line for line in machine.lines)

    seconds, settings = first_answer(
        {
            "cores": 2,
            "card_kind": "virtio",
            "card_options": [f"disable-legacy={'off' if cloud.legacy else 'on'}", *(["bus=slot1"] if cloud.port else [])],
            "machine_type": cloud.machine_type,
            "qemu_options": PORT if cloud.port else (),
            "qemu_command": command,
            "start_from": Start(firmware=cloud.firmware, bus=cloud.bus, **medium),
        },
        look,
    )
    record_property("seconds_to_first_answer", round(seconds, 2))
    record_property("qemu", qemu.version_of(command))
    assert settings["maxbytes"] == str(MEMORY_M * MEBIBYTE)
