# SPDX-License-Identifier: BSL-1.0
"""Empty Debian systems in folders, to test what a user finds who has nothing but Debian.

A system is made once by debootstrap, in a few minutes, and kept in the cache as an archive. Each test unpacks a copy of its own, which
takes seconds. Only root can do this. A system sees nothing of this host's files: programs and packages are copied in.

    with Chroot(base("trixie"), tmp_path / "trixie") as system:
        done = system.run("python3 --version", seconds=60)
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools import cache, mirror, progress
from tools.archive import CARRIED_SETTINGS
from tools.process import finished, output_of, run_logged

SUITES = ("bookworm", "trixie")
PACKAGES = ("ca-certificates", "python3", "python3-venv")
USER, HOME = "user", "/home/user"
USER_NUMBER = 1000
MAKE_SECONDS = 1800
# Mounts what programs expect of a running system. With `net`, the network has only the loopback interface. The mounts and all processes
# end with the first process.
ENTER = """
set -e
root=$1; shift
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" || true
if [ "$NEAP_LOOPBACK_ONLY" ]; then ip link set lo up; fi
exec chroot --userspec="$1" "$root" env -i HOME="$2" PATH=/usr/local/bin:/usr/bin:/bin LC_ALL=C.UTF-8 sh -c "$3"
"""


def base(suite: str, more: Sequence[str] = ()) -> Path:
    """Returns the archive of a minimal Debian with Python and a user without rights, which is made if the cache lacks it. `more`: further
    packages of the suite."""
    uri = mirror.debian_mirrors()[0]
    key = cache.digest(suite, uri, *PACKAGES, "+", *more)
    entry = cache.Entry("chroots", f"{suite}-{key}")
    archive = entry.path / "root.tar"
    with entry.making(work=f"makes a Debian {suite}") as mine:
        if mine:
            root, log = entry.path / "root", entry.path / "log"
            with progress.step(f"making an empty Debian {suite}{''.join(f' with {name}' for name in more)}"):
                if more:
                    _unpack(base(suite), root)
                    _install(root, more)
                else:
                    argv = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(root), uri]
                    run_logged(argv, log, f"debootstrap of {suite}", timeout_seconds=MAKE_SECONDS)
                    _configure(root)
                shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
                output_of(["tar", "--create", "--file", str(archive), "--directory", str(root), "."], timeout_seconds=600)
            cache.remove(root)
    return archive


def _configure(root: Path) -> None:
    output_of(["chroot", str(root), "useradd", "--create-home", "--uid", str(USER_NUMBER), "--shell", "/bin/sh", USER])
    carried = [line for line in output_of(["apt-config", "dump", "Acquire"]).splitlines() if CARRIED_SETTINGS.match(line)]
    (root / "etc/apt/apt.conf.d/90host").write_text("".join(f"{line}\n" for line in carried))


def _install(root: Path, names: Sequence[str]) -> None:
    """Installs packages of the suite. No service is started in the folder."""
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    script = f"apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends {' '.join(names)}"
    with Chroot(None, root) as system:
        system.must_run(script, user="root", network=True, seconds=MAKE_SECONDS)


def _unpack(archive: Path, root: Path) -> None:
    root.mkdir(parents=True)
    output_of(["tar", "--extract", "--file", str(archive), "--directory", str(root)], timeout_seconds=600)


class Chroot(contextlib.AbstractContextManager):
    """A copy of a system in the folder `root`, which is removed at the end if `archive` was unpacked there."""

    def __init__(self, archive: Path | None, root: Path):
        self.root = root
        self._unpacked = archive is not None
        if archive:
            _unpack(archive, root)

    def __exit__(self, *_exception) -> None:
        if self._unpacked:
            cache.remove(self.root)

    def run(self, script: str, *, seconds: float, user: str = USER, network: bool = False) -> subprocess.CompletedProcess[str]:
        """Runs a shell script. Without `network` only the loopback interface is there. All its processes have ended at the return."""
        argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"])]
        home = HOME if user == USER else "/root"
        argv += ["sh", "-c", ENTER, "sh", str(self.root), user, home, f"cd {home}\n{script}"]
        environment = {**os.environ, "NEAP_LOOPBACK_ONLY": "" if network else "1"}
        if network:
            shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        return finished(argv, seconds, env=environment)

    def must_run(self, script: str, **options) -> str:
        """Like run(), but fails unless the script succeeds. Returns its standard output."""
        done = self.run(script, **options)
        assert done.returncode == 0, f"{script}: status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def write(self, path: str, data: bytes) -> None:
        """Writes a file of the user's."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        os.chown(place, USER_NUMBER, USER_NUMBER)
