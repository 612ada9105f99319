# SPDX-License-Identifier: BSL-1.0
"""Makes the files that GRUB and iPXE read at each boot: the menu, and one small file for each machine that has its own boot entry.

A boot loader cannot read the TOML file of the machines. So each machine's entry is written to a file of the boot loader's own format. The
file is named by the machine's MAC (with dashes) or by its serial number. To change a machine's next boot, a new file is written.
"""

import dataclasses
from collections.abc import Mapping

MADE = "Made by ./neap pxe; a change by hand is lost when it is made again."


@dataclasses.dataclass(frozen=True)
class Entry:
    """A multiboot image, perhaps with a boot module, or a Linux kernel with an initramfs. Paths are relative to the root of the boot tree
    (boot_tree.py)."""

    name: str
    image: str
    words: str = ""
    initrd: str = ""
    linux: bool = False
    module: str = ""


def grub_menu(entries: Mapping[str, Entry], chosen: str, timeout_s: int, *, machines: bool) -> str:
    """Returns the text of grub.cfg. With `machines`, a machine's own file may add an entry and select it."""
    lines = [
        f"# {MADE}",
        'if [ "$grub_platform" = pc ]; then',
        "  # A machine without a serial port has none to speak to.",
        "  if serial --unit=0 --speed=115200; then",
        "    terminal_input --append serial",
        "    terminal_output --append serial",
        "  fi",
        "fi",
        f"set default='{chosen}'",
        f"set timeout={timeout_s}",
        "",
    ]
    for entry in entries.values():
        lines += _grub_entry(entry, entry.name, entry.name)
    if machines:
        octet = "([0-9a-f][0-9a-f])"
        lines += [
            "# The machine's own file, by the MAC of the card that booted, else by the serial number.",
            f"regexp --set=1:m1 --set=2:m2 --set=3:m3 --set=4:m4 --set=5:m5 --set=6:m6 '{':'.join([octet] * 6)}' \"$net_default_mac\"",
            "smbios --type 1 --get-string 7 --set serial",
            'if [ -s "$prefix/machines/$m1-$m2-$m3-$m4-$m5-$m6.cfg" ]; then',
            '  source "$prefix/machines/$m1-$m2-$m3-$m4-$m5-$m6.cfg"',
            'elif [ -s "$prefix/machines/serial-$serial.cfg" ]; then',
            '  source "$prefix/machines/serial-$serial.cfg"',
            "fi",
        ]
    return "\n".join(lines) + "\n"


def grub_machine(name: str, entry: Entry) -> str:
    """Returns the file that grub.cfg reads for one machine: an entry that starts at once. Holding Shift still shows the menu."""
    lines = [f"# {MADE}", *_grub_entry(entry, "this-machine", f"{name}: {entry.name}"), "set default=this-machine", "set timeout=0"]
    return "\n".join([*lines, ""])


def _grub_entry(entry: Entry, identifier: str, title: str) -> list[str]:
    words = "".join(f" '{word}'" for word in entry.words.split())
    load = [f"  linux /{entry.image}{words}"] if entry.linux else [f"  multiboot2 /{entry.image}{words}"]
    if entry.initrd:
        load.append(f"  initrd /{entry.initrd}")
    if entry.module:
        load.append(f"  module2 /{entry.module} {entry.module}")
    return [f"menuentry '{title}' --id '{identifier}' {{", *load, "}", ""]


def ipxe_menu(entries: Mapping[str, Entry], chosen: str, timeout_s: int) -> str:
    """Returns the text of boot.ipxe. iPXE supports multiboot only on BIOS. On UEFI it starts GRUB, which reads grub.cfg."""
    lines = [
        "#!ipxe",
        f"# {MADE}",
        "iseq ${platform} efi && goto grub ||",
        "# The machine's own file, by the MAC of the card that booted, else by the serial number.",
        "chain --autofree machines/${netX/mac:hexhyp}.ipxe ||",
        "chain --autofree machines/serial-${serial:uristring}.ipxe ||",
    ]
    if timeout_s:
        lines += ["menu Neap", *(f"item {name} {name}" for name in entries)]
        lines += [f"choose --default {chosen} --timeout {timeout_s * 1000} entry || shell", "goto entry-${entry}"]
    else:
        lines.append(f"goto entry-{chosen}")
    for entry in entries.values():
        lines += [f":entry-{entry.name}", *_ipxe_entry(entry)]
    return "\n".join([*lines, ":grub", "chain /grub/x86_64.efi", ""])


def ipxe_machine(entry: Entry) -> str:
    return "\n".join(["#!ipxe", f"# {MADE}", *_ipxe_entry(entry), ""])


def _ipxe_entry(entry: Entry) -> list[str]:
    lines = [f"kernel /{entry.image} {entry.words}".rstrip()]
    if entry.initrd:
        lines[0] += f" initrd={entry.initrd.rpartition('/')[2]}" if entry.linux else ""
        lines.append(f"initrd /{entry.initrd}")
    if entry.module:
        lines.append(f"initrd /{entry.module} {entry.module}")  # of a multiboot image iPXE makes a module
    return [*lines, "boot"]
