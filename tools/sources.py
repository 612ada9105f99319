# SPDX-License-Identifier: BSL-1.0
"""Third-party sources for the build. They are pinned in toolchain/sources.toml, fetched as Debian packages or as source distributions of
Python packages, checked and unpacked.

A pin names a version and its SHA-256. If a point release of Debian has replaced that version, the launcher reports this and stops. With
`--accept-newer` it takes the archive's newer version, which the archive's signature protects. The new version and its hash are recorded in
the cache. They replace the pin for this user until toolchain/sources.toml changes.
"""

import contextlib
import dataclasses
import json
import os
import tomllib
from pathlib import Path

from tools import cache, progress, pythons
from tools.archive import Archive, VersionGone, unpack
from tools.errors import DiskFull, Failure
from tools.process import run_logged

REPOSITORY = Path(__file__).resolve().parent.parent
PINS = REPOSITORY / "toolchain/sources.toml"
UNPACK_SECONDS = 600
SDIST_SECONDS = 600

accept_newer = False


@dataclasses.dataclass(frozen=True)
class Pin:
    """One third-party source. `sha256` is the hash of a binary package's file; a source package and a source distribution have `files`
    {name: SHA-256} instead. `is_sdist`: `package` is the name of a Python package."""

    name: str
    package: str
    version: str
    sha256: str = ""
    files: tuple[tuple[str, str], ...] = ()
    directory: str = ""
    debian_patches: tuple[str, ...] = ()
    debian_patches_strip: int = 1
    is_sdist: bool = False

    @property
    def is_source_package(self) -> bool:
        return bool(self.files) and not self.is_sdist

    def identity(self) -> str:
        """Returns all inputs that determine the unpacked source, as text to be hashed."""
        inputs = dataclasses.asdict(self)
        if not self.is_sdist:
            del inputs["is_sdist"]  # so that the hash of the toolchain, which is long to build, stays
        return json.dumps(inputs, sort_keys=True)


def pins(path: Path = PINS) -> dict[str, Pin]:
    """Returns the pins of this checkout. If this user has accepted a newer version for a pin, the pin has the newer version."""
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise Failure(f"cannot read {path.name}: {error}") from None
    accepted = _accepted()
    result = {}
    for name, row in table.items():
        given = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        sdist = given.pop("sdist", None)
        package = sdist or given.pop("source_package", None) or given["package"]
        pin = Pin(
            **{
                **given,
                "is_sdist": sdist is not None,
                "name": name,
                "package": package,
                "files": tuple(sorted(row.get("files", {}).items())),
            }
        )
        newer = accepted.get(name)
        if newer and newer["instead_of"] == pin.version:
            pin = dataclasses.replace(pin, version=newer["version"], sha256=newer["sha256"], files=tuple(sorted(newer["files"].items())))
        result[name] = pin
    return result


def replaced() -> list[str]:
    """Returns the names of the pins for which this user has accepted another version than that of toolchain/sources.toml."""
    table = tomllib.loads(PINS.read_text())
    return [name for name, pin in pins().items() if pin.version != table[name]["version"]]


class Superseded(Exception):
    """A newer version has just been accepted for a pin. Products of the pin now have another hash, so the caller must begin again."""


def fetch(pin: Pin, archive: Archive, into: Path) -> list[Path]:
    """Downloads the files of a pin into a directory and returns their paths. Each file has the pinned hash. A file that exists with the
    right hash is not fetched again. Raises Failure, and leaves no file, if a hash differs. Raises VersionGone if the archive no longer has
    the version, or Superseded if a newer version is accepted instead."""
    if there := _present(pin, into):
        return there
    try:
        for path, _ in _expected(pin, into):
            cache.remove(path)
        _download(pin, archive, into)
    except VersionGone as gone:
        if not accept_newer or not gone.available:
            raise
        newer = dataclasses.replace(pin, version=gone.available[0])
        progress.say(f"neap: {pin.package} {pin.version} is gone; taking {newer.version}, signed by Debian, not tested with Neap")
        _accept(pin, _with_hashes(newer, _download(newer, archive, into)))
        raise Superseded from None
    return _checked(pin, into)


