# SPDX-License-Identifier: BSL-1.0
"""Every way from power-on to an answering memcached: stock firmware, boot loader and card, with boot trees and discs that this test makes.

QEMU's `-kernel` is one of twelve ways to boot. A boot tree (docs/booting.md) is a directory of boot files; each machine's command line is
in a file of its own. The boot loader selects this file by MAC or serial number, and memcached's `stats settings` shows whether it was the
right one. The last test prints the observations as a table.
"""

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from linux_guest import guest_image
from linux_memcached import LINUX_WORDS, append_memcached
from wire import Wire

from tools import boot_machines, boot_programs, boot_tree, build, pxe
from tools.firmware import UEFI, Start
from tools.machine import LOOPBACK, Machine

pytestmark = [pytest.mark.image_only, pytest.mark.names_the_82599]

BOOT_SECONDS = 120
PORT = 11211
BOOT_MAC = "52:54:00:00:00:01"
CARD_MAC = "02:00:00:00:00:02"
SERIAL = "NEAP-7"
MEBIBYTE = 1 << 20
# Each machine's file sets a different memory limit of memcached, so the limit shows which machine's file was used.
MACHINES = f"""
boot = "hello"
timeout_s = 0
[words]
memcached = "memory=70M"
linux = "{LINUX_WORDS}"
[machines.by-mac]
mac = "{BOOT_MAC}"
boot = "memcached"
words = "memory=71M"
[machines.by-serial]
serial = "{SERIAL}"
boot = "memcached"
words = "memory=72M"
[machines.by-card]
mac = "{CARD_MAC}"
boot = "memcached"
words = "memory=73M"
[machines.linux]
mac = "52:54:00:00:00:09"
boot = "linux"
"""


