# SPDX-License-Identifier: BSL-1.0
"""Makes GRUB files that firmware can start: for the network (BIOS, UEFI), and on a disc image that boots as a CD or as a disk.

Each GRUB is one file that contains all modules. So a boot over the network needs one transfer for GRUB, and modules of different versions
cannot mix. The file contains no menu. At each start, GRUB reads the menu from grub/grub.cfg beside the file.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.boot_programs import BootPrograms

# The path where GRUB looks for its configuration, on any boot medium.
PREFIX = "/grub"
# Modules for the configurations of boot_menu.py, and for manual work at GRUB's prompt.
COMMON = (
    "boot cat configfile echo halt http linux ls multiboot multiboot2 net normal reboot regexp search sleep smbios test tftp true".split()
)
DISC = ["fat", "iso9660", "part_gpt", "part_msdos"]
BIOS_NETWORK = ["pxe", "serial", "terminal"]
BIOS_DISC = ["biosdisk", "serial", "terminal", *DISC]
EFI = ["all_video", "efinet", *DISC]

NETWORK_START = "configfile $prefix/grub.cfg\n"
EFI_IMAGE_KIB = 4096


def bios_network(programs: BootPrograms, output: Path) -> None:
    """Writes a network bootstrap program for BIOS, which PXE loads at 0x7c00."""
    _core(programs, "i386-pc-pxe", BIOS_NETWORK, NETWORK_START, output)


def efi_network(programs: BootPrograms, output: Path) -> None:
    """Writes a UEFI application that reads its configuration from the server from which it was loaded."""
    _core(programs, "x86_64-efi", EFI, NETWORK_START, output)


def disc(programs: BootPrograms, tree: Path, marker: str, output: Path) -> None:
    """Writes `tree` as one image that boots as a CD and as a disk, on BIOS and on UEFI. `marker` is a file of the tree that no other disc
    has. GRUB finds its own disc by that file."""
    start = f"search --set=root --file /{marker}\nset prefix=($root){PREFIX}\nconfigfile $prefix/grub.cfg\n"
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f"{output.name}.") as name:
        work = Path(name)
        bios, efi, partition = work / "bios.img", work / "bootx64.efi", work / "efi.img"
        _core(programs, "i386-pc-eltorito", BIOS_DISC, start, bios)
        _core(programs, "x86_64-efi", EFI, start, efi)
        with partition.open("wb") as file:
            file.truncate(EFI_IMAGE_KIB * 1024)
        # The volume's serial number and the files' dates are fixed, so that two images with the same content are equal.
        programs.run("mformat", ["-i", str(partition), "-N", "4e454150", "-v", "NEAP", "::"])
        programs.run("mmd", ["-i", str(partition), "::/EFI", "::/EFI/BOOT"])
        programs.run("mcopy", ["-i", str(partition), str(efi), "::/EFI/BOOT/BOOTX64.EFI"])
        made = work / "disc.iso"
        words = ["-as", "mkisofs", "-quiet", "-graft-points", "-R", "-V", "NEAP", "-o", str(made)]
        words += ["--modification-date=2020010100000000", "--set_all_file_dates", "2020010100000000"]
        words += ["-b", "boot/bios.img", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", "--grub2-boot-info"]
        words += ["--grub2-mbr", str(programs.grub_bios / "boot_hybrid.img"), "--protective-msdos-label"]
        words += ["-eltorito-alt-boot", "-e", "boot/efi.img", "-no-emul-boot", "-efi-boot-part", "--efi-boot-image"]
        words += [f"/={tree}", f"boot/bios.img={bios}", f"boot/efi.img={partition}"]
        programs.run("xorriso", words)
        made.replace(output)


def _core(programs: BootPrograms, target: str, modules: Sequence[str], start: str, output: Path) -> None:
    directory = programs.grub_efi if target == "x86_64-efi" else programs.grub_bios
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as configuration:
        configuration.write(start)
        configuration.flush()
        words = ["-d", str(directory), "-O", target, "-p", PREFIX, "-c", configuration.name, "-o", str(output)]
        programs.run("grub-mkimage", [*words, *COMMON, *modules])
