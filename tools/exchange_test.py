# SPDX-License-Identifier: BSL-1.0
"""Tests of the toolchain's export and import, with a toolchain that is built in no time and a web server on loopback."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from tools import cache, exchange, toolchain
from tools.conftest import neap, on_small_disk
from tools.errors import Failure
from tools.fake_toolchain import Trial
from tools.process import finished


@pytest.fixture
def exported(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    """An exported toolchain in a file. The test then has a new, empty cache."""
    toolchain.build(trial.mirror.archive())
    file = tmp_path / "chain.tar.zst"
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


def test_two_exports_are_identical(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange.import_toolchain(str(exported))
    again = tmp_path / "again.tar.zst"
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
    # The archive is packed again, so the checksums of zstd and tar are right. Only the manifest's checksums can detect the change.
    plain = tmp_path / "plain.tar"
    subprocess.run(["zstd", "-q", "-d", "-f", "-o", str(plain), str(exported)], check=True, timeout=60)
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
    subprocess.run(["zstd", "-q", "-f", "-o", str(exported), str(changed)], check=True, timeout=60)
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
