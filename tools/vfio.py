# SPDX-License-Identifier: BSL-1.0
"""A real card in the emulated machine: the requirements of `./neap run APP --vfio ADDRESS`, and `./neap vfio bind|unbind|status`.

Linux's driver vfio-pci passes a card through to the machine. This needs an IOMMU, the card's whole IOMMU group, permissions, and locked
memory. If one of these requirements is missing, QEMU's error message names only a file descriptor. So all requirements are checked first,
and each failed check names a remedy. Checks change nothing. Only `bind` and `unbind` write (Linux: Documentation/ABI/testing/sysfs-bus-pci,
`driver_override`). If `bind` or `unbind` fails midway, it restores the earlier state.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from tools import progress
from tools.errors import Failure, UsageError
from tools.launcher_name import worded

DEVICE_IDS = Path(__file__).resolve().parent.parent / "drivers/ixgbe/device_ids.hpp"
VFIO_DRIVER = "vfio-pci"
LISTED = "`lspci -D | grep -E '82599|X5[45]0'` shows"
ADDRESS = re.compile(r"(?:([0-9a-fA-F]{4}):)?([0-9a-fA-F]{2}):([01][0-9a-fA-F])\.([0-7])")
KVM_GET_API_VERSION = 0xAE00
KVM_API_VERSION = 12
CAP_IPC_LOCK = 14
IFF_UP = 1
# Memory that vfio pins in addition to the machine's RAM, such as firmware.
MEMORY_BESIDES_BYTES = 64 << 20
BRIDGE_CLASS = 0x0604


class Host:
    """Access to the host's Linux through its files. Tests use another root directory, and replace the values that are not in files."""

    def __init__(self, root: Path = Path("/")):
        self.root = root

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def device(self, address: str) -> Path:
        return self.path(f"/sys/bus/pci/devices/{address}")

    def read(self, path: Path) -> str:
        """Returns a small file's text without the line end; empty if it cannot be read."""
        try:
            return path.read_text(errors="replace").strip()
        except OSError:
            return ""

    def number(self, path: Path) -> int:
        try:
            return int(self.read(path), 0)
        except ValueError:
            return 0

    def write(self, path: Path, text: str) -> None:
        """Writes a file of sysfs, which MUST exist and need not be readable. Raises OSError."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def link_name(self, path: Path) -> str | None:
        """Returns the last component of a link's target."""
        try:
            return os.path.basename(os.readlink(path))
        except OSError:
            return None

    def may_use(self, path: Path) -> bool:
        return os.access(path, os.R_OK | os.W_OK)

    def locked_memory_limit(self) -> int | None:
        """Returns the number of bytes that this process may lock; None if there is no limit."""
        soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", self.read(self.path("/proc/self/status")), re.MULTILINE)
        free = soft == resource.RLIM_INFINITY or bool(capabilities and int(capabilities[1], 16) >> CAP_IPC_LOCK & 1)
        return None if free else soft

    def kvm_answers(self) -> bool:
        try:
            with open(self.path("/dev/kvm"), "r+b", buffering=0) as kvm:
                return fcntl.ioctl(kvm, KVM_GET_API_VERSION) == KVM_API_VERSION
        except OSError:
            return False


@dataclasses.dataclass(frozen=True)
class Card:
    """A PCI device that sysfs identifies as a card that the driver knows: an 82599, X540 or X550."""

    address: str
    device_id: int
    group: str | None
    driver: str | None

    def qemu_options(self) -> list[str]:
        return ["-device", json.dumps({"driver": VFIO_DRIVER, "host": self.address, "id": "nic"})]


def device_ids() -> list[int]:
    """Returns the device ids that the driver supports, from their only list, drivers/ixgbe/device_ids.hpp."""
    return [int(number, 16) for number in re.findall(r"\{(0x[0-9A-Fa-f]{4}), &model_", DEVICE_IDS.read_text())]


# ---- checks ----


