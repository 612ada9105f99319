# SPDX-License-Identifier: BSL-1.0
"""The Debian packages of a release: `soft82599`, `neap-load` and `neap-toolchain`, for Debian 12 and later on amd64.

`write_packages` is the interface. The packages follow Debian Policy where a package from outside the archive can: `lintian` reports no
error. docs/soft82599.md and docs/load.md say how to install them.

The toolchain is in `/usr/lib/neap/toolchain`, one folder with `bin`, `lib` and `share` as GCC expects them, as Debian's LLVM is in
`/usr/lib/llvm-N`. `/usr/bin` has links to its programs, as it has for every cross compiler of Debian: their names begin with the target, so
that they collide with no other program.
"""

import email.utils
import posixpath
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from tools import cache, toolchain
from tools.errors import Failure
from tools.process import output_of
from tools.release import debian_archive, elf_needs
from tools.release.debian_archive import Entry, Package, compressed

ARCHITECTURE = "amd64"
# There is no address for mail. The field needs one, and RFC 2606 reserves this domain, so that no mail goes to others.
MAINTAINER = "The Neap maintainers <maintainers@neap.invalid>"
# The first package of a release. The policy distinguishes packages of a program from the program by this number.
REVISION = "1"
# `toolchain.find()` looks there.
TOOLCHAIN_PREFIX = "usr/lib/neap/toolchain"
# The recipe of a packaged toolchain, below its prefix: one line, `toolchain.Recipe().key()`. A toolchain of another recipe is not used.
RECIPE_FILE = "recipe-key"
UNITS = "usr/lib/systemd/system"
# The licences of all works that a release contains (tools/release/licences.py), if the folder of the release has the file.
LICENCES = "THIRD-PARTY-LICENCES.txt"
# Files of equal content are links if they are at least this large. The toolchain has its programs twice, and so GCC's front ends.
LINKED_BYTES_MIN = 64 * 1024
STRIP_SECONDS = 120
# libtool's files name the folder in which they were built. Images are linked without them.
LEFT_OUT = (".la",)

# Units of a removed package would otherwise run on, without their program.
PRERM = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop {units} >/dev/null || true
fi
"""

# Complaints of lintian that hold for packages of the archive only, by package; each with its reason.
OVERRIDES = """\
# The package is not for Debian's archive, so no bug asks for it.
{name}: initial-upload-closes-no-bugs *
"""
STATIC_OVERRIDES = """\
# The programs are static and position-independent. lintian takes them for libraries.
{name}: shared-library-lacks-prerequisites *
"""
TOOLCHAIN_OVERRIDES = """\
# The toolchain can be moved to other machines and other distributions. So it contains the libraries that it was tested with.
neap-toolchain: embedded-library *
# GCC's own default for its programs, which read only their user's files.
neap-toolchain: hardening-no-pie *
"""

COPYRIGHT_HEAD = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Neap
Comment: {comment}

Files: *
Copyright: 2026 The Neap maintainers
License: BSL-1.0
"""
GNU = """
Files: {prefix}/*
Copyright: 1984-2025 Free Software Foundation, Inc.
License: GPL-3+
Comment: Binutils and GCC. GMP, MPFR and MPC, which GCC contains, are under the LGPL-3+.

Files: {prefix}/lib/gcc/{target}/*
 {prefix}/{target}/include/c++/*
 {prefix}/{target}/lib/libstdc++*
 {prefix}/{target}/lib/libsupc++*
Copyright: 1984-2025 Free Software Foundation, Inc.
License: GPL-3+ with GCC-exception-3.1

Files: {prefix}/{target}/include/*
 {prefix}/{target}/lib/*
Copyright: 1981-2024 the authors of newlib
License: newlib

License: GPL-3+
 On Debian systems, the text of the GNU General Public License, version 3, is in /usr/share/common-licenses/GPL-3.

License: GPL-3+ with GCC-exception-3.1
 The GNU General Public License, version 3 or later (/usr/share/common-licenses/GPL-3), with the GCC Runtime Library Exception, version 3.1:
 programs that are compiled with GCC may contain these files under terms of their own choice.

License: newlib
 Permissive licences, most of them BSD's, of which each file has its own.
"""


class Stage(Protocol):
    """The part of a release's stage (tools/release/stage.py) that the packages need. `version` is Debian's, with ~dev for a snapshot."""

    tree: Path
    version: str
    epoch: int
    soft_card: Path
    load: Path
    load_stub: Path
    toolchain: Path


