# SPDX-License-Identifier: BSL-1.0
"""Makes a stage: writes the sources of a commit into a new folder and builds all programs there.

The build runs the launcher's own code in that folder (building.py), so a release needs no other rules than those of the usual build. Only
the commit's files are in the folder: files that git does not track, and changes of the checkout, cannot become a part of a release.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tools import boot_programs, cache, packages, progress, toolchain
from tools.errors import Failure
from tools.process import kill_session, spawn, spawn_group, wait_unreaped
from tools.release import version
from tools.release.stage import Stage, commit_of

# Sources, objects and programs of one stage.
STAGE_BYTES = 3_500_000_000
BUILD_SECONDS = 6 * 3600
BUILDING = "tools.release.building"
# Variables by which a user changes what compilers make. A release must not depend on them.
USERS_CHOICE = re.compile(
    r"C(XX|PP)?FLAGS|LDFLAGS|(C|CPLUS)_INCLUDE_PATH|LIBRARY_PATH|CC|CXX|RUSTFLAGS|RUSTC.*|CARGO_BUILD_R.*|CARGO_PROFILE_.*|NEAP_.*"
)


def make(checkout: Path, commit: str, folder: Path, logs: Path, *, snapshot: bool, fresh_objects: bool = False) -> Stage:
    """Builds the commit of a checkout in `folder`, which MUST NOT exist. `fresh_objects`: takes no object from ccache, so that nothing
    comes from another folder. Raises Failure if a step fails; the build's logs are then in the folder `logs`."""
    revision, epoch = commit_of(checkout, commit)
    cache.require_space(folder.parent, STAGE_BYTES, "the build of a release")
    with progress.step(f"writing the sources of {revision[:12]}"):
        write_sources(checkout, revision, folder)
    return build(folder, revision, epoch, logs, snapshot=snapshot, fresh_objects=fresh_objects)


def write_sources(checkout: Path, revision: str, folder: Path) -> None:
    """Writes the files of a commit into a new folder, as `git archive` does. Their rights do not depend on the user's umask."""
    folder.mkdir(parents=True)
    git = spawn(["git", "-C", str(checkout), "archive", "--format=tar", revision], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        with tarfile.open(fileobj=git.stdout, mode="r|") as archive, cache.disk_full_named(f"writing {folder}"):
            for member in archive:
                _write(archive, member, folder)
    except tarfile.TarError as error:
        raise Failure(f"git archive of {revision[:12]} failed: {error}", "git fsck checks the repository") from None
    finally:
        git.stdout.close()
        status = git.wait()
    if status != 0:
        raise Failure(f"git archive of {revision[:12]} failed (status {status})", "git fsck checks the repository")


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    place = folder / member.name
    if member.isdir():
        place.mkdir(exist_ok=True)
        return
    data = archive.extractfile(member) if member.isreg() else None
    if data is None:
        raise Failure(f"{member.name} is no file", "a wheel can hold neither links nor devices")
    place.write_bytes(data.read())
    place.chmod(0o755 if member.mode & 0o100 else 0o644)


def build(folder: Path, revision: str, epoch: int, logs: Path, *, snapshot: bool, fresh_objects: bool = False) -> Stage:
    """Builds the sources in `folder`, and returns the stage."""
    if not toolchain.entry().ready:
        packages.require("toolchain")
    prefix, programs = toolchain.build(), boot_programs.require()
    own = {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {name: value for name, value in os.environ.items() if not USERS_CHOICE.fullmatch(name)} | own
    if fresh_objects:
        environment["CCACHE_RECACHE"] = "1"
    progress.say(f"neap: building the release in {folder}")
    try:
        _run([sys.executable, "-c", f"import sys; from {BUILDING} import main; sys.exit(main())"], folder, environment)
    except BaseException:
        # The stage is removed, so its logs are kept elsewhere.
        cache.remove(logs)
        if (folder / "build/logs").is_dir():
            shutil.copytree(folder / "build/logs", logs)
        raise
    return Stage(
        tree=folder,
        version=version.of_tree(folder),
        revision=revision,
        epoch=epoch,
        soft_card=folder / "build/soft82599/release/soft82599",
        load=folder / "build/load/release/neap-load",
        load_stub=folder / "build/load/release/neap-load-stub",
        toolchain=prefix,
        world=folder / "build/world/release/neap-world",
        boot_programs=programs.root,
        snapshot=snapshot,
    )


def _run(argv: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Runs the build. It prints its steps to standard error, and an error's cause."""
    child = spawn_group(argv, cwd=folder, env=environment)
    try:
        in_time = wait_unreaped(child, BUILD_SECONDS)
    finally:
        kill_session(child)
    if not in_time:
        raise Failure(f"the build of the release took longer than {BUILD_SECONDS // 3600} hours and was stopped")
    if child.returncode != 0:
        raise Failure("the build of the release failed", "the lines above say why; its logs are in build/logs/release of this checkout")
