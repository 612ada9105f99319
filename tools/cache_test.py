# SPDX-License-Identifier: BSL-1.0
import os
import pwd
import threading
from pathlib import Path

import pytest

from tools import cache
from tools.conftest import on_small_disk
from tools.errors import DiskFull, Failure
from tools.process import wait_until


def test_an_entry_is_there_only_when_its_marker_is(own_cache: Path) -> None:
    entry = cache.Entry("kind", "key")
    with entry.making() as mine:
        assert mine
        (entry.path / "file").write_text("text")
        assert not entry.ready
    assert entry.ready
    with entry.making() as mine:
        assert not mine


def test_a_maker_that_fails_leaves_nothing(own_cache: Path) -> None:
    entry = cache.Entry("kind", "key")
    with pytest.raises(ValueError), entry.making():
        (entry.path / "file").write_text("text")
        raise ValueError
    assert not entry.path.exists()


def test_a_maker_that_was_killed_is_started_over(own_cache: Path, python) -> None:
    program = """
import time
from tools import cache
entry = cache.Entry("kind", "key")
with entry.making():
    (entry.path / "half").write_text("half")
    print("made half", flush=True)
    time.sleep(300)
"""
    maker = python(program)
    assert maker.stdout.readline() == "made half\n"
    maker.kill()
    maker.wait()
    entry = cache.Entry("kind", "key")
    assert (entry.path / "half").exists() and not entry.ready
    with entry.making() as mine:
        assert mine and not (entry.path / "half").exists()


def test_the_second_maker_waits_and_finds_the_work_done(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = cache.Entry("kind", "key")
    waiting = threading.Event()
    found: list[bool] = []

    def second() -> None:
        with cache.Entry("kind", "key").making(work="makes it") as mine:
            found.append(mine)

    monkeypatch.setattr(cache.progress, "say", lambda text: waiting.set() if text.endswith("that makes it") else None)
    thread = threading.Thread(target=second)
    with entry.making():
        thread.start()
        assert waiting.wait(10) and not found
    thread.join(10)
    assert found == [False]


def test_waiting_for_a_lock_ends_at_its_time_out(tmp_path: Path) -> None:
    descriptor = cache.try_lock(tmp_path / "lock")
    assert descriptor is not None
    with pytest.raises(Failure, match="another neap has held"), cache.lock(tmp_path / "lock", timeout_seconds=0.3):
        pass
    os.close(descriptor)
    with cache.lock(tmp_path / "lock", timeout_seconds=0.3):
        pass


def test_a_relative_cache_directory_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.root() == tmp_path / ".cache/neap"


def test_an_empty_home_is_not_the_root_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _number: pwd.struct_passwd(("me", "x", 1, 1, "", str(tmp_path), "/bin/sh")))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "")
    assert cache.root() == tmp_path / ".cache/neap"


def test_a_cache_directory_that_cannot_be_made_is_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(Failure, match="set XDG_CACHE_HOME"):
        cache.root()


def test_too_little_space_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match=r"a build needs 1000000000.0 GB free"):
        cache.require_space(tmp_path, 10**18, "a build")


def test_parts_of_a_digest_cannot_run_into_each_other() -> None:
    assert cache.digest("ab", "c") != cache.digest("a", "bc")
    assert cache.digest("ab") == cache.digest(b"ab")


def test_remove_takes_read_only_trees_and_missing_paths(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/file").write_text("")
    (tree / "sub").chmod(0o555)
    cache.remove(tree)
    assert not tree.exists()
    cache.remove(tree)


def test_a_disk_that_fills_up_is_named_and_leaves_no_half_entry(tmp_path: Path) -> None:
    program = """
from tools import cache
from tools.errors import DiskFull
entry = cache.Entry("kind", "key")
try:
    with entry.making():
        (entry.path / "file").write_bytes(bytes(64 << 20))
except DiskFull as error:
    print(error.message)
print(entry.ready, entry.path.exists())
with entry.making():
    (entry.path / "file").write_bytes(bytes(1 << 20))
print(entry.ready)
"""
    done = on_small_disk(tmp_path, "4m", program)
    assert done.stdout.splitlines() == ["kind/key: no space left on the disk", "False False", "True"], done.stderr


def test_wait_until_gives_up() -> None:
    assert wait_until(lambda: False, 0.05) is None
