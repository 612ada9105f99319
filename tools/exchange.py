# SPDX-License-Identifier: BSL-1.0
"""Exports the toolchain to a file and imports it on another machine: `./neap toolchain export FILE` and `import FILE`.

The file is a tar archive, compressed by zstd. Its first member states the recipe from which the toolchain was built, and the SHA-256 of
every file. So an import can refuse a damaged archive, or one of another recipe, before anything becomes visible in the cache.

An archive may be hostile. So no file is written through a link that comes from the archive, and at most UNPACKED_BYTES_MAX are written.
"""

import hashlib
import io
import json
import os
import posixpath
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tools import cache, progress, toolchain
from tools.errors import DiskFull, Failure
from tools.foreign import parse_json

FORMAT = "neap-toolchain-1"
MANIFEST = "neap-toolchain.json"
LEVEL = "-10"
MANIFEST_BYTES_MAX = 16_000_000
NEEDED_BYTES = 400_000_000
# Largest total size of the files of an imported toolchain. No real toolchain is so large.
UNPACKED_BYTES_MAX = 10 * NEEDED_BYTES


def export_toolchain(file_name: str) -> None:
    """Writes this checkout's toolchain, which MUST have been built, to a file. An older file is replaced when the new file is complete."""
    place = toolchain.entry()
    if not place.ready:
        raise Failure("there is no toolchain to export yet", "./neap toolchain build makes it")
    target = Path(file_name).absolute()
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with progress.step(f"writing {target.name}"), cache.disk_full_named(f"writing {target}"):
            with open(partial, "wb") as out:
                zstd = subprocess.Popen(["zstd", "-q", LEVEL, "-T0", "-c"], stdin=subprocess.PIPE, stdout=out)
                try:
                    with tarfile.open(fileobj=zstd.stdin, mode="w|", format=tarfile.PAX_FORMAT) as archive:
                        _write(archive, place.path)
                    zstd.stdin.close()
                except BrokenPipeError:
                    pass
                finally:
                    if zstd.wait() != 0:
                        raise DiskFull(f"cannot write {target}: zstd failed; the disk is probably full")
                out.flush()
                os.fsync(out.fileno())
            partial.replace(target)
    except FileNotFoundError:
        raise Failure(f"cannot write {target}: no such directory") from None
    except PermissionError:
        raise Failure(f"cannot write {target}: not allowed") from None
    finally:
        partial.unlink(missing_ok=True)
    print(f"{target} {target.stat().st_size}")


def import_toolchain(file_name: str) -> None:
    """Imports a toolchain from a file into the cache. If the file is damaged or of another recipe, raises Failure and changes nothing."""
    source = Path(file_name)
    if not source.is_file():
        raise Failure(f"there is no file {source}")
    recipe = toolchain.Recipe()
    place = toolchain.entry(recipe)
    if place.ready:
        progress.say("neap: this checkout's toolchain is in the cache already")
        return
    cache.require_space(cache.root(), NEEDED_BYTES, "the toolchain")
    with place.making(work="builds the toolchain") as mine:
        if mine:
            with progress.step(f"reading {source.name}"):
                _read(source, recipe.key(), place.path)
            toolchain.try_compiler(place.path, place.path / "trial", place.path.with_name(f"{place.path.name}.logs") / "import.log")


def _members(prefix: Path) -> Iterator[Path]:
    """Yields all files and links of the prefix in a fixed order, so that two exports of one toolchain are identical."""
    for path in sorted(prefix.rglob("*")):
        if (path.is_symlink() or path.is_file()) and path.name != cache.MARKER:
            yield path


