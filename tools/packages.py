# SPDX-License-Identifier: BSL-1.0
"""The Debian packages that Neap needs on the host, grouped by use.

Each need is checked as a program on PATH or as an installed package, so programs from other sources count too. As root, the launcher
installs missing packages; otherwise it tells the user the command. It never lets apt remove a package.
"""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools import build, cache, progress
from tools import installed as installed_neap
from tools.errors import Failure
from tools.process import command_failure, finished, output_or_none

INSTALL_TIMEOUT_SECONDS = 1800


@dataclasses.dataclass(frozen=True)
class Need:
    """A Debian package that Neap needs. The need is met if `program` is on PATH, or if there is no `program` and dpkg lists the package."""

    package: str
    program: str = ""

    def met(self) -> bool:
        if self.program:
            return shutil.which(self.program) is not None
        return installed(self.package)


XZ = Need("xz-utils", "xz")
PATCH = Need("patch", "patch")
COMPILER = Need("g++", "g++")
GO = (Need("golang-go", "go"),)
CMAKE = (Need("cmake", "cmake"), Need("ninja-build", "ninja"), Need("ccache", "ccache"))

NEEDS: dict[str, tuple[Need, ...]] = {
    "sources": (XZ, PATCH),
    "toolchain": (
        COMPILER,
        Need("make", "make"),
        Need("flex", "flex"),
        Need("bison", "bison"),
        Need("m4", "m4"),
        Need("perl", "perl"),
        Need("libgmp-dev"),
        Need("libmpfr-dev"),
        Need("libmpc-dev"),
        XZ,
        PATCH,
    ),
    "build": (*CMAKE, XZ, PATCH),
    "card": (Need("gcc", "gcc"), Need("libc6-dev")),
    # libFuzzer is written in C++.
    "fuzz": (COMPILER,),
    # tcpdump reads the captures of the soft card.
    "sim-tests": (Need("tcpdump", "tcpdump"),),
    "host-tests": (COMPILER, Need("libgtest-dev"), *CMAKE, XZ, PATCH),
    "python-tests": (Need("python3-venv"),),
    "tools-tests": (Need("binutils", "as"), Need("gnupg", "gpg"), Need("git", "git")),
    # Spin tries every interleaving of a model's steps.
    "model-tests": (Need("spin", "spin"), Need("gcc", "gcc"), Need("libc6-dev")),
    # Chromium renders pages for tests.
    "browser-tests": (Need("chromium", "chromium"), Need("fonts-dejavu-core")),
    "system-tests": (
        Need("netcat-openbsd", "nc"),
        Need("iproute2", "ip"),
        Need("iputils-ping", "ping"),
        Need("netpipe-tcp", "NPtcp"),
        Need("zstd", "zstd"),
        Need("perl", "perl"),
        Need("socat", "socat"),
        # Clients of memcached in Go, JavaScript and Java.
        *GO,
        Need("nodejs", "node"),
        Need("npm", "npm"),
        Need("default-jdk-headless", "javac"),
        # Clients of the web server. Node also serves the same scripts, for comparison.
        Need("curl", "curl"),
        Need("wrk", "wrk"),
        # Empty Debian systems, in which the wheel is installed.
        Need("debootstrap", "debootstrap"),
    ),
    "histories": GO,
    "mutilate": (COMPILER, Need("git", "git")),
    "netpipe": (Need("netpipe-tcp", "NPtcp"),),
    "gdb": (Need("gdb", "gdb"),),
    "serve": (Need("dnsmasq-base", "dnsmasq"),),
    "release": (COMPILER, Need("binutils", "strip"), Need("git", "git")),
    "style": (Need("clang-format-19", "clang-format-19"),),
}

# The groups whose programs write to the sources' build directories.
COMPILING = {"build", "card", "rust", "fuzz", "sources", "sim-tests", "host-tests", "python-tests", "model-tests", "style", "rustfmt"}


def installed(package: str) -> bool:
    argv = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    try:
        done = finished(argv, 30)
    except FileNotFoundError:
        raise Failure("this machine has no dpkg", "Neap runs on Debian 12 or newer") from None
    return done.returncode == 0 and done.stdout.strip() == "installed"


def missing(groups: list[str]) -> list[str]:
    """Returns the packages that are missing for these groups of needs. The groups "rust" and "rustfmt" are checked here, not by NEEDS."""
    lacking: list[str] = []
    for group in groups:
        if group == "rust":
            if build.find_cargo() is None:
                lacking += rust_packages(["cargo", "rustc"])
        elif group == "rustfmt":
            if build.find_rustfmt() is None:
                lacking += rust_packages(["rustfmt"])
        elif group == "python-tests" and output_or_none([sys.executable, "-c", "import ensurepip, venv"]) is not None:
            continue
        else:
            lacking += [need.package for need in NEEDS[group] if not need.met()]
    return list(dict.fromkeys(lacking))


def rust_packages(names: list[str]) -> list[str]:
    """Returns the names of packages with a new enough Rust. In Debian 12 these are packages for browsers, named with `-web`."""
    match = re.search(r"Candidate: (\d+)\.(\d+)", finished(["apt-cache", "policy", "rustc"]).stdout)
    new_enough = match and (int(match.group(1)), int(match.group(2))) >= build.OLDEST_RUSTC
    return names if new_enough else [f"{name}-web" for name in names]


def require(*groups: str) -> None:
    """Makes sure that these groups of needs are met. As root it installs packages, otherwise it raises Failure with the command to run. In
    an installed Neap, raises MovesToCopy for groups with a compiler."""
    if COMPILING & set(groups):
        installed_neap.require_copy()
    lacking = missing(list(groups))
    if not lacking:
        return
    if os.geteuid() != 0:
        raise Failure(f"missing packages: {' '.join(lacking)}", f"run: sudo apt-get install --no-install-recommends {' '.join(lacking)}")
    install(lacking)
    still = missing(list(groups))
    if still:
        raise Failure(f"installed, but still not usable: {' '.join(still)}", "./neap doctor shows what is found where")


def install(names: list[str]) -> None:
    """Runs apt-get install as root. An error raises Failure with apt's last lines."""
    log = cache.root() / "apt-install.log"
    log.unlink(missing_ok=True)
    with progress.step(f"installing {' '.join(names)}"), cache.lock(cache.root() / "apt-install.lock"):
        if not any(Path("/var/lib/apt/lists").glob("*Packages*")):
            _apt_get(["update"], log)
        try:
            _apt_get(["install", "-y", "--no-install-recommends", "--no-remove", *names], log)
        except Failure:
            # The lists may be outdated and name files that the mirror no longer has.
            _apt_get(["update"], log)
            _apt_get(["install", "-y", "--no-install-recommends", "--no-remove", *names], log)


def _apt_get(arguments: list[str], log: Path) -> None:
    """Runs apt-get. It is not killed when this process ends, because a system in which dpkg was killed has to be repaired by hand."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    argv = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *arguments]
    with open(log, "ab") as out:
        out.write(f"$ {' '.join(argv)}\n".encode())
        out.flush()
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment, timeout=INSTALL_TIMEOUT_SECONDS
            )
        except FileNotFoundError:
            raise Failure("this machine has no apt", "Neap runs on Debian 12 or newer") from None
        except subprocess.TimeoutExpired:
            raise Failure(f"apt-get {arguments[0]} took too long", f"full log: {log}") from None
    if done.returncode != 0:
        raise command_failure(f"apt-get {arguments[0]}", log, done.returncode)
