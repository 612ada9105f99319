# SPDX-License-Identifier: BSL-1.0
"""Fetches packages of a newer Debian suite without changing the host's system.

A private apt reads Debian 13 and its backports from the mirror that the machine already uses. The private apt has its own lists and an
empty record of installed packages. It downloads packages into the cache and installs nothing. apt checks the archive's signature with the
machine's Debian keyring. Sources that are pinned (toolchain/sources.toml) are also checked by SHA-256.
"""

import contextlib
import os
import platform
import re
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools import cache, mirror, progress
from tools.errors import Failure
from tools.process import output_of, run_logged

SUITE = "trixie"
BACKPORTS = "trixie-backports"
LISTS_MAX_AGE_SECONDS = 24 * 3600
APT_TIMEOUT_SECONDS = 1800
UNPACK_TIMEOUT_SECONDS = 600
# apt's words for a mirror that it cannot reach.
NO_NETWORK = re.compile(r"Temporary failure resolving|Could not resolve|Could not connect|[Cc]onnection timed out|Network is unreachable")
PROGRAMS = ("apt-get", "apt-cache", "apt-config", "dpkg-deb")

# Lets one thread of this process at a time use the private apt. A thread waits for this lock without a message. For other processes there
# is a lock file, and a wait for that lock is reported.
_turn = threading.Lock()

# Settings of the machine's apt configuration that the private apt must copy to reach the network.
CARRIED_SETTINGS = re.compile(
    r"^Acquire::(https?|ftp|tor|mirror|socks5h?|ForceIPv[46]|Retries|Check-Valid-Until|Check-Date)\b", re.IGNORECASE
)

CONFIGURATION = """\
Dir::State "{home}/state";
Dir::State::status "{home}/status";
Dir::Cache "{home}/cache";
Dir::Etc::SourceList "{home}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::Etc::Main "/dev/null";
Dir::Etc::Parts "/dev/null";
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::GzipIndexes "true";
Acquire::Retries "3";
"""


