# SPDX-License-Identifier: BSL-1.0
import subprocess
import sys
from pathlib import Path

import pytest

from tools import cache, sources
from tools.archive import VersionGone
from tools.errors import Failure
from tools.fake_mirror import FakeMirror

PATCH = "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-upstream\n+patched\n"


@pytest.fixture
def pins_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "sources.toml"
    monkeypatch.setattr(sources, "PINS", path)
    monkeypatch.setattr(sources.pins, "__defaults__", (path,))
    return path


@pytest.fixture
def accepting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "accept_newer", True)


def pin_package(path: Path, name: str, deb: Path, version: str, sha256: str = "") -> None:
    path.write_text(
        f'[boost]\npackage = "{name}"\nversion = "{version}"\nsha256 = "{sha256 or cache.file_sha256(deb)}"\ndirectory = "usr"\n'
    )


def make_source(directory: Path, version: str, text: str = "upstream\n") -> list[Path]:
    """Makes the files of a source package: an upstream archive, and Debian's archive with one patch."""
    (directory / f"thing-{version}").mkdir(parents=True)
    (directory / f"thing-{version}/file").write_text(text)
    (directory / "debian/patches").mkdir(parents=True, exist_ok=True)
    (directory / "debian/patches/fix").write_text(PATCH)
    upstream, debian = directory / f"thing_{version}.orig.tar.xz", directory / f"thing_{version}-1.debian.tar.xz"
    subprocess.run(["tar", "-C", str(directory), "-cJf", str(upstream), f"thing-{version}"], check=True, timeout=60)
    subprocess.run(["tar", "-C", str(directory), "-cJf", str(debian), "debian"], check=True, timeout=60)
    return [upstream, debian]


def pin_source(path: Path, version: str, files: list[Path]) -> None:
    rows = "".join(f'"{file.name}" = "{cache.file_sha256(file)}"\n' for file in files)
    path.write_text(f'[lwip]\nsource_package = "thing"\nversion = "{version}-1"\ndebian_patches = ["fix"]\n[lwip.files]\n{rows}')


def test_headers_of_a_binary_package(mirror: FakeMirror, pins_file: Path) -> None:
    pin_package(pins_file, "libthing-dev", mirror.add_package("libthing-dev", "1", {"usr/include/boost/version.hpp": "1"}), "1")
    assert (sources.boost(mirror.archive()) / "boost/version.hpp").read_text() == "1"
    # The second time, nothing is requested from the mirror.
    cache.remove(mirror.directory)
    assert (sources.boost() / "boost/version.hpp").read_text() == "1"


def test_a_source_package_is_unpacked_and_patched(mirror: FakeMirror, pins_file: Path, tmp_path: Path) -> None:
    files = make_source(tmp_path / "source", "1.0")
    mirror.add_source("thing", "1.0-1", files)
    pin_source(pins_file, "1.0", files)
    assert (sources.lwip(mirror.archive()) / "file").read_text() == "patched\n"


def test_a_wrong_checksum_is_refused_and_leaves_nothing(mirror: FakeMirror, pins_file: Path, own_cache: Path) -> None:
    # The archive's signature is good, but the content differs from the pinned content.
    deb = mirror.add_package("libthing-dev", "1", {"usr/include/boost/version.hpp": "1"})
    pin_package(pins_file, "libthing-dev", deb, "1", sha256="0" * 64)
    with pytest.raises(Failure, match=r"checksum of libthing-dev_1_all.deb is wrong"):
        sources.boost(mirror.archive())
    assert [path for path in (own_cache / "sources").iterdir() if path.suffix != ".lock"] == []


def test_a_patch_that_does_not_fit_leaves_nothing(mirror: FakeMirror, pins_file: Path, own_cache: Path, tmp_path: Path) -> None:
    files = make_source(tmp_path / "source", "1.0", "something else\n")
    mirror.add_source("thing", "1.0-1", files)
    pin_source(pins_file, "1.0", files)
    with pytest.raises(Failure, match="patch fix failed"):
        sources.lwip(mirror.archive())
    assert [path for path in (own_cache / "sources").iterdir() if path.suffix != ".lock"] == []


def test_a_version_that_is_gone_is_an_error_unless_newer_ones_are_accepted(mirror: FakeMirror, pins_file: Path) -> None:
    pin_package(pins_file, "libthing-dev", mirror.add_package("libthing-dev", "1", {"usr/include/boost/version.hpp": "1"}), "1")
    mirror.forget("libthing-dev")
    mirror.add_package("libthing-dev", "2", {"usr/include/boost/version.hpp": "2"})
    with pytest.raises(VersionGone, match="libthing-dev 1 no longer; it has 2"):
        sources.boost(mirror.archive())


