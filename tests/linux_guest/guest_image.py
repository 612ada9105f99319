# SPDX-License-Identifier: BSL-1.0
"""Makes the Linux guest: a kernel and an initramfs with exactly the content that tests of a network card need.

The kernel and the programs come from Debian packages of the host's own suite. So the soft card is tested with exactly Debian's driver. The
kernel can also be that of Debian 13. One program is ours: the traffic program, which compares every byte (traffic.c). The result is kept in
the user's cache, under a hash of the packages' versions and of this folder's own files.
"""

import lzma
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools import cache, debian
from tools.archive import Archive
from tools.errors import Failure
from tools.process import output_of

from .cpio import CpioWriter

# Programs copied from packages, with their libraries. busybox provides shell, ping, nc, udhcpc, sha256sum and modprobe.
PROGRAM_PACKAGES = ["busybox-static", "ethtool"]
PROGRAMS = ["ethtool"]
# The drivers of the soft card and of QEMU's own cards (for comparison), and the modules for VLANs and MSRs. The modules' dependencies are
# read from the modules.
MODULES = ["ixgbe", "igb", "e1000e", "8021q", "msr"]
# Programs that read a CPU's power and counters, for tests of the model machine. They are optional: perf has 60 MB.
POWER_PACKAGES = ["linux-cpupower", "msr-tools", "linux-perf"]
POWER_PROGRAMS = ["turbostat", "cpupower", "rdmsr", "wrmsr", "perf"]
POWER_MODULES = ["cpuid", "intel_rapl_msr"]

_HERE = Path(__file__).parent
_LOADER = "lib64/ld-linux-x86-64.so.2"
_LIBRARY_FOLDERS = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"]


@dataclass(frozen=True)
class GuestImage:
    """The paths of the files, and the kernel's release ("6.1.0-49-amd64"). `traffic` is the traffic program, for use on the host."""

    kernel: Path
    initramfs: Path
    release: str
    traffic: Path


@dataclass(frozen=True)
class _Contents:
    packages: list[str]
    programs: list[str]
    modules: list[str]


@dataclass(frozen=True)
class _Kernel:
    """A kernel package: its name, a text that changes with its content, and a function that unpacks it into a directory."""

    package: str
    version: str
    unpack: Callable[[Path], None]

    @property
    def release(self) -> str:
        return self.package.removeprefix("linux-image-")


KERNEL_META_PACKAGE, KERNEL_PACKAGE = "linux-image-amd64", r"linux-image-\d"


def build(*, debian_13_kernel: bool = False, power_programs: bool = False) -> GuestImage:
    """Makes the guest if the cache lacks it (75 to 105 MB of packages, seconds of work). Raises Failure, and then leaves nothing behind.

    power_programs: adds POWER_PROGRAMS to the guest.
    """
    kernel = _kernel_of_debian_13() if debian_13_kernel else _own_kernel()
    contents = _Contents(
        [*PROGRAM_PACKAGES, *(POWER_PACKAGES if power_programs else [])],
        [*PROGRAMS, *(POWER_PROGRAMS if power_programs else [])],
        [*MODULES, *(POWER_MODULES if power_programs else [])],
    )
    names = debian.with_libraries(contents.packages)
    own_files = [(_HERE / name).read_bytes() for name in ("init.sh", "udhcpc.sh", "cpio.py", "guest_image.py", "traffic.c")]
    entry = cache.Entry("linux-guest", cache.digest(kernel.version, debian.digest_of(debian.resolve(names)), *own_files))
    with entry.making() as needed:
        if needed:
            with tempfile.TemporaryDirectory(dir=entry.path) as name:
                root = Path(name) / "root"
                debian.unpack(names, root)
                kernel.unpack(root)
                shutil.copyfile(root / "boot" / f"vmlinuz-{kernel.release}", entry.path / "vmlinuz")
                # The program is linked statically, because the guest's C library differs from the host's.
                compiler = ["gcc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-static"]
                output_of([*compiler, "-o", str(entry.path / "traffic"), str(_HERE / "traffic.c")])
                with (entry.path / "initramfs.cpio").open("wb") as stream:
                    _write_initramfs(CpioWriter(stream), root, kernel.release, entry.path / "traffic", contents)
    return GuestImage(entry.path / "vmlinuz", entry.path / "initramfs.cpio", kernel.release, entry.path / "traffic")


