# SPDX-License-Identifier: BSL-1.0
"""The QEMU that runs machines.

The soft card needs the device `vfio-user-pci`, which QEMU has since 10.1. A system QEMU with this device is used. Otherwise the newest
signed QEMU of Debian's backports is unpacked into the cache, with the libraries with which it was linked. It starts through its own dynamic
linker. So neither root nor a container is needed, and the system is not changed.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from tools import cache, progress
from tools.archive import BACKPORTS, Archive, unpack
from tools.errors import Failure

OLDEST = (10, 1)
TESTED = "11.1.3"
PACKAGE = "qemu-system-x86"
PROGRAM = "qemu-system-x86_64"
NEEDED_DEVICE = "vfio-user-pci"
NEEDED_BYTES = 400_000_000
# Dependencies of QEMU's packages that have files which QEMU opens. The other dependencies only configure a system.
OPENED = re.compile(r"^(lib|qemu-|zlib1g|seabios|ipxe-qemu)")

MULTIARCH = "x86_64-linux-gnu"


@functools.cache
def command() -> tuple[str, ...]:
    """The start of QEMU's command line. The QEMU is $NEAP_QEMU, the system's, or one from the cache, in this order; otherwise it is
    fetched."""
    named = os.environ.get("NEAP_QEMU")
    if named:
        if version_of((named,)) is None:
            raise Failure(f"NEAP_QEMU={named} does not start")
        return (named,)
    return find() or fetch()


def find() -> tuple[str, ...] | None:
    """A suitable QEMU that is already on this machine; None if there is none."""
    system = shutil.which(PROGRAM)
    if system and suitable((system,)):
        return (system,)
    kept = cache.root() / "qemu"
    entries = [cache.Entry("qemu", path.name) for path in kept.iterdir() if path.is_dir()] if kept.is_dir() else []
    ready = [entry.path for entry in entries if entry.ready]
    for path in sorted(ready, key=lambda path: _version_key(path.name), reverse=True):
        return private_command(path)
    return None


def private_command(root: Path) -> tuple[str, ...]:
    """The start of a command line that runs the QEMU at `root` with its own C library, because the system's C library may be older."""
    return (
        f"{root}/usr/lib64/ld-linux-x86-64.so.2",
        "--library-path",
        f"{root}/usr/lib/{MULTIARCH}",
        "--argv0",
        PROGRAM,
        f"{root}/usr/bin/{PROGRAM}",
        "-L",
        f"{root}/usr/share/qemu",
        "-L",
        f"{root}/usr/share/seabios",
    )


def fetch(archive: Archive | None = None) -> tuple[str, ...]:
    """Unpacks the newest signed QEMU of backports into the cache. Raises Failure if that QEMU is too old or does not start."""
    archive = archive or Archive()
    candidate = archive.candidate(PACKAGE, BACKPORTS)
    version = _upstream(candidate or "")
    if candidate is None or _numbers(version) < OLDEST:
        raise Failure(
            f"QEMU {OLDEST[0]}.{OLDEST[1]} or newer is needed; Debian's {BACKPORTS} has {version or 'none'}",
            f"install a newer QEMU yourself and set NEAP_QEMU (tested: {TESTED})",
        )
    entry = cache.Entry("qemu", f"{version}-{cache.digest(candidate)}")
    with entry.making(on_wait=lambda: progress.say("neap: waiting for another neap that fetches QEMU")) as mine:
        if mine:
            cache.require_space(cache.root(), NEEDED_BYTES, "QEMU")
            packages = [pair for pair in archive.closure(PACKAGE, BACKPORTS) if OPENED.match(pair[0])]
            tested = "the version tested with" if version == TESTED else f"tested with {TESTED}"
            with progress.step(f"fetching QEMU {version} ({len(packages)} packages of Debian's {BACKPORTS}; {tested})"):
                files = archive.download(packages, entry.path / "packages")
                for file in files:
                    unpack(file, entry.path)
                cache.remove(entry.path / "packages")
            if not suitable(private_command(entry.path)):
                raise Failure(f"QEMU {version} from {BACKPORTS} does not start here or lacks {NEEDED_DEVICE}")
    return private_command(entry.path)


def version_of(argv: tuple[str, ...]) -> str | None:
    """The version of a QEMU, like '11.1.3'; None if it does not start."""
    try:
        done = subprocess.run([*argv, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"version (\d+(?:\.\d+)+)", done.stdout)
    return match.group(1) if done.returncode == 0 and match else None


def suitable(argv: tuple[str, ...]) -> bool:
    """True for a QEMU that is new enough and has the device that the soft card needs."""
    version = version_of(argv)
    if version is None or _numbers(version) < OLDEST:
        return False
    try:
        done = subprocess.run([*argv, "-device", "help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return f'"{NEEDED_DEVICE}"' in done.stdout


def _upstream(version: str) -> str:
    """The upstream version, like '11.1.3' from Debian's '1:11.1.3+ds-1~bpo13+1'."""
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)+)", version)
    return match.group(1) if match else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _version_key(entry_name: str) -> tuple[int, ...]:
    return _numbers(entry_name.split("-")[0])
