# SPDX-License-Identifier: BSL-1.0
"""Tests of the checks before a card is passed through, and of bind and unbind, with a fake Linux in a folder of files."""

import json
import os
import re
from pathlib import Path

import pytest

from tools import run, vfio
from tools.errors import Failure, UsageError

CARD = "0000:03:00.0"
SECOND_PORT = "0000:03:00.1"
BRIDGE = "0000:00:01.0"
RAM = 512 << 20


class FakeLinux(vfio.Host):
    """A host with one two-port 82599 behind a bridge, ready to be passed through. Writes to sysfs have the effect that Linux gives them."""

    def __init__(self, root: Path):
        super().__init__(root)
        self.written: list[tuple[str, str]] = []
        self.limit: int | None = RAM + vfio.MEMORY_BESIDES_BYTES
        self.unusable: set[str] = set()
        self.kvm = True
        self.probe_fails_for: set[str] = set()
        for name in ("ixgbe", "vfio-pci", "pcieport"):
            for file in ("bind", "unbind"):
                self.file(f"/sys/bus/pci/drivers/{name}/{file}")
        self.file("/sys/bus/pci/drivers_probe")
        self.file("/proc/cmdline", "root=/dev/sda1 intel_iommu=on")
        for name in ("/dev/vfio/vfio", "/dev/vfio/7", "/dev/kvm"):
            self.file(name)
        self.add(BRIDGE, device=0x0C01, kind=0x060400, driver="pcieport")
        self.add(CARD, driver="vfio-pci")
        self.add(SECOND_PORT, driver="vfio-pci")

    def file(self, name: str, text: str = "") -> None:
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(text + "\n")

    def add(self, address: str, *, device: int = 0x10FB, kind: int = 0x020000, driver: str | None, group: str | None = "7") -> None:
        for name, text in (("vendor", "0x8086"), ("device", f"{device:#06x}"), ("class", f"{kind:#08x}"), ("driver_override", "(null)")):
            self.file(f"/sys/bus/pci/devices/{address}/{name}", text)
        self.set_driver(address, driver)
        if group is not None:
            (self.path(f"/sys/kernel/iommu_groups/{group}/devices") / address).mkdir(parents=True)
            self.device(address).joinpath("iommu_group").symlink_to(self.path(f"/sys/kernel/iommu_groups/{group}"))

    def set_driver(self, address: str, driver: str | None) -> None:
        link = self.device(address) / "driver"
        link.unlink(missing_ok=True)
        if driver:
            link.symlink_to(self.path(f"/sys/bus/pci/drivers/{driver}"))

    def driver(self, address: str = CARD) -> str | None:
        return self.link_name(self.device(address) / "driver")

    # ---- replacements for Linux ----

    def write(self, path: Path, text: str) -> None:
        path = path.parent.resolve() / path.name
        name = "/" + str(path.relative_to(self.root.resolve()))
        self.written.append((name, text))
        if not path.exists():
            raise FileNotFoundError(2, "No such file or directory", name)
        if match := re.fullmatch(r"/sys/bus/pci/drivers/(.*)/unbind", name):
            assert self.driver(text) == match[1]
            self.set_driver(text, None)
        elif match := re.fullmatch(r"/sys/bus/pci/drivers/(.*)/bind", name):
            self.set_driver(text, match[1])
        elif name == "/sys/bus/pci/drivers_probe":
            override = self.read(self.device(text) / "driver_override")
            driver = override if override not in ("", "(null)") else "ixgbe"
            if driver not in self.probe_fails_for:
                self.set_driver(text, driver)
        else:
            assert name == f"/sys/bus/pci/devices/{CARD}/driver_override"
            path.write_text(text)

    def may_use(self, path: Path) -> bool:
        return "/" + str(path.relative_to(self.root)) not in self.unusable

    def locked_memory_limit(self) -> int | None:
        return self.limit

    def kvm_answers(self) -> bool:
        return self.kvm


