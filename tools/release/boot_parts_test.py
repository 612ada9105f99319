# SPDX-License-Identifier: BSL-1.0
"""The wheel's boot parts must do all that the whole packages do."""

import shutil
from pathlib import Path

import pytest

from tools import boot_loaders, boot_programs, build
from tools.boot_programs import BootPrograms
from tools.errors import Failure
from tools.release import boot_components, boot_parts

# Of all boot parts. The packages have 87 MB.
PARTS_BYTES_MAX = 14_000_000


@pytest.fixture(scope="module")
def whole() -> BootPrograms:
    return boot_programs.require()


@pytest.fixture(scope="module")
def copied(whole: BootPrograms, tmp_path_factory: pytest.TempPathFactory) -> BootPrograms:
    """The boot parts in a folder of their own, as a wheel has them: files only."""
    root = tmp_path_factory.mktemp("an installed tree") / "boot-programs"
    for name, source in boot_parts.files(whole).items():
        target = root / Path(name).relative_to(boot_parts.PLACE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    return BootPrograms(root)


def test_a_disc_and_boot_loaders_are_equal_to_those_of_the_whole_packages(
    whole: BootPrograms, copied: BootPrograms, tmp_path: Path
) -> None:
    made = []
    for name, programs in (("whole", whole), ("copied", copied)):
        folder = tmp_path / name
        (folder / "tree/grub").mkdir(parents=True)
        (folder / "tree/grub/grub.cfg").write_text("echo\n")
        (folder / "tree/marker").write_text("marker\n")
        boot_loaders.bios_network(programs, folder / "bios.0")
        boot_loaders.efi_network(programs, folder / "x86_64.efi")
        boot_loaders.disc(programs, folder / "tree", "marker", folder / "disc.iso")
        made.append([(folder / file).read_bytes() for file in ("bios.0", "x86_64.efi", "disc.iso")])
    assert made[0] == made[1]
    assert copied.versions() == whole.versions()
    assert copied.ipxe_efi.read_bytes() == whole.ipxe_efi.read_bytes() and copied.ipxe_bios.is_file() and copied.ipxe_kernel.is_file()


def test_the_parts_are_small(copied: BootPrograms) -> None:
    assert sum(path.stat().st_size for path in copied.root.rglob("*") if path.is_file()) < PARTS_BYTES_MAX


def test_an_installed_neap_takes_its_own_parts(copied: BootPrograms, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert boot_programs.find() is None
    monkeypatch.setattr(build, "BUILD", copied.root.parent)
    found = boot_programs.find()
    assert found is not None and found.root == copied.root


def test_modules_bring_the_modules_that_they_need() -> None:
    assert boot_parts.closure("a: b c\nb: d\nc:\nd: a\ne: f\n", ["a"]) == ["a", "b", "c", "d"]


def test_each_part_has_a_package_with_a_version_and_a_licence(whole: BootPrograms) -> None:
    found = {component.name: component for component in boot_components.components(whole.root, boot_parts.files(whole))}
    assert set(found) >= {"grub-common", "grub-pc-bin", "grub-efi-amd64-bin", "ipxe", "xorriso", "mtools", "libc6", "zlib1g"}
    assert found["grub-common"].version == whole.versions()["grub-common"]
    assert "GNU GENERAL PUBLIC LICENSE" in dict(found["grub-common"].texts)["GPL-3"]
    # The statement of iPXE refers to the newest GPL only, but some of its files are under version 2.
    assert "Version 2, June 1991" in dict(found["ipxe"].texts)["GPL-2"]


def test_a_file_of_an_unknown_package_is_named(whole: BootPrograms) -> None:
    with pytest.raises(Failure, match="is known to have usr/bin/unknown"):
        boot_components.package_of(whole.root, "usr/bin/unknown")