@dataclasses.dataclass(frozen=True)
class BootMedia:
    """The boot media. They are in a directory that all users may enter, as a TFTP server needs it."""

    tree: Path
    disc: Path
    ipxe_disk: Path
    linux: guest_image.GuestImage
    initramfs: Path


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to boot. machine: gives the arguments of `Machine`. memory_m: the limit that its memcached must report, in MiB."""

    firmware: str
    loader: str
    machine: Callable[[BootMedia], dict]
    memory_m: int


def _ipxe_on(model: str) -> Way:
    """iPXE on another model of the soft card, which then belongs to the image."""
    return Way(
        "BIOS",
        f"ipxe.lkrn, intelx on the soft {model.upper()}, multiboot 1",
        lambda made: {**WAYS["bios-ipxe"].machine(made), "card_options": ["--model", model]},
        73,
    )


WAYS = {
    "kernel": Way("-", "QEMU -kernel", lambda made: {"image": build.image("memcached"), "arguments": ["memory=64M"]}, 64),
    "bios-pxe": Way(
        "BIOS",
        "PXE, GRUB (by MAC)",
        lambda made: {"start_from": Start(tftp=made.tree, bootfile="grub/bios.0", boot_card=True, boot_mac=BOOT_MAC)},
        71,
    ),
    "bios-pxe-ipxe": Way(
        "BIOS",
        "PXE, iPXE's script (by serial number)",
        lambda made: {
            "start_from": Start(tftp=made.tree, bootfile="ipxe/boot.ipxe", boot_card=True),
            "qemu_options": ["-smbios", f"type=1,serial={SERIAL}"],
        },
        72,
    ),
    "uefi-pxe": Way(
        "UEFI",
        "PXE over virtio-net, GRUB (by serial number)",
        lambda made: {
            "start_from": Start(firmware=UEFI, tftp=made.tree, bootfile="grub/x86_64.efi", boot_card=True),
            "qemu_options": ["-smbios", f"type=1,serial={SERIAL}"],
        },
        72,
    ),
    "bios-ipxe": Way(
        "BIOS",
        "ipxe.lkrn, intelx on the soft 82599, multiboot 1",
        lambda made: {
            "image": made.tree / "ipxe/ipxe.lkrn",
            "mac": CARD_MAC,
            "start_from": Start(tftp=made.tree, bootfile="ipxe/boot.ipxe"),
        },
        73,
    ),
    **{f"bios-ipxe-{model}": _ipxe_on(model) for model in ("x540", "x550")},
    "uefi-ipxe": Way(
        "UEFI",
        "ipxe.efi, intelx on the soft 82599, GRUB",
        lambda made: {"mac": CARD_MAC, "start_from": Start(firmware=UEFI, disk=made.ipxe_disk, tftp=made.tree, bootfile="ipxe/boot.ipxe")},
        73,
    ),
    "bios-cd": Way("BIOS", "disc image as CD, GRUB", lambda made: {"start_from": Start(cdrom=made.disc)}, 74),
    "bios-disk": Way("BIOS", "disc image as disk, GRUB", lambda made: {"start_from": Start(disk=made.disc)}, 74),
    "uefi-cd": Way("UEFI", "disc image as CD, GRUB", lambda made: {"start_from": Start(firmware=UEFI, cdrom=made.disc)}, 74),
    "uefi-disk": Way("UEFI", "disc image as disk, GRUB", lambda made: {"start_from": Start(firmware=UEFI, disk=made.disc)}, 74),
}
# Two of the ways above, with Debian's kernel and memcached instead of the image. Both use the same boot tree as the image.
LINUX_WAYS = {
    "kernel": lambda made: {"image": made.linux.kernel, "initrd": made.initramfs, "arguments": LINUX_WORDS.split()},
    "bios-pxe": lambda made: {"start_from": Start(tftp=made.tree, bootfile="grub/bios.0", boot_card=True, boot_mac="52:54:00:00:00:09")},
}


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> Iterator[list[tuple[str, ...]]]:
    """The tests' observations, for a table at the end. No test checks the seconds to the first answer: they depend on the host's load."""
    seen: list[tuple[str, ...]] = []
    yield seen
    table = [("firmware", "by", "system", "first answer [s]"), *seen]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print()
        for row in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@pytest.fixture(scope="module")
def made(linux_image: guest_image.GuestImage) -> Iterator[BootMedia]:
    with tempfile.TemporaryDirectory(prefix="neap-boot-test-") as name:
        place = Path(name)
        place.chmod(0o755)
        initramfs = place / "initramfs"
        append_memcached(linux_image, initramfs)
        images = {name: build.image(name) for name in ("memcached", "hello")}
        contents = boot_tree.Contents(images, boot_machines.parse(MACHINES, "test"), linux_image.kernel, initramfs, "a test")
        boot_tree.write(place / "tree", contents)
        pxe.write_disc(place / "memcached.iso", "memcached", images["memcached"], "memory=74M", "a test")
        _write_ipxe_disk(place / "ipxe.img")
        yield BootMedia(place / "tree", place / "memcached.iso", place / "ipxe.img", linux_image, initramfs)


def _write_ipxe_disk(disk: Path) -> None:
    """Writes a disk for trying iPXE by hand: a FAT disk from which UEFI starts ipxe.efi."""
    programs = boot_programs.require()
    with disk.open("wb") as file:
        file.truncate(8 * MEBIBYTE)
    programs.run("mformat", ["-i", str(disk), "-v", "IPXE", "::"])
    programs.run("mmd", ["-i", str(disk), "::/EFI", "::/EFI/BOOT"])
    programs.run("mcopy", ["-i", str(disk), str(programs.ipxe_efi), "::/EFI/BOOT/BOOTX64.EFI"])


def first_answer(words: dict, look: Callable[[Machine], None] = lambda machine: None) -> tuple[float, dict[str, str]]:
    """Boots and asks memcached. Returns the seconds from power-on to the answer, and memcached's settings. `look` is called at the end with
    the running machine."""
    machine = Machine(words.pop("image", None), forward=[(0, PORT)], **words)
    # iPXE's driver may use the card first. If that driver breaks a rule of the card, this is not an error of our driver.
    machine.breaks_a_rule = "start_from" in words
    with machine:
        start = time.monotonic()
        machine.wait_for_line(r"memcached: listening on [0-9.]+:11211", BOOT_SECONDS)
        with Wire((LOOPBACK, machine.port(PORT))) as wire:
            assert wire.ask_line(b"version\r\n").startswith(b"VERSION ")
            seconds = time.monotonic() - start
            wire.store(b"booted", b"yes")
            assert wire.fetch(b"booted") == b"yes"
            settings = wire.statistics(b"settings")
        look(machine)
    return seconds, settings


@pytest.mark.parametrize("name", WAYS)
def test_memcached_answers(name: str, made: BootMedia, rows: list[tuple[str, ...]], record_property) -> None:
    way = WAYS[name]
    seconds, settings = first_answer(way.machine(made))
    assert settings["maxbytes"] == str(way.memory_m * MEBIBYTE), "another command line than the one for this machine"
    record_property("seconds_to_first_answer", round(seconds, 2))
    rows.append((way.firmware, way.loader, f"Neap, {build.image('memcached').stat().st_size / 1e6:.0f} MB", f"{seconds:.1f}"))


@pytest.mark.parametrize("name", LINUX_WAYS)
def test_linux_from_the_same_tree_answers(name: str, made: BootMedia, rows: list[tuple[str, ...]], record_property) -> None:
    seconds, _settings = first_answer(LINUX_WAYS[name](made))
    record_property("seconds_to_first_answer", round(seconds, 2))
    size = (made.linux.kernel.stat().st_size + made.initramfs.stat().st_size) / 1e6
    rows.append((WAYS[name].firmware, WAYS[name].loader, f"Linux {made.linux.release}, {size:.0f} MB", f"{seconds:.1f}"))
