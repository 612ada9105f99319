# SPDX-License-Identifier: BSL-1.0
"""What a machine starts from, in QEMU's words: firmware, discs, a network with a server of boot files.

QEMU's `-kernel` skips all that a real machine does before its first image. These words bring it back: SeaBIOS or OVMF, a CD, a disk,
and a second network card whose own firmware asks for a boot file, as a rack machine's on-board card does beside its 82599.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from tools import boot_programs
from tools.errors import Failure

BIOS = "bios"
UEFI = "uefi"
# A card of QEMU's that SeaBIOS (by its own iPXE) and OVMF can both boot from, and that Neap has no driver for.
BOOT_CARD = "virtio-net-pci"


@dataclasses.dataclass(frozen=True)
class Start:
    """Where a machine starts from.

    firmware: BIOS (SeaBIOS) or UEFI (OVMF, which comes into the cache when it is first used).
    disk, cdrom: images to start from; a disk is never written to.
    tftp: a directory that a network of QEMU's own serves, `bootfile` being what its DHCP names.
    boot_card: that network has a card of its own, which the firmware boots from; otherwise it is the 82599's network.
    boot_mac: that card's address. boot_netdev: words for QEMU's -netdev in place of a network with `tftp` ("tap,ifname=x,…").
    """

    firmware: str = BIOS
    disk: Path | None = None
    cdrom: Path | None = None
    tftp: Path | None = None
    bootfile: str = ""
    boot_card: bool = False
    boot_mac: str | None = None
    boot_netdev: str | None = None

    def server_words(self) -> str:
        """What makes a user network serve boot files; empty if this one has a network of its own, or there are none."""
        return self._served() if self.tftp and not self.boot_card else ""

    def qemu_arguments(self, directory: Path) -> list[str]:
        """QEMU's words; OVMF's variables are copied into `directory`. Raises Failure if a file is missing."""
        for file in (self.disk, self.cdrom):
            if file and not file.is_file():
                raise Failure(f"there is no boot image {file}")
        if self.tftp and not self.tftp.is_dir():
            raise Failure(f"there is no boot tree {self.tftp}")
        argv = [] if self.firmware == BIOS else self._ovmf(directory)
        if self.disk:
            argv += ["-drive", f"if=none,id=disk,format=raw,snapshot=on,file={_escaped(self.disk)}"]
            argv += ["-device", "ide-hd,drive=disk,bootindex=1"]
        if self.cdrom:
            argv += ["-drive", f"if=none,id=cd,format=raw,readonly=on,file={_escaped(self.cdrom)}"]
            argv += ["-device", "ide-cd,drive=cd,bootindex=2"]
        if self.boot_card:
            mac = f",mac={self.boot_mac}" if self.boot_mac else ""
            # OVMF has a PXE of its own, for which QEMU's iPXE must stay out; SeaBIOS has none.
            rom = ",romfile=" if self.firmware == UEFI else ""
            argv += ["-netdev", self.boot_netdev or f"user,id=boot,restrict=on{self._served()}"]
            argv += ["-device", f"{BOOT_CARD},netdev=boot,bootindex=3{mac}{rom}"]
        return argv

    def _served(self) -> str:
        return (f",tftp={_escaped(self.tftp)}" if self.tftp else "") + (f",bootfile={self.bootfile}" if self.bootfile else "")

    def _ovmf(self, directory: Path) -> list[str]:
        programs = boot_programs.require()
        variables = directory / "ovmf-variables.fd"
        shutil.copyfile(programs.ovmf_variables, variables)
        argv = ["-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={_escaped(programs.ovmf_code)}"]
        return [*argv, "-drive", f"if=pflash,format=raw,unit=1,file={_escaped(variables)}"]


def _escaped(path: Path) -> str:
    """A file name within one of QEMU's comma-separated options."""
    return str(path.absolute()).replace(",", ",,")
