# SPDX-License-Identifier: BSL-1.0
"""The symbols of Debian's kernel and of the server's C library, for a profile of Linux on the model machine.

Debian's kernel package has no map of symbols, but a running kernel lists them. So each kernel boots once as a guest without a card, and the
list stays in the user's cache. The model machine boots with `nokaslr`, so the kernel's own addresses are those of the list. A module's
address differs from boot to boot, so its symbols are kept as distances from the module's start, which linux-start.sh prints.
"""

from __future__ import annotations

import base64
import functools
import gzip
import re
from dataclasses import dataclass
from pathlib import Path

from tools import cache, toolchain
from tools.errors import Failure
from tools.model import linux
from tools.process import output_of

FETCH_SECONDS = 120
FILE = "symbols.txt.gz"
# The kernel's symbols of code: T, t, and weak ones. `__pfx_` marks the padding in front of a function.
KALLSYMS = re.compile(r"^([0-9a-f]{16}) [tTwW] (\S+)(?:\t\[(\S+)\])?$", re.MULTILINE)
MODULES = re.compile(r"^(\S+) (\d+) .* 0x([0-9a-f]+)", re.MULTILINE)
NM = re.compile(r"^([0-9a-f]{16}) ([0-9a-f]{16}) [TtWwi] ([^@\s]+)", re.MULTILINE)
SCRIPT = """
modprobe ixgbe && modprobe msr || exit 1
gzip -c /proc/modules | base64 -w0
echo
gzip -c /proc/kallsyms | base64 -w0
"""


@dataclass(frozen=True)
class KernelSymbols:
    """Code symbols as (address, name), in order of addresses: of the kernel, and of each module from the module's start."""

    kernel: list[tuple[int, str]]
    modules: dict[str, list[tuple[int, str]]]


def parse(kallsyms: str, modules: str) -> KernelSymbols:
    """Reads /proc/kallsyms and /proc/modules of one boot. Raises Failure if the kernel hides addresses."""
    starts = {match[1]: int(match[3], 16) for match in MODULES.finditer(modules)}
    kernel: list[tuple[int, str]] = []
    of_modules: dict[str, list[tuple[int, str]]] = {name: [] for name in starts}
    for match in KALLSYMS.finditer(kallsyms):
        address, name, module = int(match[1], 16), match[2], match[3]
        if module is None:
            kernel.append((address, name))
        elif module in starts:
            of_modules[module].append((address - starts[module], name))
    if not kernel or kernel[0][0] == 0:
        raise Failure("the kernel's list of symbols has no addresses", "it is read by root, with kernel.kptr_restrict=0")
    return KernelSymbols(sorted(kernel), {name: sorted(found) for name, found in of_modules.items()})


@functools.cache
def of_kernel(debian_13_kernel: bool = False) -> KernelSymbols:
    """The symbols of the kernel that linux.image() boots. They are fetched if the cache lacks them. Raises Failure."""
    linux.find_guest()
    from linux_guest import guest_image  # noqa: PLC0415
    from linux_guest.guest import LinuxGuest  # noqa: PLC0415

    image = guest_image.build(debian_13_kernel=debian_13_kernel)
    entry = cache.Entry("linux-symbols", cache.digest(image.initramfs.parent.name, SCRIPT))
    with entry.making() as needed:
        if needed:
            with LinuxGuest(image, card=None, kernel_words=["nokaslr"]) as guest:
                modules, kallsyms = guest.output_of(SCRIPT, seconds=FETCH_SECONDS).split()
            both = _unpacked(modules) + "\0" + _unpacked(kallsyms)
            (entry.path / FILE).write_bytes(gzip.compress(both.encode(), mtime=0))
    modules, _, kallsyms = gzip.decompress((entry.path / FILE).read_bytes()).decode().partition("\0")
    return parse(kallsyms, modules)


def _unpacked(text: str) -> str:
    return gzip.decompress(base64.b64decode(text)).decode()


@functools.cache
def of_library(path: Path) -> list[tuple[int, int, str]]:
    """The exported functions of a library as (address, bytes, name), in order of addresses."""
    program = toolchain.require() / "bin/x86_64-neap-elf-nm"
    listed = output_of([str(program), "-D", "--defined-only", "-S", str(path)])
    return sorted((int(match[1], 16), int(match[2], 16), match[3]) for match in NM.finditer(listed))
