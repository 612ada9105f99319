# SPDX-License-Identifier: BSL-1.0
"""The cache of things that are made or fetched once per user: the toolchain, QEMU, sources.

The cache is one directory (`$XDG_CACHE_HOME/neap` or `~/.cache/neap`). Each thing is an entry, named by a hash of its inputs. An entry is
complete only if its marker file exists, which is written last. A process that is killed while it makes an entry leaves a directory without
a marker. The next process starts over, or resumes if partial results are kept. Each entry has a lock, so a second process waits for the
first and then finds the entry complete.

A lock is flock on a file beside the entry. The kernel releases it when the holder ends, so no stale lock remains.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import pwd
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from tools import progress
from tools.errors import DiskFull, Failure

MARKER = ".complete"
LOCK_POLL_SECONDS = 0.2
CACHE_HINT = "set XDG_CACHE_HOME to a place you can write"


def root() -> Path:
    """Returns the user's cache directory of Neap, which is made if it does not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(base):  # the XDG specification: a relative path MUST be ignored
        home = os.environ.get("HOME") or ""
        # If HOME is not an absolute path, the user database gives the home directory.
        base = str(Path(home if os.path.isabs(home) else pwd.getpwuid(os.getuid()).pw_dir) / ".cache")
    path = Path(base) / "neap"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"cannot make the cache directory {path}: {error.strerror}", CACHE_HINT) from None
    return path


@contextlib.contextmanager
def lock(path: Path, *, work: str = "", timeout_seconds: float | None = None) -> Iterator[None]:
    """Holds an exclusive lock on the file `path`, which is made if missing. If another process holds the lock, its `work` ("builds image")
    is reported once. Raises Failure after `timeout_seconds` (None: no limit), and if the file cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        hint = CACHE_HINT if path.is_relative_to(root()) else "is it yours to write?"
        raise Failure(f"cannot write to {path.parent}: {error.strerror}", hint) from None
    try:
        start = time.monotonic()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if work:
                    progress.say(f"neap: waiting for another neap that {work}")
                work = ""
                if timeout_seconds is not None and time.monotonic() - start > timeout_seconds:
                    raise Failure(f"another neap has held {path} for {timeout_seconds:.0f} s") from None
                time.sleep(LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Takes the lock if it is free and returns its descriptor, which the caller MUST close. Returns None if the lock is held. `path` may be
    a directory; a file is made if missing."""
    how = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, how | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


class Entry:
    """One thing in the cache, `kind/key`. Other processes see it complete or not at all."""

    def __init__(self, kind: str, key: str):
        self.path = root() / kind / key
        self._lock_path = root() / kind / f"{key}.lock"
        self._name = f"{kind}/{key}"

    @property
    def ready(self) -> bool:
        return (self.path / MARKER).is_file()

    @contextlib.contextmanager
    def making(self, *, keep_partial: bool = False, work: str = "") -> Iterator[bool]:
        """Holds the entry's lock. Yields True if the `with` block has to make the entry, False if another process has completed it
        meanwhile. The block fills `self.path`; the marker is written after the block. If the block raises, the entry's files are removed,
        unless `keep_partial` keeps them for a later process that resumes."""
        with lock(self._lock_path, work=work):
            if self.ready:
                yield False
                return
            if not keep_partial:
                remove(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                with disk_full_named(self._name):
                    yield True
                    self._mark()
            except BaseException:
                if not keep_partial:
                    remove(self.path)
                raise

    def _mark(self) -> None:
        """Writes the marker after all other files have reached the disk, so that a power cut leaves no marker beside empty files."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.sync()
            marker = os.open(self.path / MARKER, os.O_WRONLY | os.O_CREAT, 0o644)
            os.write(marker, b"complete\n")
            os.fsync(marker)
            os.close(marker)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def complete(kind: str) -> list[Path]:
    return [marker.parent for marker in (root() / kind).glob(f"*/{MARKER}")]


@contextlib.contextmanager
def disk_full_named(what: str) -> Iterator[None]:
    """Turns the operating system's "no space left" into DiskFull."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"{what}: no space left on the disk", f"make room in {root()} and start again") from None
        raise


def require_space(path: Path, needed_bytes: int, what: str) -> None:
    """Raises DiskFull if `path`'s file system has less than `needed_bytes` free. Callers check before they write."""
    free_bytes = shutil.disk_usage(path).free
    if free_bytes < needed_bytes:
        raise DiskFull(
            f"{what} needs {needed_bytes / 1e9:.1f} GB free in {path}, there are {free_bytes / 1e9:.1f} GB",
            "make room, or set XDG_CACHE_HOME to a larger disk",
        )


def remove(path: Path) -> None:
    """Removes a file or a tree with any permissions. A missing path is no error."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
        return

    def make_writable(function, name, _error):
        os.chmod(os.path.dirname(name), 0o755)
        os.chmod(name, 0o755)
        function(name)

    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path, onerror=make_writable)


def digest(*parts: str | bytes) -> str:
    """Returns a short name for the given inputs, of 16 hexadecimal digits: SHA-256 over the parts with their lengths."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()[:16]


def file_sha256(path: Path) -> str:
    with open(path, "rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
