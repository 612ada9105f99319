# SPDX-License-Identifier: BSL-1.0
"""The files of GRUB, iPXE and the disc writers that `./neap pxe` and `./neap iso` open, out of all files of their packages.

The packages have 87 MB (tools/boot_programs.py). The wheel takes the programs with the libraries that they load, and of GRUB's modules
those that boot_loaders.py names, with the modules that these depend on. OVMF is not among them, because only tests start firmware.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from tools import boot_loaders
from tools.boot_programs import BootPrograms
from tools.errors import Failure
from tools.process import output_of

PLACE = "build/boot-programs"
PROGRAMS = ("grub-mkimage", "xorriso", "mtools")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = "usr/lib64/ld-linux-x86-64.so.2"
# Files of GRUB that are no modules, by platform. Each one is read by grub-mkimage or goes into a disc image.
GRUB_PARTS = {
    "i386-pc": ("kernel.img", "diskboot.img", "lzma_decompress.img", "pxeboot.img", "cdboot.img", "boot_hybrid.img", "moddep.lst"),
    "x86_64-efi": ("kernel.img", "moddep.lst"),
}
GRUB_MODULES = {
    "i386-pc": (*boot_loaders.COMMON, *boot_loaders.BIOS_NETWORK, *boot_loaders.BIOS_DISC),
    "x86_64-efi": (*boot_loaders.COMMON, *boot_loaders.EFI),
}


def files(programs: BootPrograms) -> dict[str, Path]:
    """Returns the files, by their path below the tree of an installed Neap. Links are resolved, because a wheel has none."""
    root = programs.root
    wanted = {"versions", LOADER, *(f"usr/bin/{program}" for program in PROGRAMS)}
    for program in PROGRAMS:
        wanted |= _libraries(root, program)
    for platform, parts in GRUB_PARTS.items():
        folder = root / "usr/lib/grub" / platform
        modules = closure((folder / "moddep.lst").read_text(), GRUB_MODULES[platform])
        wanted |= {f"usr/lib/grub/{platform}/{part}" for part in (*parts, *(f"{module}.mod" for module in modules))}
    for path in (programs.ipxe_kernel, programs.ipxe_bios, programs.ipxe_efi):
        wanted.add(str(path.relative_to(root)))
    found = {f"{PLACE}/{name}": (root / name).resolve() for name in sorted(wanted)}
    if missing := [name for name, path in found.items() if not path.is_file()]:
        raise Failure(f"{root} lacks {', '.join(missing)}", "./neap clean --cache removes it, and ./neap pxe fetches it again")
    return found


def closure(dependencies: str, modules: Iterable[str]) -> list[str]:
    """Returns `modules` and all modules that they depend on, sorted. `dependencies`: the text of GRUB's moddep.lst."""
    table = {}
    for line in dependencies.splitlines():
        name, _, needed = line.partition(":")
        table[name] = needed.split()
    found: set[str] = set()
    left = list(modules)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += table.get(name, ())
    return sorted(found)


def _libraries(root: Path, program: str) -> set[str]:
    """Returns the paths, below `root`, of the shared libraries that a program loads."""
    loader = str(root / LOADER)
    listed = output_of([loader, "--library-path", str(root / LIBRARIES), "--list", str(root / "usr/bin" / program)], env=dict(os.environ))
    names = [words[0] for line in listed.splitlines() if (words := line.split()) and "=>" in words and not words[0].startswith("/")]
    return {f"{LIBRARIES}/{name}" for name in names}
