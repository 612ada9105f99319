# SPDX-License-Identifier: BSL-1.0
"""The Linux guest's initramfs with neap-trace and Debian's bpftool added, in a second cpio archive after the guest's own."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tools.debian import DebianProgram
from tools.linux_log import build as linux_log
from tools.process import output_of

from .cpio import CpioWriter
from .guest_image import GuestImage

BPFTOOL = ("bpftool", "bpftool")


def with_tracer(image: GuestImage, out: Path, programs: Sequence[tuple[str, str]] = (BPFTOOL,)) -> GuestImage:
    """Writes the initramfs `out`: that of `image`, neap-trace, and `programs` as (package, program) with their libraries."""
    shutil.copyfile(image.initramfs, out)
    with out.open("r+b") as stream:
        # An archive begins at a multiple of four bytes.
        stream.truncate((stream.seek(0, 2) + 3) // 4 * 4)
        stream.seek(0, 2)
        archive = CpioWriter(stream)
        archive.file("bin/neap-trace", linux_log.program().read_bytes(), mode=0o755)
        libraries: dict[str, Path] = {}
        for package, program in programs:
            loader, _, search, path = DebianProgram(package, program).argv
            archive.file(f"bin/{program}", Path(path).read_bytes(), mode=0o755)
            listed = output_of([loader, "--library-path", search, "--list", path])
            found = [Path(name) for name in re.findall(r"=> (\S+) \(", listed)]
            libraries |= {library.name: library for library in found if not library.name.startswith("ld-linux")}
        for library in libraries.values():
            archive.file(f"lib/x86_64-linux-gnu/{library.name}", library.read_bytes(), mode=0o755)
        archive.close()
    return dataclasses.replace(image, initramfs=out)
