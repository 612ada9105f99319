# SPDX-License-Identifier: BSL-1.0
"""Writes a Debian package (.deb) without Debian's tools.

A release is built on any Linux, and two builds of it MUST be equal byte by byte. dpkg-deb exists on Debian alone, and its result depends on
the files' owners, modes, times and order on the disk. So this writer takes the content of the package as a list, and fixes the rest: order
by name, root as owner, one time, two modes.

A package is an `ar` archive of three members: `debian-binary`, `control.tar.xz` and `data.tar.xz` (deb(5)). The tar files are of GNU's
format, because dpkg knows no extended headers of POSIX.
"""

import gzip
import hashlib
import io
import lzma
import os
import posixpath
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tools import cache
from tools.errors import Failure

PROGRAM_MODE = 0o755
FILE_MODE = 0o644
FORMAT_VERSION = b"2.0\n"
COPY_BYTES = 1 << 20
# The dictionary of xz, which spans the content of a package if it is small. GCC's three compilers share most of their code, and the largest
# dictionary spans two of them. Of these 106 MB, xz's preset 1 alone leaves 34 MB, with this dictionary 17 MB, in the same time. dpkg needs
# as much memory to unpack.
DICTIONARY_BYTES_MIN = 1 << 20
DICTIONARY_BYTES_MAX = 64 << 20
# Debian Policy 5.6.1 and 5.6.12.
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~]*(-[A-Za-z0-9.+~]+)?")
# Width of an extended description's lines (Policy 5.6.13: below 80).
DESCRIPTION_COLUMNS = 78


@dataclass(frozen=True)
class Entry:
    """A file or a link of a package. `path` is relative to the root. `content` is the file's bytes, or a path of a file with them; a link
    has `target` in its place."""

    path: str
    content: bytes | Path = b""
    target: str = ""
    program: bool = False

    def size(self) -> int:
        return self.content.stat().st_size if isinstance(self.content, Path) else len(self.content)

    def open(self) -> BinaryIO:
        return open(self.content, "rb") if isinstance(self.content, Path) else io.BytesIO(self.content)


@dataclass(frozen=True)
class Package:
    """`fields`: further control fields in their order. `scripts`: maintainer scripts by name."""

    name: str
    version: str
    architecture: str
    fields: Mapping[str, str]
    entries: Sequence[Entry]
    scripts: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return f"{self.name}_{self.version}_{self.architecture}.deb"


def write(package: Package, out: Path, epoch: int) -> Path:
    """Writes a package into the folder `out`. `epoch` is the time of all its files, in seconds. An older file of the name is replaced when
    the new one is complete. Raises Failure if the package has an invalid name, two entries of one path, or one outside its root."""
    _check(package)
    entries = sorted(package.entries, key=lambda entry: entry.path)
    made = out / package.file_name
    partial = out / f".{package.file_name}.{os.getpid()}.partial"
    data = out / f".{package.file_name}.{os.getpid()}.data"
    try:
        with cache.disk_full_named(f"writing {made}"):
            with open(data, "wb") as file, _compressor(file, entries) as packed:
                sums = _write_tar(packed, entries, epoch)
            control = io.BytesIO()
            controls = sorted(_control(package, entries, sums), key=lambda entry: entry.path)
            with _compressor(control, controls) as packed:
                _write_tar(packed, controls, epoch)
            with open(partial, "wb") as file:
                file.write(b"!<arch>\n")
                _append(file, "debian-binary", io.BytesIO(FORMAT_VERSION), len(FORMAT_VERSION), epoch)
                _append(file, "control.tar.xz", io.BytesIO(control.getvalue()), len(control.getvalue()), epoch)
                with open(data, "rb") as packed:
                    _append(file, "data.tar.xz", packed, data.stat().st_size, epoch)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(made)
    finally:
        partial.unlink(missing_ok=True)
        data.unlink(missing_ok=True)
    return made


def compressed(content: bytes) -> bytes:
    """Compresses a document as `gzip -9n` does: without name and time."""
    return gzip.compress(content, 9, mtime=0)


