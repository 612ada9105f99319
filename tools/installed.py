# SPDX-License-Identifier: BSL-1.0
"""Neap installed from a wheel: its tree of sources and products, and the way to a copy of the sources in which compilers run.

The wheel holds a tree like a checkout's, with the products of the build at their usual paths and `release.json` at the top. The tree is in
Python's packages, where the launcher MUST NOT write. So the modules that build (build.py and others) return the products of this tree. A
command that needs a compiler raises MovesToCopy. The launcher (cli.py) then copies the sources into the cache, once for each release, and
executes the copy with the same words. There everything works as in a checkout.

The copy has a release.json that names the tree that it came from. While its sources of a program are unchanged, it takes the product of
that tree. So applications of one's own need the cross compiler, but no Rust.
"""

import dataclasses
import errno
import functools
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from tools import cache, process, progress
from tools.errors import DiskFull, Failure
from tools.foreign import parse_json, read_bounded
from tools.launcher_name import RELEASE_FILE

TREE = Path(__file__).resolve().parent.parent
# Tells a copy of the sources which installed tree it came from. It has priority over the copy's release.json.
VARIABLE = "NEAP_INSTALLED_TREE"
FORMAT = 1
RELEASE_BYTES_MAX = 65536
# The member of release.json that a copy has in addition: the path of the tree that it came from.
COPIED_FROM = "copied_from"
# Files of an installed tree that are not sources.
LEFT_OUT = ("build", RELEASE_FILE)
# A file takes whole blocks of the disk, and its name takes a part of a folder.
BLOCK_BYTES = 4096
# These commands compile nearly always. Others find out when they need a product that the tree lacks.
COMPILING = ("bench", "build", "compare", "packetdrill", "soak", "test")
# These need git's history, or write to the sources.
CHECKOUT_ONLY = ("release",)
REINSTALL = "install it again: pip install --force-reinstall neap-VERSION.whl"


class MovesToCopy(BaseException):
    """The command needs a compiler, so it MUST run in a copy of the sources. Not an Exception, so that no handler of errors stops it."""


@dataclasses.dataclass(frozen=True)
class Release:
    """The contents of release.json. `epoch`: seconds of the commit. `toolchain_sha256`: of the toolchain's archive; None: not published.
    `copied_from`: in a copy of the sources, the tree that it came from."""

    version: str
    commit: str
    epoch: int
    toolchain_key: str = ""
    toolchain_file: str = ""
    toolchain_sha256: str | None = None
    copied_from: str | None = None

    @property
    def name(self) -> str:
        """The name of everything in the cache that belongs to this release."""
        return f"{self.version}-{self.commit}"


def read_release(tree: Path) -> Release | None:
    """Reads a tree's release.json. None if there is none. Raises Failure if it is damaged."""
    path = tree / RELEASE_FILE
    if not path.is_file():
        return None
    broken = Failure(f"{path} is damaged", REINSTALL)
    try:
        table = parse_json(read_bounded(path, RELEASE_BYTES_MAX))
        chain = table.get("toolchain") or {}
        named = (str(table["version"]), str(table["commit"]), int(table["epoch"]))
        release = Release(*named, chain.get("key", ""), chain.get("file", ""), chain.get("sha256"), table.get(COPIED_FROM))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise broken from None
    # Both are parts of file names.
    if table.get("format") != FORMAT or not re.fullmatch(r"[0-9][\w.+~-]*", release.version) or not re.fullmatch(r"\w+", release.commit):
        raise broken
    return release


@functools.cache
def release() -> Release | None:
    """Returns the release of an installed Neap; None in a checkout and in a copy of the sources."""
    found = released()
    return found if found and found.copied_from is None else None


@functools.cache
def origin() -> Path | None:
    """Returns the installed tree from which this copy of the sources was made. None in a checkout, in an installed tree, and if the other
    tree is gone or of another release by now."""
    own = released()
    if own is None or own.copied_from is None:
        return None
    for place in (os.environ.get(VARIABLE), own.copied_from):
        if place and (found := read_release(Path(place))) and (found.name, found.copied_from) == (own.name, None):
            return Path(place)
    return None


@functools.cache
def released() -> Release | None:
    """Returns the release of this tree, or of the tree from which this copy was made. None in a checkout."""
    return read_release(TREE)


def state() -> Path:
    """Returns the directory for logs and locks of an installed Neap, below the cache."""
    current = release()
    assert current, "a checkout keeps them in build/"
    return cache.root() / "installed" / current.name


def product(path: Path, what: str) -> Path:
    """Returns a product of an installed tree. Raises Failure if it is missing."""
    if not path.is_file():
        raise Failure(f"this installation lacks {what}: {path} is missing", REINSTALL)
    return path


