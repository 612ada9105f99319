# SPDX-License-Identifier: BSL-1.0
"""QEMU's command line for a machine: processors, memory, the way it starts, and its network card (tools/machine.py runs it)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tools import qemu
from tools.errors import Failure
from tools.firmware import Start

if TYPE_CHECKING:
    from tools.machine import Machine

LOOPBACK = "127.0.0.1"
# IFF_MULTI_QUEUE of Linux's tun driver, in /sys/class/net/NAME/tun_flags.
TAP_MULTI_QUEUE = 0x100


def qemu_arguments(machine: Machine, monitor: Path) -> list[str]:
    """Returns QEMU's arguments. `monitor`: the path of its socket for QMP. Makes links in the run's directory, which MUST exist."""
    assert machine.directory
    argv = ["-nodefaults", "-no-user-config", "-display", "none", "-S", *([] if machine.restarts else ["-no-reboot"])]
    if machine.accelerator == "kvm":
        argv += ["-accel", "kvm", "-cpu", "host", "-overcommit", "cpu-pm=on"]
    else:
        argv += ["-accel", f"tcg,thread={'single' if machine.one_thread else 'multi'}", "-cpu", machine.cpu]
    topology = f",sockets=1,cores={machine.cores // 2},threads=2" if machine.threads_per_core == 2 else ""
    argv += ["-smp", f"{machine.cores}{topology}", "-m", machine.memory, *_memory_arguments(machine)]
    argv += ["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]
    argv += ["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]
    argv += ["-qmp", f"unix:{monitor},server=on,wait=off"]
    if machine.debugger:
        argv += ["-gdb", f"unix:{machine.debugger_socket},server=on,wait=off"]
    argv += machine.start_from.qemu_arguments(machine.directory)
    if _starts_with_small_firmware(machine):
        argv += qemu.small_firmware(tuple(machine.qemu_words()))
    if machine.image:
        argv += ["-kernel", _linked(machine, machine.image, machine.image.name)]
    if machine.initrd:
        argv += ["-initrd", str(machine.initrd)]
    elif machine.modules:
        argv += ["-initrd", ",".join(_linked(machine, module, f"{number}-{module.name}") for number, module in enumerate(machine.modules))]
    if machine.arguments:
        argv += ["-append", " ".join(machine.arguments)]
    argv += machine.qemu_options
    if machine.card and not machine.has_soft_card:
        return [*argv, *_virtio_words(machine)]
    if machine.card:
        device = {"driver": "vfio-user-pci", "socket": {"path": str(machine.directory / "card"), "type": "unix"}, "id": "nic"}
        argv += ["-device", json.dumps(device)]
    if machine.net == "user":
        argv += ["-netdev", _user_network(machine)]
        argv += ["-netdev", f"stream,id=card,server=off,addr.type=unix,addr.path={machine.directory / 'net'}"]
        argv += ["-netdev", "hubport,id=hub-user,hubid=0,netdev=user", "-netdev", "hubport,id=hub-card,hubid=0,netdev=card"]
    return argv


def _user_network(machine: Machine) -> str:
    forwards = "".join(f",hostfwd=tcp:{LOOPBACK}:{host}-:{guest}" for host, guest in machine.forward)
    restrict = "off" if machine.outside else "on"
    return f"user,id=user,restrict={restrict}{forwards}{machine.start_from.server_words()}"


def _virtio_words(machine: Machine) -> list[str]:
    """Returns QEMU's arguments for its own virtio-net. The modern interface only; a vector for each queue, and one for the rest."""
    queues = 1
    words = []
    if machine.wire:
        card, wire = machine.wire
        queues = len(card)
        words = ["-netdev", _user_network(machine), "-netdev", f"tap,id=wire,fd={wire},vhost=off"]
        words += ["-netdev", "hubport,id=hub-user,hubid=0,netdev=user", "-netdev", "hubport,id=hub-wire,hubid=0,netdev=wire"]
        words += ["-netdev", f"tap,id=card,fds={':'.join(str(file) for file in card)},vhost=off"]
    elif machine.net == "user":
        words = ["-netdev", _user_network(machine)]
    elif machine.net.startswith("tap:"):
        name = machine.net.removeprefix("tap:")
        queues = machine.card_queues or (machine.cores if tap_has_queues(name) else 1)
        words = ["-netdev", f"tap,id=user,ifname={name},script=no,downscript=no" + (f",queues={queues}" if queues > 1 else "")]
    elif wire := re.fullmatch("(listen|connect):(.+)", machine.net):
        server = "on" if wire[1] == "listen" else "off"
        words = ["-netdev", f"stream,id=user,server={server},addr.type=unix,addr.path={wire[2]}"]
    elif machine.net != "none":
        raise Failure(f"a virtio card has no network like {machine.net}", "user, none, tap:NAME, listen:PATH or connect:PATH")
    properties = ["virtio-net-pci", "id=nic", "disable-legacy=on", f"vectors={2 * queues + 2}", *(["mq=on"] if queues > 1 else [])]
    properties += [f"netdev={'card' if machine.wire else 'user'}"] if words else []
    # The ROM with which firmware boots from the card. Its file is in another package, which a host may lack.
    properties += ["romfile="] if machine.start_from == Start() else []
    properties += [f"mac={machine.mac}"] if machine.mac else []
    return [*words, "-device", ",".join([*properties, *machine.card_options])]