def test_an_accepted_newer_version_is_pinned_for_this_user(mirror: FakeMirror, pins_file: Path, accepting: None, monkeypatch) -> None:
    pin_package(pins_file, "libthing-dev", mirror.add_package("libthing-dev", "1", {"usr/include/boost/version.hpp": "1"}), "1")
    mirror.forget("libthing-dev")
    new = mirror.add_package("libthing-dev", "2", {"usr/include/boost/version.hpp": "2"})
    assert (sources.boost(mirror.archive()) / "boost/version.hpp").read_text() == "2"
    monkeypatch.setattr(sources, "accept_newer", False)
    pin = sources.pins()["boost"]
    assert (pin.version, pin.sha256) == ("2", cache.file_sha256(new))
    assert (sources.boost() / "boost/version.hpp").read_text() == "2"
    # The accepted version does not affect a checkout with another pin.
    pin_package(pins_file, "libthing-dev", new, "3")
    assert sources.pins()["boost"].version == "3"


def test_an_accepted_newer_source_package(mirror: FakeMirror, pins_file: Path, accepting: None, tmp_path: Path) -> None:
    pin_source(pins_file, "1.0", make_source(tmp_path / "old", "1.0"))
    mirror.add_source("thing", "1.1-1", make_source(tmp_path / "new", "1.1"))
    assert (sources.lwip(mirror.archive()) / "file").read_text() == "patched\n"
    assert sources.pins()["lwip"].version == "1.1-1"


def test_the_pins_of_this_checkout_can_be_read(own_cache: Path) -> None:
    pins = sources.pins()
    assert {"gcc", "binutils", "newlib", "lwip", "boost"} <= set(pins)
    for pin in pins.values():
        assert all(len(digest) == 64 for digest in ([digest for _, digest in pin.files] or [pin.sha256]))


# ---- source distributions ----


def pip_that_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Replaces pip by a program. `code` has the words of the command line in `words`, and the folder for the download in `folder`."""
    program = tmp_path / "pip.py"
    program.write_text(f"import pathlib, sys\nwords = sys.argv[1:]\nfolder = pathlib.Path(words[words.index('--dest') + 1])\n{code}\n")
    monkeypatch.setattr(sources.pythons, "pip", lambda: [sys.executable, str(program)])


@pytest.fixture
def distribution(tmp_path: Path, pins_file: Path) -> Path:
    """A source distribution, and its pin as `llhttp`."""
    (tmp_path / "thing-1/lib").mkdir(parents=True)
    (tmp_path / "thing-1/lib/file").write_text("upstream\n")
    made = tmp_path / "thing-1.tar.gz"
    subprocess.run(["tar", "-C", str(tmp_path), "-czf", str(made), "thing-1"], check=True, timeout=60)
    pins_file.write_text(f'[llhttp]\nsdist = "thing"\nversion = "1"\n[llhttp.files]\n"{made.name}" = "{cache.file_sha256(made)}"\n')
    return made


def test_a_source_distribution_is_fetched_once(
    distribution: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    copy = f"(folder / {distribution.name!r}).write_bytes(pathlib.Path({str(distribution)!r}).read_bytes())"
    pip_that_writes(tmp_path, monkeypatch, f"assert 'thing==1' in words and '--no-deps' in words\n{copy}")
    assert (sources.llhttp() / "lib/file").read_text() == "upstream\n"
    pip_that_writes(tmp_path, monkeypatch, "sys.exit(1)")
    assert (sources.llhttp() / "lib/file").read_text() == "upstream\n"


@pytest.mark.parametrize(
    "code, says",
    [
        ("(folder / 'thing-1.tar.gz').write_bytes(b'something else')", "checksum of thing-1.tar.gz is wrong"),
        ("pass", "checksum of thing-1.tar.gz is wrong: missing"),
        ("sys.exit('no matching distribution')", "cannot fetch thing==1"),
    ],
)
def test_a_source_distribution_that_is_not_the_pinned_one_leaves_nothing(
    distribution: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path, code: str, says: str
) -> None:
    pip_that_writes(tmp_path, monkeypatch, code)
    with pytest.raises(Failure, match=says):
        sources.llhttp()
    assert [path for path in (own_cache / "sources").iterdir() if path.suffix != ".lock"] == []