def _write(archive: tarfile.TarFile, prefix: Path) -> None:
    paths = list(_members(prefix))
    digests = {str(path.relative_to(prefix)): cache.file_sha256(path) for path in paths if not path.is_symlink()}
    links = {str(path.relative_to(prefix)): os.readlink(path) for path in paths if path.is_symlink()}
    empty = [str(path.relative_to(prefix)) for path in sorted(prefix.rglob("*")) if path.is_dir() and not any(path.iterdir())]
    manifest = json.dumps({"format": FORMAT, "recipe": toolchain.Recipe().key(), "files": digests, "links": links, "empty": empty}).encode()
    head = tarfile.TarInfo(MANIFEST)
    head.size = len(manifest)
    archive.addfile(head, io.BytesIO(manifest))
    for path in paths:
        member = archive.gettarinfo(path, arcname=f"prefix/{path.relative_to(prefix)}")
        member.type = tarfile.SYMTYPE if path.is_symlink() else tarfile.REGTYPE  # no hard links: each file has its own digest
        member.size = 0 if path.is_symlink() else path.stat().st_size
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        if path.is_symlink():
            archive.addfile(member)
        else:
            with open(path, "rb") as data:
                archive.addfile(member, data)


def _read(source: Path, key: str, prefix: Path) -> None:
    """Unpacks below `prefix` and checks each file against the manifest."""
    zstd = subprocess.Popen(["zstd", "-q", "-d", "-c", str(source)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    broken = Failure(f"{source} is not a whole toolchain export", "nothing was changed; export or copy it again")
    try:
        with tarfile.open(fileobj=zstd.stdout, mode="r|") as archive:
            members = iter(archive)
            manifest = _manifest(archive, next(members, None), broken)
            if manifest["recipe"] != key:
                raise Failure(
                    f"{source} was built from another recipe ({manifest['recipe']}, this checkout's is {key})",
                    "export it from the same version of Neap, or build: ./neap toolchain build",
                )
            files, links = dict(manifest["files"]), dict(manifest["links"])
            left = UNPACKED_BYTES_MAX
            for member in members:
                left -= member.size
                if left < 0:
                    raise broken
                _take(archive, member, files, links, prefix, broken)
            for name in manifest["empty"]:
                _make_folder(_inside(name, prefix, broken), prefix, broken)
        if files or links:
            raise broken
        # The rest of the file is read, so that zstd checks the whole file's checksum.
        while zstd.stdout.read(1 << 20):
            pass
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, OverflowError, NotADirectoryError):
        raise broken from None
    finally:
        zstd.stdout.close()
        status = zstd.wait()
    if status != 0:
        raise broken


def _manifest(archive: tarfile.TarFile, member: tarfile.TarInfo | None, broken: Failure) -> dict:
    data = archive.extractfile(member) if member and member.name == MANIFEST and member.size <= MANIFEST_BYTES_MAX else None
    manifest = parse_json(data.read()) if data else None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise broken
    return manifest


def _inside(name: str, prefix: Path, broken: Failure) -> Path:
    """Returns the path of a name below `prefix`. Raises `broken` for a name that leads out of `prefix`."""
    if not isinstance(name, str) or posixpath.isabs(name) or ".." in name.split("/"):
        raise broken
    return prefix / name


def _make_folder(path: Path, prefix: Path, broken: Failure) -> None:
    """Makes a folder below `prefix`. Raises `broken` if a part of its path is a link, because the link may lead out of `prefix`."""
    if any(parent.is_symlink() for parent in (path, *path.parents) if parent.is_relative_to(prefix) and parent != prefix):
        raise broken
    path.mkdir(parents=True, exist_ok=True)


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, files: dict, links: dict, prefix: Path, broken: Failure) -> None:
    """Unpacks one member, which must be in the manifest, occur once, and be below `prefix`. A link's target must be below `prefix`, too."""
    name = member.name.removeprefix("prefix/")
    path = _inside(name, prefix, broken)
    _make_folder(path.parent, prefix, broken)
    if member.issym():
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
        if links.pop(name, None) != member.linkname or posixpath.isabs(member.linkname) or target.startswith(".."):
            raise broken
        path.symlink_to(member.linkname)
        return
    expected = files.pop(name, None)
    data = archive.extractfile(member) if member.isreg() else None
    if expected is None or data is None or path.exists() or path.is_symlink():
        raise broken
    total = hashlib.sha256()
    with open(path, "wb") as out:
        while piece := data.read(1 << 20):
            total.update(piece)
            out.write(piece)
    if total.hexdigest() != expected:
        raise broken
    path.chmod(0o755 if member.mode & 0o100 else 0o644)