class Archive:
    """The private apt. `system_root` and `keyring` are for tests."""

    def __init__(self, system_root: Path = Path("/"), keyring: Path | None = None):
        if platform.machine() != "x86_64":
            raise Failure(f"Neap's tools run on x86-64 machines only, this is {platform.machine()}")
        if lacking := [program for program in PROGRAMS if shutil.which(program) is None]:
            raise Failure(f"this machine has no {' and no '.join(lacking)}", "Debian's packages are fetched and unpacked by apt and dpkg")
        self._mirrors = mirror.debian_mirrors(system_root)
        self._keyring = keyring or mirror.debian_keyring(system_root)
        self._home = cache.root() / "apt" / cache.digest(SUITE, str(self._keyring), *self._mirrors)
        self._log = self._home / "apt.log"
        self._lock_path = self._home.parent / f"{self._home.name}.lock"

    def candidate(self, package: str, suite: str = SUITE) -> str | None:
        """Returns the package's version in `suite`, from signed lists; None if the suite has no such package."""
        with self._locked():
            self._refresh()
            policy = output_of(["apt-cache", "policy", "-t", suite, package], env=self._environment())
        match = re.search(r"^  Candidate: (\S+)", policy, re.MULTILINE)
        return match.group(1) if match and match.group(1) != "(none)" else None

    def closure(self, package: str, suite: str = SUITE) -> list[tuple[str, str]]:
        """Returns the package and all its dependencies, as (name, version)."""
        with self._locked():
            self._refresh()
            plan = output_of(["apt-get", "install", "--simulate", "-t", suite, package], env=self._environment())
        return re.findall(r"^Inst (\S+) \((\S+) ", plan, re.MULTILINE)

    def download(self, packages: Iterable[tuple[str, str]], into: Path) -> list[Path]:
        """Fetches binary packages (name, version) into a directory and returns the files, in the order asked for. Raises Failure if a
        version is not in the archive or is not downloaded completely."""
        wanted = list(packages)
        into.mkdir(parents=True, exist_ok=True)
        names = [f"{name}={version}" for name, version in wanted]
        with self._locked():
            self._refresh()
            self._require(wanted)
            self._apt(["download", *names], f"downloading {wanted[0][0]}", cwd=into)
        files = []
        for name, version in wanted:
            found = sorted(into.glob(f"{name}_{version.replace(':', '%3a')}_*.deb"))
            if not found:
                raise Failure(f"apt reported the download of {name} {version}, but the file is missing", f"full log: {self._log}")
            files.append(found[-1])
        return files

    def unpack(self, packages: Iterable[tuple[str, str]], root: Path) -> None:
        """Downloads binary packages and unpacks them below `root`, a new directory. Packages of an attempt that was interrupted are not
        downloaded again."""
        wanted = list(packages)
        kept = self.kept(root)
        self._remove_damaged(wanted, kept)
        unpack(self.download(wanted, kept), root, self._log)
        for old in kept.parent.glob(f"{root.parent.name}-*"):  # also those of an older version whose fetch never ended
            cache.remove(old)

    def kept(self, root: Path) -> Path:
        """Returns the directory in which packages stay until all of them are unpacked below `root`."""
        return self._home / "packages" / f"{root.parent.name}-{root.name}"

    def _remove_damaged(self, packages: list[tuple[str, str]], directory: Path) -> None:
        """Removes files of an earlier download that are not what the signed lists say. apt itself compares only their sizes."""
        files = {file.name.replace("%3a", ":").rsplit("_", 1)[0]: file for file in directory.glob("*.deb")}
        there = [(name, version) for name, version in packages if f"{name}_{version}" in files]
        if not there:
            return
        with self._locked():
            self._refresh()
            shown = output_of(["apt-cache", "show", *(f"{name}={version}" for name, version in there)], env=self._environment())
        sums: dict[str, set[str]] = {}
        for stanza in shown.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"(Package|Version|SHA256): ", line))
            sums.setdefault(f"{fields.get('Package')}_{fields.get('Version')}", set()).add(fields.get("SHA256", ""))
        for key, file in files.items():
            if cache.file_sha256(file) not in sums.get(key, ()):
                file.unlink()

    def download_source(self, package: str, version: str, into: Path) -> None:
        """Fetches a source package into a directory: its .dsc and its archives, which are not unpacked."""
        into.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._refresh()
            self._require([(package, version)], source=True)
            self._apt(["source", "--download-only", f"{package}={version}"], f"downloading the source of {package}", cwd=into)

    def versions(self, package: str, source: bool = False) -> list[str]:
        """Returns all versions that the archive has, newest first."""
        with self._locked():
            self._refresh()
            return self._versions([package], source)[package]

    def _versions(self, packages: list[str], source: bool) -> dict[str, list[str]]:
        """Returns the versions of each package, newest first."""
        found: dict[str, dict[str, None]] = {name: {} for name in packages}
        if source:
            for row in output_of(["apt-cache", "madison", *packages], env=self._environment()).splitlines():
                fields = [part.strip() for part in row.split("|")]
                if len(fields) == 3 and fields[2].endswith("Sources") and fields[0] in found:
                    found[fields[0]][fields[1]] = None
        else:
            # `policy` answers from apt's own index. `madison` reads the lists again, which takes 4 s for QEMU's 83 packages.
            name = ""
            for row in output_of(["apt-cache", "policy", *packages], env=self._environment()).splitlines():
                if match := re.fullmatch(r"(\S+):", row):
                    name = match[1]
                elif name in found and (match := re.fullmatch(r" (?:\*\*\*|   ) (\S+) -?\d+", row)):
                    found[name][match[1]] = None
        return {name: list(versions) for name, versions in found.items()}

    def _require(self, wanted: list[tuple[str, str]], source: bool = False) -> None:
        """Updates the lists if they lack a wanted version. If it is still missing, raises VersionGone with the versions that exist."""
        found = self._versions([name for name, _ in wanted], source)
        if all(version in found[name] for name, version in wanted):
            return
        self._refresh(max_age_seconds=0)
        found = self._versions([name for name, _ in wanted], source)
        for name, version in wanted:
            if version not in (there := found[name]):
                instead = f"it has {', '.join(there)}" if there else "nor any other version"
                raise VersionGone(name, version, f"Debian's archive has {name} {version} no longer; {instead}", there)

    def _refresh(self, max_age_seconds: float = LISTS_MAX_AGE_SECONDS) -> None:
        """Updates lists that are older than `max_age_seconds`. Uses the first mirror that has the suites with a valid signature."""
        fresh = self._home / "updated"
        if fresh.is_file() and time.time() - fresh.stat().st_mtime < max(max_age_seconds, 5):
            return
        cache.require_space(cache.root(), 400_000_000, "Debian's package lists")
        first_error: Failure | None = None
        for uri in self._mirrors:
            self._write_configuration(uri)
            try:
                with progress.step("reading Debian's package lists"):
                    self._apt(["update"], "apt-get update")
            except Failure as error:
                first_error = first_error or error
                continue
            fresh.touch()
            return
        if fresh.is_file() and first_error:
            progress.say("neap: Debian's package lists could not be renewed; going on with those from earlier")
            return
        assert first_error is not None
        if any(NO_NETWORK.search(line) for line in first_error.details):
            raise Failure(f"Debian's mirror {self._mirrors[0]} cannot be reached", f"full log: {self._log}", first_error.details)
        raise first_error

    def _write_configuration(self, uri: str) -> None:
        for directory in ("state/lists/partial", "cache/archives/partial"):
            (self._home / directory).mkdir(parents=True, exist_ok=True)
        (self._home / "status").touch()
        signed = f"[signed-by={self._keyring}]"
        (self._home / "sources.list").write_text(
            f"deb {signed} {uri} {SUITE} main\ndeb {signed} {uri} {BACKPORTS} main\ndeb-src {signed} {uri} {SUITE} main\n"
        )
        carried = [line for line in output_of(["apt-config", "dump", "Acquire"]).splitlines() if CARRIED_SETTINGS.match(line)]
        (self._home / "apt.conf").write_text(CONFIGURATION.format(home=self._home) + "\n".join(carried) + "\n")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "APT_CONFIG": str(self._home / "apt.conf"), "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}

    def _apt(self, arguments: list[str], what: str, cwd: Path | None = None) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        run_logged(["apt-get", "-q", *arguments], self._log, what, cwd=cwd, env=self._environment(), timeout_seconds=APT_TIMEOUT_SECONDS)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with _turn, cache.lock(self._lock_path, work="reads packages"):
            yield


