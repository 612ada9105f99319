# SPDX-License-Identifier: BSL-1.0
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from tools.conftest import on_small_disk
from tools.errors import Failure
from tools.release import assemble, assembly
from tools.release.stage import Stage


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_the_checksums_have_every_other_file(stage: Stage, out: Path) -> None:
    made = assemble(stage, out, parts=("wheel", "source"), complete=False)
    rows = dict(reversed(line.split("  ")) for line in (out / "SHA256SUMS").read_text().splitlines())
    assert rows == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir() if path.name != "SHA256SUMS"}
    assert {path.name for path in made} == {*rows, "SHA256SUMS"} and len(rows) == 2


def test_a_whole_release_needs_all_products(stage: Stage, out: Path) -> None:
    with pytest.raises(Failure, match="has not built build/boot-programs"):
        assemble(stage, out, parts=("wheel",))
    assert list(out.iterdir()) == []


def test_debian_packages_get_debians_form_of_the_version(stage: Stage, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_packages(stage: Stage, out: Path) -> list[Path]:
        made = out / f"soft82599_{stage.version}_amd64.deb"
        made.write_bytes(b"package")
        return [made]

    monkeypatch.setattr(assembly.debian_packages, "write_packages", write_packages)
    assemble(replace(stage, snapshot=True), out, parts=("debs",), complete=False)
    name = f"soft82599_1.2.3~dev+g{stage.commit}_amd64.deb"
    assert name in (out / "SHA256SUMS").read_text() and (out / name).is_file()


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    program = f"""
import os, pathlib
from tools import cache
from tools.errors import DiskFull
from tools.release import assemble
from tools.release.conftest import stage_at
out = pathlib.Path({str(tmp_path / "small")!r})
for part in ("wheel", "source"):
    stage = stage_at(pathlib.Path({str(tmp_path)!r}) / part)
    (stage.tree / "README.md").write_bytes(os.urandom(3_000_000).hex().encode())
    try:
        with cache.disk_full_named("writing the release"):
            assemble(stage, out, parts=(part,), complete=False)
    except DiskFull as failure:
        print(failure.message)
    for path in out.iterdir():
        if path.is_file():
            path.unlink()
"""
    (tmp_path / "small").mkdir()
    done = on_small_disk(tmp_path / "small", "1m", program)
    assert done.stdout == "writing the release: no space left on the disk\n" * 2, done.stderr