def find_card(word: str, host: Host) -> Card:
    """Returns the card at an address. Raises Failure if `word` is no address, or if there is no card of the driver's at the address."""
    match = ADDRESS.fullmatch(word)
    if not match:
        raise UsageError(f"'{word}' is no PCI address", f"it looks like 0000:03:00.0; {LISTED} where cards are")
    address = f"{match[1] or '0000'}:{match[2]}:{match[3]}.{match[4]}".lower()
    device = host.device(address)
    if not device.is_dir():
        raise Failure(f"there is no PCI device {address}", f"{LISTED} where cards are")
    vendor, number = host.number(device / "vendor"), host.number(device / "device")
    if vendor != 0x8086 or number not in device_ids():
        raise Failure(
            f"{address} is no card of the driver's, but {vendor:04x}:{number:04x}",
            f"Neap drives 8086:10fb and its kin (drivers/ixgbe/device_ids.hpp); {LISTED} them",
        )
    return Card(address, number, host.link_name(device / "iommu_group"), host.link_name(device / "driver"))


def require_card(word: str, memory: str, accelerator: str, host: Host | None = None) -> Card:
    """Returns the card if it can be passed through to a machine with `memory` (like "512M"). Otherwise raises Failure with a remedy."""
    host = host or Host()
    card = find_card(word, host)
    require_iommu(card, host)
    _require_alone(card, host)
    if card.driver != VFIO_DRIVER:
        has = f"bound to Linux's driver {card.driver}" if card.driver else "bound to no driver"
        raise Failure(f"{card.address} is {has}, not to vfio-pci", f"sudo ./neap vfio bind {card.address}")
    _require_rights(card, host)
    _require_locked_memory(memory, host)
    if accelerator == "kvm" and (problem := kvm_problem(host)):
        raise problem
    return card


def require_iommu(card: Card, host: Host) -> None:
    """Raises Failure unless Linux has an IOMMU enabled and the card is behind it."""
    groups = host.path("/sys/kernel/iommu_groups")
    if not groups.is_dir() or not any(groups.iterdir()):
        words = host.read(host.path("/proc/cmdline")).split()
        word_found = next((word for word in words if re.fullmatch(r"(intel|amd)_iommu=off|iommu=off", word)), None)
        if word_found:
            raise Failure(
                f"the IOMMU is off: Linux was started with {word_found}", "start it without that word (GRUB_CMDLINE_LINUX, update-grub)"
            )
        raise Failure(
            "the IOMMU is off",
            "turn on VT-d (AMD: IOMMU) in the BIOS, put intel_iommu=on on Linux's command line (GRUB_CMDLINE_LINUX, update-grub), reboot",
        )
    if card.group is None:
        raise Failure(
            f"{card.address} is in no IOMMU group",
            "`dmesg | grep -i -e DMAR -e IOMMU` says which devices the IOMMU leaves out; try another slot",
        )


def others(card: Card, host: Host) -> list[tuple[str, str | None]]:
    """Returns the other relevant devices of the card's IOMMU group (all except bridges), with their drivers."""
    found = []
    members = host.path(f"/sys/kernel/iommu_groups/{card.group}/devices")
    for name in sorted(path.name for path in members.iterdir()) if members.is_dir() else []:
        if name != card.address and host.number(host.device(name) / "class") >> 8 != BRIDGE_CLASS:
            found.append((name, host.link_name(host.device(name) / "driver")))
    return found


def _require_alone(card: Card, host: Host) -> None:
    taken = [f"{name} ({driver})" for name, driver in others(card, host) if driver not in (None, VFIO_DRIVER, "pci-stub")]
    if taken:
        raise Failure(
            f"IOMMU group {card.group} of {card.address} holds devices that Linux uses: {', '.join(taken)}",
            "a group goes as a whole: bind them to vfio-pci too (a port of this card: ./neap vfio bind), or put the card into another slot",
        )