def _checked(pin: Pin, into: Path) -> list[Path]:
    """Returns the pin's files. Raises Failure, and removes them, if one is missing or has another hash than the pinned one."""
    for path, expected in _expected(pin, into):
        actual = cache.file_sha256(path) if path.is_file() else "missing"
        if actual != expected:
            for broken, _ in _expected(pin, into):
                cache.remove(broken)
            raise Failure(
                f"checksum of {path.name} is wrong: {actual[:16]}…, pinned is {expected[:16]}…",
                "the download was removed; start again, and if it stays so, the mirror does not serve what Neap was tested with",
            )
    return _present(pin, into)


def unpack_tree(pin: Pin, files: list[Path], into: Path, log: Path) -> None:
    """Unpacks a package's upstream source as the content of `into`, and applies the Debian patches that its pin names."""
    holding = into.with_name(f"{into.name}.unpack")
    cache.remove(holding)
    cache.remove(into)
    holding.mkdir(parents=True)
    into.mkdir(parents=True)
    if pin.is_source_package:
        upstream = [path for path in files if ".orig.tar" in path.name]
        run_logged(
            ["tar", "-C", str(holding), "-xf", str(next(path for path in files if ".debian.tar" in path.name))],
            log,
            f"unpacking {pin.name}",
        )
        patches = holding / "debian/patches"
    else:
        unpack(files[0], holding)
        upstream = sorted((holding / pin.directory).glob("*.tar.*"))
        patches = holding / pin.directory / "patches"
    if len(upstream) != 1:
        raise Failure(f"{pin.package} {pin.version} does not hold one source archive but {len(upstream)}")
    argv = ["tar", "-C", str(into), "--strip-components=1", "-xf", str(upstream[0])]
    run_logged(argv, log, f"unpacking {pin.name}", timeout_seconds=UNPACK_SECONDS)
    for name in pin.debian_patches:
        apply_patch(patches / name, into, pin.debian_patches_strip, log)
    cache.remove(holding)


def apply_patch(patch: Path, tree: Path, strip: int, log: Path) -> None:
    """Applies one patch. Raises Failure if any part of it does not apply."""
    what = f"patch {patch.name}"
    run_logged(["patch", "--batch", "--silent", "--forward", f"--strip={strip}", f"--directory={tree}", f"--input={patch}"], log, what)


def lwip(archive: Archive | None = None) -> Path:
    """Returns lwIP's source tree in the cache, which is fetched if it is missing."""
    return _source_entry("lwip", archive, lambda pin, files, entry: unpack_tree(pin, files, entry / "tree", entry / "unpack.log")) / "tree"


def boost(archive: Archive | None = None) -> Path:
    """Returns the directory with Boost's headers (`boost/version.hpp` is below it), which is fetched if it is missing."""
    return _source_entry("boost", archive, lambda _pin, files, entry: unpack(files[0], entry / "tree")) / "tree/usr/include"


def quickjs() -> Path:
    """Returns the tree with QuickJS-ng in its folder `upstream-quickjs`, which is fetched if it is missing."""
    return _sdist("quickjs")


def llhttp() -> Path:
    """Returns the tree with llhttp in its folder `lib`, which is fetched if it is missing."""
    return _sdist("llhttp")


def ada() -> Path:
    """Returns the tree with Ada, the parser of URLs, in its folder `ada_url`, which is fetched if it is missing."""
    return _sdist("ada")


def llhttp_tests() -> Path:
    """Returns the tree with llhttp's test vectors in its folder `vendor/llhttp/test`, which is fetched if it is missing."""
    return _sdist("llhttp_tests")


