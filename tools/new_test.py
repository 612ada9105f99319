# SPDX-License-Identifier: BSL-1.0
from pathlib import Path

import pytest

from tools import new, outside
from tools.build import REPOSITORY
from tools.conftest import neap
from tools.errors import Failure, UsageError


def test_a_new_folder_is_whole_and_names_its_application(tmp_path: Path) -> None:
    folder = new.make("my-echo", str(tmp_path))
    assert folder == tmp_path / "my-echo"
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(made) == {".gitignore", "CMakeLists.txt", "CMakePresets.json", "README.md", "boots_and_answers.py", "main.cpp"}
    assert "neap_application(my-echo " in made["CMakeLists.txt"]
    assert not [name for name, text in made.items() if "@N" in text], "a placeholder is left"
    assert outside.folder(str(folder)) == folder


INVALID = ["", "Echo", "1echo", "an echo", "../echo", "e" * 33, "écho", "echo\n", "-e"]
TAKEN = ["memcached", "test", "neap"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        *((name, "an application's name is a small letter") for name in INVALID),
        *((name, "is taken") for name in ("memcached", "test", "neap")),
    ],
)
def test_an_invalid_or_taken_name_is_refused_and_nothing_is_made(name: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint):
        new.make(name, str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "echo").mkdir()
    (tmp_path / "echo/mine").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        new.make("echo", str(tmp_path))
    assert [path.name for path in tmp_path.rglob("*")] == ["echo", "mine"]


@pytest.mark.parametrize(
    ("place", "complaint"),
    [("/nowhere", "there is no folder /nowhere"), (REPOSITORY, "inside Neap's checkout"), (REPOSITORY / "apps", "inside Neap's checkout")],
)
def test_a_missing_folder_and_the_checkout_are_no_places_for_it(place: object, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        new.make("echo", str(place))


def test_a_failure_midway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(folder: Path, name: str) -> None:
        (folder / "main.cpp").touch()
        raise OSError("broken off")

    monkeypatch.setattr(new, "_fill", break_off)
    with pytest.raises(OSError, match="broken off"):
        new.make("echo", str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("word", "complaint"),
    [("{0}/nowhere", "there is no folder"), ("{0}/empty", "holds no application"), ("{0}/other", "holds no application")],
)
def test_a_path_without_an_application_is_one_line(word: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/CMakeLists.txt").write_text("project(other)\n")
    for command in ("run", "test"):
        done = neap(command, word.format(tmp_path))
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        assert done.returncode == 2 and len(errors) == 1 and complaint in errors[0], done.stderr


def test_a_plain_word_is_a_name_first() -> None:
    assert outside.folder("memcached") is outside.folder("no-such-thing") is None


def test_a_folder_makes_one_application(tmp_path: Path) -> None:
    listed = tmp_path / outside.LIST
    listed.write_text("echo\t/b/echo.elf\t7007,80\n")
    assert outside.only_application(tmp_path, tmp_path) == outside.Application("echo", Path("/b/echo.elf"), (7007, 80))
    listed.write_text("one\t/b/one.elf\t\ntwo\t/b/two.elf\t\n")
    with pytest.raises(Failure, match=r"2 applications \(one, two\), one is wanted"):
        outside.only_application(tmp_path, tmp_path)
    listed.write_text("echo\t/b/echo.elf\t70000\n")
    with pytest.raises(Failure, match="PORTS of echo takes numbers from 1 to 65535"):
        outside.only_application(tmp_path, tmp_path)
    listed.unlink()
    with pytest.raises(Failure, match="has 0 applications"):
        outside.only_application(tmp_path, tmp_path)


def test_a_prefix_without_neap_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAP_PREFIX", str(tmp_path))
    with pytest.raises(Failure, match="no Neap is installed at NEAP_PREFIX="), outside.built(new.make("echo", str(tmp_path)), "image"):
        pass
