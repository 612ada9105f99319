# SPDX-License-Identifier: BSL-1.0
"""GRUB, iPXE, OVMF and disc writers from a newer Debian suite, without installing any of them.

A boot tree (boot_tree.py) must not depend on the machine that makes it: that machine's GRUB may be old or missing. So these programs come
from signed packages of Debian 13. They are unpacked into the cache, and the programs run with Debian 13's C library, like QEMU (qemu.py).
"""

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from tools import build, cache, progress
from tools.archive import SUITE, Archive, private_command
from tools.errors import Failure
from tools.process import output_of

TESTED = {"grub-common": "2.12", "ipxe": "1.21.1", "ovmf": "2025.02", "xorriso": "1.5.6"}
WANTED = ("grub-common", "grub-pc-bin", "grub-efi-amd64-bin", "xorriso", "mtools", "ipxe", "ovmf")
# Matches the names of the packages that have files that the programs open. Other dependencies are not unpacked.
OPENED = re.compile(r"^(lib|zlib1g$|grub-|xorriso$|mtools$|ipxe$|ovmf$)")
NEEDED_BYTES = 250_000_000
# One program with many names, which are links in Debian's package. A wheel has no links.
MTOOLS, MTOOLS_NAMES = "mtools", ("mformat", "mmd", "mcopy")
PROGRAM_SECONDS = 120
# The date in all generated files: the first second of 2020, so that the same content gives the same file.
DATE = "1577836800"


class BootPrograms:
    """The unpacked packages below `root`."""

    def __init__(self, root: Path):
        self.root = root
        self.grub_bios = root / "usr/lib/grub/i386-pc"
        self.grub_efi = root / "usr/lib/grub/x86_64-efi"
        self.ipxe_kernel = root / "usr/lib/ipxe/ipxe.lkrn"
        self.ipxe_bios = root / "usr/lib/ipxe/undionly.kpxe"
        self.ipxe_efi = root / "usr/lib/ipxe/ipxe.efi"
        self.ovmf_code = root / "usr/share/OVMF/OVMF_CODE_4M.fd"
        self.ovmf_variables = root / "usr/share/OVMF/OVMF_VARS_4M.fd"

    def run(self, program: str, arguments: Sequence[str]) -> str:
        """Runs one of the programs and returns its output. Raises Failure with the program's error text."""
        environment = {**os.environ, "SOURCE_DATE_EPOCH": DATE, "LC_ALL": "C", "MTOOLSRC": "/dev/null"}
        file = MTOOLS if program in MTOOLS_NAMES else program
        return output_of(
            [*private_command(self.root, program, file), *arguments], timeout_seconds=PROGRAM_SECONDS, env=environment, name=program
        )

    def versions(self) -> dict[str, str]:
        return dict(line.split(" ", 1) for line in (self.root / "versions").read_text().splitlines())

    def missing(self, *, with_firmware: bool = True) -> list[Path]:
        """Returns the files that are not here. `with_firmware`: also those of OVMF, which only tests need."""
        files = [self.grub_bios / "pxeboot.img", self.grub_bios / "cdboot.img", self.grub_bios / "boot_hybrid.img"]
        files += [self.grub_efi / "kernel.img", self.ipxe_kernel, self.ipxe_bios, self.ipxe_efi]
        files += [self.ovmf_code, self.ovmf_variables] if with_firmware else []
        files += [self.root / "usr/bin" / program for program in ("grub-mkimage", "xorriso", MTOOLS)]
        return [file for file in files if not file.exists()]


@functools.cache
def require() -> BootPrograms:
    """Returns the programs, which are fetched into the cache if necessary. Raises Failure if they are not available or do not start."""
    return find() or fetch()


def find() -> BootPrograms | None:
    """Returns the programs of an installed Neap, or the newest ones in the cache; None if there are none."""
    own = BootPrograms(build.BUILD / "boot-programs")
    if not own.missing(with_firmware=False):
        return own
    ready = cache.complete("boot-programs")
    return BootPrograms(max(ready, key=lambda path: path.stat().st_mtime)) if ready else None


def fetch(archive: Archive | None = None) -> BootPrograms:
    """Unpacks the programs of Debian 13 into the cache."""
    archive = archive or Archive()
    wanted: dict[str, str] = {}
    for name in WANTED:
        wanted.update({package: version for package, version in archive.closure(name, SUITE) if OPENED.match(package)})
    lacking = [name for name in WANTED if name not in wanted]
    if lacking:
        raise Failure(f"Debian's {SUITE} has no {', '.join(lacking)}", "boot trees and discs are made with these packages")
    entry = cache.Entry("boot-programs", cache.digest(*(f"{name} {version}" for name, version in sorted(wanted.items()))))
    programs = BootPrograms(entry.path)
    with entry.making(work="fetches GRUB and iPXE") as mine:
        if mine:
            cache.require_space(cache.root(), NEEDED_BYTES, "GRUB, iPXE and OVMF")
            what = f"GRUB {_upstream(wanted['grub-common'])}, iPXE and OVMF ({len(wanted)} packages of Debian's {SUITE})"
            with progress.step(f"fetching {what}"):
                archive.unpack(sorted(wanted.items()), entry.path)
            for name, tested in TESTED.items():
                if _upstream(wanted[name]) != tested:
                    progress.say(f"neap: {name} is {wanted[name]}; tested with {tested}")
            (entry.path / "versions").write_text("".join(f"{name} {wanted[name]}\n" for name in WANTED))
            if programs.missing():
                raise Failure(f"Debian's packages lack {', '.join(path.name for path in programs.missing())}")
            programs.run("grub-mkimage", ["--version"])
    return programs


def _upstream(version: str) -> str:
    """Returns the upstream version, like '2.12' from Debian's '2.12-9+deb13u2'."""
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)+)", version)
    return match.group(1) if match else version
