# SPDX-License-Identifier: BSL-1.0
"""Tests of the Debian packages, with small programs and a toolchain of scripts. dpkg-deb reads the packages where it exists."""

import gzip
import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tools import toolchain
from tools.conftest import REPOSITORY
from tools.errors import Failure
from tools.process import finished, output_of
from tools.release import debian_archive, debian_packages, elf_needs
from tools.release.debian_archive import Entry, Package

EPOCH = 1_700_000_001
STATIC = ".globl _start\n_start: hlt\n"
# A program that does what the toolchain's strip does to its arguments: it writes a file of the given name.
STRIP = '#!/bin/sh\nwhile test "$1" != -o; do shift; done\ncp "$3" "$2"\n'
LARGE = b"large" * 20_000


@dataclass(frozen=True)
class TrialStage:
    tree: Path
    version: str
    epoch: int
    soft_card: Path
    load: Path
    load_stub: Path
    toolchain: Path


@pytest.fixture(scope="session")
def static_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static")
    (folder / "a.S").write_text(STATIC)
    subprocess.run(["as", "-o", "a.o", "a.S"], cwd=folder, check=True, timeout=60)
    subprocess.run(["ld", "-o", "program", "a.o"], cwd=folder, check=True, timeout=60)
    return folder / "program"


@pytest.fixture
def stage(tmp_path: Path, static_program: Path) -> TrialStage:
    return make_stage(tmp_path / "stage", static_program)


def make_stage(folder: Path, program: Path, order: int = 1) -> TrialStage:
    """Makes the products of a stage. `order` reverses the order in which the files of the toolchain are made."""
    names = {
        f"bin/{toolchain.TARGET}-strip": STRIP.encode(),
        f"bin/{toolchain.TARGET}-g++": LARGE,
        f"bin/{toolchain.TARGET}-ld": LARGE + b"ld",
        f"{toolchain.TARGET}/bin/ld": LARGE + b"ld",
        f"{toolchain.TARGET}/lib/libc.a": b"an archive",
        "libexec/plugin.so": b"a library",
        f"{toolchain.TARGET}/lib/libstdc++.la": b"a file of libtool",
        ".complete": b"complete",
    }
    prefix = folder / "toolchain"
    for name in list(names)[::order]:
        path = prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(names[name])
        if path.parent.name == "bin" or path.suffix == ".so":
            path.chmod(0o755)
    (prefix / f"bin/{toolchain.TARGET}-c++").symlink_to(f"{toolchain.TARGET}-g++")
    products = {name: folder / name for name in ("soft82599", "neap-load", "neap-load-stub")}
    for path in products.values():
        shutil.copy(program, path)
    card, load, stub = products.values()
    return TrialStage(REPOSITORY, "1.2.3~dev+gabc", EPOCH, card, load, stub, prefix)


def write(stage: TrialStage, out: Path) -> dict[str, Path]:
    out.mkdir()
    return {path.name.split("_")[0]: path for path in debian_packages.write_packages(stage, out)}


def unpacked(package: Path, folder: Path) -> Path:
    """Unpacks the files of a package into a new folder, and its control files into the folder's subfolder DEBIAN."""
    if shutil.which("dpkg-deb"):
        subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(folder)], check=True, timeout=60)
        return folder
    for member, place in (("control.tar.xz", folder / "DEBIAN"), ("data.tar.xz", folder)):
        place.mkdir(parents=True, exist_ok=True)
        content = subprocess.run(["ar", "p", str(package), member], check=True, capture_output=True, timeout=60).stdout
        subprocess.run(["tar", "-xJf", "-", "-C", str(place)], input=content, check=True, timeout=60)
    return folder


def fields(folder: Path) -> dict[str, str]:
    text = (folder / "DEBIAN/control").read_text()
    return dict(re.findall(r"^([A-Z][A-Za-z-]+): (.*(?:\n .*)*)", text, re.MULTILINE))


