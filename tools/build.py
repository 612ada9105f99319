# SPDX-License-Identifier: BSL-1.0
"""Builds CMake's presets, with the paths of toolchain and sources, and builds the Rust programs with cargo.

All output is in `build/` of the checkout: `build/<preset>/`, `build/<crate>/` (soft82599, world, load), logs in `build/logs/`. Downloaded
crates are in cargo's own user directory. Compiled objects are in the cache (tools/compile_cache.py), where other clones find them.

In an installed Neap nothing is built: the functions return the products of its tree, and raise MovesToCopy for others (tools/installed.py).
"""

import contextlib
import dataclasses
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools import build_progress, cache, compile_cache, installed, progress, sources, toolchain
from tools.errors import Failure, UsageError
from tools.process import output_or_none, run_logged

REPOSITORY = Path(__file__).resolve().parent.parent
BUILD = REPOSITORY / "build"
CROSS_PRESETS = ("image", "image-debug")
HOST_PRESETS = ("host", "host-thread")
# The presets that build the web server, with its third-party sources.
WEBSERVER_PRESETS = (*CROSS_PRESETS, "host")
SOFT_CARD = BUILD / "soft82599/release/soft82599"
# The program with the card, network, clients and load of the model machine (tools/model).
WORLD = BUILD / "world/release/neap-world"
LOAD = BUILD / "load/release/neap-load"
# A memcached that is slow or wrong in known ways, as a reference for the load generator.
LOAD_STUB = LOAD.with_name("neap-load-stub")
OLDEST_RUSTC = (1, 85)
BUILD_TIMEOUT_SECONDS = 3600
TOOLCHAIN_WORD = "-DNEAP_TOOLCHAIN="
# Seconds for which `./neap test` runs each fuzzer. The host's fuzzers have the same inputs in every such run. New inputs are the task of
# `./neap soak fuzz` and `./neap soak card`. `./neap soak` sets another time for a layer's fuzzers by NEAP_SOAK_SECONDS.
FUZZ_SECONDS = 20


@dataclasses.dataclass(frozen=True)
class Crate:
    """A Rust workspace of this checkout. It is built in `build/<folder>`. `programs`: its products. `made_of`: all its sources, in folders
    and files of the checkout."""

    title: str
    source: Path
    folder: str
    programs: tuple[Path, ...] = ()
    made_of: tuple[str, ...] = ()


CARD_SOURCES = ("sim/soft82599", "drivers/ixgbe/generate_registers.py", "drivers/ixgbe/register_table.py", "drivers/ixgbe/registers.toml")
SOFT_CARD_CRATE = Crate("the soft card", REPOSITORY / "sim/soft82599", "soft82599", (SOFT_CARD,), CARD_SOURCES)
LOAD_CRATE = Crate("the load generator", REPOSITORY / "bench/load", "load", (LOAD, LOAD_STUB), ("bench/load",))
WORLD_SOURCES = (*CARD_SOURCES, "bench/load", "sim/world")
WORLD_CRATE = Crate("the model machine's world", REPOSITORY / "sim/world", "world", (WORLD,), WORLD_SOURCES)
CRATES = (SOFT_CARD_CRATE, LOAD_CRATE, WORLD_CRATE)


def applications() -> list[str]:
    """Returns the applications of this checkout: all folders below apps/ with a main.cpp."""
    return sorted(path.parent.name for path in (REPOSITORY / "apps").glob("*/main.cpp"))


def require_application(name: str) -> None:
    """Raises UsageError with a list of the applications if `name` is none of them."""
    if name not in applications():
        raise UsageError(f"there is no application '{name}'", f"applications: {', '.join(applications()) or 'none'}")


def image(name: str, preset: str = "image") -> Path:
    """Returns the path that an application's boot image has after its build."""
    return BUILD / preset / "apps" / name / f"{name}.elf"


def has_image(target: str, preset: str = "image") -> bool:
    """True if the image that a target like `hello.elf` names exists, up to date or not."""
    return target.endswith(".elf") and image(target.removesuffix(".elf"), preset).is_file()


