# SPDX-License-Identifier: BSL-1.0
"""Finds the Debian packages that a Linux program needs, from the libraries and symbol versions that the program names.

A package's `Depends` must name the oldest version of each library that has all symbols of its programs. glibc gives each symbol the
version in which it appeared, so the newest symbol version of a program is that version of glibc. dpkg-shlibdeps finds the same, but exists
only on Debian, and needs the libraries' packages installed.

The format is that of the ELF specification (System V ABI, chapters 4 and 5) and of symbol versioning in the Linux Standard Base (LSB 5,
generic part, chapter 10.7).
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from tools.errors import Failure

SHT_DYNAMIC = 6
SHT_GNU_VERNEED = 0x6FFFFFFE
DT_NEEDED = 1
# The packages of libraries, in Debian 12 and later. The dynamic linker and libm belong to glibc.
LIBC = "libc6"
PACKAGES = {"libc.so.6": LIBC, "libm.so.6": LIBC, "ld-linux-x86-64.so.2": LIBC, "libgcc_s.so.1": "libgcc-s1"}
# The prefixes of symbol versions whose rest is the library's version. The version of libgcc-s1 is that of GCC, which every Debian since
# GCC_3.0 has, so it is left out.
VERSIONS = {LIBC: "GLIBC_"}
# Bounds for damaged files; GCC's largest program names 4 libraries and 20 versions.
NEEDED_MAX = 256
VERSIONS_MAX = 4096


@dataclass(frozen=True)
class Needs:
    """`libraries`: the names of DT_NEEDED. `versions`: pairs of a library and a symbol version. Both are empty for a static program."""

    libraries: frozenset[str]
    versions: frozenset[tuple[str, str]]


def is_elf(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def needs(path: Path) -> Needs:
    """Reads a 64-bit little-endian ELF program or library. Raises Failure if the file is none, or is damaged."""
    data = path.read_bytes()
    try:
        return _needs(data)
    except (struct.error, IndexError, ValueError):
        raise Failure(f"{path} is not a whole 64-bit ELF file") from None


def depends(programs: list[Path]) -> list[str]:
    """Returns the terms of `Depends` for programs, sorted, like `libc6 (>= 2.36)`. Raises Failure for a library of no known package."""
    found: dict[str, tuple[int, ...]] = {}
    for program in programs:
        need = needs(program)
        for library in sorted(need.libraries):
            if library not in PACKAGES:
                raise Failure(f"{program} needs {library}, which belongs to no package that tools/release/elf_needs.py knows")
            found.setdefault(PACKAGES[library], ())
        for library, version in need.versions:
            package = PACKAGES.get(library, "")
            prefix = VERSIONS.get(package)
            if prefix and version.startswith(prefix) and version[len(prefix) :].replace(".", "").isdigit():
                found[package] = max(found.get(package, ()), tuple(int(part) for part in version[len(prefix) :].split(".")))
    return [f"{name} (>= {'.'.join(map(str, version))})" if version else name for name, version in sorted(found.items())]


def _needs(data: bytes) -> Needs:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    if table + size * count > len(data):
        raise ValueError
    # Of a section header: type, offset, size, index of the linked section (its strings).
    sections = [struct.unpack_from("<4xI16xQQI", data, table + size * index) for index in range(count)]

    def text(strings: tuple[int, ...], offset: int) -> str:
        start = strings[1] + offset
        return data[start : data.index(b"\0", start)].decode("ascii")

    libraries, versions = set(), set()
    for kind, offset, length, link in sections:
        if kind == SHT_DYNAMIC:
            for place in range(offset, offset + length, 16):
                tag, value = struct.unpack_from("<QQ", data, place)
                if tag == DT_NEEDED and len(libraries) < NEEDED_MAX:
                    libraries.add(text(sections[link], value))
        if kind == SHT_GNU_VERNEED:
            versions |= _versions(data, offset, lambda at, link=link: text(sections[link], at))
    return Needs(frozenset(libraries), frozenset(versions))


def _versions(data: bytes, offset: int, text) -> set[tuple[str, str]]:
    """Reads a chain of libraries (Elf64_Verneed), each with a chain of versions (Elf64_Vernaux)."""
    found = set()
    while True:
        _, count, file, first, following = struct.unpack_from("<HHIII", data, offset)
        place = offset + first
        for _ in range(count):
            _, _, _, name, next_version = struct.unpack_from("<IHHII", data, place)
            found.add((text(file), text(name)))
            place += next_version
            if len(found) > VERSIONS_MAX:
                raise ValueError
        if following == 0:
            return found
        offset += following