def _linked(machine: Machine, file: Path, name: str) -> str:
    """Returns the path of a link without spaces, which end a file's name in its command line, and commas, which separate modules."""
    link = Path(machine.directory or "", re.sub("[ ,]", "-", name))
    link.symlink_to(file.absolute())
    return str(link)


def _starts_with_small_firmware(machine: Machine) -> bool:
    """True if the machine needs no more of its firmware than to start `image`.

    SeaBIOS executes six million instructions before the image, three times those of the image itself; qboot executes 160,000. But
    qboot gives PCI devices no addresses, starts from no disc or network, and runs no option ROM, such as that of a screen. Neap gives
    its card an address itself (kernel/x86/pci.cpp). Linux, and machines with devices of the caller, keep SeaBIOS. Among these are
    machines with a real card (vfio-pci), for which KVM heeds the MTRRs, which qboot leaves off.
    """
    plain = machine.image is not None and machine.initrd is None and machine.start_from == Start()
    given = any(word in ("-device", "-bios", "-machine", "-M", "-drive", "-vga") for word in machine.qemu_options)
    return plain and not given and machine.machine_type == "q35" and machine.qemu_command is None


def _memory_arguments(machine: Machine) -> list[str]:
    """Returns QEMU's arguments for RAM that the soft card can map, in the requested number of NUMA nodes."""
    if machine.nodes == 1:
        return ["-machine", f"{machine.machine_type},memory-backend=ram", *_backend("ram", machine.memory)]
    size = re.fullmatch(r"(\d+)([MG])", machine.memory)
    assert size and machine.cores >= machine.nodes, "memory in M or G, and a core for each node"
    each = int(size[1]) * (1024 if size[2] == "G" else 1) // machine.nodes
    argv = ["-machine", machine.machine_type]
    for node in range(machine.nodes):
        first, end = (machine.cores * at // machine.nodes for at in (node, node + 1))
        argv += [*_backend(f"ram{node}", f"{each}M"), "-numa", f"node,nodeid={node},cpus={first}-{end - 1},memdev=ram{node}"]
    return argv


def _backend(name: str, size: str) -> list[str]:
    return ["-object", f"memory-backend-memfd,id={name},size={size},share=on"]


def tap_has_queues(name: str) -> bool:
    """True if the host's tap device was made with `multi_queue`. Raises Failure if there is no such device."""
    try:
        return int(Path(f"/sys/class/net/{name}/tun_flags").read_text(), 0) & TAP_MULTI_QUEUE != 0
    except (OSError, ValueError):
        hint = f"ip tuntap add {name} mode tap multi_queue user $USER, and an address for it"
        raise Failure(f"there is no tap device {name} on this host", hint) from None