def _require_rights(card: Card, host: Host) -> None:
    if not host.path("/dev/vfio/vfio").exists():
        raise Failure("there is no /dev/vfio/vfio", "sudo modprobe vfio-pci")
    for name in ("/dev/vfio/vfio", f"/dev/vfio/{card.group}"):
        path = host.path(name)
        if not path.exists():
            raise Failure(f"there is no {name}", f"sudo ./neap vfio unbind {card.address}, then bind it again")
        if not host.may_use(path):
            raise Failure(f"no permission to use {name}", f"sudo chown $USER {name}")


def _require_locked_memory(memory: str, host: Host) -> None:
    limit = host.locked_memory_limit()
    wanted = memory_bytes(memory) + MEMORY_BESIDES_BYTES
    if limit is not None and limit < wanted:
        kibibytes = -(-wanted // 1024)
        raise Failure(
            f"this user may lock {limit >> 20} MiB of memory, --memory {memory} with a real card needs {wanted >> 20} MiB",
            f"for this shell: sudo prlimit --pid $$ --memlock={kibibytes * 1024}; "
            f"for good: 'USER - memlock {kibibytes}' in /etc/security/limits.conf",
        )


def memory_bytes(memory: str) -> int:
    """Converts a size like '512M' to bytes."""
    return int(memory[:-1]) << {"M": 20, "G": 30}[memory[-1]]


def kvm_problem(host: Host | None = None) -> Failure | None:
    """Returns the reason why KVM cannot be used on this host; None if it can."""
    host = host or Host()
    path = host.path("/dev/kvm")
    if not path.exists():
        return Failure(
            "there is no /dev/kvm",
            "turn on VT-x (AMD: SVM) in the BIOS, sudo modprobe kvm_intel (kvm_amd); or --accel tcg, which emulates the CPU",
        )
    if not host.may_use(path):
        return Failure("no permission to use /dev/kvm", "sudo adduser $USER kvm, then log in anew; or --accel tcg, which emulates the CPU")
    if not host.kvm_answers():
        return Failure("/dev/kvm is there and does not answer", "`dmesg | grep -i kvm` may say why; or --accel tcg, which emulates the CPU")
    return None


def report_limits(card: Card) -> None:
    """Prints the limits of measurements with a passed-through card."""
    progress.say(
        f"neap: the real card at {card.address}: no port of this host leads there; clients reach the address that the machine prints,"
    )
    progress.say(
        "neap: over the card's cable, and so do ./neap ctl and top: ctl ADDRESS. Energy and idle states are those of a machine that also"
    )
    progress.say("neap: runs this Linux and QEMU: for an idle machine's true energy boot the image itself (docs/real-hardware.md)")


# ---- bind, unbind, status ----


def command(action: str, word: str, as_json: bool = False, host: Host | None = None) -> int:
    host = host or Host()
    if as_json and action != "status":
        raise UsageError("--json goes with status")
    card = find_card(word, host)
    if action == "status":
        status(card, as_json, host)
    elif action == "bind":
        bind(card, host)
    else:
        unbind(card, host)
    return 0


def status(card: Card, as_json: bool, host: Host) -> None:
    """Prints the card's state, and the first problem that `run --vfio` would report."""
    try:
        require_card(card.address, "512M", "kvm", host)
        problem = None
    except Failure as failure:
        problem = failure
    fields = {
        "address": card.address,
        "device": f"8086:{card.device_id:04x}",
        "driver": card.driver,
        "driver_before": _remembered(card, host),
        "interfaces": interfaces(card, host),
        "iommu_group": card.group,
        "others_in_group": [{"address": name, "driver": driver} for name, driver in others(card, host)] if card.group else [],
        "ready": problem is None,
        "problem": problem.message if problem else None,
        "remedy": problem.hint if problem else None,
    }
    if as_json:
        print(json.dumps(fields, indent=2))
        return
    neighbours = ", ".join(f"{name} ({driver or 'no driver'})" for name, driver in others(card, host)) if card.group else ""
    print(f"{card.address}  8086:{card.device_id:04x}, driver {card.driver or 'none'}")
    if fields["driver_before"]:
        print(f"  before    {fields['driver_before']}, which unbind sets back")
    if fields["interfaces"]:
        print(f"  network   {', '.join(fields['interfaces'])}")
    print(f"  IOMMU     {f'group {card.group}' if card.group else 'none'}{f', with {neighbours}' if neighbours else ''}")
    print(f"  run       {'ready for --vfio (with --memory 512M)' if problem is None else f'not yet: {problem.message}'}")
    if problem and problem.hint:
        print(f"            {problem.hint}")


def bind(card: Card, host: Host) -> None:
    """Binds the card to vfio-pci, and stores the name of its earlier driver. On failure, raises Failure and leaves the card unchanged."""
    if card.driver == VFIO_DRIVER:
        print(f"{card.address} is bound to vfio-pci already")
        return
    require_iommu(card, host)
    if not host.path(f"/sys/bus/pci/drivers/{VFIO_DRIVER}").is_dir():
        raise Failure("Linux has no vfio-pci", "sudo modprobe vfio-pci")
    if up := [name for name in interfaces(card, host) if host.number(host.device(card.address) / "net" / name / "flags") & IFF_UP]:
        raise Failure(f"{up[0]} on {card.address} is up: this Linux may be reached by it", f"if not: sudo ip link set {up[0]} down")
    with _writing(card):
        memory = _memory(card, host)
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(f"{card.driver or ''}\n")
        try:
            _move(card, VFIO_DRIVER, host)
        except BaseException:
            with contextlib.suppress(OSError, Failure):
                _move(card, None, host, card.driver)
            memory.unlink(missing_ok=True)
            raise
    print(worded(f"{card.address}: {card.driver or 'no driver'} -> vfio-pci; ./neap vfio unbind {card.address} sets it back"))


def unbind(card: Card, host: Host) -> None:
    """Binds the card to its earlier driver again. Raises Failure if that driver does not accept it."""
    before = _remembered(card, host)
    if card.driver != VFIO_DRIVER:
        raise Failure(f"{card.address} is not bound to vfio-pci, but to {card.driver or 'no driver'}: nothing to set back")
    with _writing(card):
        _move(card, None, host, before)
        _memory(card, host).unlink(missing_ok=True)
    now = host.link_name(host.device(card.address) / "driver")
    print(f"{card.address}: vfio-pci -> {now or 'no driver'}")


def interfaces(card: Card, host: Host) -> list[str]:
    folder = host.device(card.address) / "net"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _move(card: Card, override: str | None, host: Host, driver: str | None = None) -> None:
    """Unbinds the card from its driver and offers it to `driver` (None: to any matching driver). With `override`, Linux binds the card to
    no other driver than `override`. Raises Failure if the card has another driver afterwards."""
    device = host.device(card.address)
    # Writing an empty line removes an override.
    host.write(device / "driver_override", f"{override or ''}\n")
    if (device / "driver").is_symlink():
        host.write(device / "driver/unbind", card.address)
    wanted = override or driver
    if wanted is None and _memory(card, host).is_file():
        return  # the card had no driver before
    with contextlib.suppress(FileNotFoundError):
        place = host.path(f"/sys/bus/pci/drivers/{driver}/bind") if driver else host.path("/sys/bus/pci/drivers_probe")
        host.write(place, card.address)
    now = host.link_name(device / "driver")
    if wanted is not None and now != wanted:
        raise Failure(
            f"{card.address} did not go to {wanted}, it has {f'driver {now}' if now else 'no driver'} now",
            f"`dmesg` may say why; sudo modprobe {wanted}",
        )


@contextlib.contextmanager
def _writing(card: Card) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise Failure(f"no permission to write {error.filename}", "as root: sudo ./neap vfio ...") from None
    except OSError as error:
        raise Failure(f"{card.address}: {error.filename or 'the kernel'}: {error.strerror}", "`dmesg` may say why") from None


# Returns the file that holds the name of a card's earlier driver. Like the card's binding to vfio-pci, the file is lost at a reboot.
def _memory(card: Card, host: Host) -> Path:
    return host.path(f"/run/neap/vfio/{card.address}")


def _remembered(card: Card, host: Host) -> str | None:
    name = host.read(_memory(card, host))
    return name if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) else None
