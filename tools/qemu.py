# SPDX-License-Identifier: BSL-1.0
"""The QEMU that runs machines.

The soft card needs the device `vfio-user-pci`, which QEMU has since 10.1. If the system's QEMU has this device, it is used. Otherwise the
newest signed QEMU of Debian's backports is unpacked into the cache, with the libraries with which it was linked. The unpacked QEMU starts
through its own dynamic linker. So neither root nor a container is needed, and the system is not changed.
"""

import functools
import os
import re
import shutil
from pathlib import Path

from tools import cache, progress
from tools.archive import BACKPORTS, Archive, private_command
from tools.errors import DiskFull, Failure
from tools.process import output_or_none

OLDEST = (10, 1)
OLDEST_PLAIN = (7, 2)
OLDEST_MANY_QUEUES = (8, 0)
TESTED = "11.1.3"
PACKAGE = "qemu-system-x86"
PROGRAM = "qemu-system-x86_64"
SMALL_FIRMWARE = "qboot.rom"
NEEDED_DEVICE = "vfio-user-pci"
NEEDED_BYTES = 400_000_000
HINT = (
    f"install QEMU {OLDEST[0]}.{OLDEST[1]} or newer with the device {NEEDED_DEVICE}, and name it by NEAP_QEMU; "
    f"or add --card virtio, which works with QEMU {OLDEST_PLAIN[0]}.{OLDEST_PLAIN[1]} or newer"
)
# Of all dependencies of QEMU's packages, only these have files that QEMU opens. The others only configure a system.
OPENED = re.compile(r"^(lib|qemu-|zlib1g|seabios|ipxe-qemu)")


@functools.cache
def command() -> tuple[str, ...]:
    """Returns the start of the command line of $NEAP_QEMU, the system's QEMU or one from the cache, in this order. Fetches QEMU if
    necessary."""
    named = os.environ.get("NEAP_QEMU")
    if named:
        if version_of((named,)) is None:
            raise Failure(f"NEAP_QEMU={named} does not start")
        return (named,)
    return find() or _fetch_or_explain(HINT)


def find() -> tuple[str, ...] | None:
    """Returns a suitable QEMU that is already on this machine; None if there is none."""
    system = shutil.which(PROGRAM)
    if system and suitable((system,)):
        return (system,)
    ready = cache.complete("qemu")
    return private_qemu(max(ready, key=lambda path: _numbers(path.name.split("-")[0]))) if ready else None


@functools.cache
def plain_command() -> tuple[str, ...]:
    """As `command`, for machines without the soft card: a distribution's own QEMU will do, from Debian 12's on."""
    system = shutil.which(PROGRAM)
    if not os.environ.get("NEAP_QEMU") and system and _numbers(version_of((system,)) or "0") >= OLDEST_PLAIN:
        return (system,)
    if os.environ.get("NEAP_QEMU"):
        return command()
    return find() or _fetch_or_explain(f"install {PACKAGE} {_dotted(OLDEST_PLAIN)} or newer, or name such a QEMU by NEAP_QEMU")


def _fetch_or_explain(hint: str) -> tuple[str, ...]:
    """Fetches QEMU. If that fails, for example without network or on another system than Debian, raises Failure with `hint`."""
    try:
        return fetch()
    except DiskFull:
        raise
    except Failure as failure:
        reason = str(failure).removesuffix(".")
        raise Failure(f"no suitable QEMU is here, and none could be fetched from Debian: {reason}", hint, failure.details) from None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def has_many_queues(argv: tuple[str, ...]) -> bool:
    """True for a QEMU whose virtio card may have several queues while its cores are emulated in threads: 7.2 sometimes crashes then."""
    return _numbers(version_of(argv) or "0") >= OLDEST_MANY_QUEUES


def private_qemu(root: Path) -> tuple[str, ...]:
    """Returns the start of the command line of the QEMU unpacked at `root`."""
    return (*private_command(root, PROGRAM), "-L", f"{root}/usr/share/qemu", "-L", f"{root}/usr/share/seabios")


def fetch(archive: Archive | None = None) -> tuple[str, ...]:
    """Unpacks the newest signed QEMU of backports into the cache. Raises Failure if that QEMU is too old or does not start."""
    archive = archive or Archive()
    version, entry = candidate(archive)
    with entry.making(work="fetches QEMU") as mine:
        if mine:
            cache.require_space(cache.root(), NEEDED_BYTES, "QEMU")
            packages = packages_of(archive)
            tested = "the version tested with" if version == TESTED else f"tested with {TESTED}"
            with progress.step(f"fetching QEMU {version} ({len(packages)} packages of Debian's {BACKPORTS}; {tested})"):
                archive.unpack(packages, entry.path)
            if not suitable(private_qemu(entry.path)):
                raise Failure(f"QEMU {version} from {BACKPORTS} does not start here or lacks {NEEDED_DEVICE}")
    return private_qemu(entry.path)


def candidate(archive: Archive) -> tuple[str, cache.Entry]:
    """Returns the version of the QEMU of backports, and its place in the cache. Raises Failure if that QEMU is too old."""
    found = archive.candidate(PACKAGE, BACKPORTS)
    version = _upstream(found or "")
    if found is None or _numbers(version) < OLDEST:
        raise Failure(
            f"QEMU {OLDEST[0]}.{OLDEST[1]} or newer is needed; Debian's {BACKPORTS} has {version or 'none'}",
            f"install a newer QEMU yourself and set NEAP_QEMU (tested: {TESTED})",
        )
    return version, cache.Entry("qemu", f"{version}-{cache.digest(found)}")


def packages_of(archive: Archive) -> list[tuple[str, str]]:
    """Returns the packages of the QEMU of backports, as (name, version)."""
    return [pair for pair in archive.closure(PACKAGE, BACKPORTS) if OPENED.match(pair[0])]


@functools.cache
def small_firmware(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the arguments for the smallest firmware of QEMU `argv`, which starts an image of -kernel; () if this QEMU has it not."""
    for directory in (output_or_none([*argv, "-L", "help"]) or "").splitlines():
        file = Path(directory.strip()) / SMALL_FIRMWARE
        if file.is_file() and "," not in str(file):
            return ("-bios", str(file))
    return ()


def version_of(argv: tuple[str, ...]) -> str | None:
    """Returns the version of a QEMU, like '11.1.3'; None if it does not start."""
    match = re.search(r"version (\d+(?:\.\d+)+)", output_or_none([*argv, "--version"]) or "")
    return match.group(1) if match else None


def suitable(argv: tuple[str, ...]) -> bool:
    """True for a QEMU that is new enough and has the device that the soft card needs."""
    version = version_of(argv)
    if version is None or _numbers(version) < OLDEST:
        return False
    return f'"{NEEDED_DEVICE}"' in (output_or_none([*argv, "-device", "help"]) or "")


def _upstream(version: str) -> str:
    """Returns the upstream version, like '11.1.3' from Debian's '1:11.1.3+ds-1~bpo13+1'."""
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)+)", version)
    return match.group(1) if match else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
