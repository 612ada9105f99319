# SPDX-License-Identifier: BSL-1.0
"""QEMU's arguments for a machine that starts from firmware, discs or a boot server.

QEMU's `-kernel` skips all steps that a real machine takes before it starts its first image. These arguments add SeaBIOS or OVMF, a CD, a
disk, and a second network card. The second card's firmware asks for a boot file, like a rack machine's on-board card.
"""

import dataclasses
import shutil
from pathlib import Path

from tools import boot_programs
from tools.errors import Failure

BIOS = "bios"
UEFI = "uefi"
# For each bus of disk and CD: QEMU's controller, if the machine has none already, and the devices of a disk and of a CD.
BUSES = {
    "ide": ("", "ide-hd", "ide-cd"),
    "virtio": ("", "virtio-blk-pci", None),
    "scsi": ("virtio-scsi-pci", "scsi-hd", "scsi-cd"),
}
# A QEMU card from which SeaBIOS (by the card's iPXE) and OVMF can boot, and for which Neap has no driver.
BOOT_CARD = "virtio-net-pci"


@dataclasses.dataclass(frozen=True)
class Start:
    """The boot medium of a machine.

    firmware: BIOS (SeaBIOS) or UEFI (OVMF, fetched into the cache on first use).
    disk, cdrom: images to start from. The disk's image is never changed. bus: of both, a name of BUSES; virtio-blk has no CD.
    tftp: a directory that QEMU's user network serves by TFTP; the network's DHCP server names `bootfile`.
    boot_card: if true, the network with `tftp` has a second card, from which the firmware boots; otherwise the 82599 is on that network.
    boot_mac: the boot card's address. boot_netdev: words for QEMU's -netdev ("tap,ifname=x,…"), which replace the network with `tftp`.
    """

    firmware: str = BIOS
    disk: Path | None = None
    cdrom: Path | None = None
    bus: str = "ide"
    tftp: Path | None = None
    bootfile: str = ""
    boot_card: bool = False
    boot_mac: str | None = None
    boot_netdev: str | None = None

    def server_words(self) -> str:
        """Returns options for the 82599's network to serve boot files; "" if there are none, or if the boot card's network serves them."""
        return self._served() if self.tftp and not self.boot_card else ""

    def qemu_arguments(self, directory: Path) -> list[str]:
        """Returns QEMU's arguments; OVMF's variables are copied into `directory`. Raises Failure if a file is missing."""
        for file in (self.disk, self.cdrom):
            if file and not file.is_file():
                raise Failure(f"there is no boot image {file}")
        if self.tftp and not self.tftp.is_dir():
            raise Failure(f"there is no boot tree {self.tftp}")
        argv = [] if self.firmware == BIOS else self._ovmf(directory)
        controller, disk, cdrom = BUSES[self.bus]
        assert cdrom or not self.cdrom, f"the bus {self.bus} has no CD"
        argv += ["-device", controller] if controller and (self.disk or self.cdrom) else []
        if self.disk:
            argv += ["-drive", f"if=none,id=disk,format=raw,snapshot=on,file={_escaped(self.disk)}"]
            argv += ["-device", f"{disk},drive=disk,bootindex=1"]
        if self.cdrom:
            argv += ["-drive", f"if=none,id=cd,format=raw,readonly=on,file={_escaped(self.cdrom)}"]
            argv += ["-device", f"{cdrom},drive=cd,bootindex=2"]
        if self.boot_card:
            mac = f",mac={self.boot_mac}" if self.boot_mac else ""
            # OVMF has its own PXE, so QEMU's iPXE is disabled for OVMF. SeaBIOS has no PXE.
            rom = ",romfile=" if self.firmware == UEFI else ""
            argv += ["-netdev", self.boot_netdev or f"user,id=boot,restrict=on{self._served()}"]
            argv += ["-device", f"{BOOT_CARD},netdev=boot,bootindex=3{mac}{rom}"]
        return argv

    def _served(self) -> str:
        return (f",tftp={_escaped(self.tftp)}" if self.tftp else "") + (f",bootfile={self.bootfile}" if self.bootfile else "")

    def _ovmf(self, directory: Path) -> list[str]:
        programs = boot_programs.require()
        if not programs.ovmf_code.is_file():
            programs = boot_programs.fetch()  # an installed Neap has no OVMF
        variables = directory / "ovmf-variables.fd"
        shutil.copyfile(programs.ovmf_variables, variables)
        argv = ["-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={_escaped(programs.ovmf_code)}"]
        return [*argv, "-drive", f"if=pflash,format=raw,unit=1,file={_escaped(variables)}"]


def _escaped(path: Path) -> str:
    """Returns a file name as QEMU's comma-separated options need it."""
    return str(path.absolute()).replace(",", ",,")
