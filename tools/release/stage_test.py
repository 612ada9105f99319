# SPDX-License-Identifier: BSL-1.0
import os
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from boot import write_commit
from tools import pxe
from tools.boot_programs import BootPrograms
from tools.errors import Failure
from tools.release import source_archive, staging
from tools.release.conftest import SOURCES, stage_at
from tools.release.stage import COMMIT_FILE, Stage, commit_of


def test_only_the_files_of_the_commit_are_written(git: Callable[..., str], tmp_path: Path) -> None:
    checkout, folder = tmp_path / "checkout", tmp_path / "stages/one"
    (checkout / "README.md").write_text("a later change\n")
    (checkout / "untracked").write_text("")
    revision, epoch = commit_of(checkout, "HEAD")
    before = os.umask(0o077)
    try:
        staging.write_sources(checkout, revision, folder)
    finally:
        os.umask(before)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == set(SOURCES)
    assert (folder / "README.md").read_text() == SOURCES["README.md"]
    assert (folder / COMMIT_FILE).read_text() == f"{revision} {epoch}\n"
    assert {name: (folder / name).stat().st_mode & 0o777 for name in ("neap", "README.md")} == {"neap": 0o755, "README.md": 0o644}


def test_sources_without_git_know_their_commit(git: Callable[..., str], tmp_path: Path) -> None:
    checkout, folder = tmp_path / "checkout", tmp_path / "stage"
    revision, _ = commit_of(checkout, "HEAD")
    staging.write_sources(checkout, revision, folder)
    assert write_commit.commit(folder) == write_commit.commit(checkout) == revision[:12]
    assert pxe.checkout_state(folder) == (revision, [])
    (folder / COMMIT_FILE).write_text("$Format:%H %ct$\n")
    assert write_commit.commit(folder) == "unknown"
    assert pxe.checkout_state(folder) == ("", [])


def test_sources_below_another_checkout_keep_their_own_commit(git: Callable[..., str], tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    revision, _ = commit_of(checkout, "HEAD")
    staging.write_sources(checkout, revision, checkout / "build/stage")
    git("commit", "--quiet", "--allow-empty", "--message", "Later")
    assert write_commit.commit(checkout / "build/stage") == revision[:12] != write_commit.commit(checkout)


def test_a_checkout_and_its_archive_have_the_same_sources(git: Callable[..., str], tmp_path: Path) -> None:
    checkout, folder = tmp_path / "checkout", tmp_path / "stage"
    revision, epoch = commit_of(checkout, "HEAD")
    staging.write_sources(checkout, revision, folder)
    (checkout / "build").mkdir()
    (folder / "build").mkdir()
    (folder / "build/made").write_text("")
    stages = [replace(stage_at(tmp_path / "any"), tree=tree, revision=revision, epoch=epoch) for tree in (checkout, folder)]
    assert stages[0].source_names() == stages[1].source_names() == sorted(SOURCES)
    assert [stages[0].source(name) for name in SOURCES] == [stages[1].source(name) for name in SOURCES]


def test_an_unknown_commit_and_a_folder_without_git_are_named(tmp_path: Path, git: Callable[..., str]) -> None:
    with pytest.raises(Failure, match="is no git checkout with a commit HEAD"):
        commit_of(tmp_path / "a folder", "HEAD")
    with pytest.raises(Failure, match="with a commit nothing"):
        commit_of(tmp_path / "checkout", "nothing")
    with pytest.raises(Failure, match="git archive of 000000000000 failed"):
        staging.write_sources(tmp_path / "checkout", "0" * 40, tmp_path / "stage")


def test_the_source_archive_depends_on_the_commit_alone(tmp_path: Path, stage: Stage) -> None:
    other = stage_at(tmp_path / "another tree, with a longer name")
    os.utime(other.tree / "README.md", (1, 1))
    made = []
    for index, each in enumerate((stage, other)):
        (tmp_path / str(index)).mkdir()
        made.append(source_archive.write(each, tmp_path / str(index)))
    assert made[0].name == "neap-1.2.3-source.tar.xz" and made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as archive:
        members = {member.name: member for member in archive}
    assert set(members) == {f"neap-1.2.3/{name}" for name in SOURCES}
    assert members["neap-1.2.3/neap"].mode == 0o755 and {member.mtime for member in members.values()} == {stage.epoch}


def test_the_logs_of_a_failed_build_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    folder, logs = tmp_path / "stage", tmp_path / "logs/release"
    program = "import os, sys, pathlib; pathlib.Path('build/logs').mkdir(parents=True)\n"
    program += "names = [name for name in ('CXXFLAGS', 'NEAP_TOOLCHAIN', 'RUSTFLAGS') if name in os.environ]\n"
    program += "pathlib.Path('build/logs/image.log').write_text(os.environ['SOURCE_DATE_EPOCH'] + str(names))\n"
    program += "sys.exit('neap: error: no disk')\n"
    for variable in ("CXXFLAGS", "NEAP_TOOLCHAIN", "RUSTFLAGS"):
        monkeypatch.setenv(variable, "-march=native")
    stage_at(folder).tree.joinpath("failing.py").write_text(program)
    monkeypatch.setattr(staging, "BUILDING", "failing")
    monkeypatch.setattr(staging.packages, "require", lambda *groups: None)
    monkeypatch.setattr(staging.toolchain, "build", lambda: folder)
    monkeypatch.setattr(staging.boot_programs, "require", lambda: BootPrograms(folder))
    with pytest.raises(Failure, match="the build of the release failed"):
        staging.build(folder, "0" * 40, 1234, logs, snapshot=False)
    assert "neap: error: no disk" in capfd.readouterr().err
    assert (logs / "image.log").read_text() == "1234[]"
