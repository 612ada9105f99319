# SPDX-License-Identifier: BSL-1.0
"""Exports the toolchain to a file and imports it on another machine: `./neap toolchain export FILE` and `import FILE|URL`.

The file is a tar archive, compressed by xz, so that Python alone reads it. Its first member states the recipe from which the toolchain was
built, and the SHA-256 of every file. So an import can refuse a damaged archive, or one of another recipe, before anything becomes visible
in the cache.

The hashes inside the archive do not prove its origin. So a release names the hash of its whole archive (release.json), and a user may name
it (`--sha256`, or `#sha256=` in an URL). A download without encryption needs such a hash.

An archive may be hostile. So no file is written through a link that comes from the archive, at most UNPACKED_BYTES_MAX are written, and the
decompressor's memory has a limit.
"""

import contextlib
import hashlib
import io
import json
import lzma
import os
import posixpath
import re
import tarfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tools import cache, download, progress, toolchain
from tools.errors import Failure
from tools.foreign import parse_json, read_bounded

FORMAT = "neap-toolchain-1"
MANIFEST = "neap-toolchain.json"
SUFFIX = ".tar.xz"
# cc1, cc1plus and lto1 share most of their code and follow each other in the archive. A dictionary that reaches from one to the next makes
# the archive smaller: 20 MB, half of what zstd at its level 10 makes.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 << 20}]
DECOMPRESSOR_BYTES_MAX = 200 << 20
EXPORT_SECONDS = 90
MANIFEST_BYTES_MAX = 16_000_000
RELEASE_BYTES_MAX = 1_000_000
NEEDED_BYTES = 400_000_000
# Largest size of an archive, and largest total size of its files. No real toolchain is so large.
ARCHIVE_BYTES_MAX = 400_000_000
UNPACKED_BYTES_MAX = 10 * NEEDED_BYTES
PIECE_BYTES = 1 << 20
SHA256 = re.compile(r"[0-9a-f]{64}")


def archive_name(key: str) -> str:
    """Returns the file name of the archive of the recipe `key`, as releases use it."""
    return f"neap-toolchain-{key}{SUFFIX}"


def export_toolchain(file_name: str) -> None:
    """Writes this checkout's toolchain, which MUST have been built, to a file. In a folder the file gets the name that imports look for. An
    older file is replaced when the new file is complete."""
    place = toolchain.entry()
    if not place.ready:
        raise Failure("there is no toolchain to export yet", "./neap toolchain build makes it")
    target = Path(file_name).absolute()
    if target.is_dir():
        target /= archive_name(place.path.name)
    write_archive(place.path, place.path.name, target)
    print(f"{target} {target.stat().st_size} {cache.file_sha256(target)}")