def configure_arguments(preset: str) -> list[str]:
    """Returns CMake's -D arguments for a preset. Fetches third-party sources and builds the toolchain if necessary."""
    words = [f"-DNEAP_LWIP_SOURCE={sources.lwip()}", f"-DNEAP_BOOST_INCLUDE={sources.boost()}", *compile_cache.launchers()]
    if preset in WEBSERVER_PRESETS:
        words += [
            f"-DNEAP_QUICKJS_SOURCE={sources.quickjs()}",
            f"-DNEAP_LLHTTP_SOURCE={sources.llhttp()}",
            f"-DNEAP_ADA_SOURCE={sources.ada()}",
        ]
    if preset in CROSS_PRESETS:
        words.append(f"{TOOLCHAIN_WORD}{toolchain.require()}")
    if preset == "host":
        words.append(f"-DNEAP_LLHTTP_TESTS_SOURCE={sources.llhttp_tests()}")
        words.append(f"-DNEAP_FUZZ_SECONDS={os.environ.get('NEAP_SOAK_SECONDS', FUZZ_SECONDS)}")
    return words


def log_path(name: str) -> Path:
    return (installed.state() if installed.release() else BUILD) / "logs" / f"{name}.log"


@contextlib.contextmanager
def building(preset: str) -> Iterator[Path]:
    """Holds the lock of a preset's build directory, because two ninjas must not run in one directory."""
    directory = BUILD / preset
    if installed.release():
        yield directory  # nothing replaces it
        return
    with cache.lock(BUILD / f"{preset}.lock", work=f"builds {preset}"):
        yield directory


def build(preset: str, targets: Sequence[str] = ()) -> Path:
    """Configures a preset if its arguments changed, and builds its `targets` (default: all). Returns the build directory."""
    with building(preset) as directory:
        build_locked(preset, targets)
    return directory


def build_locked(preset: str, targets: Sequence[str] = ()) -> None:
    """Like build(), but the caller MUST hold `building(preset)`, and can then use the result before another build changes it."""
    if installed.release():
        if not targets or not all(has_image(target, preset) for target in targets):
            raise installed.MovesToCopy
        return
    configure_locked(preset)
    log = log_path(preset)
    log.unlink(missing_ok=True)
    what = f"building {' '.join(targets) or 'everything'} ({preset})"
    argv = ["cmake", "--build", str(BUILD / preset)]
    if targets:
        argv += ["--target", *targets]
    with build_progress.building(what, log):
        run_logged(argv, log, what, cwd=REPOSITORY, env=compile_cache.environment(REPOSITORY), timeout_seconds=BUILD_TIMEOUT_SECONDS)


def remove_if_moved(directory: Path, source: Path) -> None:
    """Removes a build directory that CMake configured for other sources than those in `source`, and prints a line about it.

    A copied or moved build directory still builds the sources at its old path, and CMake refuses to configure it for another path.
    """
    try:
        text = (directory / "CMakeCache.txt").read_text(errors="replace")
    except OSError:
        return
    found = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.+)$", text, re.MULTILINE)
    # CMake takes the path of the working directory from the shell. It may contain symbolic links.
    if found and Path(found[1]).resolve() != source.resolve():
        place = f"{directory.parent.name}/{directory.name}"
        progress.say(f"neap: {place} was configured for the sources in {found[1]}; it is removed and configured afresh")
        cache.remove(directory)


def configure_locked(preset: str) -> None:
    """Runs CMake if its arguments changed. The caller MUST hold `building(preset)`."""
    arguments = configure_arguments(preset)
    directory = BUILD / preset
    stamp = directory / ".neap-configured"
    wanted = "\n".join(arguments) + "\n"
    remove_if_moved(directory, REPOSITORY)
    if not (directory / "build.ninja").is_file() or not stamp.is_file() or stamp.read_text() != wanted:
        log = log_path(f"{preset}-configure")
        log.unlink(missing_ok=True)
        # CMake cannot change a build directory's compiler, so then the directory is removed and configured anew.
        before = stamp.read_text().splitlines() if stamp.is_file() else []
        if any(word.startswith(TOOLCHAIN_WORD) and word not in arguments for word in before):
            cache.remove(directory)
        with progress.step(f"configuring {preset}"), cache.disk_full_named(f"configuring {preset}"):
            run_logged(["cmake", "--preset", preset, *arguments], log, f"configuring {preset}", cwd=REPOSITORY, timeout_seconds=600)
            stamp.write_text(wanted)


