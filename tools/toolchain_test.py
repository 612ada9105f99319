# SPDX-License-Identifier: BSL-1.0
"""Tests of the toolchain's build, with a recipe whose "compiler" takes no time. The real toolchain is built before any image."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from tools import cache, exchange, sources, toolchain
from tools.archive import VersionGone
from tools.conftest import neap, on_small_disk
from tools.errors import DiskFull, Failure
from tools.fake_mirror import FakeMirror
from tools.process import finished, wait_until

# The "compiler" copies its source. Each step logs that it ran. A step waits while the file `wait` exists, and fails if `fail` exists.
RECIPE = """
source_date_epoch = 1
[lists]
both = ["both"]
[variables]
target_flags = "--from={{work}}"
[[step]]
name = "binutils"
seconds = 1
directory = "build/binutils"
commands = [["sh", "-c", "cat ../../binutils/file; test ! -e half; touch half; echo binutils >> '{log}'", "@both"]]
[[step]]
name = "gcc"
seconds = 2
directory = "build/gcc"
commands = [
  ["sh", "-c", "test ! -e half; touch half; echo gcc >> '{log}'; while test -e '{log}.wait'; do sleep 0.05; done"],
  ["sh", "-c", "test ! -e '{log}.fail'"],
  ["sh", "-c", "mkdir -p '{{prefix}}/bin' '{{prefix}}/empty' && cp ../../gcc/compiler '{{prefix}}/bin/x86_64-neap-elf-g++'"],
  ["sh", "-c", "chmod +x '{{prefix}}/bin/x86_64-neap-elf-g++' && ln -sf x86_64-neap-elf-g++ '{{prefix}}/bin/x86_64-neap-elf-c++'"],
]
"""
COMPILER = '#!/bin/sh\nwhile test $# -gt 0; do test "$1" = -o && out=$2; shift; done\necho object > "$out"\n'
NEWLIB_PATCH = "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-newlib\n+newlib for neap\n"

BUILDER = """
import sys
from pathlib import Path
from tools import toolchain
from tools.archive import Archive
from tools.errors import Failure
toolchain.RECIPE_DIRECTORY = Path(sys.argv[1])
toolchain.STATIC_LIBRARIES = ("c",)
try:
    print(toolchain.build(Archive(Path(sys.argv[2]), Path(sys.argv[3]))))
except Failure as failure:
    print(failure.report())
"""


class Trial:
    """A recipe directory, the mirror with its sources, and the log of the steps that ran."""

    def __init__(self, directory: Path, mirror: FakeMirror):
        self.directory = directory
        self.mirror = mirror
        self.log = directory / "steps"
        directory.mkdir()
        (directory / "recipe.toml").write_text(RECIPE.format(log=self.log))
        (directory / "patches/newlib").mkdir(parents=True)
        (directory / "patches/newlib/0001.patch").write_text("Why.\n\n" + NEWLIB_PATCH)
        self.debs = {name: self.add(name, "1") for name in toolchain.SOURCES}
        self.pin()

    def add(self, name: str, version: str) -> Path:
        tree = self.mirror.directory / f"{name}-{version}"
        tree.mkdir()
        (tree / "file").write_text(f"{name}\n")
        (tree / "compiler").write_text(COMPILER)
        archive = self.mirror.directory / f"{name}-{version}.tar.xz"
        subprocess.run(["tar", "-C", str(tree.parent), "-cJf", str(archive), tree.name], check=True, timeout=60)
        return self.mirror.add_package(f"{name}-source", version, {f"usr/src/{name}/{name}-{version}.tar.xz": archive})

    def pin(self, **digests: str) -> None:
        rows = [
            f'[{name}]\npackage = "{name}-source"\nversion = "1"\nsha256 = "{digests.get(name, cache.file_sha256(deb))}"\n'
            f'directory = "usr/src/{name}"\n'
            for name, deb in self.debs.items()
        ]
        (self.directory / "sources.toml").write_text("\n".join(rows))

    def ran(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    def builder(self) -> tuple[str, str, str, str]:
        return BUILDER, str(self.directory), str(self.mirror.system_root), str(self.mirror.keyring)


@pytest.fixture
def trial(tmp_path: Path, mirror: FakeMirror, monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.setattr(toolchain, "RECIPE_DIRECTORY", tmp_path / "recipe")
    monkeypatch.setattr(toolchain, "STATIC_LIBRARIES", ("c",))
    monkeypatch.delenv("NEAP_TOOLCHAIN", raising=False)
    return Trial(tmp_path / "recipe", mirror)


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
    recipe.write_text(recipe.read_text().replace("cat ../../binutils/file", "head -c 64M /dev/zero > big || exit 1"))
    small = tmp_path / "small"
    small.mkdir()
    program = f"import sys; sys.argv[1:] = {list(trial.builder()[1:])!r}\nimport tools.toolchain\ntools.toolchain.NEEDED_BYTES = 0\n"
    program += "tools.cache.require_space = lambda *words: None\n"
    done = on_small_disk(small, "16m", program.replace("import tools.toolchain\n", "import tools.cache, tools.toolchain\n") + BUILDER)
    assert done.stdout.startswith("neap: error: toolchain step binutils: no space left on the disk"), done.stdout + done.stderr


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
    assert [step.name for step in steps] == ["binutils", "gcc", "newlib", "libgcc", "libstdc++"]
    words = [word for step in steps for command in step.commands for word in command]
    assert not [word for word in words if "{" in word or word.startswith("@")]
    assert "--prefix=/p" in words and "-j2" in words
    assert [len(recipe.patches[name]) for name in toolchain.SOURCES] == [0, 3, 1]


# ---- export and import ----


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