def write_archive(prefix: Path, key: str, target: Path) -> None:
    """Writes the toolchain at `prefix`, built by the recipe `key`, to the file `target`. Archives of equal toolchains are equal, byte by
    byte, if liblzma has the same version."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    plan = progress.Plan("toolchain", [(f"writing {target.name}", EXPORT_SECONDS)])
    try:
        with plan.run(f"writing {target.name}"), cache.disk_full_named(f"writing {target}"), open(partial, "wb") as out:
            with (
                lzma.open(out, "wb", format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, filters=FILTERS) as packed,
                tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT, bufsize=PIECE_BYTES) as archive,
            ):
                _write(archive, prefix, key)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(target)
    except FileNotFoundError:
        raise Failure(f"cannot write {target}: no such directory") from None
    except PermissionError:
        raise Failure(f"cannot write {target}: not allowed") from None
    finally:
        partial.unlink(missing_ok=True)


def import_toolchain(source: str, sha256: str = "") -> None:
    """Imports a toolchain into the cache from a file or an URL (http, https, file), or from a folder that holds `archive_name`. `sha256` is
    the hash that the file MUST have ("": none is stated). If the file is damaged or of another recipe, raises Failure and changes
    nothing."""
    recipe = toolchain.Recipe()
    place = toolchain.entry(recipe)
    source, stated = _without_fragment(source)
    required = _required_sha256(recipe.key(), [sha256.lower(), stated.lower()])
    if not _is_remote(source) and not _file(source, recipe.key()).is_file():
        raise NotThere(f"there is no file {_file(source, recipe.key())}")
    if place.ready:
        progress.say("neap: the toolchain is in the cache already")
        return
    cache.require_space(cache.root(), NEEDED_BYTES, "the toolchain")
    with place.making(keep_partial=True, work="builds the toolchain") as mine:
        if mine:
            try:
                with _fetched(source, recipe.key(), required, place.path) as file:
                    _import_file(file, recipe.key(), required, place.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    place.path.rmdir()  # kept if it holds parts of a build that resumes later
                raise


def import_named(source: str) -> Path | None:
    """Imports the toolchain that the environment names, and returns its prefix. Returns None if `source` is a folder without an archive of
    this recipe, which then has to be built."""
    key = toolchain.Recipe().key()
    bare, _ = _without_fragment(source)
    progress.say(f"neap: importing the cross compiler from {source} ({toolchain.ARCHIVE_VARIABLE})")
    try:
        import_toolchain(source)
    except (download.Missing, NotThere):
        if not _is_folder(bare):
            raise
        progress.say(f"neap: {bare} has no {archive_name(key)}")
        return None
    return toolchain.entry().path


class NotThere(Failure):
    """There is no such file."""


def _without_fragment(source: str) -> tuple[str, str]:
    """Splits `URL#sha256=HEX` into the URL and the hash."""
    if not download.is_url(source):
        return source, ""
    url, fragment = urllib.parse.urldefrag(source)
    name, _, value = fragment.partition("=")
    if fragment and name != "sha256":
        raise Failure(f"{source}: '#{fragment}' is not '#sha256=' and 64 hexadecimal digits")
    return url, value


def _required_sha256(key: str, stated: list[str]) -> str:
    """Returns the hash that the archive MUST have, from the release and the caller; "" if nothing states one. Raises Failure if they
    differ."""
    for text in stated:
        if text and not SHA256.fullmatch(text):
            raise Failure(f"'{text}' is not a SHA-256 of 64 hexadecimal digits")
    wanted = {text for text in (*stated, _released_sha256(key)) if text}
    if len(wanted) > 1:
        raise Failure(f"two different hashes are named for one archive: {' and '.join(sorted(wanted))}")
    return wanted.pop() if wanted else ""


def _released_sha256(key: str) -> str:
    """Returns the hash of the archive that this release names for its recipe; "" for a checkout, or if the release names none."""
    path = toolchain.RECIPE_DIRECTORY.parent / "release.json"
    try:
        row = parse_json(read_bounded(path, RELEASE_BYTES_MAX))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise Failure(f"cannot read {path}: {error}") from None
    chain = row.get("toolchain") if isinstance(row, dict) else None
    named = chain.get("sha256") if isinstance(chain, dict) and chain.get("key") == key else None
    if named is not None and (not isinstance(named, str) or not SHA256.fullmatch(named)):
        raise Failure(f"{path} names no valid SHA-256 of the toolchain's archive")
    return named or ""


def _is_remote(source: str) -> bool:
    return download.is_url(source) and urllib.parse.urlsplit(source).scheme.lower() != "file"


def _is_folder(source: str) -> bool:
    return not urllib.parse.urlsplit(source).path.endswith(SUFFIX) if _is_remote(source) else _local(source).is_dir()


def _local(source: str) -> Path:
    """Returns the path of a file or folder that is named by its path or by a file URL."""
    if not download.is_url(source):
        return Path(source)
    parts = urllib.parse.urlsplit(source)
    if parts.netloc not in ("", "localhost"):
        raise Failure(f"{source} names a file of another machine")
    return Path(urllib.parse.unquote(parts.path))


def _file(source: str, key: str) -> Path:
    """Returns the path of the archive that `source` names itself or holds as a folder."""
    path = _local(source)
    return path / archive_name(key) if path.is_dir() else path


@contextlib.contextmanager
def _fetched(source: str, key: str, required: str, prefix: Path) -> Iterator[Path]:
    """Yields the archive as a local file. A downloaded file is removed at the end, because it is of no use after an import or an error."""
    if not _is_remote(source):
        yield _file(source, key)
        return
    parts = urllib.parse.urlsplit(source)
    if _is_folder(source):
        parts = parts._replace(path=f"{parts.path.rstrip('/')}/{archive_name(key)}")
    if parts.scheme.lower() == "http" and not required:
        raise Failure("a download by http needs the archive's hash, because http protects nothing", "add --sha256 HEX, or use https")
    path = prefix.with_name(f"{prefix.name}.download")
    with progress.step(f"downloading {parts.path.rsplit('/', 1)[-1]} from {parts.netloc.rpartition('@')[2]}"):
        download.fetch(parts.geturl(), path, ARCHIVE_BYTES_MAX)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _import_file(file: Path, key: str, required: str, prefix: Path) -> None:
    """Unpacks and checks the archive beside `prefix`, and then moves it there. So an import that fails does not touch a stopped build."""
    beside = prefix.with_name(f"{prefix.name}.import")
    cache.remove(beside)
    try:
        with progress.step(f"unpacking {file.name}"):
            beside.mkdir()
            _read(file, key, required, beside)
            toolchain.try_compiler(beside, beside / "trial", prefix.with_name(f"{prefix.name}.logs") / "import.log")
        cache.remove(prefix)
        beside.rename(prefix)
        cache.remove(prefix.with_name(f"{prefix.name}.work"))
    finally:
        cache.remove(beside)


def _members(prefix: Path) -> Iterator[Path]:
    """Yields all files and links of the prefix in a fixed order, so that two exports of one toolchain are identical."""
    for path in sorted(prefix.rglob("*")):
        if (path.is_symlink() or path.is_file()) and path.name != cache.MARKER:
            yield path


def _write(archive: tarfile.TarFile, prefix: Path, key: str) -> None:
    paths = list(_members(prefix))
    digests = {str(path.relative_to(prefix)): cache.file_sha256(path) for path in paths if not path.is_symlink()}
    links = {str(path.relative_to(prefix)): os.readlink(path) for path in paths if path.is_symlink()}
    empty = [str(path.relative_to(prefix)) for path in sorted(prefix.rglob("*")) if path.is_dir() and not any(path.iterdir())]
    manifest = json.dumps({"format": FORMAT, "recipe": key, "files": digests, "links": links, "empty": empty}).encode()
    head = tarfile.TarInfo(MANIFEST)
    head.size = len(manifest)
    archive.addfile(head, io.BytesIO(manifest))
    for path in paths:
        # No hard links, no owner, no time and no umask: an import has none of them, and its export is equal.
        member = tarfile.TarInfo(f"prefix/{path.relative_to(prefix)}")
        if path.is_symlink():
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
            archive.addfile(member)
            continue
        with open(path, "rb") as data:
            found = os.fstat(data.fileno())
            member.size, member.mode = found.st_size, 0o755 if found.st_mode & 0o100 else 0o644
            archive.addfile(member, data)


class Unpacked:
    """Reads the decompressed bytes of one xz stream, with a limit of memory. Raises lzma.LZMAError for damaged data, and EOFError for a
    stream that is cut off."""

    def __init__(self, packed: BinaryIO):
        self._packed = packed
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DECOMPRESSOR_BYTES_MAX)

    def read(self, size: int) -> bytes:
        """Returns at most `size` bytes; none at the end of the stream. The xz format's own checksum is correct then."""
        while not self._decompressor.eof:
            fresh = self._packed.read(PIECE_BYTES) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not fresh:
                raise EOFError
            if data := self._decompressor.decompress(fresh, size):
                return data
        return b""

    def ends_here(self) -> bool:
        """True if the stream is decompressed completely and nothing follows it in the file."""
        return self._decompressor.eof and not self._decompressor.unused_data and not self._packed.read(1)


