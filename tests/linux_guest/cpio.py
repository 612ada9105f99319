# SPDX-License-Identifier: BSL-1.0
"""Writes an initramfs.

Linux unpacks its first file system from a cpio archive in the "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst in
Linux's sources). The usual way needs the programs cpio and fakeroot (for owners and device nodes), and its output differs each time. Here
the entries are written in the given order, with owner root and time zero. So equal content gives equal archives.
"""

import stat
from typing import BinaryIO


class CpioWriter:
    """Writes one archive to `stream`. Paths are relative to the root, without a leading slash. Parent directories are made on first use."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._inode = 0
        self._known: set[str] = set()

    def directory(self, path: str, mode: int = 0o755) -> None:
        if not path or path in self._known:
            return
        self._parents(path)
        self._entry(path, stat.S_IFDIR | mode, b"", links=2)

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        self._parents(path)
        self._entry(path, stat.S_IFREG | mode, content)

    def link(self, path: str, target: str) -> None:
        self._parents(path)
        self._entry(path, stat.S_IFLNK | 0o777, target.encode())

    def character_device(self, path: str, major: int, minor: int, mode: int = 0o600) -> None:
        self._parents(path)
        self._entry(path, stat.S_IFCHR | mode, b"", device=(major, minor))

    def close(self) -> None:
        """Writes the trailer. The stream stays open."""
        self._entry("TRAILER!!!", 0, b"")

    def _parents(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent:
            self.directory(parent)

    def _entry(self, path: str, mode: int, content: bytes, *, links: int = 1, device: tuple[int, int] = (0, 0)) -> None:
        if path in self._known:
            raise ValueError(f"{path} is already in the archive")
        self._known.add(path)
        self._inode += 1
        name = path.encode() + b"\0"
        fields = (
            self._inode, mode, 0, 0, links, 0, len(content),
            0, 0, *device, len(name), 0,
        )  # fmt: skip
        self._stream.write(_padded(b"070701" + b"".join(b"%08x" % field for field in fields) + name))
        self._stream.write(_padded(content))


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
