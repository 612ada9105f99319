# SPDX-License-Identifier: BSL-1.0
"""The Linux guest's initramfs with Debian's stock memcached added, and with a first process that the caller supplies.

The programs are in a second cpio archive after the guest's own. The kernel unpacks both.
"""

import gzip
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.debian import DebianProgram
from tools.process import output_of

from .cpio import CpioWriter

MEMCACHED = ("memcached", "memcached")


def append_memcached(
    initramfs: Path,
    out: Path,
    start: tuple[str, str],
    programs: Sequence[tuple[str, str]] = (),
    files: Mapping[str, Path] | None = None,
) -> None:
    """Writes the initramfs `out`. `start`: name and text of a file for the kernel's parameter rdinit=. `programs`: further programs, as
    (package, program). `files`: further executable files, by their paths in the guest."""
    shutil.copyfile(initramfs, out)
    with out.open("r+b") as stream:
        # An archive begins at a multiple of four bytes.
        stream.truncate((stream.seek(0, 2) + 3) // 4 * 4)
        stream.seek(0, 2)
        archive = CpioWriter(stream)
        name, text = start
        archive.file(name, text.encode(), mode=0o755)
        # memcached looks up the user as which it runs.
        archive.file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
        libraries: dict[str, Path] = {}
        for package, program in (MEMCACHED, *programs):
            path, found = program_of(package, program)
            archive.file(f"bin/{program}", path.read_bytes(), mode=0o755)
            libraries |= {library.name: library for library in found}
        for library in libraries.values():
            archive.file(f"lib/x86_64-linux-gnu/{library.name}", library.read_bytes(), mode=0o755)
        for place, path in (files or {}).items():
            archive.file(place, path.read_bytes(), mode=0o755)
        archive.close()
    # Fast compression, as is usual for an initramfs that is loaded over the network.
    out.write_bytes(gzip.compress(out.read_bytes(), 1, mtime=0))


def append_files(initramfs: Path, out: Path, files: Mapping[str, Path]) -> None:
    """Writes the initramfs `out` with further executable files, by their paths in the guest. They are in an archive of their own, which is
    not compressed."""
    shutil.copyfile(initramfs, out)
    with out.open("r+b") as stream:
        # An archive begins at a multiple of four bytes.
        stream.truncate((stream.seek(0, 2) + 3) // 4 * 4)
        stream.seek(0, 2)
        archive = CpioWriter(stream)
        for place, path in files.items():
            archive.file(place, path.read_bytes(), mode=0o755)
        archive.close()


def program_of(package: str, program: str) -> tuple[Path, list[Path]]:
    """Returns the program's file, and its libraries without the dynamic loader."""
    loader, _, search, path = DebianProgram(package, program).argv
    libraries = [Path(name) for name in re.findall(r"=> (\S+) \(", output_of([loader, "--library-path", search, "--list", path]))]
    return Path(path), [library for library in libraries if not library.name.startswith("ld-linux")]
