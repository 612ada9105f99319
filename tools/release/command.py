# SPDX-License-Identifier: BSL-1.0
"""`./neap release`: checks the commit, builds it in a new folder, and packs the files of the release.

All files are written into a folder with a temporary name. It gets its own name by one rename, after everything has succeeded. So an error,
Ctrl-C or a full disk leave no release that lacks a file. A folder that a killed process has left is removed by the next release.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tools import build, cache, packages, progress, sources
from tools.errors import Failure
from tools.process import output_of
from tools.release import changes, comparison, staging, version
from tools.release.assembly import assemble
from tools.release.stage import GIT_SECONDS, commit_of

# Folders of the two builds. Their names and lengths differ, so a path in a product shows as a difference.
FIRST, SECOND = "stage", "the second stage, in a folder with another name"
# The files of the second build.
AGAIN = "second"


def release(out: str | None, snapshot: bool, twice: bool) -> int:
    """Makes a release of HEAD. Raises Failure if HEAD cannot be released, or a step fails; the folder `out` then does not exist."""
    packages.require("build", "card", "rust", "release")
    name, revision = require_releasable(build.REPOSITORY, snapshot)
    work = build.BUILD / "release"
    target = Path(out).absolute() if out else work / name
    require_place(target)
    with cache.lock(build.BUILD / "release.lock", work="makes a release"), _locked(target), _folder(work):
        require_place(target)
        partial = target.with_name(f".{target.name}.partial")
        cache.remove(partial)
        try:
            _make(work, FIRST, revision, partial, snapshot)
            if twice:
                _compare(work, revision, partial, snapshot)
            partial.rename(target)
        finally:
            cache.remove(partial)
    for path in sorted(target.iterdir()):
        print(f"{path} {path.stat().st_size}")
    return 0


def require_releasable(checkout: Path, snapshot: bool) -> tuple[str, str]:
    """Returns the release's name and the commit's 40 digits. Raises Failure unless HEAD is clean, carries the tag of its version (if it is
    no snapshot), repeats one version everywhere, has a section in the change log, and is built from the pinned sources."""
    revision, _ = commit_of(checkout, "HEAD")
    changed = output_of(["git", "-C", str(checkout), "status", "--porcelain", "--untracked-files=no"], timeout_seconds=GIT_SECONDS)
    if changed:
        first, *others = [line[3:] for line in changed.splitlines()]
        more = f" and {len(others)} more" if others else ""
        raise Failure(f"this checkout has uncommitted changes: {first}{more}", "a release is made from a commit; commit or stash them")
    found = version.require_equal(checkout)
    tag = f"v{found}"
    tags = output_of(["git", "-C", str(checkout), "tag", "--points-at", "HEAD"], timeout_seconds=GIT_SECONDS).split()
    if not snapshot and tag not in tags:
        hint = f"git tag -a {tag}, if this commit is the release; or add --snapshot"
        raise Failure(f"HEAD ({revision[:12]}) has no tag {tag}", hint)
    changes.section((checkout / "CHANGELOG.md").read_text(), found, snapshot=snapshot)
    if replaced := sources.replaced():
        hint = f"pin the version in toolchain/sources.toml and commit it, or remove {sources.accepted_path()}"
        raise Failure(f"--accept-newer has replaced the pinned version of {', '.join(replaced)}", hint)
    return (f"{found}.dev0+g{revision[:12]}" if snapshot else found), revision


def require_place(target: Path) -> None:
    """Raises Failure if `target` exists, so that no release is mixed with another one."""
    if target.exists() or target.is_symlink():
        raise Failure(f"{target} exists already", "remove it, or name another folder with --out")
    if not os.access(_existing(target.parent), os.W_OK):
        raise Failure(f"{target.parent} is not yours to write", "name another folder with --out")


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)


def _locked(target: Path) -> contextlib.AbstractContextManager[None]:
    """Keeps a release of another checkout out of the same folder."""
    path = cache.root() / "releases" / f"{cache.digest(os.path.realpath(target))}.lock"
    return cache.lock(path, work=f"writes {target}")


@contextlib.contextmanager
def _folder(work: Path) -> Iterator[None]:
    """Removes the stages before and after the release. The logs of a build that failed stay in build/logs/release."""
    work.mkdir(parents=True, exist_ok=True)

    def clear() -> None:
        for name in (FIRST, SECOND, AGAIN):
            cache.remove(work / name)

    clear()
    try:
        yield
    finally:
        clear()


def _make(work: Path, name: str, revision: str, partial: Path, snapshot: bool, fresh_objects: bool = False) -> None:
    """Builds the commit in the folder `name`, and packs it into the folder `partial`."""
    logs = build.BUILD / "logs/release"
    stage = staging.make(build.REPOSITORY, revision, work / name, logs, snapshot=snapshot, fresh_objects=fresh_objects)
    partial.mkdir(parents=True)
    with cache.disk_full_named(f"writing {partial}"):
        assemble(stage, partial)
    cache.remove(stage.tree)


def _compare(work: Path, revision: str, partial: Path, snapshot: bool) -> None:
    """Makes the release again and compares. The second build takes no object of the first one out of ccache."""
    again = work / AGAIN
    cache.remove(again)
    try:
        _make(work, SECOND, revision, again, snapshot, fresh_objects=True)
        found = comparison.difference(partial, again)
        if found:
            kept = work / "differing"
            cache.remove(kept)
            kept.mkdir()
            shutil.move(partial, kept / "first")
            shutil.move(again, kept / "second")
            raise Failure(f"two builds of {revision[:12]} differ: {found}", f"both are in {kept}")
        progress.say("neap: both builds are equal, byte by byte")
    finally:
        cache.remove(again)