def _read(source: Path, key: str, required: str, prefix: Path) -> None:
    """Unpacks below `prefix` and checks each file against the manifest. `required` is the hash of the whole file, "" for any."""
    broken = Failure(f"{source} is not a whole toolchain export", "nothing was changed; export or copy it again")
    with open(source, "rb") as packed:
        actual = hashlib.file_digest(packed, "sha256").hexdigest() if required else ""
        if actual != required:
            raise Failure(f"the SHA-256 of {source.name} is {actual}, not {required}", "nothing was changed; download or copy it again")
        packed.seek(0)
        plain = Unpacked(packed)
        try:
            with tarfile.open(fileobj=plain, mode="r|", bufsize=PIECE_BYTES) as archive:
                members = iter(archive)
                manifest = _manifest(archive, next(members, None), broken)
                if manifest["recipe"] != key:
                    raise Failure(
                        f"{source} was built from another recipe ({manifest['recipe']}, this Neap's is {key})",
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
            # The rest of the stream is read, so that its checksum is checked.
            while left >= 0 and (rest := plain.read(PIECE_BYTES)):
                left -= len(rest)
            if files or links or left < 0 or not plain.ends_here():
                raise broken
        except (tarfile.TarError, lzma.LZMAError, EOFError, ValueError, KeyError, TypeError, OverflowError, NotADirectoryError):
            raise broken from None


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