def files(folder: Path) -> set[str]:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}
    return {name for name in found if not name.startswith("DEBIAN/")}


# Two releases of a commit must be equal, although their files differ in place, time, rights and order on the disk.
def test_equal_stages_give_equal_packages(tmp_path: Path, static_program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(make_stage(tmp_path / "one", static_program), tmp_path / "out one")
    before = os.umask(0o077)
    try:
        other = make_stage(tmp_path / "other place", static_program, -1)
        for path in other.toolchain.rglob("*"):
            if path.is_file():
                os.utime(path, (5, 5))
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        second = write(other, tmp_path / "out two")
    finally:
        os.umask(before)
    assert sorted(first) == ["neap-load", "neap-toolchain", "soft82599"]
    for name, path in first.items():
        assert path.name == second[name].name
        assert path.read_bytes() == second[name].read_bytes(), name
    later = write(replace(make_stage(tmp_path / "later", static_program), epoch=EPOCH + 1), tmp_path / "out later")
    assert first["soft82599"].read_bytes() != later["soft82599"].read_bytes()


def test_the_soft_cards_package_has_its_program_page_units_and_documents(stage: TrialStage, tmp_path: Path) -> None:
    package = write(stage, tmp_path / "out")["soft82599"]
    assert package.name == "soft82599_1.2.3~dev+gabc-1_amd64.deb"
    root = unpacked(package, tmp_path / "root")
    documents = {f"usr/share/doc/soft82599/{name}" for name in ("README.md", "changelog.gz", "changelog.Debian.gz", "copyright")}
    units = {f"usr/lib/systemd/system/soft82599.{kind}" for kind in ("service", "socket")}
    others = {"usr/bin/soft82599", "usr/share/man/man1/soft82599.1.gz", "usr/share/lintian/overrides/soft82599"}
    assert files(root) == documents | units | others
    modes = {str(path.relative_to(root)): path.stat().st_mode & 0o7777 for path in root.rglob("*")}
    assert {name for name, mode in modes.items() if mode == 0o755 and (root / name).is_file()} == {"usr/bin/soft82599", "DEBIAN/prerm"}
    assert set(modes.values()) == {0o755, 0o644}
    assert all(int(path.stat().st_mtime) == EPOCH for path in root.rglob("*") if path.is_file())
    listed = output_of(["dpkg-deb", "--contents", str(package)]) if shutil.which("dpkg-deb") else ""
    assert all("root/root" in line for line in listed.splitlines())
    assert (root / "usr/bin/soft82599").read_bytes() == stage.soft_card.read_bytes()
    page = (root / "usr/share/man/man1/soft82599.1.gz").read_bytes()
    assert page[4:8] == bytes(4), "the time of compression is in the file"
    assert gzip.decompress(page) == (REPOSITORY / "sim/soft82599/soft82599.1").read_bytes()


def test_the_control_fields_describe_the_files(stage: TrialStage, tmp_path: Path) -> None:
    packages = write(stage, tmp_path / "out")
    for name, package in packages.items():
        root = unpacked(package, tmp_path / name)
        found = fields(root)
        assert (found["Package"], found["Version"], found["Architecture"]) == (name, "1.2.3~dev+gabc-1", "amd64")
        assert re.fullmatch(r"[^<>]+ <[^<>@ ]+@[^<>@ ]+>", found["Maintainer"])
        assert all(len(line) < 80 for line in found["Description"].split("\n")) and "\n ." in found["Description"] + "\n ."
        # A static program, and scripts, need no library.
        assert "Depends" not in found
        inside = [path for path in root.rglob("*") if path.relative_to(root).parts[0] != "DEBIAN"]
        whole = [path for path in inside if path.is_file() and not path.is_symlink()]
        kib = sum(-(-path.stat().st_size // 1024) for path in whole) + len(inside) - len(whole)
        assert int(found["Installed-Size"]) == kib, name
        sums = dict(line.split("  ")[::-1] for line in (root / "DEBIAN/md5sums").read_text().splitlines())
        assert sums == {str(path.relative_to(root)): hashlib.md5(path.read_bytes()).hexdigest() for path in whole}


# apt must replace a snapshot by the release, and not the other way round.
def test_a_snapshot_is_older_than_its_release(stage: TrialStage, tmp_path: Path) -> None:
    snapshot, release = (debian_packages.cross_toolchain(replace(stage, version=version), tmp_path) for version in ("1.2~dev+gab", "1.2"))
    assert (snapshot.version, release.version) == ("1.2~dev+gab-1", "1.2-1")
    if shutil.which("dpkg"):
        assert finished(["dpkg", "--compare-versions", snapshot.version, "lt", release.version]).returncode == 0


def test_the_maintainer_script_is_a_script_that_names_the_units(stage: TrialStage, tmp_path: Path) -> None:
    script = unpacked(write(stage, tmp_path / "out")["soft82599"], tmp_path / "root") / "DEBIAN/prerm"
    assert finished(["sh", "-n", str(script)]).returncode == 0
    assert "stop soft82599.socket soft82599.service " in script.read_text()
    # It is run for upgrades, too, which must not end a guest's card.
    assert finished(["sh", str(script), "upgrade", "2"]).returncode == 0


def test_the_changes_and_the_copyright_have_debians_form(stage: TrialStage, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / debian_packages.LICENCES).write_text("all licences\n")
    for package in debian_packages.write_packages(stage, out):
        name = package.name.split("_")[0]
        documents = unpacked(package, tmp_path / name) / "usr/share/doc" / name
        changes = gzip.decompress((documents / "changelog.Debian.gz").read_bytes()).decode()
        line = r" -- .+ <.+>  Tue, 14 Nov 2023 22:13:21 [+-]0000\n"
        assert re.fullmatch(rf"{name} \(1\.2\.3~dev\+gabc-1\) unstable; urgency=\w+\n\n(  \S.*\n)+\n{line}", changes), changes
        copyright_text = (documents / "copyright").read_text()
        assert copyright_text.startswith("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n")
        # Each licence that a paragraph of files names has a paragraph of its own.
        used = re.findall(r"^Copyright: .*\nLicense: (.+)$", copyright_text, re.MULTILINE)
        explained = re.findall(r"\n\nLicense: (.+)\n ", copyright_text)
        assert set(used) == set(explained) and "BSL-1.0" in used, (used, explained)
        assert not any(line.startswith((" \n", "\t")) or line != line.rstrip() for line in copyright_text.split("\n"))
        assert gzip.decompress((documents / f"{debian_packages.LICENCES}.gz").read_bytes()) == b"all licences\n"


def test_the_toolchains_package_has_its_prefix_and_links_to_its_programs(stage: TrialStage, tmp_path: Path) -> None:
    root = unpacked(write(stage, tmp_path / "out")["neap-toolchain"], tmp_path / "root")
    prefix = root / debian_packages.TOOLCHAIN_PREFIX
    assert (prefix / debian_packages.RECIPE_FILE).read_text() == f"{toolchain.Recipe().key()}\n"
    for name in ("g++", "c++", "ld", "strip"):
        link = root / f"usr/bin/{toolchain.TARGET}-{name}"
        assert link.is_symlink() and link.resolve().parent == (prefix / "bin").resolve() and os.access(link, os.X_OK), name
        page = root / f"usr/share/man/man1/{toolchain.TARGET}-{name}.1.gz"
        assert page.resolve() == root / f"usr/share/man/man7/{toolchain.TARGET}.7.gz"
    # The linker is in the prefix twice.
    again = prefix / toolchain.TARGET / "bin/ld"
    assert again.is_symlink() and again.read_bytes() == LARGE + b"ld"
    assert not (prefix / toolchain.TARGET / "lib/libc.a").is_symlink()
    assert (prefix / "libexec/plugin.so").stat().st_mode & 0o777 == 0o644
    assert not list(root.rglob("*.la")) and not list(root.rglob(".complete"))


def test_a_missing_product_is_named_and_nothing_half_written_stays(stage: TrialStage, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    stage.load_stub.unlink()
    with pytest.raises(Failure, match="neap-load-stub"):
        debian_packages.write_packages(stage, out)
    assert not list(out.glob("neap-load*")) and not list(out.glob(".*"))
    (stage.toolchain / f"bin/{toolchain.TARGET}-g++").unlink()
    with pytest.raises(Failure, match=f"{toolchain.TARGET}-g\\+\\+"):
        debian_packages.cross_toolchain(stage, out)


@pytest.mark.parametrize("path", ["/etc/passwd", "../etc/passwd", "usr//bin/x", "usr/./x", "usr/bin/", "twice"])
def test_a_path_outside_the_root_or_of_two_files_is_refused(path: str, tmp_path: Path) -> None:
    package = Package("trial", "1-1", "all", {"Description": "a trial"}, [Entry("twice"), Entry(path)])
    with pytest.raises(Failure, match="not normal, or occurs twice"):
        debian_archive.write(package, tmp_path, EPOCH)
    assert not list(tmp_path.iterdir())


def test_a_program_depends_on_the_newest_version_that_its_symbols_need(tmp_path: Path) -> None:
    program = Path("/bin/sh").resolve()
    listed = output_of(["readelf", "--version-info", "--wide", str(program)])
    newest = max(tuple(int(part) for part in version.split(".")) for version in re.findall(r"GLIBC_([0-9.]+)", listed))
    assert f"libc6 (>= {'.'.join(map(str, newest))})" in elf_needs.depends([program])
    # The version is compared by numbers: 2.4 is older than 2.34.
    assert newest >= (2, 14)


def test_a_library_of_no_known_package_is_refused(static_program: Path, tmp_path: Path) -> None:
    folder = static_program.parent
    subprocess.run(
        ["ld", "-shared", "-soname", "libodd.so.1", "-o", str(tmp_path / "libodd.so"), "a.o"], cwd=folder, check=True, timeout=60
    )
    link = ["ld", "-dynamic-linker", "/lib64/ld-linux-x86-64.so.2", "-o", str(tmp_path / "odd"), "a.o", str(tmp_path / "libodd.so")]
    subprocess.run(link, cwd=folder, check=True, timeout=60)
    assert elf_needs.needs(tmp_path / "odd").libraries == {"libodd.so.1"}
    with pytest.raises(Failure, match=r"libodd\.so\.1"):
        elf_needs.depends([tmp_path / "odd"])


def test_a_damaged_program_is_refused_at_every_length(tmp_path: Path) -> None:
    whole = Path("/bin/sh").resolve().read_bytes()
    damaged = tmp_path / "damaged"
    for length in (0, 3, 16, 63, 64, 1000, len(whole) // 2, len(whole) - 1):
        damaged.write_bytes(whole[:length])
        with pytest.raises(Failure, match="not a whole 64-bit ELF file"):
            elf_needs.needs(damaged)


def test_the_units_start_the_packaged_program(stage: TrialStage, tmp_path: Path) -> None:
    root = unpacked(write(stage, tmp_path / "out")["soft82599"], tmp_path / "root")
    units = root / debian_packages.UNITS
    service = (units / "soft82599.service").read_text()
    assert re.search(r"^ExecStart=/usr/bin/soft82599 ", service, re.MULTILINE) and (root / "usr/bin/soft82599").is_file()
    if shutil.which("systemd-analyze"):
        for unit in ("sysinit", "basic", "shutdown", "sockets"):
            (units / f"{unit}.target").write_text("[Unit]\nDefaultDependencies=no\n")
        names = ["soft82599.service", "soft82599.socket"]
        done = finished(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", f"--root={root}", *names])
        assert (done.returncode, done.stderr) == (0, "")
