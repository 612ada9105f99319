# SPDX-License-Identifier: BSL-1.0
"""The layers and functions of a profile of Linux on the model machine (sim/machine/profile.hpp writes the profile).

    symbols = linux_profile.symbols(console_lines)
    found = linux_profile.read(out / experiment.PROFILE, symbols)
    print(found.layers(), found.functions(layers.STACK))

An address is of the kernel, of one of its modules, or of a file that the server's process has mapped. linux-start.sh prints the addresses
of modules and mappings. Rules:

- A module of the card's driver is driver, another module is known by its functions' names.
- memcached's and NPtcp's own code is application. libevent and the vDSO are socket or connection.
- Functions of the C library that make a system call are socket or connection; its other ones, such as memcpy and locks, are application,
  because memcached is their only caller. The other libraries are application, too.
- User addresses outside the server's mappings belong to other processes, and are other.
- A kernel function without a known name has the layer of its nearest neighbours with one, if both have the same and are near.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tools.errors import Failure
from tools.model import profile
from tools.model.layers import APPLICATION, DRIVER, OTHER, SOCKET
from tools.model.linux_functions import layer_by_name
from tools.model.linux_symbols import KernelSymbols

MODULE = re.compile(r"^linux: module (\S+) (\d+) 0x([0-9a-f]+)$")
MAP = re.compile(r"^linux: map ([0-9a-f]+)-([0-9a-f]+) ([0-9a-f]+) (\S+)$")
DRIVER_MODULES = ("ixgbe", "mdio", "mdio_devres", "libphy", "dca", "hwmon")
SOCKET_FILES = ("libevent", "[vdso]")
C_LIBRARY = "libc.so"
SYSTEM_CALLS = re.compile(
    r"_*(?:libc_)?(?:read|write|readv|writev|pread|pwrite|recv|recvmsg|recvfrom|send|sendmsg|sendto|sendmmsg|accept4?|poll|ppoll|select|"
    r"epoll_\w+|eventfd\w*|ioctl|fcntl|fcntl64|close|syscall|clock_gettime|gettimeofday|time|getsockopt|setsockopt|shutdown)(?:64)?$"
)
KERNEL_HALF = 1 << 63
# A neighbour further away than this is taken for one of another source file.
NEIGHBOUR_BYTES_MAX = 64 << 10


@dataclasses.dataclass(frozen=True)
class Place:
    """The function at an address, and its layer."""

    function: str
    layer: str


@dataclasses.dataclass(frozen=True)
class Range:
    """A module, or a file that is mapped: where its code is. `offset` is that of the file at `start`."""

    start: int
    end: int
    name: str
    offset: int = 0


class Symbols:
    """The functions at the addresses of one run. `libraries`: the exported functions of a file as (address, bytes, name), by its name."""

    def __init__(
        self, kernel: KernelSymbols, console: Iterable[str], libraries: Mapping[str, Sequence[tuple[int, int, str]]] | None = None
    ):
        self._kernel = _Functions(kernel.kernel)
        self._modules: list[tuple[Range, _Functions]] = []
        self._maps: list[Range] = []
        self._libraries = libraries or {}
        for line in console:
            if match := MODULE.match(line):
                start = int(match[3], 16)
                self._modules.append((Range(start, start + int(match[2]), match[1]), _Functions(kernel.modules.get(match[1], []))))
            elif match := MAP.match(line):
                self._maps.append(Range(int(match[1], 16), int(match[2], 16), match[4].rpartition("/")[2], int(match[3], 16)))
        if not self._maps or not self._modules:
            raise Failure("the console has no addresses of Linux's modules and of its server", "the profile is of another system")

    def place(self, address: int) -> Place:
        if address < KERNEL_HALF:
            found = next((one for one in self._maps if one.start <= address < one.end), None)
            return self._in_file(found, address) if found else Place("another process", OTHER)
        module = next(((one, functions) for one, functions in self._modules if one.start <= address < one.end), None)
        if module is None:
            return self._kernel.place(address)
        one, functions = module
        place = functions.place(address - one.start)
        return Place(f"{place.function} [{one.name}]", DRIVER if one.name in DRIVER_MODULES else place.layer)

    def address_of(self, function: str) -> int:
        """The first address of a function of the kernel itself. Raises Failure if there is none."""
        return self._kernel.address_of(function)

    def _in_file(self, mapped: Range, address: int) -> Place:
        if mapped.name.startswith(SOCKET_FILES):
            return Place(mapped.name, SOCKET)
        exported = self._libraries.get(mapped.name, ())
        at = address - mapped.start + mapped.offset
        number = bisect.bisect_right(exported, at, key=lambda function: function[0]) - 1
        if number < 0 or at >= exported[number][0] + exported[number][1]:
            return Place(mapped.name, APPLICATION)
        names = [name for start, _, name in exported[max(0, number - 8) : number + 8] if start == exported[number][0]]
        is_call = mapped.name.startswith(C_LIBRARY) and any(SYSTEM_CALLS.match(name) for name in names)
        return Place(f"{min(names, key=len)} [{mapped.name}]", SOCKET if is_call else APPLICATION)


class _Functions:
    """Functions in the order of their addresses."""

    def __init__(self, functions: Sequence[tuple[int, str]]):
        self._starts = [start for start, _ in functions]
        self._names = [name for _, name in functions]

    def place(self, address: int) -> Place:
        number = bisect.bisect_right(self._starts, address) - 1
        return self._of(number) if number >= 0 else Place("unknown", OTHER)

    def address_of(self, name: str) -> int:
        if name not in self._names:
            raise Failure(f"the kernel has no function {name}")
        return self._starts[self._names.index(name)]

    @functools.cache  # noqa: B019, as many entries as functions that were executed
    def _of(self, number: int) -> Place:
        # Several names may be at one address, and one of them may have a layer.
        same = range(bisect.bisect_left(self._starts, self._starts[number]), number + 1)
        for one in same:
            if layer := layer_by_name(self._names[one]):
                return Place(self._names[one], layer)
        before = self._known(range(same[0] - 1, -1, -1), number)
        after = self._known(range(number + 1, len(self._names)), number)
        return Place(self._names[number], before if before is not None and before == after else OTHER)

    def _known(self, numbers: Iterable[int], of: int) -> str | None:
        for one in numbers:
            if abs(self._starts[one] - self._starts[of]) > NEIGHBOUR_BYTES_MAX:
                return None
            if layer := layer_by_name(self._names[one]):
                return layer
        return None


def read(profile_file: Path, symbols: Symbols) -> profile.InstructionProfile:
    """Reads the profile of a run. Raises Failure for a file that is no profile."""
    found: Counter[Place] = Counter()
    for address, (executions, _) in profile.counts(profile_file).items():
        found[symbols.place(address)] += executions
    return profile.InstructionProfile(found)


def layers(profile_file: Path, symbols: Symbols) -> Counter[str]:
    """The instructions of a run's window by layer (layers.py)."""
    return read(profile_file, symbols).layers()


def symbols(console: Iterable[str], debian_13_kernel: bool = False) -> Symbols:
    """The symbols for a run whose console had these lines. Raises Failure."""
    from tools.model import linux, linux_symbols  # noqa: PLC0415

    libraries = {path.name: linux_symbols.of_library(path) for path in linux.libraries()}
    return Symbols(linux_symbols.of_kernel(debian_13_kernel), console, libraries)