def write_packages(stage: Stage, out: Path) -> list[Path]:
    """Writes the packages into the folder `out`, and returns their paths. Equal stages give equal files. Raises Failure if a file is
    missing, or if a program needs a library of no known package."""
    made = []
    with tempfile.TemporaryDirectory(prefix="neap-debs-") as folder:
        for package in (soft_card(stage, out, Path(folder)), load(stage, out, Path(folder)), cross_toolchain(stage, out)):
            made.append(debian_archive.write(package, out, stage.epoch))
    return made


def soft_card(stage: Stage, out: Path, scratch: Path) -> Package:
    program = _stripped(stage, stage.soft_card, scratch)
    folder = stage.tree / "sim/soft82599"
    units = ("soft82599.service", "soft82599.socket")
    entries = [
        Entry("usr/bin/soft82599", program, program=True),
        _page(folder / "soft82599.1"),
        *(Entry(f"{UNITS}/{name}", _content(folder / name)) for name in units),
        *_documents(stage, out, "soft82599", stage.tree / "docs/soft82599.md", overrides=STATIC_OVERRIDES),
    ]
    text = [
        "soft82599 is a network card as a program. A virtual machine sees it as a PCI device by vfio-user, which QEMU 10.1 and newer can "
        "use, and drives it with its usual driver, such as ixgbe of Linux.",
        "The card checks each rule of the datasheet that a driver should keep. It injects faults, records frames, and counts every access "
        "to a register.",
    ]
    fields = {
        **_fields("net", "software Intel 82599, X540 or X550 network card", text),
        "Depends": ", ".join(elf_needs.depends([program])),
        "Suggests": "qemu-system-x86 (>= 1:10.1)",
    }
    return _package(stage, "soft82599", fields, entries, {"prerm": PRERM.format(units=" ".join(reversed(units)))})


def load(stage: Stage, out: Path, scratch: Path) -> Package:
    programs = [_stripped(stage, path, scratch) for path in (stage.load, stage.load_stub)]
    entries = [
        *(Entry(f"usr/bin/{path.name}", path, program=True) for path in programs),
        *(_page(stage.tree / f"bench/load/{path.name}.1") for path in programs),
        *_documents(stage, out, "neap-load", stage.tree / "docs/load.md", overrides=STATIC_OVERRIDES),
    ]
    text = [
        "neap-load offers load to a server and measures the latency of each request, counted from the moment at which the request was to "
        "be sent. The requests have the sizes, keys and times of published studies, or others.",
        "It has open and closed loops, several machines, and searches of the highest rate that keeps a promise. It writes JSON and "
        "histograms.",
    ]
    fields = {
        **_fields("net", "load generator for memcached and web servers", text),
        "Depends": ", ".join(elf_needs.depends(programs)),
    }
    return _package(stage, "neap-load", fields, entries)


def cross_toolchain(stage: Stage, out: Path) -> Package:
    files = list(_prefix(stage.toolchain))
    programs = sorted(entry.path for entry in files if posixpath.dirname(entry.path) == f"{TOOLCHAIN_PREFIX}/bin")
    if f"{TOOLCHAIN_PREFIX}/bin/{toolchain.TARGET}-g++" not in programs:
        raise Failure(f"{stage.toolchain} holds no {toolchain.TARGET}-g++")
    page = _page(stage.tree / f"toolchain/{toolchain.TARGET}.7")
    names = [posixpath.basename(path) for path in programs]
    copyrights = GNU.format(prefix=TOOLCHAIN_PREFIX, target=toolchain.TARGET)
    entries = [
        *files,
        Entry(f"{TOOLCHAIN_PREFIX}/{RECIPE_FILE}", f"{toolchain.Recipe().key()}\n".encode()),
        *(Entry(f"usr/bin/{name}", target=posixpath.relpath(path, "usr/bin")) for name, path in zip(names, programs)),
        page,
        *(Entry(f"usr/share/man/man1/{name}.1.gz", target=posixpath.relpath(page.path, "usr/share/man/man1")) for name in names),
        *_documents(stage, out, "neap-toolchain", stage.tree / "toolchain/README.md", copyrights, TOOLCHAIN_OVERRIDES),
    ]
    text = [
        "Binutils, GCC, newlib and libstdc++ for the target x86_64-neap-elf, which is Neap, a library operating system. C++ is hosted "
        "C++23 with exceptions, thread-local storage, coroutines and <print>.",
        f"The launcher of Neap finds the toolchain in /{TOOLCHAIN_PREFIX}, if it has the version that the launcher needs.",
    ]
    # Objects of the target are in archives and end in .o. All other ELF files are the host's.
    own = [entry.content for entry in files if isinstance(entry.content, Path) and entry.content.suffix != ".o"]
    elf = [path for path in own if elf_needs.is_elf(path)]
    fields = {
        **_fields("devel", "cross toolchain for images of Neap", text),
        "Depends": ", ".join(elf_needs.depends(elf)),
    }
    return _package(stage, "neap-toolchain", fields, entries)


