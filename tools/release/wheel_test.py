# SPDX-License-Identifier: BSL-1.0
import base64
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import toolchain
from tools.errors import Failure
from tools.release import wheel
from tools.release.conftest import EPOCH, REVISION, stage_at
from tools.release.stage import COMMIT_FILE, Stage

DOCUMENTS = {"THIRD-PARTY-LICENCES.txt": b"texts", "neap-1.2.3.spdx.json": b"{}"}


def write(stage: Stage, out: Path, archive: Path | None = None) -> Path:
    out.mkdir(exist_ok=True)
    return wheel.write(stage, out, stage.products(), DOCUMENTS, archive)


def test_two_folders_give_equal_wheels(tmp_path: Path) -> None:
    first = write(stage_at(tmp_path / "one"), tmp_path / "out one")
    second_tree = tmp_path / "another folder, with a longer name"
    stage = stage_at(second_tree)
    # Neither times nor the order of creation may show. Rights beyond the executable bit are the user's.
    for path in sorted(second_tree.rglob("*"), reverse=True):
        os.utime(path, (1, 1))
        if path.is_file():
            path.chmod(path.stat().st_mode & ~0o077)
    assert write(stage, tmp_path / "out two").read_bytes() == first.read_bytes()


def test_the_record_has_the_hash_and_the_size_of_each_member(stage: Stage, tmp_path: Path) -> None:
    with zipfile.ZipFile(write(stage, tmp_path)) as archive:
        rows = list(csv.reader(io.StringIO(archive.read("neap-1.2.3.dist-info/RECORD").decode())))
        assert {row[0] for row in rows} == set(archive.namelist()) and len(rows) == len(archive.namelist())
        for name, digest, size in rows:
            if name.endswith("/RECORD"):
                assert (digest, size) == ("", "")
                continue
            content = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(content)), name


def test_the_tree_has_the_layout_of_a_checkout_that_was_built(stage: Stage, tmp_path: Path) -> None:
    archive_file = tmp_path / "toolchain.tar.xz"
    archive_file.write_bytes(b"compiler")
    (stage.tree / "__pycache__").mkdir()
    (stage.tree / "__pycache__/x.pyc").write_bytes(b"")
    (stage.tree / "build/other").write_text("not a product")
    with zipfile.ZipFile(write(stage, tmp_path / "out", archive_file)) as archive:
        names = set(archive.namelist())
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        record = json.loads(archive.read("neap/tree/release.json"))
        commit = archive.read(f"neap/tree/{COMMIT_FILE}").decode()
    assert not any("__pycache__" in name or "build/other" in name for name in names)
    for name in stage.products():
        assert modes[f"neap/tree/{name}"] == 0o100755
    assert (modes["neap/tree/neap"], modes["neap/tree/README.md"]) == (0o100755, 0o100644)
    assert commit == f"{REVISION} {EPOCH}\n"
    key = toolchain.Recipe().key()
    chain = {"key": key, "file": f"neap-toolchain-{key}.tar.xz", "sha256": hashlib.sha256(b"compiler").hexdigest()}
    assert record == {"format": 1, "version": "1.2.3", "commit": REVISION[:12], "epoch": EPOCH, "toolchain": chain}
    assert "neap-1.2.3.dist-info/sboms/neap-1.2.3.spdx.json" in names
    assert "neap-1.2.3.dist-info/licenses/THIRD-PARTY-LICENCES.txt" in names


def test_pip_installs_it_and_its_command_starts_the_launcher(stage: Stage, tmp_path: Path) -> None:
    made = write(stage, tmp_path)
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-compile", "--target", str(tmp_path / "site"), str(made)]
    subprocess.run(words, check=True, timeout=120, stdin=subprocess.DEVNULL)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [str(tmp_path / "site/bin/neap"), "run", "memcached"], capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path
    )
    assert (done.stdout, done.returncode) == ("started with run memcached\n", 3), done.stderr
    assert os.access(tmp_path / "site/neap/tree/build/soft82599/release/soft82599", os.X_OK)
    metadata = (tmp_path / "site/neap-1.2.3.dist-info/METADATA").read_text()
    assert "\nRequires-Python: >=3.11\n" in metadata and "Requires-Dist" not in metadata


def test_a_snapshot_is_named_by_its_commit(stage: Stage) -> None:
    from dataclasses import replace

    snapshot = replace(stage, snapshot=True)
    assert wheel.name(snapshot) == f"neap-1.2.3.dev0+g{REVISION[:12]}-py3-none-manylinux2014_x86_64.whl"
    assert snapshot.debian_version == f"1.2.3~dev+g{REVISION[:12]}"
    assert (stage.wheel_version, stage.debian_version) == ("1.2.3", "1.2.3")


def test_a_missing_product_is_named(stage: Stage, tmp_path: Path) -> None:
    stage.load.unlink()
    with pytest.raises(Failure, match=r"the wheel lacks .*/neap-load"):
        write(stage, tmp_path)
