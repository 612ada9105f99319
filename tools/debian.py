# SPDX-License-Identifier: BSL-1.0
"""Unpacks Debian packages of the machine's own suite into a folder.

Tests and benchmarks use third-party programs (Linux, ethtool, memcached, libmemcached's tools) without installing them. So apt downloads
packages without root rights and checks them against the machine's lists. The packages are unpacked, never configured. The versions are
those in the machine's lists, so they stay the same until the lists change.
"""

import contextlib
import functools
import os
import re
import shlex
import threading
from dataclasses import dataclass
from pathlib import Path

from tools import cache
from tools.errors import Failure
from tools.process import output_of, run_logged

DOWNLOAD_SECONDS = 300
UNPACK_SECONDS = 120
LOOK_UP_SECONDS = 300  # apt needs a second on an idle machine, minutes on a machine that also compiles and emulates
# apt's answers to look-ups depend on these files alone.
APT_STATE = (Path("/var/lib/apt/lists"), Path("/var/lib/dpkg/status"), Path("/etc/apt"))
_UPDATE_HINT = "`apt-get update` brings the machine's package lists up to date"


@dataclass(frozen=True)
class Package:
    """One file of the suite. `file_name` holds name, version and architecture; `digest` is "SHA256:…" or another hash that apt lists."""

    file_name: str
    digest: str


def _apt(argv: list[str]) -> str:
    """Runs a look-up of apt. Answers are kept until apt's files change, because a test run makes dozens of look-ups."""
    state = cache.root() / "apt-answers" / _apt_state()
    path = state / cache.digest(*argv)
    with contextlib.suppress(FileNotFoundError):
        return path.read_text()
    try:
        answer = output_of(argv, timeout_seconds=LOOK_UP_SECONDS)
    except Failure as failure:
        raise Failure(failure.message, failure.hint or _UPDATE_HINT, failure.details) from None
    for outdated in [place for place in state.parent.glob("*") if place != state]:
        cache.remove(outdated)
    new = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    with contextlib.suppress(FileNotFoundError):  # another process may see newer files and remove this folder
        state.mkdir(parents=True, exist_ok=True)
        new.write_text(answer)
        new.replace(path)
    return answer


def _apt_state() -> str:
    """Returns a digest of the names, sizes and times of apt's files."""
    files = [path for place in APT_STATE for path in ([place] if place.is_file() else sorted(place.rglob("*"))) if path.is_file()]
    stats = [(path, path.stat()) for path in files]
    return cache.digest(os.environ.get("APT_CONFIG", ""), *(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in stats))


def resolve(names: list[str]) -> list[Package]:
    """Returns the packages that `apt-get download` would fetch for `names` now. Needs no network."""
    lines = [shlex.split(line) for line in _apt(["apt-get", "download", "--print-uris", *names]).splitlines() if line.startswith("'")]
    found = [Package(file_name=fields[1], digest=fields[3]) for fields in lines if len(fields) >= 4]
    if len(found) != len(names):
        raise Failure(f"apt names {len(found)} files for {len(names)} packages", _UPDATE_HINT)
    return found


def dependency(name: str, pattern: str) -> str:
    """Returns the first direct dependency of `name` that begins with a match of `pattern`, such as a metapackage's real package."""
    for line in _apt(["apt-cache", "depends", "--no-recommends", "--no-suggests", name]).splitlines():
        match = re.fullmatch(r"\s*\|?(?:Pre)?Depends:\s+(\S+)", line)
        if match and re.match(pattern, match[1]):
            return match[1]
    raise Failure(f"package {name} depends on nothing that looks like {pattern}", _UPDATE_HINT)


def with_libraries(names: list[str]) -> list[str]:
    """Returns `names` and every library package that they need, sorted. If a dependency has alternatives, every alternative with a
    library's name is included."""
    options = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    wanted, seen = list(names), set(names)
    while wanted:
        output = _apt(["apt-cache", "depends", *options, *wanted])
        wanted = []
        for line in output.splitlines():
            match = re.fullmatch(r"\s*\|?(?:Pre)?Depends:\s+(z?lib[^\s<>:]+)", line)
            if match and match[1] not in seen:
                seen.add(match[1])
                wanted.append(match[1])
    return sorted(seen)


def digest_of(packages: list[Package]) -> str:
    """Returns a cache key for exactly these packages."""
    return cache.digest(*(f"{package.file_name} {package.digest}" for package in packages))


def unpack(names: list[str], target: Path) -> None:
    """Downloads `names`, and unpacks them into the new folder `target`. The caller removes `packages` and a log beside `target`."""
    archives, log = target.parent / "packages", target.parent / "packages.log"
    archives.mkdir(parents=True, exist_ok=True)
    target.mkdir(exist_ok=True)
    # By default, root's apt downloads as the user `_apt`, which cannot write into a private folder. apt then prints a long warning.
    option = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
    run_logged(["apt-get", *option, "-q", "download", *names], log, "downloading packages", cwd=archives, timeout_seconds=DOWNLOAD_SECONDS)
    for archive in sorted(archives.glob("*.deb")):
        run_logged(["dpkg-deb", "-x", str(archive), str(target)], log, f"unpacking {archive.name}", timeout_seconds=UNPACK_SECONDS)
        archive.unlink()


@functools.cache
def unpacked(*names: str) -> Path:
    """Returns the root of a tree in the cache with `names` and their libraries. The tree is made if it does not exist."""
    everything = with_libraries(list(names))
    entry = cache.Entry("packages", digest_of(resolve(everything)))
    with entry.making() as needed:
        if needed:
            unpack(everything, entry.path / "root")
    return entry.path / "root"


def started_in(root: Path, program: Path) -> list[str]:
    """Returns a command line that starts a program with the libraries of an unpacked tree."""
    libraries = ":".join(str(root / folder) for folder in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"))
    return [str(root / "lib64/ld-linux-x86-64.so.2"), "--library-path", libraries, str(program)]


class DebianProgram:
    """A program of a package of the machine's own suite, with the libraries of that suite. `argv` starts it."""

    def __init__(self, package: str, program: str) -> None:
        root = unpacked(package)
        folders = ("usr/bin", "bin", "usr/sbin", "sbin")
        path = next((root / folder / program for folder in folders if (root / folder / program).is_file()), None)
        if path is None:
            raise Failure(f"Debian's package {package} has no program {program}")
        self.argv = started_in(root, path)
