# SPDX-License-Identifier: BSL-1.0
"""Tests of the toolchain's build, with a recipe whose "compiler" takes no time. The real toolchain is built before any image."""

import subprocess
from pathlib import Path

import pytest

from tools import cache, sources, toolchain
from tools.archive import VersionGone
from tools.conftest import on_small_disk
from tools.errors import DiskFull, Failure
from tools.fake_toolchain import BUILDER, Trial
from tools.process import wait_until


def test_a_toolchain_is_built_once(trial: Trial) -> None:
    assert toolchain.find() is None
    prefix = toolchain.build(trial.mirror.archive())
    assert (prefix / "bin/x86_64-neap-elf-g++").is_file()
    assert toolchain.find() == toolchain.build() == prefix
    assert trial.ran() == ["binutils", "gcc"]
    # Only the result and the logs remain.
    assert sorted(path.suffix for path in prefix.parent.iterdir()) == ["", ".lock", ".logs"]
    assert "binutils" in (prefix.parent / f"{prefix.name}.logs/binutils.log").read_text()


def test_the_name_follows_pins_patches_and_steps_but_not_comments(trial: Trial) -> None:
    key = toolchain.Recipe().key()
    recipe = trial.directory / "recipe.toml"
    recipe.write_text("# a comment\n" + recipe.read_text().replace("seconds = 2", "seconds = 3"))
    assert toolchain.Recipe().key() == key
    patch = trial.directory / "patches/newlib/0001.patch"
    patch.write_text("Why not.\n" + patch.read_text())
    changed = toolchain.Recipe().key()
    assert changed != key
    trial.pin(gcc="0" * 64)
    assert toolchain.Recipe().key() not in (key, changed)
    recipe.write_text(recipe.read_text().replace("both", "two"))
    assert len({toolchain.Recipe().key(), key, changed}) == 3


def waiting_builder(trial: Trial, python) -> tuple[subprocess.Popen, Path]:
    """Returns a build that waits in the step gcc, and a file. The build continues when the file is removed."""
    wait = Path(f"{trial.log}.wait")
    wait.touch()
    builder = python(*trial.builder())
    assert wait_until(lambda: trial.ran() == ["binutils", "gcc"], 30)
    return builder, wait


def test_a_killed_build_goes_on_with_its_step_and_not_before(trial: Trial, python) -> None:
    builder, wait = waiting_builder(trial, python)
    builder.kill()
    builder.wait()
    assert toolchain.find() is None
    wait.unlink()
    # `test ! -e half` in the step fails if the step's directory is not made again. Without the mirror's files, nothing can be fetched
    # again.
    cache.remove(trial.mirror.directory / "pool")
    prefix = toolchain.build(trial.mirror.archive())
    assert toolchain.find() == prefix
    assert trial.ran() == ["binutils", "gcc", "gcc"]


def test_of_two_builds_at_once_the_second_waits_and_says_so(trial: Trial, python) -> None:
    first, wait = waiting_builder(trial, python)
    second = python(*trial.builder())
    for line in second.stderr:
        if "waiting for another neap that builds the toolchain" in line:
            break
    wait.unlink()
    assert first.communicate(timeout=30)[0] == second.communicate(timeout=30)[0]
    assert trial.ran() == ["binutils", "gcc"]


def test_a_failed_step_shows_its_log_and_is_done_again(trial: Trial) -> None:
    fail = Path(f"{trial.log}.fail")
    fail.touch()
    with pytest.raises(Failure, match=r"toolchain step gcc failed \(status 1\)") as caught:
        toolchain.build(trial.mirror.archive())
    assert "gcc.log" in caught.value.hint
    assert toolchain.find() is None
    fail.unlink()
    toolchain.build(trial.mirror.archive())
    assert trial.ran() == ["binutils", "gcc", "gcc"]


