# SPDX-License-Identifier: BSL-1.0
"""Builds the programs in tests/system/clients that use third-party clients of memcached in Go, JavaScript, Java, and C from Python, and
fetches the packages of npm for tests of the web server.

The compilers and runtimes are Debian's packages (group "system-tests" in packages.py). The clients come from the registries of Go and npm,
pinned by go.sum and package-lock.json, or from Debian, unpacked in the cache. Downloads and programs are entries of the cache, so a machine
that has them needs no network.
"""

import functools
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools import build, cache, debian, packages, progress
from tools.errors import DiskFull, Failure
from tools.process import output_of, run_logged

CLIENTS = build.REPOSITORY / "tests/system/clients"
GO = CLIENTS / "go"
NODE = CLIENTS / "node"
JAVA = CLIENTS / "java"
FETCH_SECONDS = 600
# The settings of the user's Go that say how to reach a registry. All others are set below.
GO_NETWORK_SETTINGS = ("GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOINSECURE", "GOVCS", "GOAUTH")


@functools.cache
def go(name: str) -> list[str]:
    """Returns the command line of the Go program in tests/system/clients/go/`name`, which is built if the cache lacks it."""
    compiler = program("go")
    sources = sorted(path for path in GO.rglob("*") if path.suffix in (".go", ".mod", ".sum"))
    version = output_of([compiler, "version"])
    names = [str(path.relative_to(GO)) for path in sources]
    entry = cache.Entry("client-programs", cache.digest("go", version, *names, *(path.read_bytes() for path in sources)))
    with entry.making(work="builds test clients in Go") as needed:
        if needed:
            network = {setting: os.environ[setting] for setting in GO_NETWORK_SETTINGS if setting in os.environ}
            ordinary = {key: value for key, value in os.environ.items() if not key.startswith("GO")}
            settings = {
                "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
                "GOTOOLCHAIN": "local",
                "GOWORK": "off",
                "CGO_ENABLED": "0",
                "GOMODCACHE": str(cache.root() / "go" / "modules"),
                "GOCACHE": str(cache.root() / "go" / "build"),
            }
            argv = [compiler, "build", "-o", f"{entry.path}/", "./..."]
            _fetch(argv, "the clients in Go", "Go modules", GO, {**ordinary, **network, **settings})
    return [str(entry.path / name)]


@functools.cache
def node(name: str) -> list[str]:
    """Returns the start of the command line of tests/system/clients/node/`name`. Its first argument is the folder of the npm packages,
    which are fetched if the cache lacks them."""
    packages_folder = npm_packages(NODE) / "node_modules"
    return [program("node"), str(NODE / name), str(packages_folder)]


@functools.cache
def npm_packages(folder: Path, *, with_files: bool = False) -> Path:
    """Returns a folder of the cache with the npm packages that `folder`'s package-lock.json pins, in `node_modules`. `with_files`: also
    with the other files of `folder`."""
    npm = program("npm")
    pins = [folder / "package.json", folder / "package-lock.json"]
    files = sorted(path for path in folder.iterdir() if path.is_file()) if with_files else pins
    key = cache.digest(
        "node", *(path.read_bytes() for path in pins), *(f"{path.name}\n{path.read_text()}" for path in files if path not in pins)
    )
    entry = cache.Entry("client-programs", key)
    with entry.making(work="fetches test clients in JavaScript") as needed:
        if needed:
            for path in files:
                shutil.copy(path, entry.path)
            argv = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", str(cache.root() / "npm")]
            _fetch(argv, "the clients in JavaScript", "npm packages", entry.path, os.environ)
    return entry.path


@functools.cache
def java(name: str, package: str, jar: str) -> list[str]:
    """Returns the start of the command line of the class tests/system/clients/java/`name`.java, which uses `jar` of a Debian package."""
    compiler, runtime = program("javac"), program("java")
    library = debian.unpacked(package) / "usr/share/java" / jar
    source = JAVA / f"{name}.java"
    entry = cache.Entry("client-programs", cache.digest("java", source.read_bytes(), str(library), output_of([runtime, "--version"])))
    with entry.making(work="compiles test clients in Java") as needed:
        if needed:
            log = entry.path / "javac.log"
            with progress.step("compiling test clients in Java"):
                run_logged([compiler, "-cp", str(library), "-d", str(entry.path), str(source)], log, "javac", timeout_seconds=FETCH_SECONDS)
    # One compiler thread and the small collector: the program runs for about a second.
    return [runtime, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", f"{library}:{entry.path}", name]


@functools.cache
def debian_python(script: Path, *modules: str) -> tuple[list[str], dict[str, str]]:
    """Returns the start of a command line that runs `script` by Debian's Python with Debian packages of modules, and its environment. So
    tests need no module that PyPI has for few versions of Python."""
    minimal = debian.dependency("python3-minimal", r"python3\.\d+-minimal")
    interpreter = minimal.removesuffix("-minimal")
    root = debian.unpacked(minimal, interpreter, *modules)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"PYTHONHOME": str(root / "usr"), "PYTHONPATH": str(root / "usr/lib/python3/dist-packages")}
    return [*debian.started_in(root, root / "usr/bin" / interpreter), "-B", "-s", str(script)], environment


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        need = next((need.package for need in packages.NEEDS["system-tests"] if need.program == name), name)
        raise Failure(f"tests with clients of others need {name}", f"as root: apt-get install --no-install-recommends {need}")
    return path


def _fetch(argv: Sequence[str], what: str, kind: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Runs a registry's client. An error is one sentence with a remedy."""
    log = cache.root() / "client-programs.log"
    log.unlink(missing_ok=True)
    try:
        with progress.step(f"fetching and building {what} (once)"):
            run_logged(argv, log, f"{Path(argv[0]).name} {argv[1]}", cwd=folder, env=environment, timeout_seconds=FETCH_SECONDS)
    except DiskFull:
        raise
    except Failure as failure:
        hint = f"check that this machine reaches the registry of {kind}, and start again; full log: {log}"
        raise Failure(f"cannot fetch {what}: {failure.message}", hint, failure.details) from None
