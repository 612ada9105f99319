# SPDX-License-Identifier: BSL-1.0
from pathlib import Path

import pytest

from tools import cache, debian
from tools.errors import Failure

APT_CACHE = """#!/bin/sh
echo call >>"{calls}"
[ "$4" = gone ] && exit 1
echo "$4"
echo "  Depends: libone"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each run of a fake apt-cache. The files that apt depends on are in `lists` beside it."""
    calls = tmp_path / "calls"
    programs, lists = tmp_path / "bin", tmp_path / "lists"
    programs.mkdir()
    lists.mkdir()
    (lists / "Packages").write_text("one")
    (programs / "apt-cache").write_text(APT_CACHE.format(calls=calls))
    (programs / "apt-cache").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(debian, "APT_STATE", (lists,))
    return calls


def test_apt_is_asked_once_until_its_files_change(calls: Path) -> None:
    for _ in range(3):
        assert debian.dependency("program", "lib") == "libone"
    assert len(calls.read_text().splitlines()) == 1
    (calls.parent / "lists/Packages").write_text("another")
    assert debian.dependency("program", "lib") == "libone"
    assert len(calls.read_text().splitlines()) == 2
    assert len(list((cache.root() / "apt-answers").iterdir())) == 1


def test_an_error_of_apt_is_not_kept(calls: Path) -> None:
    for _ in range(2):
        with pytest.raises(Failure, match="apt-cache") as caught:
            debian.dependency("gone", "lib")
        assert "apt-get update" in (caught.value.hint or "")
    assert len(calls.read_text().splitlines()) == 2