def installed_kib(entries: Sequence[Entry]) -> int:
    """Returns the value of `Installed-Size`, as dpkg-gencontrol counts: each file in whole KiB, and 1 for each folder and link."""
    files = sum((entry.size() + 1023) // 1024 for entry in entries if not entry.target)
    return files + sum(1 for entry in entries if entry.target) + len(_folders(entries))


def description(summary: str, paragraphs: Sequence[str]) -> str:
    """Returns the value of `Description`: a line, and paragraphs that are wrapped."""
    lines = [summary]
    for number, paragraph in enumerate(paragraphs):
        lines += [" ."] if number else []
        line = ""
        for word in paragraph.split():
            if len(line) + len(word) + 1 > DESCRIPTION_COLUMNS:
                lines.append(line)
                line = ""
            line += f" {word}"
        lines.append(line)
    return "\n".join(lines)


def _compressor(out: BinaryIO, entries: Sequence[Entry]) -> lzma.LZMAFile:
    content_bytes = sum(entry.size() for entry in entries if not entry.target)
    dictionary_bytes = min(max(1 << content_bytes.bit_length(), DICTIONARY_BYTES_MIN), DICTIONARY_BYTES_MAX)
    return lzma.open(out, "wb", filters=[{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": dictionary_bytes}])


def _check(package: Package) -> None:
    if not _NAME.fullmatch(package.name) or not _VERSION.fullmatch(package.version):
        raise Failure(f"'{package.name}' {package.version} is no name and version of a Debian package")
    seen = set()
    for entry in package.entries:
        if posixpath.normpath(entry.path) != entry.path or entry.path.startswith(("/", "../")) or entry.path in seen:
            raise Failure(f"{package.name}: the path '{entry.path}' is not normal, or occurs twice")
        seen.add(entry.path)


def _control(package: Package, entries: Sequence[Entry], sums: Mapping[str, str]) -> Iterator[Entry]:
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": package.architecture,
        **package.fields,
        "Installed-Size": str(installed_kib(entries)),
    }
    # Description is last, as dpkg-gencontrol writes it.
    fields["Description"] = fields.pop("Description")
    text = "".join(f"{name}: {value}\n" for name, value in fields.items() if value)
    yield Entry("control", text.encode())
    yield Entry("md5sums", "".join(f"{digest}  {path}\n" for path, digest in sorted(sums.items())).encode())
    for name, script in package.scripts.items():
        yield Entry(name, script.encode(), program=True)


def _folders(entries: Sequence[Entry]) -> set[str]:
    """Returns the folders of entries, without the root."""
    found = set()
    for entry in entries:
        folder = posixpath.dirname(entry.path)
        while folder and folder not in found:
            found.add(folder)
            folder = posixpath.dirname(folder)
    return found


def _write_tar(out: BinaryIO, entries: Sequence[Entry], epoch: int) -> dict[str, str]:
    """Writes folders, files and links. Returns the MD5 digest of each file, which dpkg uses to find damaged files, and not for security."""
    sums = {}
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        by_path = {entry.path: entry for entry in entries}
        archive.addfile(_header("./", tarfile.DIRTYPE, PROGRAM_MODE, epoch))
        for path in sorted({*by_path, *_folders(entries)}):
            entry = by_path.get(path)
            if entry is None:
                archive.addfile(_header(f"./{path}/", tarfile.DIRTYPE, PROGRAM_MODE, epoch))
            elif entry.target:
                header = _header(f"./{path}", tarfile.SYMTYPE, 0o777, epoch)
                header.linkname = entry.target
                archive.addfile(header)
            else:
                header = _header(f"./{path}", tarfile.REGTYPE, PROGRAM_MODE if entry.program else FILE_MODE, epoch)
                header.size = entry.size()
                with entry.open() as content:
                    archive.addfile(header, content)
                    content.seek(0)
                    sums[path] = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    return sums


def _header(name: str, kind: bytes, mode: int, epoch: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type = kind
    header.mode = mode
    header.mtime = epoch
    header.uname = header.gname = "root"
    return header


def _append(file: BinaryIO, name: str, content: BinaryIO, size: int, epoch: int) -> None:
    """Appends a member to an `ar` archive. Its size is padded to an even number of bytes."""
    file.write(f"{name:<16}{epoch:<12}{0:<6}{0:<6}{'100644':<8}{size:<10}`\n".encode())
    while piece := content.read(COPY_BYTES):
        file.write(piece)
    if size % 2:
        file.write(b"\n")