class VersionGone(Failure):
    """A pinned version is no longer in the archive."""

    def __init__(self, package: str, version: str, message: str, available: list[str]):
        super().__init__(message, "to take the archive's signed newer version: add --accept-newer")
        self.package = package
        self.version = version
        self.available = available


def private_command(root: Path, program: str, file: str | None = None) -> list[str]:
    """Returns the start of the command line of a program that is unpacked at `root`, with the C library that is unpacked there. `file`: the
    program's file, if it has another name."""
    loader = [f"{root}/usr/lib64/ld-linux-x86-64.so.2", "--library-path", f"{root}/usr/lib/x86_64-linux-gnu"]
    return [*loader, "--argv0", program, f"{root}/usr/bin/{file or program}"]


def unpack(package_files: Path | Iterable[Path], into: Path, log: Path | None = None) -> None:
    """Unpacks the files of one .deb or several below a directory. Runs none of their scripts. The unpacking ends when this process ends, so
    that no later one finds files that still change."""
    files = [package_files] if isinstance(package_files, Path) else list(package_files)
    into.mkdir(parents=True, exist_ok=True)
    log = log or cache.root() / "unpack.log"
    # One shell for all: QEMU has 83 packages, and a session of its own for each costs half a second of CPU time together.
    script = 'into=$1; shift; for file; do dpkg-deb --extract "$file" "$into" || exit; done'
    what = f"unpacking {files[0].name}{f' and {len(files) - 1} more' if len(files) > 1 else ''}" if files else "unpacking nothing"
    argv = ["sh", "-c", script, "sh", str(into), *map(str, files)]
    run_logged(argv, log, what, timeout_seconds=UNPACK_TIMEOUT_SECONDS)
