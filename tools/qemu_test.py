# SPDX-License-Identifier: BSL-1.0
import os
import signal
from pathlib import Path

import pytest

from tools import archive as archive_module
from tools import cache, qemu
from tools.conftest import alive, on_small_disk
from tools.errors import Failure
from tools.process import finished, wait_until


def fake_qemu(path: Path, version: str, devices: str = 'name "vfio-user-pci", bus PCI') -> tuple[str, ...]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncase $1 in --version) echo 'QEMU emulator version {version} (Debian)';; *) echo '{devices}';; esac\n")
    path.chmod(0o755)
    return (str(path),)


@pytest.fixture(autouse=True)
def no_memory() -> None:
    for remembered in (qemu.command, qemu.plain_command):
        remembered.cache_clear()
    yield
    for remembered in (qemu.command, qemu.plain_command):
        remembered.cache_clear()


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


# A program that serves as a package's dynamic linker, and answers as QEMU does.
STARTED = """#!/bin/sh
case "$*" in *--version) echo 'QEMU emulator version 11.1.3';; *) echo 'name "vfio-user-pci", bus PCI';; esac
"""
FETCH = """
import sys
from pathlib import Path
from tools import cli, qemu
from tools.archive import Archive
cli._dispatch = lambda words: print(qemu.fetch(Archive(Path(words[0]), Path(words[1])))[0]) or 0
sys.exit(cli.main(sys.argv[1:]))
"""
SLOW = '#!/bin/sh\n[ "$1" = --extract ] && exec sleep 345\nexec /usr/bin/dpkg-deb "$@"\n'


@pytest.fixture
def packaged(mirror, tmp_path: Path):
    """A mirror with a QEMU that starts, in two packages."""
    linker = tmp_path / "linker"
    linker.write_text(STARTED)
    linker.chmod(0o755)
    mirror.add_package("qemu-system-x86", "1:11.1.3+ds-1", {"usr/lib64/ld-linux-x86-64.so.2": linker, "usr/share/qemu/x": "x" * 200_000})
    return mirror


def fetched(python, mirror, **environment: str):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return python(FETCH, str(mirror.system_root), str(mirror.keyring))


def test_a_fetch_that_is_interrupted_twice_goes_on_without_the_mirror(packaged, python, tmp_path: Path, own_cache: Path) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow/dpkg-deb").write_text(SLOW)
    (tmp_path / "slow/dpkg-deb").chmod(0o755)
    first = fetched(python, packaged, PATH=f"{tmp_path / 'slow'}:{os.environ['PATH']}")
    unpacking = wait_until(lambda: finished(["pgrep", "-f", "^sleep 345$"]).stdout.split(), 60)
    assert unpacking, "it was to be interrupted while it unpacks"
    for _ in range(2):
        first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 130 and "Traceback" not in errors, errors
    assert not any(alive(int(pid)) for pid in unpacking)
    (next((own_cache / "apt").glob("*/packages")) / "qemu-10.1.0-older").mkdir()
    assert not list((own_cache / "qemu").glob("*/")) and list((own_cache / "apt").rglob("qemu-system-x86_*.deb"))
    cache.remove(packaged.pool)
    second = fetched(python, packaged)
    output, errors = second.communicate(timeout=60)
    assert second.returncode == 0 and output.strip().endswith("ld-linux-x86-64.so.2"), errors
    assert not list((own_cache / "apt").glob("*/packages/*"))


def test_a_kept_package_that_is_damaged_is_fetched_again(packaged) -> None:
    archive = packaged.archive()
    _, entry = qemu.candidate(archive)
    (kept,) = archive.download(qemu.packages_of(archive), archive.kept(entry.path))
    kept.write_bytes(bytes(kept.stat().st_size))
    assert qemu.suitable(qemu.fetch(archive))


@pytest.mark.parametrize("inodes", (12, 20, 28, 100))
def test_a_disk_that_fills_up_during_the_fetch_is_named(packaged, tmp_path: Path, inodes: int) -> None:
    small = tmp_path / "small"
    small.mkdir()
    program = FETCH.replace("sys.argv[1:]", repr([str(packaged.system_root), str(packaged.keyring)]))
    done = on_small_disk(small, f"600m,nr_inodes={inodes}", program + "\n")
    assert "Traceback" not in done.stderr, done.stderr
    if done.returncode == 0:
        assert inodes == 100, "the disk was to be full"
        return
    errors = [line for line in done.stderr.splitlines() if line.startswith("neap: error:")]
    assert len(errors) == 1 and "no space left on the disk" in errors[0], done.stderr


def test_another_system_than_debian_is_told_how_to_get_a_qemu(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_root: Path = Path("/")) -> list[str]:
        raise Failure("this machine's apt knows no Debian mirror")

    monkeypatch.delenv("NEAP_QEMU", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Failure, match="this machine has no apt-get and no apt-cache") as caught:
        qemu.command()
    assert "QEMU 10.1 or newer" in caught.value.hint and "NEAP_QEMU" in caught.value.hint
    assert "--card virtio, which works with QEMU 7.2 or newer" in caught.value.hint
    monkeypatch.undo()
    monkeypatch.setattr(qemu, "find", lambda: None)
    monkeypatch.setattr(archive_module.mirror, "debian_mirrors", none)
    monkeypatch.setattr(qemu.shutil, "which", lambda _name: None)
    monkeypatch.setattr(archive_module, "PROGRAMS", ())
    with pytest.raises(Failure, match="knows no Debian mirror") as caught:
        qemu.plain_command()
    assert caught.value.hint == "install qemu-system-x86 7.2 or newer, or name such a QEMU by NEAP_QEMU"


def test_a_cache_below_a_path_with_a_space_gets_a_qemu(packaged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    fetched = qemu.fetch(packaged.archive())
    assert fetched[0].startswith(str(tmp_path / "a cache/neap/qemu")) and qemu.suitable(fetched)
