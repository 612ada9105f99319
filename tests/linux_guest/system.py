# SPDX-License-Identifier: BSL-1.0
"""Makes a Debian system with systemd, memcached and a virtio-net card, which starts from an initramfs.

A guest with one shell says little about a Linux machine that does nothing: its wake-ups come from daemons and from the kernel's own timers.
So this guest has the processes of a small Debian server. The packages are unpacked, never configured, so neither root nor debootstrap is
needed. This module writes the few files that their configuration would have made. The system has no disc: all its files are in memory.

The guest's processes are systemd, journald, udevd, logind, networkd (DHCP), D-Bus, cron, a getty on the serial port, and memcached.
memcached has Debian's settings, but serves all addresses. sshd is left out, and so is an NTP client, which would retry for ever on a
network without a server.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import cache, debian
from tools.process import output_of

from .cpio import CpioWriter
from .guest_image import KERNEL_META_PACKAGE, KERNEL_PACKAGE

PACKAGES = (
    "base-files", "base-passwd", "bash", "coreutils", "cron", "cron-daemon-common", "dash", "dbus", "dbus-bin", "dbus-daemon",
    "dbus-session-bus-common", "dbus-system-bus-common", "findutils", "grep", "hostname", "init-system-helpers", "iproute2", "kmod",
    "login", "memcached", "mount", "netbase", "passwd", "perl-base", "procps", "sed", "systemd", "systemd-sysv", "udev", "util-linux",
    "util-linux-extra",
)  # fmt: skip
# The network driver, with the modules on which it depends.
MODULES = {
    "failover", "net_failover", "virtio", "virtio_net", "virtio_pci", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_ring",
}  # fmt: skip
# Folders that a running system does not read.
UNUSED = (
    "boot", "packages", "usr/share/bash-completion", "usr/share/doc", "usr/share/i18n", "usr/share/info", "usr/share/locale",
    "usr/share/man", "usr/share/zoneinfo", "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/udev/hwdb.d",
)  # fmt: skip
MERGED = ("bin", "sbin", "lib", "lib64")  # links into usr/, which the package usrmerge makes
# An initramfs is loaded at each boot, so these services would build their databases at each boot.
MASKED = ("ldconfig.service", "systemd-hwdb-update.service", "systemd-journal-catalog-update.service")
ENABLED = ("cron.service", "memcached.service", "systemd-networkd.service", "guest-ready.service")
WITHOUT_MEMCACHED = "systemd.mask=memcached.service"  # a word of the kernel's command line
READY = "guest: ready"
RUNS = "guest: runs "
FAILED = "guest: failed "
CLOCK = "guest: clock tsc"

USERS = """\
messagebus:x:101:101::/nonexistent:/usr/sbin/nologin
systemd-network:x:102:102::/:/usr/sbin/nologin
memcache:x:103:103::/nonexistent:/bin/false
"""
GROUPS = """\
messagebus:x:101:
systemd-network:x:102:
memcache:x:103:
systemd-journal:x:104:
crontab:x:105:
input:x:106:
sgx:x:107:
kvm:x:108:
render:x:109:
"""
OWN = "guest-report|ps|grep|sort|uniq|xargs|sh"  # processes of the report itself
# The guest reports when it has started and has an address. The report ends with the processes that run then, without kernel threads
# and getty, which starts afterwards.
REPORT = f"""\
#!/bin/sh
for attempt in $(seq 600); do ip -4 -o addr show scope global | grep -q inet && break; sleep 0.1; done
grep -q {WITHOUT_MEMCACHED} /proc/cmdline || for attempt in $(seq 600); do pgrep -x memcached >/dev/null && break; sleep 0.2; done
sleep 2
{{
  ip -4 -o addr show scope global
  systemctl --failed --plain --no-legend | while read -r unit rest; do echo "{FAILED}$unit"; done
  echo "guest: clock $(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"
  echo "{RUNS}$(ps --ppid 2 -p 2 --deselect -o comm= | grep -vE '^(.udev-worker.|{OWN})$' | sort | uniq | xargs)"
  echo "{READY}"
}} >/dev/ttyS0
"""
FILES = {
    "etc/fstab": "",
    "etc/hostname": "guest\n",
    "etc/hosts": "127.0.0.1 localhost guest\n",
    "etc/machine-id": "4e656170000000000000000000000001\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
    "etc/systemd/network/card.network": "[Match]\nType=ether\n\n[Network]\nDHCP=ipv4\n",
    "etc/modules-load.d/card.conf": "virtio_pci\nvirtio_net\n",
    "etc/systemd/system/guest-ready.service": (
        "[Unit]\nAfter=memcached.service cron.service systemd-networkd.service systemd-logind.service\n"
        # getty hangs the serial port up, and what another process still writes to it is lost.
        "Before=serial-getty@ttyS0.service\n\n"
        "[Service]\nType=oneshot\nExecStart=/usr/bin/guest-report\n"
    ),
}


@dataclass(frozen=True)
class System:
    """The files for QEMU's -kernel and -initrd, and the kernel's release."""

    kernel: Path
    initramfs: Path
    release: str


def build() -> System:
    """Makes the system if the cache lacks it (some 100 MB of packages). Raises Failure, and then leaves nothing behind."""
    kernel = debian.dependency(KERNEL_META_PACKAGE, KERNEL_PACKAGE)
    release = kernel.removeprefix("linux-image-")
    names = [*debian.with_libraries(list(PACKAGES)), kernel]
    own_files = [Path(__file__).read_bytes(), Path(__file__).with_name("cpio.py").read_bytes()]
    entry = cache.Entry("linux-system", cache.digest(debian.digest_of(debian.resolve(names)), *own_files))
    with entry.making(work="makes a Debian system") as needed:
        if needed:
            with tempfile.TemporaryDirectory(dir=entry.path) as name:
                root = Path(name) / "root"
                debian.unpack(names, root)
                (root / "boot" / f"vmlinuz-{release}").rename(entry.path / "vmlinuz")
                _configure(root, release)
                with (entry.path / "initramfs.cpio").open("wb") as stream:
                    write_tree(CpioWriter(stream), root)
    return System(entry.path / "vmlinuz", entry.path / "initramfs.cpio", release)


def _configure(root: Path, release: str) -> None:
    """Writes what the packages' scripts would have made, and removes what is not used."""
    for merged in MERGED:
        _move_into(root / merged, root / "usr" / merged)
        (root / merged).symlink_to(f"usr/{merged}")
    for unused in UNUSED:
        cache.remove(root / unused)
    _keep_modules(root, release)
    master = root / "usr/share/base-passwd"
    _write(root, "etc/passwd", (master / "passwd.master").read_text().replace(":*:", ":x:") + USERS)
    _write(root, "etc/group", (master / "group.master").read_text().replace(":*:", ":x:") + GROUPS)
    for path, text in FILES.items():
        _write(root, path, text)
    _write(root, "usr/bin/guest-report", REPORT, mode=0o755)
    settings = (root / "usr/share/memcached/memcached.conf.default").read_text().splitlines(keepends=True)
    _write(root, "etc/memcached.conf", "".join(line for line in settings if not line.startswith("-l ")))
    for folder in ("dev", "proc", "root", "run", "sys", "tmp", "var/log/journal"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    if not (root / "usr/bin/sh").exists():
        (root / "usr/bin/sh").symlink_to("dash")
    units = root / "etc/systemd/system"
    wanted = units / "multi-user.target.wants"
    wanted.mkdir(parents=True, exist_ok=True)
    for unit in ENABLED:
        (wanted / unit).symlink_to(f"/etc/systemd/system/{unit}" if (units / unit).exists() else f"/lib/systemd/system/{unit}")
    for unit in MASKED:
        (units / unit).symlink_to("/dev/null")
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")


def _move_into(folder: Path, target: Path) -> None:
    """Moves a folder's content, and removes the folder."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            _move_into(path, target / path.name)
        else:
            path.rename(target / path.name)
    folder.rmdir()


def _keep_modules(root: Path, release: str) -> None:
    """Removes all modules but MODULES, and makes the index that modprobe reads."""
    tree = root / "usr/lib/modules" / release
    for path in [path for path in tree.rglob("*.ko*") if path.name.partition(".")[0].replace("-", "_") not in MODULES]:
        path.unlink()
    loader, *words = debian.started_in(root, root / "usr/bin/kmod")
    output_of([loader, "--argv0", "depmod", *words, "-b", str(root), release])


def _write(root: Path, name: str, text: str, mode: int = 0o644) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def write_tree(archive: CpioWriter, root: Path) -> None:
    """Writes a folder's directories, files and symbolic links as an initramfs. All of them belong to the guest's root."""
    for folder, names, files in os.walk(root):
        here = Path(folder).relative_to(root)
        for name in sorted([*names, *files]):
            path, stored = Path(folder, name), str(here / name)
            _write_one(archive, path, stored, path.lstat())
    if not (root / "dev/console").exists():
        archive.character_device("dev/console", 5, 1)
    archive.close()


def _write_one(archive: CpioWriter, path: Path, stored: str, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        archive.link(stored, os.readlink(path))
    elif stat.S_ISDIR(found.st_mode):
        archive.directory(stored, stat.S_IMODE(found.st_mode))
    elif stat.S_ISREG(found.st_mode):
        archive.file(stored, path.read_bytes(), stat.S_IMODE(found.st_mode))


def kernel_words(further: Sequence[str] = ()) -> list[str]:
    """The kernel's command line. KVM gives a guest its own clock; an emulated CPU has none. Without tsc=reliable the kernel would read the
    HPET, at an exit each, and check the TSC twice a second. no_timer_check saves seconds of an emulated boot."""
    return ["rdinit=/sbin/init", "console=ttyS0", "panic=-1", "quiet", "tsc=reliable", "no_timer_check", *further]
