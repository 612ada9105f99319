# SPDX-License-Identifier: BSL-1.0
"""The program that prints a Linux system's machine list, in a guest.

The program is linked statically and has a megabyte, so it is added to the guest's initramfs and not sent over the script channel.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from tools.machine_list import commands

from .cpio import CpioWriter
from .guest import LinuxGuest
from .guest_image import GuestImage

LIST_SECONDS = 60


def with_program(image: GuestImage, folder: Path) -> GuestImage:
    """Returns a copy of the guest's image, in `folder`, that also has the program `machine_list`."""
    initramfs = folder / "initramfs.cpio"
    shutil.copyfile(image.initramfs, initramfs)
    with initramfs.open("r+b") as stream:
        # An archive begins at a multiple of four bytes.
        stream.truncate((stream.seek(0, 2) + 3) // 4 * 4)
        stream.seek(0, 2)
        archive = CpioWriter(stream)
        archive.file("bin/machine_list", commands.program().read_bytes(), mode=0o755)
        archive.close()
    return dataclasses.replace(image, initramfs=initramfs)


def list_of(guest: LinuxGuest, interface: str = "") -> dict:
    """Returns the guest's list. It must be one line."""
    output = guest.output_of(f"machine_list {interface}", seconds=LIST_SECONDS)
    assert output.count("\n") == 1, output
    return commands.parse(output, "the guest")