def _package(stage: Stage, name: str, fields: dict[str, str], entries: Sequence[Entry], scripts: dict[str, str] | None = None) -> Package:
    return Package(name, f"{stage.version}-{REVISION}", ARCHITECTURE, fields, entries, scripts or {})


def _fields(section: str, summary: str, text: Sequence[str]) -> dict[str, str]:
    return {
        "Maintainer": MAINTAINER,
        "Section": section,
        "Priority": "optional",
        "Multi-Arch": "foreign",
        "Description": debian_archive.description(summary, text),
    }


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None


def _page(path: Path) -> Entry:
    """Returns the entry of a manual page. The section is the end of its name."""
    return Entry(f"usr/share/man/man{path.suffix[1:]}/{path.name}.gz", compressed(_content(path)))


def _documents(stage: Stage, out: Path, name: str, readme: Path, copyrights: str = "", overrides: str = "") -> Iterator[Entry]:
    """Yields the documents of a package: README, changes, copyright, licences of the works that it contains, and lintian's overrides."""
    yield Entry(f"usr/share/lintian/overrides/{name}", (OVERRIDES + overrides).format(name=name).encode())
    folder = f"usr/share/doc/{name}"
    licences = out / LICENCES
    comment = "A program also contains works of others."
    if licences.is_file():
        comment += f" {LICENCES}.gz has their licences."
        yield Entry(f"{folder}/{LICENCES}.gz", compressed(_content(licences)))
    own = "".join(f" {line}\n" if line.strip() else " .\n" for line in _content(stage.tree / "LICENSE").decode().splitlines())
    yield Entry(f"{folder}/copyright", f"{COPYRIGHT_HEAD.format(comment=comment)}{copyrights}\nLicense: BSL-1.0\n{own}".encode())
    yield Entry(f"{folder}/README.md", _content(readme))
    yield Entry(f"{folder}/changelog.gz", compressed(_content(stage.tree / "CHANGELOG.md")))
    date = email.utils.formatdate(stage.epoch)
    version = f"{stage.version}-{REVISION}"
    changes = f"{name} ({version}) unstable; urgency=medium\n\n  * Neap {stage.version}. changelog.gz has its changes.\n\n"
    yield Entry(f"{folder}/changelog.Debian.gz", compressed(f"{changes} -- {MAINTAINER}  {date}\n".encode()))


def _stripped(stage: Stage, program: Path, scratch: Path) -> Path:
    """Returns a copy of a program without symbols, made by the toolchain's own `strip`, so that it is the same on all machines."""
    made = scratch / program.name
    if not program.is_file():
        raise Failure(f"there is no program {program}", "./neap release builds it")
    strip = stage.toolchain / "bin" / f"{toolchain.TARGET}-strip"
    output_of([str(strip), "--strip-unneeded", "--remove-section=.comment", "-o", str(made), str(program)], timeout_seconds=STRIP_SECONDS)
    return made


def _prefix(prefix: Path) -> Iterator[Entry]:
    """Yields the files of the toolchain in a fixed order. Large files of equal content are links to the first of them."""
    first: dict[tuple[int, str], str] = {}
    for path in sorted(prefix.rglob("*")):
        name = f"{TOOLCHAIN_PREFIX}/{path.relative_to(prefix)}"
        if path.name == cache.MARKER or path.suffix in LEFT_OUT:
            continue
        if path.is_symlink():
            yield Entry(name, target=str(path.readlink()))
            continue
        if not path.is_file():
            continue
        status = path.stat()
        if status.st_size >= LINKED_BYTES_MIN:
            earlier = first.setdefault((status.st_size, cache.file_sha256(path)), name)
            if earlier != name:
                yield Entry(name, target=posixpath.relpath(earlier, posixpath.dirname(name)))
                continue
        # A library is loaded, and not executed (Debian Policy 10.2).
        yield Entry(name, path, program=bool(status.st_mode & stat.S_IXUSR) and path.suffix != ".so")
