# SPDX-License-Identifier: BSL-1.0
"""Applications in their own folders, outside this checkout: finds the folder that a word names, and builds its image.

Such a folder has a CMakeLists.txt with `find_package(Neap)` (`./neap new` makes one). It is built into its own `build/<preset>/`, against
this checkout or against the Neap that the environment's NEAP_PREFIX names. CMake chooses the image's name, and the build writes it to
neap-applications.txt in the build directory (cmake/neap_image.cmake).
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from tools import build, build_progress, cache, progress
from tools.errors import Failure, UsageError
from tools.process import run_logged

# The environment variable that names an installed Neap to build against. Without it the build uses this checkout.
PREFIX_VARIABLE = "NEAP_PREFIX"
LIST = "neap-applications.txt"
CONFIG = "lib/cmake/Neap/NeapConfig.cmake"
BUILD_TYPES = {"image": "Release", "image-debug": "Debug"}


@dataclasses.dataclass(frozen=True)
class Application:
    """An application in its own folder, and its image. `ports`: the ports that the launcher forwards."""

    name: str
    image: Path
    ports: tuple[int, ...] = ()


def folder(word: str) -> Path | None:
    """Returns the folder that a word of the command line names. None if the word is one of this checkout's applications, or unknown. Raises
    UsageError if the word can only be a folder, and the folder contains no application."""
    if word in build.applications():
        return None
    path = Path(word).expanduser()
    if "/" not in word and word not in (".", "..") and not (path / "CMakeLists.txt").is_file():
        return None
    if not path.is_dir():
        raise UsageError(f"there is no folder {word}", "./neap new NAME makes an application")
    path = path.resolve()
    if not _wants_neap(path / "CMakeLists.txt"):
        raise UsageError(f"{word} holds no application: no CMakeLists.txt with find_package(Neap)", "./neap new NAME makes one")
    return path


def _wants_neap(lists: Path) -> bool:
    try:
        return "find_package(neap" in lists.read_text(errors="replace").lower()
    except OSError:
        return False


@contextlib.contextmanager
def built(path: Path, preset: str) -> Iterator[Application]:
    """Builds the application in a folder. Inside the `with` block, no other neap builds the application or its libraries."""
    with contextlib.ExitStack() as locks:
        if PREFIX_VARIABLE not in os.environ:
            locks.enter_context(build.building(preset))
        yield locks.enter_context(built_locked(path, preset))


@contextlib.contextmanager
def built_locked(path: Path, preset: str) -> Iterator[Application]:
    """Like built(). The caller MUST hold `building(preset)`."""
    given = os.environ.get(PREFIX_VARIABLE)
    if given is None:
        prefix = build.BUILD / preset
        build.build_locked(preset, ["neap_libraries"])
    else:
        prefix = Path(given).absolute()
        if not (prefix / CONFIG).is_file():
            raise Failure(f"no Neap is installed at {PREFIX_VARIABLE}={given}", "unset it to build against this Neap")
    try:
        (path / "build").mkdir(exist_ok=True)
    except OSError as error:
        raise Failure(f"cannot build in {path}: {error.strerror}", "an application is built in its own folder, in build/") from None
    with cache.lock(path / "build" / f"{preset}.lock", work=f"builds {path}"):
        yield _build(path, preset, prefix)


def _build(path: Path, preset: str, prefix: Path) -> Application:
    directory = path / "build" / preset
    package = (prefix / CONFIG).parent
    arguments = [f"-DCMAKE_TOOLCHAIN_FILE={package / 'toolchain.cmake'}", f"-DNeap_DIR={package}"]
    arguments += [f"-DCMAKE_BUILD_TYPE={BUILD_TYPES[preset]}", f"-DNEAP_LAUNCHER={build.REPOSITORY / 'neap'}"]
    compiler = package / "toolchain-prefix.txt"
    wanted = "\n".join([*arguments, compiler.read_text().strip() if compiler.is_file() else ""])
    stamp = directory / ".neap-configured"
    log = path / "build" / f"{preset}.log"
    log.unlink(missing_ok=True)
    with cache.disk_full_named(f"building {path.name}"):
        build.remove_if_moved(directory, path)
        if not (directory / "build.ninja").is_file() or not stamp.is_file() or stamp.read_text() != wanted:
            cache.remove(directory)
            argv = ["cmake", "-S", str(path), "-B", str(directory), "-G", "Ninja", *arguments]
            with progress.step(f"configuring {path.name} ({preset})"):
                run_logged(argv, log, f"configuring {path.name}", cwd=path, timeout_seconds=600)
            stamp.write_text(wanted)
        argv = ["cmake", "--build", str(directory)]
        with build_progress.building(f"building {path.name} ({preset})", log):
            run_logged(argv, log, f"building {path.name}", cwd=path, timeout_seconds=build.BUILD_TIMEOUT_SECONDS)
    return only_application(directory, path)


def only_application(directory: Path, path: Path) -> Application:
    """Returns the only application that a build directory lists. Raises Failure if there is none, or more than one."""
    try:
        rows = [line.split("\t") for line in (directory / LIST).read_text().splitlines()]
    except FileNotFoundError:
        rows = []
    if len(rows) != 1:
        names = ", ".join(row[0] for row in rows)
        raise Failure(f"{path} has {len(rows)} applications{f' ({names})' if rows else ''}, one is wanted", "see neap_application() there")
    name, image, ports = rows[0]
    if not all(port.isdecimal() and 1 <= int(port) <= 65535 for port in ports.split(",") if port):
        raise Failure(f"{path}: PORTS of {name} takes numbers from 1 to 65535, not {ports}")
    return Application(name, Path(image), tuple(int(port) for port in ports.split(",") if port))


def test(path: Path) -> int:
    """Builds the application in a folder and runs its tests (ctest). Returns the number of passed tests. Raises Failure if one fails."""
    with built(path, "image") as application:
        image = application.image
    directory = path / "build/image"
    log = path / "build/test.log"
    log.unlink(missing_ok=True)
    argv = ["ctest", "--test-dir", str(directory), "--no-tests=error", "--output-on-failure"]
    with progress.step(f"testing {image.name}"):
        run_logged(argv, log, f"testing {path.name}", cwd=path, timeout_seconds=1800)
    return log.read_text(errors="replace").count(" Passed ")
