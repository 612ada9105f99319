# SPDX-License-Identifier: BSL-1.0
"""The Debian packages whose files are among the wheel's boot parts, with their licences.

dpkg knows the package of a file, but these packages are only unpacked, and none is installed. So a library's package is found by Debian's
rule for names: libNAME.so.N is in libNAMEN, or in libNAME-N if NAME ends in a digit, with t64 added where the size of time_t has changed.
"""

import gzip
import re
from collections.abc import Iterable
from pathlib import Path

from tools.errors import Failure
from tools.release.boot_parts import LIBRARIES, LOADER, PLACE
from tools.release.components import DOCUMENTS, Component, debian_texts

# Packages that the rule does not find.
PACKAGES = {
    "libc.so.6": "libc6",
    "libm.so.6": "libc6",
    "libz.so.1": "zlib1g",
    "grub-mkimage": "grub-common",
    "xorriso": "xorriso",
    "mtools": "mtools",
}
FOLDERS = {"usr/lib/grub/i386-pc/": "grub-pc-bin", "usr/lib/grub/x86_64-efi/": "grub-efi-amd64-bin", "usr/lib/ipxe/": "ipxe"}
LICENCES = {
    "grub-common": "GPL-3.0-or-later",
    "grub-efi-amd64-bin": "GPL-3.0-or-later",
    "grub-pc-bin": "GPL-3.0-or-later",
    "ipxe": "GPL-2.0-or-later",
    "libacl1": "LGPL-2.1-or-later",
    "libburn4t64": "GPL-2.0-or-later",
    "libbz2-1.0": "bzip2-1.0.6",
    "libc6": "LGPL-2.1-or-later",
    "libcap2": "BSD-3-Clause OR GPL-2.0-only",
    "libdevmapper1.02.1": "LGPL-2.1-only",
    "libisoburn1t64": "GPL-3.0-or-later",
    "libisofs6t64": "GPL-2.0-or-later",
    "libjte2": "LGPL-2.1-or-later",
    "liblzma5": "0BSD",
    "libpcre2-8-0": "BSD-3-Clause",
    "libreadline8t64": "GPL-3.0-or-later",
    "libselinux1": "LicenseRef-public-domain",
    "libtinfo6": "MIT",
    "libudev1": "LGPL-2.1-or-later",
    "mtools": "GPL-3.0-or-later",
    "xorriso": "GPL-3.0-or-later",
    "zlib1g": "Zlib",
}


def components(root: Path, names: Iterable[str]) -> list[Component]:
    """Returns the packages of the boot parts `names` (boot_parts.files), sorted. Raises Failure if a file's package is not known."""
    packages = sorted({package for name in names if (package := package_of(root, name.removeprefix(f"{PLACE}/")))})
    found = []
    for package in packages:
        if package not in LICENCES:
            raise Failure(
                f"the licence of {package} is not stated", "read its copyright file, and add it to tools/release/boot_components.py"
            )
        version, licence = version_of(root, package), LICENCES[package]
        purl = f"pkg:deb/debian/{package}@{version}"
        found.append(Component(f"deb-{package}", package, version, licence, debian_texts(root, package, licence), purl=purl))
    return found


def package_of(root: Path, name: str) -> str | None:
    """Returns the package of a file below `root`; None for the file that Neap itself has written."""
    if name == "versions":
        return None
    if name == LOADER:
        return "libc6"
    file = name.rsplit("/", 1)[-1]
    if package := PACKAGES.get(file) or next((package for folder, package in FOLDERS.items() if name.startswith(folder)), None):
        return package
    if name.startswith(LIBRARIES) and (match := re.fullmatch(r"(lib.+)\.so\.([\d.]+)", file)):
        stem, number = match.groups()
        base = f"{stem}{'-' if stem[-1].isdigit() else ''}{number}"
        for package in (base, f"{base}t64"):
            if (root / DOCUMENTS / package).exists():
                return package
    raise Failure(f"no package of {root} is known to have {name}", "add it to tools/release/boot_components.py")


def version_of(root: Path, package: str) -> str:
    """Returns the version of an unpacked package, by the first line of its changes. A rebuild without changes (+bN) is not in that line."""
    try:
        with gzip.open(root / DOCUMENTS / package / "changelog.Debian.gz", "rt", errors="replace") as changes:
            first = changes.readline()
    except OSError as error:
        raise Failure(f"{package} in {root} has no list of changes: {error.strerror or error}") from None
    match = re.match(r"\S+ \(([^)]+)\)", first)
    if not match:
        raise Failure(f"{package} in {root} has a list of changes that names no version")
    return match[1]
