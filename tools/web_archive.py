# SPDX-License-Identifier: BSL-1.0
"""Packs the files of a web application for the image `webserver`: `./neap run webserver --script PATH`.

The image has no file system. It reads all files from one block, a boot module, whose format apps/webserver/engine/archive.hpp describes.

PATH is a script or a folder. If a package.json is in the script's folder or above it, the whole package is packed, with its node_modules.
Without a package.json, a script is packed with the files that it names by relative paths, and those that they name.
"""

import contextlib
import json
import os
import re
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from tools.errors import Failure, UsageError

# The image that takes a script.
APPLICATION = "webserver"
MAGIC = b"NEAPARC1"
FILES_MAX = 100_000
PATH_BYTES_MAX = 1024
# Larger modules leave little of the machine's memory.
BLOCK_BYTES_MAX = 256 << 20
# Folders that no script reads: version control, and links to the programs of packages.
LEFT_OUT = (".git", ".hg", ".svn", ".bin", ".cache")
PACKAGE = "package.json"
ENTRIES = ("index.js", "index.mjs", "index.cjs", "server.js", "server.mjs")
_NAMED = re.compile(r"""(?:\brequire\s*\(\s*|\bimport\s*\(\s*|\bfrom\s*|\bimport\s+)(["'])(\.{1,2}/[^"'\n]{1,500})\1""")
_SUFFIXES = ("", ".js", ".mjs", ".cjs", ".json", "/index.js")


@contextlib.contextmanager
def modules(application: str, script: str | None) -> Iterator[list[Path]]:
    """Packs the script of `--script`, if one is given, into a file that exists within the `with` block. Raises UsageError if the
    application takes none."""
    if script is None:
        yield []
        return
    if application != APPLICATION:
        raise UsageError(f"--script is for {APPLICATION}, {application} has none")
    block = of(Path(script))
    with tempfile.TemporaryDirectory(prefix="neap-script-") as folder:
        path = Path(folder) / "script.neaparc"
        path.write_bytes(block)
        yield [path]


def of(path: Path) -> bytes:
    """Returns the archive of a script or a folder. Raises UsageError if there is none, and Failure if the files cannot be packed."""
    if path.is_dir():
        root = path.resolve()
        entry = _entry_of_folder(root)
        return pack(_files_below(root), entry)
    if not path.is_file():
        raise UsageError(f"--script: there is no file or folder {path}", "--script server.js")
    script = path.resolve()
    root = _package_of(script)
    if root is None:
        return pack(_named_files(script), script.name)
    return pack(_files_below(root), script.relative_to(root).as_posix())


def pack(files: dict[str, bytes], entry: str) -> bytes:
    """Returns the archive's block. `files`: content by path, relative to the root. Raises Failure if the format has no room for them."""
    if entry not in files:
        raise Failure(f"{entry} is not among the files that were packed")
    if len(files) > FILES_MAX:
        raise Failure(
            f"{len(files):,} files are too many for a web application: at most {FILES_MAX:,}", "leave the development packages out"
        )
    names = sorted(path.encode() for path in files)
    index_bytes = 16 + 16 * len(names)
    at = index_bytes
    records: list[bytes] = []
    pieces: list[bytes] = []
    for name in names:
        content = files[name.decode()]
        records.append(struct.pack("<IIII", at, len(name), at + len(name), len(content)))
        pieces += [name, content, b"\0"]
        at += len(name) + len(content) + 1
        if at > BLOCK_BYTES_MAX:
            raise Failure(
                f"the application's files are larger than {BLOCK_BYTES_MAX >> 20} MiB together", "leave the development packages out"
            )
    return b"".join([MAGIC, struct.pack("<II", len(names), names.index(entry.encode())), *records, *pieces])


def _package_of(script: Path) -> Path | None:
    """Returns the nearest folder at or above the script that has a package.json."""
    return next((folder for folder in script.parents if (folder / PACKAGE).is_file()), None)


def _entry_of_folder(root: Path) -> str:
    """Returns the entry script of a folder: `main` of its package.json, else the first of ENTRIES that exists."""
    wanted: list[str] = list(ENTRIES)
    if (root / PACKAGE).is_file():
        try:
            stated = json.loads((root / PACKAGE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Failure(f"cannot read {root / PACKAGE}: {error}") from None
        main = stated.get("main") if isinstance(stated, dict) else None
        if isinstance(main, str):
            wanted = [main, f"{main}.js", f"{main}/index.js", *wanted]
    for name in wanted:
        path = (root / name).resolve()
        if path.is_file() and path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    raise UsageError(f"--script: {root} has no entry script", f"name it, or add one of {', '.join(ENTRIES)}")


def _files_below(root: Path) -> dict[str, bytes]:
    """Returns all files of a folder. A link to a file is packed as that file; a link to a folder is packed if it leads into `root`."""
    found: dict[str, bytes] = {}
    total = 0
    for path in _walk(root, root, ()):
        name = path.relative_to(root).as_posix()
        _require_name(name)
        content = _read(path)
        total += len(content)
        if total > BLOCK_BYTES_MAX or len(found) >= FILES_MAX:
            raise Failure(
                f"the files below {root} are too many for a boot module: at most {BLOCK_BYTES_MAX >> 20} MiB and {FILES_MAX:,} files",
                "a folder with only the application, and `npm install --omit=dev`",
            )
        found[name] = content
    return found


def _walk(folder: Path, root: Path, above: Sequence[Path]) -> Iterator[Path]:
    """Yields the files below a folder, in order. `above`: the real paths of the folders that lead here, so that links make no loop."""
    real = folder.resolve()
    if real in above:
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise Failure(f"cannot read {folder}: {error.strerror}") from None
    for entry in entries:
        path = folder / entry.name
        if entry.is_dir():
            inside = not entry.is_symlink() or path.resolve().is_relative_to(root)
            if entry.name not in LEFT_OUT and inside:
                yield from _walk(path, root, (*above, real))
        elif entry.is_file():
            yield path


def _named_files(script: Path) -> dict[str, bytes]:
    """Returns a script and the files that it names by relative paths, directly or through others. The script's folder is the root; a
    file outside of it is left out."""
    root = script.parent
    found: dict[str, bytes] = {}
    waiting = [script]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(root).as_posix()
        if name in found:
            continue
        _require_name(name)
        found[name] = _read(path)
        for match in _NAMED.finditer(found[name].decode("utf-8", "replace")):
            target = next((each for suffix in _SUFFIXES if (each := (path.parent / (match[2] + suffix)).resolve()).is_file()), None)
            if target is not None and target.is_relative_to(root):
                waiting.append(target)
    return found


def _require_name(name: str) -> None:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise Failure(f"the name of a file is not UTF-8: {name.encode('utf-8', 'backslashreplace').decode()}", "rename it") from None
    if len(encoded) > PATH_BYTES_MAX or "\\" in name or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        raise Failure(f"a path cannot be packed: {name!r}", "rename it: no backslash, no control character, at most 1,024 bytes")
    assert PurePosixPath(name).as_posix() == name


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
