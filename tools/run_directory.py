# SPDX-License-Identifier: BSL-1.0
"""Private directories of runs, for sockets and logs. A lock in each shows that its run goes on. So the next run can remove the directory
of a run that was killed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools import cache
from tools.errors import DiskFull, Failure

RUN_PREFIX = "neap-run-"
# A UNIX socket's path may have 108 bytes; the names below the base directory take up to 40 of them.
RUN_BASE_BYTES_MAX = 64


def run_base() -> Path:
    """Returns the parent of runs' directories: the user's runtime directory or the temporary one. Its path must be short enough for UNIX
    sockets."""
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:  # none of the usual ones can be written to
        temporary = None
    for candidate in (os.environ.get("XDG_RUNTIME_DIR"), temporary, "/tmp", "/dev/shm"):
        if not candidate or not os.path.isabs(candidate) or " " in candidate or len(candidate) > RUN_BASE_BYTES_MAX:
            continue
        if os.access(candidate, os.W_OK | os.X_OK):
            return Path(candidate)
    raise Failure("no directory for sockets can be written to", "set XDG_RUNTIME_DIR or TMPDIR to a writable directory with a short name")


def make() -> tuple[Path, int]:
    """Makes a private directory with a lock, which shows that this process lives. Removes directories whose processes have ended."""
    base = run_base()
    for old in base.glob(f"{RUN_PREFIX}*"):
        with contextlib.suppress(OSError):  # another neap may be removing it as well
            if not old.is_dir() or old.is_symlink() or old.stat().st_uid != os.getuid():
                continue
            if (held := cache.try_lock(old / "lock")) is not None:
                shutil.rmtree(old, ignore_errors=True)
                os.close(held)
    # A directory without a locked file would look abandoned, so the directory is locked before it gets its name.
    making = Path(tempfile.mkdtemp(prefix="neap-new-", dir=base))
    lock = cache.try_lock(making / "lock")
    assert lock is not None
    directory = making.with_name(making.name.replace("neap-new-", RUN_PREFIX, 1))
    making.rename(directory)
    return directory, lock


@contextlib.contextmanager
def full_disk_named() -> Iterator[None]:
    """Turns "no space left" in a run's directory into DiskFull, which names the place."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        hint = "make room, or set XDG_RUNTIME_DIR to a directory with a short name on another disk"
        raise DiskFull(f"no space left in {run_base()}, where a run has its sockets and logs", hint) from None
