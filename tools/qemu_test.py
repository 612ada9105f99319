# SPDX-License-Identifier: BSL-1.0
from pathlib import Path

import pytest

from tools import cache, qemu
from tools.errors import Failure


def fake_qemu(path: Path, version: str, devices: str = 'name "vfio-user-pci", bus PCI') -> tuple[str, ...]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncase $1 in --version) echo 'QEMU emulator version {version} (Debian)';; *) echo '{devices}';; esac\n")
    path.chmod(0o755)
    return (str(path),)


@pytest.fixture(autouse=True)
def no_memory() -> None:
    qemu.command.cache_clear()
    yield
    qemu.command.cache_clear()


def test_a_qemu_that_is_too_old_or_lacks_the_device_is_not_used(tmp_path: Path) -> None:
    assert qemu.suitable(fake_qemu(tmp_path / "a", "10.1.0"))
    assert qemu.suitable(fake_qemu(tmp_path / "b", "11.1.3"))
    assert not qemu.suitable(fake_qemu(tmp_path / "c", "10.0.9"))
    assert not qemu.suitable(fake_qemu(tmp_path / "d", "7.2.22"))
    assert not qemu.suitable(fake_qemu(tmp_path / "e", "11.1.3", 'name "vfio-pci"'))
    assert not qemu.suitable((str(tmp_path / "none"),))


def test_the_systems_own_is_used_if_it_is_suitable(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEAP_QEMU", raising=False)
    own = fake_qemu(tmp_path / "bin/qemu-system-x86_64", "10.2.0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert qemu.command() == own
    fake_qemu(tmp_path / "bin/qemu-system-x86_64", "7.2.0")
    assert qemu.find() is None


def test_the_newest_complete_one_of_the_cache_is_used(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for version in ("10.1.2-aa", "11.2.0-bb", "9.0.0-cc"):
        with cache.Entry("qemu", version).making():
            pass
    (own_cache / "qemu/12.0.0-dd").mkdir()
    assert str(own_cache / "qemu/11.2.0-bb") in qemu.find()[0]


def test_a_named_one_must_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAP_QEMU", str(tmp_path / "none"))
    with pytest.raises(Failure, match="does not start"):
        qemu.command()
    monkeypatch.setenv("NEAP_QEMU", fake_qemu(tmp_path / "mine", "11.0.0")[0])
    assert qemu.command() == (str(tmp_path / "mine"),)


def test_backports_that_are_too_old_are_an_error(own_cache: Path) -> None:
    class OldArchive:
        def candidate(self, package: str, suite: str) -> str:
            return "1:10.0.8+ds-0+deb13u1"

    with pytest.raises(Failure, match=r"QEMU 10.1 or newer is needed; Debian's trixie-backports has 10.0.8"):
        qemu.fetch(OldArchive())


def test_a_fetched_one_that_does_not_start_is_not_kept(mirror, own_cache: Path) -> None:
    mirror.add_package("qemu-system-x86", "1:11.1.3+ds-1", {"usr/bin/qemu-system-x86_64": "not a program"})
    with pytest.raises(Failure, match=r"QEMU 11.1.3 from trixie-backports does not start here"):
        qemu.fetch(mirror.archive())
    assert [path.suffix for path in (own_cache / "qemu").iterdir()] == [".lock"]


def test_the_tested_version_is_what_the_sources_say(qemu_command) -> None:
    assert qemu.suitable(qemu_command)
