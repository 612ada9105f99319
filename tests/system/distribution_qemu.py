# SPDX-License-Identifier: BSL-1.0
"""The QEMU of this machine's own distribution (7.2 on Debian 12), unpacked into the cache and not installed.

Machines with a virtio card run by such a QEMU. It differs from the one of the soft card: it has no vfio-user, other firmware, and a module
for the emulator. A folder with the program, first in PATH, makes it the system's QEMU.
"""

import shlex
from pathlib import Path

from tools import debian, qemu

# QEMU's emulator is a module in qemu-system-common. The firmware and the cards' ROMs are in the last three.
PACKAGES = (qemu.PACKAGE, "qemu-system-common", "qemu-system-data", "seabios", "ipxe-qemu")
FOLDERS = ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu")


def program(folder: Path) -> Path:
    """Makes the program `folder`/qemu-system-x86_64, and returns its path. The packages are fetched if the cache lacks them."""
    root = debian.unpacked(*PACKAGES)
    argv = debian.started_in(root, root / "usr/bin" / qemu.PROGRAM) + [word for path in FOLDERS for word in ("-L", str(root / path))]
    script = folder / qemu.PROGRAM
    modules = f"export QEMU_MODULE_DIR={shlex.quote(f'{root}/usr/lib/x86_64-linux-gnu/qemu')}"
    script.write_text(f'#!/bin/sh\n{modules}\nexec {shlex.join(argv)} "$@"\n')
    script.chmod(0o755)
    return script
