# SPDX-License-Identifier: BSL-1.0
"""Makes a stage: writes the sources of a commit into a new folder and builds all programs there.

The build runs the launcher's own code in that folder (building.py), so a release needs no other rules than those of the usual build. Only
the commit's files are in the folder: files that git does not track, and changes of the checkout, cannot become a part of a release.
"""

import os
import sys
import tarfile
from pathlib import Path

from tools import cache, packages, progress, toolchain
from tools.errors import Failure
from tools.process import run_logged, spawn
from tools.release import version
from tools.release.stage import Stage, commit_of

# Sources, objects and programs of one stage.
STAGE_BYTES = 3_500_000_000
BUILD_SECONDS = 6 * 3600
BUILDING = "tools.release.building"


def make(checkout: Path, commit: str, folder: Path, log: Path, *, snapshot: bool, fresh_objects: bool = False) -> Stage:
    """Builds the commit of a checkout in `folder`, which MUST NOT exist. `fresh_objects`: takes no object from ccache, so that nothing
    comes from another folder. Raises Failure if a step fails; `log` has the output of git, and the build's logs are below `folder`."""
    revision, epoch = commit_of(checkout, commit)
    cache.require_space(folder.parent, STAGE_BYTES, "the build of a release")
    with progress.step(f"writing the sources of {revision[:12]}"):
        write_sources(checkout, revision, folder)
    return build(folder, revision, epoch, log, snapshot=snapshot, fresh_objects=fresh_objects)


def write_sources(checkout: Path, revision: str, folder: Path) -> None:
    """Writes the files of a commit into a new folder, as `git archive` does. Their rights do not depend on the user's umask."""
    folder.mkdir(parents=True)
    git = spawn(["git", "-C", str(checkout), "archive", "--format=tar", revision], stdout=-1)
    try:
        with tarfile.open(fileobj=git.stdout, mode="r|") as archive, cache.disk_full_named(f"writing {folder}"):
            for member in archive:
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                archive.extract(member, folder, filter="data")
    except tarfile.TarError as error:
        raise Failure(f"git archive of {revision[:12]} failed: {error}", "git fsck checks the repository") from None
    finally:
        git.stdout.close()
        status = git.wait()
    if status != 0:
        raise Failure(f"git archive of {revision[:12]} failed (status {status})", "git fsck checks the repository")


def build(folder: Path, revision: str, epoch: int, log: Path, *, snapshot: bool, fresh_objects: bool = False) -> Stage:
    """Builds the sources in `folder`, and returns the stage."""
    packages.require("build", "card", "rust", "exchange", "release")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C"}
    if fresh_objects:
        environment["CCACHE_RECACHE"] = "1"
    log.unlink(missing_ok=True)
    with progress.step(f"building the release in {folder}"):
        argv = [sys.executable, "-m", BUILDING]
        run_logged(argv, log, "building the release", cwd=folder, env=environment, timeout_seconds=BUILD_SECONDS)
    from tools import boot_programs

    return Stage(
        tree=folder,
        version=version.of_tree(folder),
        revision=revision,
        epoch=epoch,
        soft_card=folder / "build/soft82599/release/soft82599",
        load=folder / "build/load/release/neap-load",
        load_stub=folder / "build/load/release/neap-load-stub",
        toolchain=toolchain.require(),
        world=folder / "build/world/release/neap-world",
        boot_programs=boot_programs.require().root,
        snapshot=snapshot,
    )
