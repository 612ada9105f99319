# SPDX-License-Identifier: BSL-1.0
"""Making the Linux guest: a kernel and an initramfs that hold what a test of a network card needs, and nothing else.

The kernel and every program come from Debian packages of the machine's own suite, so the driver that judges the soft card is
exactly the one that Debian ships. The result is kept in the user's cache, under a hash of the packages' versions and of this
folder's own files.
"""

from __future__ import annotations

import lzma
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools import cache
from tools.errors import Failure
from tools.process import output_of

from . import packages
from .cpio import CpioWriter

# What is copied from packages, beside the kernel, with the libraries that it needs.
# busybox brings shell, ping, nc, udhcpc, sha256sum and modprobe.
PROGRAM_PACKAGES = ["busybox-static", "ethtool", "iperf3"]
PROGRAMS = ["ethtool", "iperf3"]
# The soft card's driver, QEMU's own cards as peers, and VLANs. What they need in turn is written in the modules themselves.
MODULES = ["ixgbe", "igb", "e1000e", "8021q"]

_HERE = Path(__file__).parent
_LOADER = "lib64/ld-linux-x86-64.so.2"
_LIBRARY_FOLDERS = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"]


@dataclass(frozen=True)
class GuestImage:
    """Where the two files are, and which kernel it is ("6.1.0-49-amd64")."""

    kernel: Path
    initramfs: Path
    release: str


def build() -> GuestImage:
    """The guest, made now if the cache does not hold it (about 75 MB of packages, some seconds of work).

    Raises Failure, with nothing left behind.
    """
    kernel_package = packages.dependency("linux-image-amd64", r"linux-image-\d")
    release = kernel_package.removeprefix("linux-image-")
    names = [kernel_package, *packages.with_libraries(PROGRAM_PACKAGES)]
    entry = cache.Entry("linux-guest", cache.digest(packages.digest_of(packages.resolve(names)), *_own_files()))
    with entry.making() as needed:
        if needed:
            with tempfile.TemporaryDirectory(dir=entry.path) as name:
                root = Path(name) / "root"
                packages.unpack(names, root)
                shutil.copyfile(root / "boot" / f"vmlinuz-{release}", entry.path / "vmlinuz")
                with (entry.path / "initramfs.cpio").open("wb") as stream:
                    _write_initramfs(CpioWriter(stream), root, release)
    return GuestImage(entry.path / "vmlinuz", entry.path / "initramfs.cpio", release)


def _own_files() -> list[bytes]:
    return [(_HERE / name).read_bytes() for name in ("init.sh", "udhcpc.sh", "cpio.py", "guest_image.py")]


def _write_initramfs(archive: CpioWriter, root: Path, release: str) -> None:
    for folder in ("proc", "sys", "dev", "tmp", "run", "root", "etc", "lib64"):
        archive.directory(folder)
    archive.character_device("dev/console", 5, 1)
    archive.file("init", (_HERE / "init.sh").read_bytes(), mode=0o755)
    archive.file("etc/udhcpc.script", (_HERE / "udhcpc.sh").read_bytes(), mode=0o755)
    busybox = root / "bin" / "busybox"
    archive.file("bin/busybox", busybox.read_bytes(), mode=0o755)
    for applet in output_of([str(busybox), "--list"]).split():
        if applet not in (*PROGRAMS, "busybox"):
            archive.link(f"bin/{applet}", "busybox")
    _copy_programs(archive, root)
    _copy_modules(archive, root, release)
    archive.close()


def _copy_programs(archive: CpioWriter, root: Path) -> None:
    """Copies PROGRAMS and the libraries that the dynamic loader finds for them in `root`."""
    loader = root / _LOADER
    search = ":".join(str(root / folder) for folder in _LIBRARY_FOLDERS)
    libraries: set[Path] = set()
    for program in PROGRAMS:
        path = next((root / folder / program for folder in ("bin", "sbin", "usr/bin", "usr/sbin")
                     if (root / folder / program).is_file()), None)  # fmt: skip
        if path is None:
            raise Failure(f"no {program} in the packages {', '.join(PROGRAM_PACKAGES)}")
        archive.file(f"bin/{program}", path.read_bytes(), mode=0o755)
        for line in output_of([str(loader), "--library-path", search, "--list", str(path)]).splitlines():
            match = re.match(r"\s*\S+ => (\S+) \(", line)
            if match:
                library = Path(match[1])
                if not library.is_relative_to(root):
                    raise Failure(f"{program} needs {library.name}, which no package here brings")
                libraries.add(library)
    libraries = {library for library in libraries if library.name != loader.name}
    archive.file(_LOADER, loader.read_bytes(), mode=0o755)
    for library in sorted(libraries):
        archive.file(f"lib/x86_64-linux-gnu/{library.name}", library.read_bytes(), mode=0o755)


def _copy_modules(archive: CpioWriter, root: Path, release: str) -> None:
    """Copies MODULES and what they depend on, with the modules.dep that modprobe reads."""
    base = f"lib/modules/{release}"
    tree = root / base
    if not tree.is_dir():
        base, tree = f"lib/modules/{release}", root / "usr" / base
    by_name = {path.name.partition(".")[0].replace("-", "_"): path for path in tree.rglob("*.ko*")}
    direct: dict[str, list[str]] = {}
    queue = list(MODULES)
    while queue:
        name = queue.pop()
        if name in direct:
            continue
        path = by_name.get(name)
        if path is None:
            raise Failure(f"the kernel package has no module {name}")
        direct[name] = _module_dependencies(path)
        queue.extend(direct[name])
    lines = []
    for name in sorted(direct):
        ordered: list[str] = []
        _depth_first(name, direct, ordered)
        paths = [str(by_name[one].relative_to(tree)) for one in ordered]
        lines.append(f"{paths[-1]}: {' '.join(reversed(paths[:-1]))}".rstrip())
        archive.file(f"{base}/{paths[-1]}", by_name[name].read_bytes())
    archive.file(f"{base}/modules.dep", ("\n".join(lines) + "\n").encode())


def _depth_first(name: str, direct: dict[str, list[str]], ordered: list[str]) -> None:
    for one in direct[name]:
        if one not in ordered:
            _depth_first(one, direct, ordered)
    if name not in ordered:
        ordered.append(name)


def _module_dependencies(path: Path) -> list[str]:
    """The names in the module's `depends=` string. A compressed module (newer suites) is unpacked by xz."""
    content = path.read_bytes()
    if path.suffix == ".xz":
        content = lzma.decompress(content)
    match = re.search(rb"\0depends=([^\0]*)\0", content)
    if match is None:
        raise Failure(f"{path.name} does not say what it depends on")
    return [name.replace("-", "_") for name in match[1].decode().split(",") if name]