@pytest.fixture
def linux(tmp_path: Path) -> FakeLinux:
    return FakeLinux(tmp_path / "root")


def remove(path: Path) -> None:
    path.unlink()


def all_files(root: Path) -> dict[str, str]:
    def content(path: Path) -> str:
        return os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else ""

    return {str(path): content(path) for path in root.rglob("*")}


def test_the_device_ids_are_those_of_the_driver() -> None:
    assert {0x10FB, 0x154D, 0x1528, 0x1563} <= set(vfio.device_ids())
    assert len(vfio.device_ids()) == vfio.DEVICE_IDS.read_text().count("{0x")


def test_a_card_that_is_ready_passes(linux: FakeLinux) -> None:
    card = vfio.require_card("03:00.0", "512M", "kvm", linux)
    assert card.address == CARD
    assert json.loads(card.qemu_options()[1]) == {"driver": "vfio-pci", "host": CARD, "id": "nic"}


# For each broken requirement, the message and the remedy.
BROKEN = {
    "another device": (
        lambda x: x.file(f"/sys/bus/pci/devices/{CARD}/device", "0x1521"),
        "is no card of the driver's, but 8086:1521",
        "8086:10fb",
    ),
    "another vendor": (
        lambda x: x.file(f"/sys/bus/pci/devices/{CARD}/vendor", "0x15b3"),
        "is no card of the driver's, but 15b3:10fb",
        "lspci",
    ),
    "no IOMMU": (lambda x: x.path("/sys/kernel/iommu_groups").rename(x.path("/sys/kernel/gone")), "the IOMMU is off", "intel_iommu=on"),
    "no group": (lambda x: remove(x.device(CARD) / "iommu_group"), "is in no IOMMU group", "another slot"),
    "a neighbour in use": (lambda x: x.set_driver(SECOND_PORT, "ixgbe"), r"group 7 .* holds .*03:00.1 \(ixgbe\)", "bind"),
    "Linux's driver": (lambda x: x.set_driver(CARD, "ixgbe"), "Linux's driver ixgbe, not to vfio-pci", f"neap vfio bind {CARD}"),
    "no driver": (lambda x: x.set_driver(CARD, None), "bound to no driver, not to vfio-pci", "neap vfio bind"),
    "no vfio": (lambda x: remove(x.path("/dev/vfio/vfio")), "there is no /dev/vfio/vfio", "modprobe vfio-pci"),
    "no group file": (lambda x: remove(x.path("/dev/vfio/7")), "there is no /dev/vfio/7", "bind it again"),
    "no right": (lambda x: x.unusable.add("/dev/vfio/7"), "no permission to use /dev/vfio/7", "chown"),
    "little memory": (lambda x: setattr(x, "limit", 8 << 20), "may lock 8 MiB of memory, --memory 512M .* needs 576 MiB", "589824"),
    "no KVM": (lambda x: remove(x.path("/dev/kvm")), "there is no /dev/kvm", "--accel tcg"),
    "no right to KVM": (lambda x: x.unusable.add("/dev/kvm"), "no permission to use /dev/kvm", "adduser"),
    "silent KVM": (lambda x: setattr(x, "kvm", False), "does not answer", "dmesg"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_each_check_has_its_own_message_and_remedy_and_changes_nothing(what: str, linux: FakeLinux) -> None:
    breaking, message, remedy = BROKEN[what]
    breaking(linux)
    before = all_files(linux.root)
    with pytest.raises(Failure, match=message) as caught:
        vfio.require_card(CARD, "512M", "kvm", linux)
    assert remedy in caught.value.hint and "\n" not in caught.value.message
    assert all_files(linux.root) == before and not linux.written


def test_an_iommu_that_was_turned_off_by_a_word_names_the_word(linux: FakeLinux) -> None:
    linux.path("/sys/kernel/iommu_groups").rename(linux.path("/sys/kernel/gone"))
    linux.file("/proc/cmdline", "quiet intel_iommu=off")
    with pytest.raises(Failure, match="started with intel_iommu=off"):
        vfio.require_card(CARD, "512M", "kvm", linux)


@pytest.mark.parametrize(
    "word", ["", "3:0.0", "eth0", "0000:03:00", "0000:03:00.8", "0000:03:20.0", "../../..", "0000:03:00.0\n", "zz:00.0"]
)
def test_an_invalid_address_is_refused(word: str, linux: FakeLinux) -> None:
    with pytest.raises(UsageError, match="is no PCI address"):
        vfio.require_card(word, "512M", "kvm", linux)


def test_an_address_without_a_device_is_refused(linux: FakeLinux) -> None:
    with pytest.raises(Failure, match="there is no PCI device 0000:04:00.0"):
        vfio.require_card("04:00.0", "512M", "kvm", linux)


def test_without_kvm_the_card_goes_to_an_emulated_cpu(linux: FakeLinux) -> None:
    linux.path("/dev/kvm").unlink()
    assert vfio.require_card(CARD, "512M", "tcg", linux).address == CARD
    assert vfio.require_card(CARD, "512M", "auto", linux).address == CARD


def test_no_limit_is_enough_memory(linux: FakeLinux) -> None:
    linux.limit = None
    assert vfio.require_card(CARD, "64G", "kvm", linux).address == CARD


def test_the_limit_of_this_process_is_read() -> None:
    limit = vfio.Host().locked_memory_limit()
    assert limit is None or limit >= 0


# ---- bind and unbind ----


def test_bind_and_unbind_are_each_others_reverse(linux: FakeLinux, capsys) -> None:
    linux.set_driver(CARD, "ixgbe")
    before = all_files(linux.root)
    vfio.command("bind", CARD, host=linux)
    assert linux.driver() == "vfio-pci" and linux.read(linux.device(CARD) / "driver_override") == "vfio-pci"
    assert "ixgbe -> vfio-pci" in capsys.readouterr().out
    vfio.command("bind", CARD, host=linux)
    assert "already" in capsys.readouterr().out
    vfio.command("unbind", CARD, host=linux)
    assert "vfio-pci -> ixgbe" in capsys.readouterr().out
    after = all_files(linux.root)
    assert linux.driver() == "ixgbe" and linux.read(linux.device(CARD) / "driver_override") == ""
    assert {name for name in before if before[name] != after.get(name)} == {str(linux.device(CARD) / "driver_override")}


def test_a_card_without_a_driver_goes_back_to_none(linux: FakeLinux) -> None:
    linux.set_driver(CARD, None)
    vfio.command("bind", CARD, host=linux)
    assert linux.driver() == "vfio-pci"
    vfio.command("unbind", CARD, host=linux)
    assert linux.driver() is None


def test_a_card_bound_by_other_means_goes_to_its_matching_driver(linux: FakeLinux) -> None:
    linux.device(CARD).joinpath("driver_override").write_text("vfio-pci\n")
    vfio.command("unbind", CARD, host=linux)
    assert linux.driver() == "ixgbe"


def test_a_card_that_vfio_does_not_take_keeps_its_driver(linux: FakeLinux) -> None:
    linux.set_driver(CARD, "ixgbe")
    linux.probe_fails_for = {"vfio-pci"}
    with pytest.raises(Failure, match="did not go to vfio-pci"):
        vfio.command("bind", CARD, host=linux)
    assert linux.driver() == "ixgbe" and linux.read(linux.device(CARD) / "driver_override") == ""
    assert not linux.path(f"/run/neap/vfio/{CARD}").exists()


def test_the_interface_that_this_linux_may_be_reached_by_is_not_taken(linux: FakeLinux) -> None:
    linux.set_driver(CARD, "ixgbe")
    linux.file(f"/sys/bus/pci/devices/{CARD}/net/enp3s0f0/flags", "0x1003")
    with pytest.raises(Failure, match="enp3s0f0 on 0000:03:00.0 is up") as caught:
        vfio.command("bind", CARD, host=linux)
    assert "ip link set enp3s0f0 down" in caught.value.hint and not linux.written
    linux.file(f"/sys/bus/pci/devices/{CARD}/net/enp3s0f0/flags", "0x1002")
    vfio.command("bind", CARD, host=linux)


def test_bind_without_the_module_or_the_iommu_writes_nothing(linux: FakeLinux) -> None:
    linux.set_driver(CARD, "ixgbe")
    linux.path("/sys/bus/pci/drivers/vfio-pci").rename(linux.path("/sys/bus/pci/gone"))
    with pytest.raises(Failure, match="no vfio-pci"):
        vfio.command("bind", CARD, host=linux)
    linux.path("/sys/kernel/iommu_groups").rename(linux.path("/sys/kernel/gone"))
    with pytest.raises(Failure, match="the IOMMU is off"):
        vfio.command("bind", CARD, host=linux)
    assert not linux.written


def test_bind_without_permission_is_an_error(linux: FakeLinux, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    linux.set_driver(CARD, "ixgbe")
    monkeypatch.setattr(linux, "write", refuse)
    with pytest.raises(Failure, match="no permission to write .*driver_override") as caught:
        vfio.command("bind", CARD, host=linux)
    assert "root" in caught.value.hint and linux.driver() == "ixgbe"


def test_a_card_that_vfio_does_not_have_cannot_be_unbound(linux: FakeLinux) -> None:
    linux.set_driver(CARD, "ixgbe")
    with pytest.raises(Failure, match="is not bound to vfio-pci, but to ixgbe"):
        vfio.command("unbind", CARD, host=linux)
    assert not linux.written


def test_a_device_that_is_no_82599_is_left_alone(linux: FakeLinux) -> None:
    for action in ("bind", "unbind", "status"):
        with pytest.raises(Failure, match="is no card of the driver's"):
            vfio.command(action, BRIDGE, host=linux)


def test_status_reports_the_state_and_changes_nothing(linux: FakeLinux, capsys) -> None:
    before = all_files(linux.root)
    vfio.command("status", CARD, host=linux)
    assert "ready for --vfio" in capsys.readouterr().out
    linux.set_driver(SECOND_PORT, "ixgbe")
    vfio.command("status", CARD, as_json=True, host=linux)
    report = json.loads(capsys.readouterr().out)
    assert report["driver"] == "vfio-pci" and report["others_in_group"] == [{"address": SECOND_PORT, "driver": "ixgbe"}]
    assert not report["ready"] and report["remedy"]
    linux.set_driver(SECOND_PORT, "vfio-pci")
    assert all_files(linux.root) == before and not linux.written


# ---- the launcher ----


def test_a_forward_cannot_lead_to_a_real_card() -> None:
    with pytest.raises(UsageError, match="no port of this host leads to a real card"):
        run.run(run.Options("memcached", vfio=CARD, forwards=["2000:11211"]))


def test_a_wrong_address_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "require_build_packages", lambda **_: pytest.fail("building began"))
    with pytest.raises(UsageError, match="is no PCI address"):
        run.run(run.Options("memcached", vfio="eth0"))


def test_auto_takes_kvm_if_it_is_available_and_reports_if_not(linux: FakeLinux, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    problem = vfio.kvm_problem
    monkeypatch.setattr(vfio, "kvm_problem", lambda: problem(linux))
    assert run.choose_accelerator("auto") == "kvm" and run.choose_accelerator("kvm") == "kvm"
    linux.path("/dev/kvm").unlink()
    assert run.choose_accelerator("auto") == "tcg"
    assert "there is no /dev/kvm" in capsys.readouterr().err
    with pytest.raises(Failure, match="there is no /dev/kvm"):
        run.choose_accelerator("kvm")
    assert run.choose_accelerator("tcg") == "tcg"