def test_steps_run_beside_another_and_an_error_ends_both(trial: Trial) -> None:
    recipe, beside = trial.directory / "recipe.toml", Path(f"{trial.log}.beside")
    # Each step waits for the other, so the build ends only if they run at the same time.
    recipe.write_text(recipe.read_text().replace("cat ../../binutils/file;", f"while test ! -e '{beside}'; do sleep 0.05; done;"))
    Path(f"{trial.log}.fail-beside").touch()
    with pytest.raises(Failure, match="toolchain step gcc libraries failed"):
        toolchain.build(trial.mirror.archive())
    beside.unlink()
    Path(f"{trial.log}.fail-beside").unlink()
    toolchain.build(trial.mirror.archive())
    assert trial.ran()[-2:] == ["binutils", "gcc"]


def test_an_error_in_the_first_step_ends_the_step_beside_it(trial: Trial) -> None:
    recipe = trial.directory / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("cat ../../binutils/file;", "sleep 0.2; exit 3;"))
    Path(f"{trial.log}.wait-beside").touch()
    with pytest.raises(Failure, match=r"toolchain step (binutils failed \(status 3\)|gcc libraries failed \(signal 9\))"):
        toolchain.build(trial.mirror.archive())
    assert toolchain.find() is None


def test_a_source_with_another_checksum_is_refused(trial: Trial) -> None:
    trial.pin(gcc="0" * 64)
    with pytest.raises(Failure, match="checksum of gcc-source_1_all.deb is wrong"):
        toolchain.build(trial.mirror.archive())
    assert toolchain.find() is None
    assert list(toolchain.entry().path.parent.rglob("*.deb")) == list(toolchain.entry().path.parent.rglob("binutils*.deb"))
    trial.pin()
    assert toolchain.build(trial.mirror.archive()) == toolchain.find()


def test_a_source_that_is_gone_is_named_and_a_newer_one_taken_if_accepted(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    key = toolchain.Recipe().key()
    trial.mirror.forget("gcc-source")
    trial.add("gcc", "2")
    with pytest.raises(VersionGone, match="gcc-source 1 no longer; it has 2"):
        toolchain.build(trial.mirror.archive())
    monkeypatch.setattr(sources, "accept_newer", True)
    prefix = toolchain.build(trial.mirror.archive())
    assert prefix.name != key
    assert toolchain.find() == prefix


def test_too_little_room_is_refused_before_the_build(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "NEEDED_BYTES", 10**18)
    with pytest.raises(DiskFull, match="building the toolchain needs 1000000000.0 GB free"):
        toolchain.build(trial.mirror.archive())
    assert trial.ran() == []


def test_a_disk_that_fills_up_during_the_build_is_named(trial: Trial, tmp_path: Path) -> None:
    recipe = trial.directory / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("touch half; echo gcc", "head -c 64M /dev/zero > big || exit 1; echo gcc"))
    small = tmp_path / "small"
    small.mkdir()
    program = f"import sys; sys.argv[1:] = {list(trial.builder()[1:])!r}\nimport tools.toolchain\ntools.toolchain.NEEDED_BYTES = 0\n"
    program += "tools.cache.require_space = lambda *words: None\n"
    done = on_small_disk(small, "16m", program.replace("import tools.toolchain\n", "import tools.cache, tools.toolchain\n") + BUILDER)
    assert done.stdout.startswith("neap: error: toolchain step gcc: no space left on the disk"), done.stdout + done.stderr


def test_a_cache_below_a_path_with_a_space_is_refused(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    with pytest.raises(Failure, match="GCC cannot be built below a path with a space"):
        toolchain.build(trial.mirror.archive())


def test_a_named_toolchain_is_used_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAP_TOOLCHAIN", str(tmp_path))
    with pytest.raises(Failure, match="holds no x86_64-neap-elf-g"):
        toolchain.find()


def test_the_recipe_of_this_checkout_has_the_tested_steps(own_cache: Path) -> None:
    recipe = toolchain.Recipe()
    steps = recipe.steps(Path("/w"), Path("/p"), 2)
    assert [step.name for step in steps] == ["binutils", "gcc libraries", "gcc", "newlib", "libgcc", "libstdc++"]
    words = [word for step in steps for command in step.commands for word in command]
    assert not [word for word in words if "{" in word or word.startswith("@")]
    assert "--prefix=/p" in words and "-j2" in words
    assert [len(recipe.patches[name]) for name in toolchain.SOURCES] == [0, 4, 1]
