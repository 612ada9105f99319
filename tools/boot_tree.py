# SPDX-License-Identifier: BSL-1.0
"""A boot tree: a directory that a TFTP and HTTP server offers to machines, with everything that they need to boot.

Machines may boot from it at any moment, also while it is rebuilt. So a tree is written to a temporary directory, which then gets the tree's
name by one rename. A machine sees either the old or the new tree. A failure leaves the old tree unchanged.
"""

import ctypes
import dataclasses
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools import boot_loaders, boot_menu, boot_programs, cache
from tools.boot_machines import LINUX, MAC, Machine, Machines, as_mac, check_words
from tools.boot_menu import Entry
from tools.errors import Failure
from tools.launcher_name import worded

RECORD = "tree.json"
FORMAT = 1
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass(frozen=True)
class Contents:
    """The content of a tree. images: the path of each application's image. source: the images' commit, for the tree's README.
    modules: the bytes of an application's boot module."""

    images: Mapping[str, Path]
    machines: Machines = dataclasses.field(default_factory=Machines)
    linux: Path | None = None
    initrd: Path | None = None
    source: str = ""
    modules: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    def entries(self) -> dict[str, Entry]:
        found = {
            name: Entry(
                name, f"images/{name}.elf", self.machines.words.get(name, ""), module=module_path(name) if name in self.modules else ""
            )
            for name in self.images
        }
        if self.linux:
            found[LINUX] = Entry(LINUX, "linux/vmlinuz", self.machines.words.get(LINUX, ""), "linux/initrd" if self.initrd else "", True)
        return found

    def chosen(self) -> str:
        """Returns the boot entry for machines that the machines' file does not name."""
        return self.machines.boot or next(iter(self.entries()))


def module_path(application: str) -> str:
    """Returns the path of an application's boot module in a tree."""
    return f"images/{application}.module"


def write(out: Path, contents: Contents) -> None:
    """Makes the tree at `out` and replaces an older tree there. If it raises Failure, nothing was changed."""
    out = Path(os.path.abspath(out))
    require_place(out)
    for file in (*contents.images.values(), contents.linux, contents.initrd):
        if file and not file.is_file():
            raise Failure(f"there is no file {file}")
    contents.machines.require_entries(contents.entries(), "the machines' file")
    programs = boot_programs.require()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise Failure(f"cannot write beside {out}: {error.strerror}") from None
    try:
        work.chmod(0o755)
        _fill(work, out, contents, programs)
        with _lock(out):
            _put_in_place(work, out)
    finally:
        cache.remove(work)