def _own_kernel() -> _Kernel:
    package = debian.dependency(KERNEL_META_PACKAGE, KERNEL_PACKAGE)
    return _Kernel(package, debian.digest_of(debian.resolve([package])), lambda root: debian.unpack([package], root))


def _kernel_of_debian_13() -> _Kernel:
    archive = Archive()
    package, version = next(pair for pair in archive.closure(KERNEL_META_PACKAGE) if re.match(KERNEL_PACKAGE, pair[0]))

    def unpack(root: Path) -> None:
        archive.unpack([(package, version)], root)

    return _Kernel(package, version, unpack)


def _write_initramfs(archive: CpioWriter, root: Path, release: str, traffic: Path, contents: _Contents) -> None:
    for folder in ("proc", "sys", "dev", "tmp", "run", "root", "etc", "lib64"):
        archive.directory(folder)
    archive.character_device("dev/console", 5, 1)
    archive.file("init", (_HERE / "init.sh").read_bytes(), mode=0o755)
    archive.file("etc/udhcpc.script", (_HERE / "udhcpc.sh").read_bytes(), mode=0o755)
    busybox = root / "bin" / "busybox"
    archive.file("bin/busybox", busybox.read_bytes(), mode=0o755)
    for applet in output_of([str(busybox), "--list"]).split():
        if applet not in (*contents.programs, "busybox"):
            archive.link(f"bin/{applet}", "busybox")
    archive.file("bin/traffic", traffic.read_bytes(), mode=0o755)
    _copy_programs(archive, root, contents)
    _copy_modules(archive, root, release, contents.modules)
    archive.close()


def _copy_programs(archive: CpioWriter, root: Path, contents: _Contents) -> None:
    """Copies the programs and the libraries that the dynamic loader finds for them in `root`."""
    loader = root / _LOADER
    search = ":".join(str(root / folder) for folder in _LIBRARY_FOLDERS)
    libraries: set[Path] = set()
    for program in contents.programs:
        path = next((root / folder / program for folder in ("bin", "sbin", "usr/bin", "usr/sbin")
                     if (root / folder / program).is_file()), None)  # fmt: skip
        if path is None:
            raise Failure(f"no {program} in the packages {', '.join(contents.packages)}")
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


def _copy_modules(archive: CpioWriter, root: Path, release: str, modules: list[str]) -> None:
    """Copies the modules and their dependencies, with the modules.dep that modprobe reads."""
    base = f"lib/modules/{release}"
    tree = root / base
    if not tree.is_dir():
        base, tree = f"lib/modules/{release}", root / "usr" / base
    by_name = {path.name.partition(".")[0].replace("-", "_"): path for path in tree.rglob("*.ko*")}
    direct: dict[str, list[str]] = {}
    queue = list(modules)
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
        paths = [str(by_name[one].relative_to(tree)).removesuffix(".xz") for one in ordered]
        lines.append(f"{paths[-1]}: {' '.join(reversed(paths[:-1]))}".rstrip())
        # The module is unpacked, because busybox's modprobe does not support xz.
        archive.file(f"{base}/{paths[-1]}", _module(by_name[name]))
    archive.file(f"{base}/modules.dep", ("\n".join(lines) + "\n").encode())


def _depth_first(name: str, direct: dict[str, list[str]], ordered: list[str]) -> None:
    for one in direct[name]:
        if one not in ordered:
            _depth_first(one, direct, ordered)
    if name not in ordered:
        ordered.append(name)


def _module(path: Path) -> bytes:
    """Returns a kernel module's content; newer Debian suites compress it."""
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def _module_dependencies(path: Path) -> list[str]:
    match = re.search(rb"\0depends=([^\0]*)\0", _module(path))
    if match is None:
        raise Failure(f"{path.name} does not say what it depends on")
    return [name.replace("-", "_") for name in match[1].decode().split(",") if name]
