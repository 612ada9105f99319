# SPDX-License-Identifier: BSL-1.0
"""Tests of the toolchain's export and import, with a toolchain that is built in no time and a web server on loopback."""

import json
import lzma
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import cache, download, exchange, toolchain
from tools.conftest import neap, on_small_disk
from tools.errors import Failure
from tools.fake_toolchain import Trial
from tools.fake_web import FakeWeb, Page
from tools.process import finished


@pytest.fixture
def exported(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    """An exported toolchain in a file. The test then has a new, empty cache."""
    built = toolchain.build(trial.mirror.archive())
    os.link(built / "bin/x86_64-neap-elf-g++", built / "bin/linked")  # as those that GCC installs
    (built / "bin/x86_64-neap-elf-g++").chmod(0o775)
    file = tmp_path / "chain.tar.xz"
    exchange.export_toolchain(str(file))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert toolchain.find() is None
    return file


def nothing_made() -> bool:
    place = toolchain.entry()
    return not place.ready and not place.path.exists()


def test_an_exported_toolchain_is_imported(exported: Path, tmp_path: Path) -> None:
    exchange.import_toolchain(str(exported))
    there = toolchain.find()
    done = finished(["diff", "-r", "--no-dereference", str(tmp_path / "cache/neap/toolchain" / there.name), str(there)])
    assert done.returncode == 0, done.stdout
    assert (there / "bin/x86_64-neap-elf-g++").stat().st_mode & 0o111
    exchange.import_toolchain(str(exported))  # importing the same file again changes nothing


def test_the_exports_of_a_built_and_of_an_imported_toolchain_are_identical(exported: Path, tmp_path: Path) -> None:
    exchange.import_toolchain(str(exported))
    again = tmp_path / "again.tar.xz"
    exchange.export_toolchain(str(again))
    assert cache.file_sha256(again) == cache.file_sha256(exported)


def test_another_recipes_toolchain_is_refused(exported: Path, trial: Trial) -> None:
    recipe = trial.directory / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("both", "two"))
    with pytest.raises(Failure, match="was built from another recipe"):
        exchange.import_toolchain(str(exported))
    assert nothing_made()


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.98])
def test_a_truncated_file_is_refused(exported: Path, kept: float) -> None:
    data = exported.read_bytes()
    exported.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(Failure, match="is not a whole toolchain export"):
        exchange.import_toolchain(str(exported))
    assert nothing_made()