def sources(tree: Path, folders: Iterable[str] = ("",)) -> Iterator[Path]:
    """Yields all source files below the folders (or files) of a tree, relative to the tree, in a fixed order. Those of Python's own cache
    are left out, and links, which no source is."""
    for folder in folders:
        top = tree / folder
        if top.is_file():
            yield Path(folder)
            continue
        for directory, names, files in os.walk(top):
            here = Path(directory)
            if here == tree:
                names[:] = [name for name in names if name not in LEFT_OUT]
                files = [name for name in files if name not in (*LEFT_OUT, cache.MARKER)]
            names[:] = sorted(name for name in names if name != "__pycache__")
            yield from (here.relative_to(tree) / name for name in sorted(files) if not name.endswith(".pyc"))


def unchanged(folders: Sequence[str]) -> bool:
    """True if a copy's sources in these folders are those of the tree from which it was made."""
    tree = origin()
    if tree is None:
        return False
    names = list(sources(tree, folders))
    return names == list(sources(TREE, folders)) and all((tree / name).read_bytes() == (TREE / name).read_bytes() for name in names)


def changed() -> list[str]:
    """Returns the files of a copy that differ from the tree from which it was made. Files of the copy that the tree lacks count, too."""
    tree = origin()
    if tree is None:
        return []
    before, now = set(sources(tree)), set(sources(TREE))
    differing = {name for name in before & now if (tree / name).read_bytes() != (TREE / name).read_bytes()}
    return sorted(str(name) for name in differing | (before ^ now))


def taken_over(path: Path, folders: Sequence[str]) -> bool:
    """In a copy with unchanged sources in `folders`: puts the installed tree's product at `path`, and returns True. Otherwise returns
    False."""
    tree = origin()
    if tree is None or not unchanged(folders):
        return False
    theirs = tree / path.relative_to(TREE)
    if not theirs.is_file():
        return False
    if not path.is_file() or (path.stat().st_size, int(path.stat().st_mtime)) != (theirs.stat().st_size, int(theirs.stat().st_mtime)):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with cache.disk_full_named(path.name):
                shutil.copy2(theirs, fresh)
                fresh.chmod(0o755)
                fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    return True


def require_copy() -> None:
    """Returns where compilers may write. In an installed tree, raises MovesToCopy."""
    if release():
        raise MovesToCopy


def require_command(command: str) -> None:
    """Raises Failure for a command that an installed Neap cannot run, and MovesToCopy for one that compiles."""
    if command in CHECKOUT_ONLY and released():
        raise Failure(f"{command} needs a checkout: an installed Neap has no history", "clone its repository, and make the release there")
    if command in COMPILING:
        require_copy()


def make_copy() -> Path:
    """Copies the sources of this installed tree into the cache, if they are not there. Returns the copy's path."""
    current = release()
    assert current
    entry = cache.Entry("source", current.name)
    with entry.making(work="copies Neap's sources") as mine:
        if mine:
            names = list(sources(TREE))
            total = sum((TREE / name).stat().st_size + BLOCK_BYTES for name in names)
            cache.require_space(cache.root(), total, "a copy of Neap's sources")
            with progress.step(f"copying Neap's sources ({len(names)} files, {total / 1e6:.0f} MB) to {entry.path}, once for this version"):
                for name in names:
                    _copy(TREE / name, entry.path / name)
                record = json.loads((TREE / RELEASE_FILE).read_text()) | {COPIED_FROM: str(TREE)}
                (entry.path / RELEASE_FILE).write_text(json.dumps(record, indent=2) + "\n")
    return entry.path


def _copy(source: Path, target: Path) -> None:
    """Copies one file. An installer may have lost a script's permission to run."""
    target.parent.mkdir(parents=True, exist_ok=True)
    data = source.read_bytes()
    try:
        target.write_bytes(data)
    except OSError as error:
        if error.errno == errno.EFBIG:  # a limit of file sizes (ulimit -f)
            raise DiskFull(f"{target}: larger than a file may be here", "raise the limit (ulimit -f), and start again") from None
        raise
    target.chmod(0o755 if data.startswith(b"#!") else 0o644)


def go_on_in_copy(words: Sequence[str]) -> NoReturn:
    """Replaces this process by the copy's launcher with the same words. Signals that arrive meanwhile are delivered to that launcher."""
    place = make_copy()
    progress.say(f"neap: {words[0] if words else ''} goes on in the copy of the sources {place}")
    sys.stdout.flush()
    sys.stderr.flush()
    process.hold_signals()
    program = str(place / "neap")
    os.execve(sys.executable, [sys.executable, program, *words], {**os.environ, VARIABLE: str(TREE)})
