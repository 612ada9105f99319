# SPDX-License-Identifier: BSL-1.0
"""Builds all programs of a release, in the folder of the sources that this module belongs to. staging.py runs it.

The programs in Rust are linked statically, and so run on every Linux. A static program must not load the shared libraries of name services.
So the load generator keeps to those inside glibc (bench/load/src/reach.rs). The other programs use numeric addresses and file names.
"""

import os
import shutil
import sys
from pathlib import Path

from tools import build, progress
from tools.errors import Failure
from tools.model import plugin
from tools.process import finished, output_of, run_logged
from tools.release import checks
from tools.release.stage import IMAGE_PRESETS

RUST_TARGET = "x86_64-unknown-linux-gnu"
CRATES = {
    build.SOFT_CARD_CRATE: ("soft82599",),
    build.LOAD_CRATE: ("neap-load", "neap-load-stub"),
    build.WORLD_CRATE: ("neap-world",),
}
CRATE_FETCH_SECONDS = 900
RUSTC_WRAPPER = Path(__file__).with_name("rustc_wrapper.py")


def main() -> int:
    """Each product is checked at once, because a release takes up to an hour. checks.py checks all of them again before they are packed."""
    try:
        os.environ |= rust_environment()
        for crate, programs in CRATES.items():
            checks.require_no_paths(build.REPOSITORY, rust_programs(crate, programs))
        strip(plugin.library())
        checks.require_no_paths(build.REPOSITORY, [plugin.library()])
        for preset in IMAGE_PRESETS:
            built = build.build(preset, [f"{name}.elf" for name in build.applications()])
            checks.require_no_paths(build.REPOSITORY, [built / f"apps/{name}/{name}.elf" for name in build.applications()])
    except Failure as failure:
        print(failure.report(), file=sys.stderr)
        return failure.exit_status
    return 0


def rust_environment() -> dict[str, str]:
    """Returns cargo's settings for a release. Paths of this machine are replaced, and the programs carry no lines of code: names of
    functions are enough for a backtrace, and lines double the size."""
    cargo = build.find_cargo()
    if cargo is None:
        raise Failure(f"no Rust {build.OLDEST_RUSTC[0]}.{build.OLDEST_RUSTC[1]} or newer", "./neap doctor says which packages bring it")
    home = os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo")
    sysroot = output_of([str(Path(cargo).with_name("rustc")), "--print", "sysroot"]).strip()
    # Of several prefixes that match, rustc takes the last one.
    places = {str(Path.home()): "/home", sysroot: "/rust", home: "/cargo", str(build.REPOSITORY): "/neap"}
    flags = ["-Ctarget-feature=+crt-static", *(f"--remap-path-prefix={place}={name}" for place, name in places.items())]
    return {
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
        "CARGO_PROFILE_RELEASE_DEBUG": "none",
        "CARGO_PROFILE_RELEASE_STRIP": "debuginfo",
        "CARGO_INCREMENTAL": "0",
        "RUSTC_WRAPPER": str(RUSTC_WRAPPER),
    }


def rust_programs(crate: build.Crate, programs: tuple[str, ...]) -> list[Path]:
    """Builds the programs of a workspace, and returns their paths, which are those of the usual build. With an explicit target, the flags
    do not apply to build scripts and procedural macros, which cannot be static."""
    fetch_crates(crate)
    argv = ["build", "--release", "--locked", "--offline", "--target", RUST_TARGET]
    build.cargo_run(crate, argv, f"building {crate.title}", crate.folder)
    made = build.BUILD / crate.folder
    (made / "release").mkdir(exist_ok=True)
    built = [made / "release" / program for program in programs]
    for program in built:
        shutil.copyfile(made / RUST_TARGET / "release" / program.name, program)
        program.chmod(0o755)
    return built


def fetch_crates(crate: build.Crate) -> None:
    """Fetches the crates that are not in cargo's directory yet. Raises Failure if the registry cannot be reached."""
    cargo = build.find_cargo()
    argv = [cargo, "fetch", "--locked", "--target", RUST_TARGET]
    if finished([*argv, "--offline"], 120, cwd=crate.source).returncode == 0:
        return
    what = f"fetching the crates of {crate.title}"
    try:
        with progress.step(what):
            run_logged(argv, build.log_path(f"{crate.folder}-crates"), what, cwd=crate.source, timeout_seconds=CRATE_FETCH_SECONDS)
    except Failure as failure:
        hint = "cargo's directory lacks crates of Cargo.lock; make the registry reachable, or fill it by cargo fetch, and start again"
        raise Failure(failure.message, hint, failure.details) from None


def strip(program: Path) -> None:
    """Removes debug information from a plugin. Its names of functions stay for backtraces."""
    output_of(["strip", "--strip-debug", str(program)])