def test_a_flipped_bit_is_refused(exported: Path) -> None:
    data = bytearray(exported.read_bytes())
    data[len(data) // 2] ^= 1
    exported.write_bytes(data)
    with pytest.raises(Failure, match="is not a whole toolchain export"):
        exchange.import_toolchain(str(exported))
    assert nothing_made()


@pytest.mark.parametrize("change", ["content", "name", "missing", "outside", "link"])
def test_a_valid_archive_that_differs_from_its_manifest_is_refused(exported: Path, tmp_path: Path, change: str) -> None:
    # The archive is packed again, so the checksums of xz and tar are right. Only the manifest's checksums can detect the change.
    plain = tmp_path / "plain.tar"
    plain.write_bytes(lzma.decompress(exported.read_bytes()))
    changed = tmp_path / "changed.tar"
    with tarfile.open(plain) as old, tarfile.open(changed, "w") as new:
        for member in old:
            data = old.extractfile(member) if member.isreg() else None
            if member.name.endswith("g++") and change == "missing":
                continue
            if member.name.endswith("g++") and change in ("name", "outside"):
                member.name = "prefix/bin/other" if change == "name" else "prefix/../../escaped"
            if member.issym() and change == "link":
                member.linkname = "/etc/passwd"
            if member.name.endswith("g++") and change == "content":
                data = open(__file__, "rb")  # noqa: SIM115
            new.addfile(member, data)
    exported.write_bytes(lzma.compress(changed.read_bytes()))
    with pytest.raises(Failure, match="is not a whole toolchain export"):
        exchange.import_toolchain(str(exported))
    assert nothing_made()
    assert not list(tmp_path.rglob("escaped"))


def test_nothing_to_export_is_an_error(trial: Trial, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no toolchain to export yet"):
        exchange.export_toolchain(str(tmp_path / "file"))
    assert not (tmp_path / "file").exists()


def test_an_export_that_does_not_fit_leaves_no_file(exported: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    program = f"""
import os, sys
from pathlib import Path
from tools import exchange, toolchain
from tools.errors import Failure
os.environ["XDG_CACHE_HOME"] = {str(tmp_path / "cache")!r}
toolchain.RECIPE_DIRECTORY = Path({str(tmp_path / "recipe")!r})
(Path({str(small)!r}) / "fill").write_bytes(bytes(64 << 10))
try:
    exchange.export_toolchain({str(small / "file")!r})
except Failure as failure:
    print(failure.report())
print(sorted(os.listdir({str(small)!r})))
"""
    done = on_small_disk(small, "64k", program)
    assert "no space left" in done.stdout or "disk is probably full" in done.stdout, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "['fill']"


def test_the_launcher_refuses_a_missing_file() -> None:
    done = neap("toolchain", "import", "/no/such/file")
    assert (done.returncode, done.stderr) == (1, "neap: error: there is no file /no/such/file\n")


def test_bytes_after_the_archive_are_refused(exported: Path) -> None:
    with open(exported, "ab") as file:
        file.write(b"more")
    with pytest.raises(Failure, match="is not a whole toolchain export"):
        exchange.import_toolchain(str(exported))
    assert nothing_made()


def test_an_archive_that_needs_too_much_memory_is_refused(exported: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 512 << 20}]
    exported.write_bytes(lzma.compress(lzma.decompress(exported.read_bytes()), filters=filters))
    with pytest.raises(Failure, match="is not a whole toolchain export"):
        exchange.import_toolchain(str(exported))


def test_an_export_into_a_folder_has_the_name_that_imports_look_for(exported: Path, tmp_path: Path) -> None:
    exchange.import_toolchain(f"file://{exported}")
    (tmp_path / "folder").mkdir()
    exchange.export_toolchain(str(tmp_path / "folder"))
    assert [path.name for path in (tmp_path / "folder").iterdir()] == [f"neap-toolchain-{toolchain.Recipe().key()}.tar.xz"]


# ---- hashes ----


def test_a_stated_hash_is_required(exported: Path) -> None:
    with pytest.raises(Failure, match="the SHA-256 of chain.tar.xz is [0-9a-f]{64}, not 0000"):
        exchange.import_toolchain(str(exported), "0" * 64)
    with pytest.raises(Failure, match="'12' is not a SHA-256 of 64 hexadecimal digits"):
        exchange.import_toolchain(str(exported), "12")
    assert nothing_made()
    exchange.import_toolchain(str(exported), cache.file_sha256(exported).upper())
    assert toolchain.find()


def test_the_hash_that_the_release_names_is_required(exported: Path, trial: Trial) -> None:
    release = trial.directory.parent / "release.json"
    release.write_text(json.dumps({"format": 1, "toolchain": {"key": toolchain.Recipe().key(), "sha256": "0" * 64}}))
    with pytest.raises(Failure, match="the SHA-256 of chain.tar.xz is"):
        exchange.import_toolchain(str(exported))
    with pytest.raises(Failure, match="two different hashes are named for one archive"):
        exchange.import_toolchain(str(exported), cache.file_sha256(exported))
    assert nothing_made()
    for chain in ({"key": "another", "sha256": "0" * 64}, {"key": toolchain.Recipe().key(), "sha256": None}):
        release.write_text(json.dumps({"format": 1, "toolchain": chain}))
        exchange.import_toolchain(str(exported))
        cache.remove(toolchain.find())
    release.write_text("{")
    with pytest.raises(Failure, match="release.json"):
        exchange.import_toolchain(str(exported))


# ---- URLs, and the variable of the environment ----


@pytest.fixture
def web(exported: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWeb]:
    """A web server with the exported archive in the folder /chains, under the name that imports look for."""
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)
    fake = FakeWeb()
    fake.pages[f"/chains/neap-toolchain-{toolchain.Recipe().key()}.tar.xz"] = Page(exported.read_bytes(), {"ETag": '"1"'}, cuts=[100])
    yield fake
    fake.close()


def named(web: FakeWeb) -> str:
    return web.url + next(iter(web.pages))


def test_a_toolchain_is_imported_from_an_url(web: FakeWeb, exported: Path) -> None:
    exchange.import_toolchain(f"{named(web)}#sha256={cache.file_sha256(exported)}")
    there = toolchain.find()
    assert there
    assert [asked for _, asked in web.requests] == ["", "bytes=100-"]
    assert sorted(path.suffix for path in there.parent.iterdir()) == ["", ".lock", ".logs"]


def test_http_needs_a_hash(web: FakeWeb) -> None:
    with pytest.raises(Failure, match="a download by http needs the archive's hash"):
        exchange.import_toolchain(named(web))
    assert web.requests == [] and nothing_made()


def test_a_download_with_a_wrong_hash_is_removed(web: FakeWeb) -> None:
    with pytest.raises(Failure, match="the SHA-256 of .* not 0000"):
        exchange.import_toolchain(named(web), "0" * 64)
    assert nothing_made()
    assert not list(toolchain.entry().path.parent.glob("*.download*"))


@pytest.mark.parametrize("kind", ["file", "folder", "url", "url of a folder"])
def test_the_environment_names_a_toolchain_that_is_imported_before_a_build(
    web: FakeWeb, exported: Path, trial: Trial, monkeypatch: pytest.MonkeyPatch, capsys, kind: str
) -> None:
    folder = exported.parent / "folder"
    folder.mkdir()
    (folder / exchange.archive_name(toolchain.Recipe().key())).write_bytes(exported.read_bytes())
    sum_ = f"#sha256={cache.file_sha256(exported)}"
    sources = {"file": str(exported), "folder": str(folder), "url": named(web) + sum_, "url of a folder": f"{web.url}/chains/{sum_}"}
    monkeypatch.setenv(toolchain.ARCHIVE_VARIABLE, sources[kind])
    ran = trial.ran()
    assert not toolchain.must_be_built()
    assert toolchain.require() == toolchain.find()
    assert trial.ran() == ran
    assert f"importing the cross compiler from {sources[kind].split('#')[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["folder", "url of a folder"])
def test_a_folder_without_this_recipes_toolchain_means_a_build(
    web: FakeWeb, trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    web.pages.clear()
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv(toolchain.ARCHIVE_VARIABLE, str(tmp_path / "folder") if kind == "folder" else f"{web.url}/chains#sha256={'0' * 64}")
    built: list[Path] = []
    monkeypatch.setattr(toolchain, "build", lambda: built.append(tmp_path) or tmp_path)
    assert toolchain.require() == tmp_path
    assert built == [tmp_path]


def test_a_named_file_that_is_missing_or_wrong_is_an_error(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(toolchain.ARCHIVE_VARIABLE, "/no/such/file.tar.xz")
    with pytest.raises(Failure, match="there is no file /no/such/file.tar.xz"):
        toolchain.require()
    exported.write_bytes(b"x")
    monkeypatch.setenv(toolchain.ARCHIVE_VARIABLE, str(exported))
    with pytest.raises(Failure, match="is not a whole toolchain export"):
        toolchain.require()
    assert nothing_made()


# ---- interruptions ----


def test_an_import_that_fails_or_is_killed_keeps_a_stopped_build(exported: Path, trial: Trial) -> None:
    fail = Path(f"{trial.log}.fail")
    fail.touch()
    with pytest.raises(Failure, match="toolchain step gcc failed"):
        toolchain.build(trial.mirror.archive())
    ran = trial.ran()
    with pytest.raises(Failure, match="SHA-256"):
        exchange.import_toolchain(str(exported), "0" * 64)
    # A killed import leaves files beside the toolchain only.
    place = toolchain.entry().path
    (place.with_name(f"{place.name}.import") / "bin").mkdir(parents=True)
    fail.unlink()
    toolchain.build(trial.mirror.archive())
    assert trial.ran() == [*ran, "gcc"]


def test_an_import_takes_the_place_of_a_stopped_build(exported: Path, trial: Trial) -> None:
    fail = Path(f"{trial.log}.fail")
    fail.touch()
    with pytest.raises(Failure, match="toolchain step gcc failed"):
        toolchain.build(trial.mirror.archive())
    exchange.import_toolchain(str(exported))
    there = toolchain.find()
    assert there and sorted(path.suffix for path in there.parent.iterdir()) == ["", ".lock", ".logs"]


def test_ctrl_c_during_an_import_leaves_nothing(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take, taken = exchange._take, []

    def interrupted(archive, member, *rest) -> None:
        if taken:
            raise KeyboardInterrupt
        taken.append(member.name)
        take(archive, member, *rest)

    monkeypatch.setattr(exchange, "_take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exchange.import_toolchain(str(exported))
    assert taken and nothing_made()
    assert not list(toolchain.entry().path.parent.glob("*.import"))
    monkeypatch.undo()


def test_an_import_that_does_not_fit_leaves_nothing(exported: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    program = f"""
import os
from pathlib import Path
from tools import cache, exchange, toolchain
from tools.errors import Failure
toolchain.RECIPE_DIRECTORY = Path({str(tmp_path / "recipe")!r})
exchange.NEEDED_BYTES = 0
os.environ["XDG_CACHE_HOME"] = {str(small)!r}
place = toolchain.entry().path
place.parent.mkdir(parents=True)
(Path({str(small)!r}) / "fill").write_bytes(bytes(64 << 10))
try:
    exchange.import_toolchain({str(exported)!r})
except Failure as failure:
    print(failure.report())
print(sorted(path.suffix for path in place.parent.iterdir()))
"""
    done = on_small_disk(small, "64k", program)
    assert "no space left" in done.stdout, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "['.lock']"


# ---- the Debian package ----


def test_the_toolchain_of_the_debian_package_is_used_if_its_recipe_is_the_same(exported: Path) -> None:
    exchange.import_toolchain(str(exported))
    built = toolchain.find()
    packaged = toolchain.PACKAGED_PREFIX
    finished(["cp", "-a", str(built), str(packaged)])
    cache.remove(built)
    assert toolchain.find() is None and toolchain.must_be_built()
    (packaged / "recipe-key").write_text("another\n")
    assert toolchain.find() is None
    (packaged / "recipe-key").write_text(toolchain.Recipe().key() + "\n")
    assert toolchain.find() == toolchain.require() == packaged
    (packaged / "bin/x86_64-neap-elf-g++").unlink()
    assert toolchain.find() is None