def _sdist(name: str) -> Path:
    pin = pins()[name]
    entry = cache.Entry("sources", f"{name}-{cache.digest(pin.identity())}")
    with entry.making(work=f"fetches {name}") as mine:
        if mine:
            cache.require_space(cache.root(), 400_000_000, f"the source of {name}")
            with progress.step(f"fetching {name} {pin.version}"):
                packages, log = entry.path / "packages", entry.path / "unpack.log"
                _download_sdist(pin, packages, log)
                (tree := entry.path / "tree").mkdir()
                argv = ["tar", "-C", str(tree), "--strip-components=1", "--no-same-owner", "-xf", str(_checked(pin, packages)[0])]
                run_logged(argv, log, f"unpacking {name}", timeout_seconds=UNPACK_SECONDS)
                cache.remove(packages)
    return entry.path / "tree"


def _download_sdist(pin: Pin, into: Path, log: Path) -> None:
    """Lets pip fetch a source distribution. pip also makes the package's metadata, for which it fetches the package's build tools."""
    into.mkdir()
    name = f"{pin.package}=={pin.version}"
    argv = [*pythons.pip(), "download", "--quiet", "--no-deps", "--no-binary", pin.package, "--dest", str(into), name]
    try:
        run_logged(argv, log, f"pip download {name}", timeout_seconds=SDIST_SECONDS)
    except DiskFull:
        raise
    except Failure as failure:
        hint = "check that this machine's pip reaches its package index, and start again"
        raise Failure(f"cannot fetch {name}: {failure.message}", hint, failure.details) from None


def _source_entry(name: str, archive: Archive | None, unpack_into) -> Path:
    while True:
        pin = pins()[name]
        entry = cache.Entry("sources", f"{name}-{cache.digest(pin.identity())}")
        if entry.ready:
            return entry.path
        with contextlib.suppress(Superseded), entry.making(work=f"fetches {name}") as mine:
            if mine:
                cache.require_space(cache.root(), 400_000_000, f"the source of {name}")
                with progress.step(f"fetching {name} {pin.version}"):
                    unpack_into(pin, fetch(pin, archive or Archive(), entry.path / "packages"), entry.path)
                    cache.remove(entry.path / "packages")


def _expected(pin: Pin, into: Path) -> list[tuple[Path, str]]:
    if pin.files:
        return [(into / name, digest) for name, digest in pin.files]
    found = sorted(into.glob(f"{pin.package}_{pin.version.replace(':', '%3a')}_*.deb"))
    return [(found[-1] if found else into / f"{pin.package}_{pin.version}.deb", pin.sha256)]


def _present(pin: Pin, into: Path) -> list[Path]:
    """Returns the pin's files, if all of them exist and are complete; otherwise none."""
    expected = _expected(pin, into)
    if all(path.is_file() and cache.file_sha256(path) == digest for path, digest in expected):
        return [path for path, _ in expected]
    return []


def _download(pin: Pin, archive: Archive, into: Path) -> list[Path]:
    if not pin.is_source_package:
        return archive.download([(pin.package, pin.version)], into)
    archive.download_source(pin.package, pin.version, into)
    upstream_and_debian = f"{pin.package}_{pin.version.split('-')[0]}"
    return sorted(path for path in into.glob(f"{upstream_and_debian}*.tar.*") if path.suffix != ".asc")


def _with_hashes(pin: Pin, files: list[Path]) -> Pin:
    if any(".tar." in path.name for path in files):
        return dataclasses.replace(pin, files=tuple(sorted((path.name, cache.file_sha256(path)) for path in files)))
    return dataclasses.replace(pin, sha256=cache.file_sha256(files[0]))


def accepted_path() -> Path:
    return cache.root() / "accepted.json"


def _accepted() -> dict:
    try:
        return json.loads(accepted_path().read_text())
    except FileNotFoundError:
        return {}
    except (OSError, json.JSONDecodeError) as error:
        raise Failure(f"cannot read {accepted_path()}: {error}", "remove that file") from None


def _accept(pin: Pin, newer: Pin) -> None:
    with cache.lock(accepted_path().with_suffix(".lock")):
        rows = _accepted()
        instead_of = rows.get(pin.name, {}).get("instead_of", pin.version)
        rows[pin.name] = {"instead_of": instead_of, "version": newer.version, "sha256": newer.sha256, "files": dict(newer.files)}
        fresh = accepted_path().with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(rows, indent=2) + "\n")
        fresh.replace(accepted_path())
