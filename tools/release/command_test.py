# SPDX-License-Identifier: BSL-1.0
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tools import build, packages, sources
from tools.errors import DiskFull, Failure
from tools.release import command, staging
from tools.release.conftest import stage_at
from tools.release.stage import Stage


@pytest.fixture
def checkout(git: Callable[..., str], tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of the launcher's, with a tag, whose build takes no time. The files of a release are `a` and `b`."""
    place = tmp_path / "checkout"
    git("tag", "v1.2.3")
    monkeypatch.setattr(build, "REPOSITORY", place)
    monkeypatch.setattr(build, "BUILD", place / "build")
    monkeypatch.setattr(packages, "require", lambda *groups: None)
    monkeypatch.setattr(staging, "make", lambda checkout, commit, folder, log, **options: stage_at(folder))
    monkeypatch.setattr(command, "assemble", assemble_two)
    return place


def assemble_two(stage: Stage, out: Path) -> None:
    (out / "a").write_text("a")
    (out / "b").write_text(stage.version)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_release_of_a_tag_is_in_a_folder_named_by_its_version(checkout: Path, capsys: pytest.CaptureFixture) -> None:
    assert command.release(None, False, False) == 0
    made = checkout / "build/release/1.2.3"
    assert leftovers(made) == ["a", "b"] and leftovers(made.parent) == ["1.2.3"]
    assert capsys.readouterr().out == f"{made}/a 1\n{made}/b 5\n"


@pytest.mark.parametrize(
    ("change", "snapshot", "message"),
    [
        (lambda checkout, git: (checkout / "README.md").write_text("changed"), False, "uncommitted changes: README.md"),
        (lambda checkout, git: (checkout / "README.md").write_text("changed"), True, "uncommitted changes: README.md"),
        (lambda checkout, git: git("tag", "--delete", "v1.2.3"), False, "has no tag v1.2.3"),
        (lambda checkout, git: git("commit", "--quiet", "--allow-empty", "--message", "Later"), False, "has no tag v1.2.3"),
        (lambda checkout, git: edit(checkout, git, "CITATION.cff", "version: 1.2.4\n"), False, "1.2.3, but CITATION.cff has 1.2.4"),
        (lambda checkout, git: edit(checkout, git, "CHANGELOG.md", "# Changes\n"), True, "no section '## 1.2.3, DATE'"),
        (lambda checkout, git: (checkout / "build/release/1.2.3").mkdir(parents=True), False, "build/release/1.2.3 exists already"),
    ],
)
def test_what_cannot_be_released_is_refused_before_the_build(
    checkout: Path, git: Callable[..., str], monkeypatch: pytest.MonkeyPatch, change, snapshot: bool, message: str
) -> None:
    change(checkout, git)
    monkeypatch.setattr(staging, "make", lambda *words, **options: pytest.fail("built"))
    with pytest.raises(Failure, match=message):
        command.release(None, snapshot, False)


def test_pins_that_this_user_has_replaced_are_not_released(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = sources.pins()["lwip"]
    sources._accept(pin, replace(pin, version="9.9"))
    assert sources.replaced() == ["lwip"]
    with pytest.raises(Failure, match="has replaced the pinned version of lwip"):
        command.release(None, True, False)


def edit(checkout: Path, git: Callable[..., str], name: str, text: str) -> None:
    (checkout / name).write_text(text)
    git("commit", "--quiet", "--all", "--message", "Edit")
    git("tag", "--force", "v1.2.3")


def test_a_snapshot_needs_no_tag(checkout: Path, git: Callable[..., str], tmp_path: Path) -> None:
    git("tag", "--delete", "v1.2.3")
    command.release(str(tmp_path / "a folder/of mine"), True, False)
    assert leftovers(tmp_path / "a folder") == ["of mine"]
    command.release(None, True, False)
    (made,) = (checkout / "build/release").iterdir()
    assert made.name == f"1.2.3.dev0+g{git('rev-parse', 'HEAD')[:12]}"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DiskFull("no space"), Failure("a step failed")])
@pytest.mark.parametrize("at", ["build", "second file"])
def test_an_end_at_any_step_leaves_no_release_and_the_next_one_succeeds(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, at: str
) -> None:
    def fail(stage_or_checkout, *words, **options):
        if at == "build":
            (words[1]).mkdir(parents=True)
            (words[1] / "half").write_text("")
        else:
            (words[0] / "a").write_text("a")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(*((staging, "make") if at == "build" else (command, "assemble")), fail)
        with pytest.raises(type(error)):
            command.release(None, False, True)
    assert leftovers(checkout / "build/release") == []
    command.release(None, False, True)
    assert leftovers(checkout / "build/release") == ["1.2.3"]


def test_what_a_killed_release_has_left_is_removed(checkout: Path) -> None:
    for name in (command.FIRST, command.SECOND, command.AGAIN, ".1.2.3.partial"):
        (checkout / "build/release" / name).mkdir(parents=True)
        (checkout / "build/release" / name / "half").write_text("")
    command.release(None, False, False)
    assert leftovers(checkout / "build/release") == ["1.2.3"] and leftovers(checkout / "build/release/1.2.3") == ["a", "b"]


def test_builds_that_differ_are_no_release(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def assemble(stage: Stage, out: Path) -> None:
        assemble_two(stage, out)
        (out / "b").write_text(stage.tree.name)

    monkeypatch.setattr(command, "assemble", assemble)
    with pytest.raises(Failure, match=r"two builds of [0-9a-f]{12} differ: b differs at byte 0"):
        command.release(None, False, True)
    assert leftovers(checkout / "build/release") == ["differing"]
    assert (checkout / "build/release/differing/first/b").read_text() == command.FIRST
    command.release(None, False, False)


def test_the_second_build_takes_no_object_of_the_first(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool]] = []

    def make(source: Path, commit: str, folder: Path, logs: Path, *, snapshot: bool, fresh_objects: bool = False) -> Stage:
        assert logs == checkout / "build/logs/release"
        seen.append((folder.name, fresh_objects))
        return stage_at(folder)

    monkeypatch.setattr(staging, "make", make)
    command.release(None, False, True)
    assert seen == [(command.FIRST, False), (command.SECOND, True)] and len(command.FIRST) != len(command.SECOND)


def test_of_two_releases_at_a_time_the_second_finds_the_first(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = threading.Semaphore(0)
    running: list[int] = []

    def make(checkout: Path, commit: str, folder: Path, log: Path, **options) -> Stage:
        running.append(1)
        assert len(running) == 1, "two releases build at a time"
        inside.release()
        threading.Event().wait(0.5)
        running.pop()
        return stage_at(folder)

    monkeypatch.setattr(staging, "make", make)
    failures: list[str] = []

    def second() -> None:
        assert inside.acquire(timeout=30)
        try:
            command.release(None, False, False)
        except Failure as failure:
            failures.append(failure.message)

    other = threading.Thread(target=second)
    other.start()
    command.release(None, False, False)
    other.join(30)
    assert len(failures) == 1 and failures[0].endswith("build/release/1.2.3 exists already")