def build_soft_card() -> Path:
    """Builds the soft card (release) with cargo. Returns the path of the program."""
    return _built(SOFT_CARD_CRATE, SOFT_CARD)


def build_world() -> Path:
    """Builds neap-world (release) with cargo: the model machine's card, network and load. Returns the program's path."""
    return _built(WORLD_CRATE, WORLD)


def build_load() -> Path:
    """Builds the load generator (release) and its stub with cargo. Returns the load generator's path."""
    return _built(LOAD_CRATE, LOAD)


def has_programs() -> bool:
    """True if the programs in Rust need no Rust here: this is an installed Neap, or a copy of one with unchanged sources of them."""
    return bool(installed.release()) or all(_taken_over(crate) for crate in CRATES)


def _built(crate: Crate, program: Path) -> Path:
    if installed.release():
        return installed.product(program, crate.title)
    if not _taken_over(crate):
        cargo_run(crate, ["build", "--release", "--locked"], f"building {crate.title}", crate.folder)
    return program


def _taken_over(crate: Crate) -> bool:
    """True in a copy of an installed Neap whose sources of the crate are unchanged. The installed Neap's programs are then in place."""
    if installed.origin() is None:
        return False
    with cache.lock(BUILD / f"{crate.folder}.lock"):
        return bool(crate.programs) and all(installed.taken_over(program, crate.made_of) for program in crate.programs)


def cargo_run(crate: Crate, arguments: Sequence[str], what: str, log_name: str) -> Path:
    """Runs one cargo command in a crate's directory. Returns the path of the log."""
    installed.require_copy()
    if not (crate.source / "Cargo.toml").is_file():
        raise Failure(f"this checkout lacks {crate.title}: no Cargo.toml in {crate.source}")
    program = find_cargo()
    if program is None:
        raise Failure(f"no Rust {OLDEST_RUSTC[0]}.{OLDEST_RUSTC[1]} or newer", "./neap doctor says which packages bring it")
    log = log_path(log_name)
    # Uses the compiler beside this cargo, because another compiler on PATH may be too old.
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(BUILD / crate.folder),
        "CARGO_TERM_COLOR": "never",
        "RUSTC": str(Path(program).with_name("rustc")),
    }
    with cache.lock(BUILD / f"{log_name}.lock"):
        log.unlink(missing_ok=True)
        if arguments[0] == "build":
            # cargo prints its finished steps only to a terminal, unless it is told otherwise.
            environment |= {"CARGO_TERM_PROGRESS_WHEN": "always", "CARGO_TERM_PROGRESS_WIDTH": "80"}
        with build_progress.building(what, log) if arguments[0] == "build" else progress.step(what):
            run_logged([program, *arguments], log, what, cwd=crate.source, env=environment, timeout_seconds=BUILD_TIMEOUT_SECONDS)
    return log


def find_cargo() -> str | None:
    """Returns the first cargo, on PATH or Debian's, that has a new enough rustc beside it."""
    for program in (shutil.which("cargo"), "/usr/bin/cargo"):
        if program and (found := _rustc_version(Path(program).with_name("rustc"))) and found >= OLDEST_RUSTC:
            return program
    return None


def find_rustfmt() -> str | None:
    """Returns a rustfmt that starts, beside find_cargo()'s compiler or on PATH."""
    program = find_cargo()
    for candidate in (Path(program).with_name("rustfmt") if program else None, shutil.which("rustfmt")):
        # rustup creates stand-ins also for programs that are not installed; such a stand-in fails.
        if candidate and output_or_none([str(candidate), "--version"]):
            return str(candidate)
    return None


def _rustc_version(compiler: Path) -> tuple[int, int] | None:
    match = re.match(r"rustc (\d+)\.(\d+)", output_or_none([str(compiler), "--version"]) or "")
    return (int(match.group(1)), int(match.group(2))) if match else None
