# SPDX-License-Identifier: BSL-1.0
"""Further modules of the guest's kernel, for an image that has its own archive after the guest's.

The guest itself has only the modules that tests of a card need. The modules here MUST NOT depend on others, because insmod loads them. It
reads no list of dependencies.
"""

from __future__ import annotations

import lzma
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import cache, debian
from tools.archive import Archive
from tools.errors import Failure

from .guest_image import KERNEL_META_PACKAGE, GuestImage


def unpacked(guest: GuestImage, names: Sequence[str], *, debian_13_kernel: bool = False) -> dict[str, Path]:
    """The files of the named modules of this guest's kernel, uncompressed, as busybox's insmod needs them. They are taken from the kernel's
    package if the cache lacks them. Raises Failure."""
    # The guest's folder is named by a hash over the kernel's version.
    entry = cache.Entry("linux-modules", cache.digest(guest.initramfs.parent.name, *names, Path(__file__).read_bytes()))
    with entry.making() as needed:
        if needed:
            with tempfile.TemporaryDirectory(dir=entry.path) as folder:
                root = Path(folder) / "root"
                _unpack_kernel(f"linux-image-{guest.release}", root, debian_13_kernel)
                for name in names:
                    (entry.path / f"{name}.ko").write_bytes(_module(root, name))
    return {name: entry.path / f"{name}.ko" for name in names}


def _unpack_kernel(package: str, root: Path, debian_13_kernel: bool) -> None:
    if debian_13_kernel:
        archive = Archive()
        archive.unpack([pair for pair in archive.closure(KERNEL_META_PACKAGE) if pair[0] == package], root)
    else:
        debian.unpack([package], root)


def _module(root: Path, name: str) -> bytes:
    path = next((path for path in root.rglob("*.ko*") if path.name.partition(".")[0] == name), None)
    if path is None:
        raise Failure(f"the kernel package has no module {name}")
    content = path.read_bytes()
    if path.suffix == ".xz":
        content = lzma.decompress(content)
    if not re.search(rb"\0depends=\0", content):
        raise Failure(f"the module {name} depends on other modules", "add those to the guest (MODULES in guest_image.py)")
    return content