def require_place(out: Path) -> None:
    """Raises Failure if `out` exists and is not a boot tree, so that no other files are replaced."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise Failure(f"{out} is there and is no directory")
    if out.is_dir() and any(out.iterdir()) and not (out / RECORD).is_file():
        raise Failure(f"{out} is not empty and no boot tree", "name a new directory, or an earlier tree to replace")


def choose_next(out: Path, name: str, boot: str, words: str | None) -> Machine:
    """Sets the entry that a machine boots from its next start on. `name`: a name in the machines' file, a serial number, or any MAC.
    `words`: the command line; None for the image's default. No server needs a restart. Raises Failure for an unknown entry or machine, or
    an invalid `words`."""
    read_record(out)
    with _lock(out):
        record = read_record(out)
        entries = {key: Entry(**value) for key, value in record["entries"].items()}
        if boot not in entries:
            raise Failure(f"this tree has no '{boot}'", f"it has: {', '.join(entries)}")
        machines = [Machine(**{**value, "bmc": None}) for value in record["machines"]]
        try:
            found = Machines(machines=tuple(machines)).find(name)
        except Failure:
            mac = as_mac(name)
            if not MAC.fullmatch(mac):
                raise
            found = Machine(name=mac, mac=mac)
        words = check_words(words, "the command line") if words is not None else None
        changed = dataclasses.replace(found, boot=boot, words=words)
        machines = [machine for machine in machines if machine.name != found.name] + [changed]
        record["machines"] = [_plain(machine) for machine in machines]
        write_machine(out, changed, entries, boot)
        _replace(out / RECORD, json.dumps(record, indent=2) + "\n")
    return changed


def read_record(out: Path) -> dict:
    try:
        record = json.loads((out / RECORD).read_text())
    except (OSError, ValueError):
        raise Failure(f"{out} is no boot tree", "./neap pxe APP --out DIR makes one") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise Failure(f"{out} was made by another version of Neap", "make it again")
    return record


def write_machine(tree: Path, machine: Machine, entries: Mapping[str, Entry], chosen: str) -> None:
    """Writes the files that GRUB and iPXE look for when this machine boots. Each file is replaced atomically."""
    entry = entries[machine.boot or chosen]
    if machine.words is not None:
        entry = dataclasses.replace(entry, words=machine.words)
    for name in machine_files(machine):
        _replace(tree / f"grub/machines/{name}.cfg", boot_menu.grub_machine(machine.name, entry))
        _replace(tree / f"ipxe/machines/{name}.ipxe", boot_menu.ipxe_machine(entry))


def machine_files(machine: Machine) -> list[str]:
    """Returns the file names, without suffix, under which boot loaders look for the machine."""
    return ([machine.mac.replace(":", "-")] if machine.mac else []) + ([f"serial-{machine.serial}"] if machine.serial else [])


def _fill(work: Path, out: Path, contents: Contents, programs: boot_programs.BootPrograms) -> None:
    for directory in ("images", "grub/machines", "ipxe/machines"):
        (work / directory).mkdir(parents=True)
    for name, image in contents.images.items():
        shutil.copyfile(image, work / f"images/{name}.elf")
    for name, module in contents.modules.items():
        (work / module_path(name)).write_bytes(module)
    if contents.linux:
        (work / "linux").mkdir()
        shutil.copyfile(contents.linux, work / "linux/vmlinuz")
        if contents.initrd:
            shutil.copyfile(contents.initrd, work / "linux/initrd")
    boot_loaders.bios_network(programs, work / "grub/bios.0")
    boot_loaders.efi_network(programs, work / "grub/x86_64.efi")
    shutil.copyfile(programs.ipxe_bios, work / "ipxe/undionly.kpxe")
    shutil.copyfile(programs.ipxe_kernel, work / "ipxe/ipxe.lkrn")
    shutil.copyfile(programs.ipxe_efi, work / "ipxe/ipxe.efi")
    entries, chosen, timeout_s = contents.entries(), contents.chosen(), contents.machines.timeout_s
    (work / "grub/grub.cfg").write_text(boot_menu.grub_menu(entries, chosen, timeout_s, machines=True))
    (work / "ipxe/boot.ipxe").write_text(boot_menu.ipxe_menu(entries, chosen, timeout_s))
    for machine in contents.machines.machines:
        write_machine(work, machine, entries, chosen)
    (work / "dnsmasq.conf").write_text(DNSMASQ.format(tree=out))
    (work / "README").write_text(_readme(out, contents, entries, programs))
    record = {
        "format": FORMAT,
        "source": contents.source,
        "default": chosen,
        "entries": {name: dataclasses.asdict(entry) for name, entry in entries.items()},
        "sha256": {entry.image: cache.file_sha256(work / entry.image) for entry in entries.values()},
        "machines": [_plain(machine) for machine in contents.machines.machines],
        "programs": programs.versions(),
    }
    (work / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    for path in work.rglob("*"):
        # A TFTP server that has dropped root's rights can read only files that are readable by all users.
        path.chmod(0o755 if path.is_dir() else 0o644)


def _plain(machine: Machine) -> dict:
    """Returns a machine's entry for tree.json. The management processor's data are left out, because all users may read that file."""
    return {key: value for key, value in dataclasses.asdict(machine).items() if key != "bmc"}


def _put_in_place(work: Path, out: Path) -> None:
    if not out.exists():
        work.rename(out)
        return
    # Both trees exchange their names in one step. The old tree then has the temporary name and is removed.
    if _libc.renameat2(_AT_FDCWD, os.fsencode(work), _AT_FDCWD, os.fsencode(out), _RENAME_EXCHANGE) != 0:
        error = ctypes.get_errno()
        raise Failure(f"cannot replace {out}: {os.strerror(error)}", "remove it and start again")


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(name, 0o644)
    os.replace(name, path)


def _lock(out: Path):
    return cache.lock(cache.root() / "boot-trees" / f"{cache.digest(os.path.realpath(out))}.lock", timeout_seconds=60)


DNSMASQ = """\
# dnsmasq beside a DHCP server that is there already: it answers boot questions only (proxy-DHCP) and serves files by TFTP.
# Add two lines, or give them as words: which card of this machine, and its network, for instance
#   interface=eth1
#   dhcp-range=192.168.7.0,proxy
# `./neap pxe --out DIR --serve INTERFACE` does that, and serves the same files by HTTP.
port=0
bind-interfaces
enable-tftp
tftp-root={tree}
# iPXE identifies itself (option 175) and gets its script.
# Other clients get the GRUB of their firmware (RFC 4578, 2.1: 0 BIOS, 7 and 9 UEFI x86-64).
dhcp-match=set:ipxe,175
pxe-prompt="Neap",0
pxe-service=tag:!ipxe,x86PC,"Neap",grub/bios.0
pxe-service=tag:!ipxe,7,"Neap",grub/x86_64.efi
pxe-service=tag:!ipxe,9,"Neap",grub/x86_64.efi
pxe-service=tag:ipxe,x86PC,"Neap",ipxe/boot.ipxe
pxe-service=tag:ipxe,7,"Neap",ipxe/boot.ipxe
pxe-service=tag:ipxe,9,"Neap",ipxe/boot.ipxe
# If dnsmasq is the only DHCP server of the network, dhcp-range takes addresses, and these name the file instead:
dhcp-match=set:uefi,option:client-arch,7
dhcp-match=set:uefi,option:client-arch,9
dhcp-boot=tag:!ipxe,tag:!uefi,grub/bios.0
dhcp-boot=tag:!ipxe,tag:uefi,grub/x86_64.efi
dhcp-boot=tag:ipxe,ipxe/boot.ipxe
"""

README = """\
A boot tree made by ./neap pxe
==============================
{source}
It boots: {entries}. A machine that is not named below boots {chosen}.

  images/        the applications, multiboot images
  linux/         a Linux kernel and initramfs to compare with (if --linux was given)
  grub/bios.0    what PXE on a BIOS loads; grub/x86_64.efi: what PXE on UEFI loads; grub/grub.cfg: their menu
  ipxe/boot.ipxe the script for iPXE; beside it iPXE itself (undionly.kpxe for PXE, ipxe.lkrn for boot loaders, ipxe.efi)
  grub/machines, ipxe/machines: one file for a machine, named by MAC or serial number, read anew at each of its boots
  dnsmasq.conf   proxy-DHCP and TFTP for this tree, which must stay at {tree}
  tree.json      what this tree was made of

This directory is the root of TFTP (and HTTP). A DHCP server that is configured by hand names grub/bios.0 to a BIOS (client
architecture 0), grub/x86_64.efi to UEFI (7 and 9), ipxe/boot.ipxe to iPXE (option 175).

  ./neap pxe --out {quoted} --serve INTERFACE                   serve it until Ctrl-C
  ./neap pxe --out {quoted} --next MACHINE=IMAGE [-- words]     what a machine boots from its next start on

machines: {machines}
{versions}
"""


def _readme(out: Path, contents: Contents, entries: Mapping[str, Entry], programs: boot_programs.BootPrograms) -> str:
    chosen = contents.chosen()
    rows = [
        f"\n  {machine.name:20} {' '.join(machine_files(machine)):40} {machine.boot or chosen}" for machine in contents.machines.machines
    ]
    return worded(README).format(
        source=contents.source,
        entries=", ".join(entries),
        chosen=chosen,
        tree=out,
        quoted=shlex.quote(str(out)),
        machines="".join(rows) or "none named",
        versions=", ".join(f"{name} {version}" for name, version in programs.versions().items()),
    )
