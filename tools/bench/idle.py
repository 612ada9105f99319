# SPDX-License-Identifier: BSL-1.0
"""`./neap bench idle`: exits and wake-ups per second of an idle Neap, beside an idle Debian on the same emulated machine.

A guest that does nothing still costs its host: each timer of the guest is an interrupt, a wake-up of a virtual CPU, and some exits. The
guests are memcached on Neap, Debian 12 with memcached, and Debian 12 without it. The last one shows the cost of the system alone. Each has
the same QEMU, CPU, devices and memory, QEMU's virtio-net and user network, and no client. They are counted in the same seconds, after their
boots and a time to settle. bench/exit_counter.c counts, and says what stands for an exit. A guest with known exits checks it first.

After the count, each guest gets a request. Its wake-ups MUST be counted, so that a count of 0 is not that of a counter that has stopped.
"""

import contextlib
import dataclasses
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tools import build, progress, qemu
from tools.bench import exit_counter
from tools.bench.exit_counter import KINDS, Counts
from tools.bench.rows import Row, aligned
from tools.errors import Failure
from tools.machine import LOOPBACK, Machine
from tools.model import linux

if TYPE_CHECKING:
    from linux_guest.system import System

CORES = (1, 4)
MEMORY = "1G"
PORT = 11211
NEAP, DEBIAN, BARE = "neap", "debian_memcached", "debian"
TITLES = {NEAP: "Neap, memcached", DEBIAN: "Debian, memcached", BARE: "Debian"}
SYSTEMS = tuple(TITLES)
NEAP_READY = r"^memcached: listening on "
BOOT_SECONDS = 1200.0
SETTLE_SECONDS = 30.0
# Two intervals of an APIC timer at 62.5 MHz, which is this QEMU's: without TSC deadlines its 32 bits last 69 s.
WINDOW_SECONDS = 140.0
REQUEST_SECONDS = 5.0
SUMS = ("exits", "wakeups")
RATIO_MAX = 0.1

# The lines of the guests about themselves, for `show`.
_about: dict[str, str] = {}


@dataclasses.dataclass(frozen=True)
class Guest:
    """A running guest, and the file of its counts."""

    name: str
    machine: Machine
    live: Path

    def counts(self) -> Counts:
        return exit_counter.read(self.live)


def rows() -> list[Row]:
    build.build("image", ["memcached.elf"])
    system = debian_module().build()
    exit_counter.require_exact()
    _about.clear()
    return [row for cores in CORES for row in rows_of(cores, measure(cores, system))]


def debian_module() -> ModuleType:
    """Returns tests/linux_guest/system.py."""
    linux.find_guest()
    from linux_guest import system  # noqa: PLC0415

    return system


def measure(cores: int, system: "System") -> dict[str, Counts]:
    """Boots the guests, and returns the counts of the window by the guests' names. Raises Failure if a guest does not start."""
    with tempfile.TemporaryDirectory(prefix="neap-bench-") as directory, contextlib.ExitStack() as stack:
        guests = [_guest(name, cores, system, Path(directory)) for name in SYSTEMS]
        with progress.step(f"booting {', '.join(TITLES.values())}: {cores} core{'s' * (cores > 1)} each"):
            for guest in guests:
                stack.enter_context(guest.machine)
            for guest in guests:
                _wait_for_boot(guest)
        time.sleep(SETTLE_SECONDS)
        with progress.step(f"counting the exits of {WINDOW_SECONDS:g} s"):
            before = [guest.counts() for guest in guests]
            time.sleep(WINDOW_SECONDS)
            after = [guest.counts() for guest in guests]
        for guest in guests:
            _require_counted(guest)
    return {guest.name: end.since(begin) for guest, begin, end in zip(guests, before, after, strict=True)}


def _guest(name: str, cores: int, system: "System", directory: Path) -> Guest:
    """One machine for all systems: only kernel, initramfs and command line differ."""
    live = directory / name
    is_linux = name != NEAP
    machine = Machine(
        system.kernel if is_linux else build.image("memcached"),
        initrd=system.initramfs if is_linux else None,
        arguments=_kernel_words(name) if is_linux else [],
        cores=cores,
        memory=MEMORY,
        cpu=exit_counter.CPU,
        card_kind="virtio",
        forward=[(0, PORT)],
        qemu_command=qemu.command(),
        qemu_options=exit_counter.options(live),
    )
    return Guest(name, machine, live)


def _kernel_words(name: str) -> list[str]:
    system = debian_module()
    return system.kernel_words([system.WITHOUT_MEMCACHED] if name == BARE else [])


def _wait_for_boot(guest: Guest) -> None:
    """Waits for the end of a guest's boot, and keeps its line about itself. Raises Failure if there is none."""
    if guest.name == NEAP:
        guest.machine.wait_for_line(NEAP_READY, BOOT_SECONDS)
        _about[guest.name] = guest.machine.wait_for_line("^power: ", 1)
        return
    guest.machine.wait_for_line(debian_module().READY, BOOT_SECONDS)
    _about[guest.name] = require_sound(guest.machine.lines, guest.name == DEBIAN)


def require_sound(lines: Sequence[str], has_memcached: bool) -> str:
    """Returns the processes of a Debian guest, from its report. Raises Failure if a service failed, if the clock is
    another than the TSC, whose reads would be exits, or if memcached is or is not there against the caller's word."""
    system = debian_module()
    report = [line.strip() for line in lines]
    if failed := [line.removeprefix(system.FAILED) for line in report if line.startswith(system.FAILED)]:
        raise Failure(f"services of the Debian guest failed: {' '.join(failed)}", details=list(lines[-20:]))
    if system.CLOCK not in report:
        raise Failure("the Debian guest does not read its time from the TSC", details=list(lines[-20:]))
    running = next((line.removeprefix(system.RUNS) for line in report if line.startswith(system.RUNS)), "")
    if ("memcached" in running.split()) != has_memcached:
        raise Failure(f"the Debian guest runs {running}", details=list(lines[-20:]))
    return running


def _require_counted(guest: Guest) -> None:
    """Sends a request, which wakes the guest. The guest without memcached refuses the connection."""
    before = guest.counts()
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, guest.machine.port(PORT)), REQUEST_SECONDS) as client:
        client.settimeout(REQUEST_SECONDS)
        client.sendall(b"version\r\n")
        answer = client.recv(64)
    if answer.startswith(b"VERSION ") != (guest.name != BARE):
        raise Failure(f"{TITLES[guest.name]} answered {answer!r}", details=guest.machine.lines[-20:])
    if guest.counts().since(before).wakeups == 0:
        raise Failure(f"the wake-ups of {TITLES[guest.name]} are not counted")


def rows_of(cores: int, counted: dict[str, Counts], seconds: float = WINDOW_SECONDS) -> list[Row]:
    """Returns the rates of each guest, and Neap's relative to each Debian. Raises Failure if a Debian did nothing at all."""
    found = []
    for name, counts in counted.items():
        values = {**{kind: counts.of[kind] for kind in KINDS}, "exits": counts.exits, "wakeups": counts.wakeups}
        found += [Row(f"idle.cores_{cores}.{name}.{figure}", "a second", value / seconds) for figure, value in values.items()]
    own = counted[NEAP]
    for name in (DEBIAN, BARE):
        for figure in SUMS:
            theirs = getattr(counted[name], figure)
            if theirs == 0:
                raise Failure(f"{TITLES[name]} on {cores} cores had no {figure} in {seconds:g} s")
            unit = f"of those of {TITLES[name]}; {getattr(own, figure)} in {seconds:g} s"
            found.append(Row(f"idle.cores_{cores}.{figure}_of_{name}", unit, getattr(own, figure) / theirs, RATIO_MAX))
    return found


def show(found: Sequence[Row]) -> str:
    """A table for each number of cores: a column for each guest, and Neap relative to Debian with memcached."""
    values = {row.name: row.value or 0.0 for row in found}
    parts = [f"idle guests on emulated CPUs, counts a second over {WINDOW_SECONDS:g} s; bench/exit_counter.c says what stands for an exit"]
    parts += [f"{TITLES[name]}: {text}" for name, text in _about.items()]
    for cores in CORES:
        cells = [(f"{cores} core{'s' * (cores > 1)}", *TITLES.values(), "ratio", "target", "without memcached")]
        for figure in (*KINDS, *SUMS):
            rates = [f"{values[f'idle.cores_{cores}.{name}.{figure}']:.2f}" for name in SYSTEMS]
            ratios = [f"{values[f'idle.cores_{cores}.{figure}_of_{name}']:.3f}" for name in (DEBIAN, BARE)] if figure in SUMS else ["", ""]
            cells.append((figure, *rates, ratios[0], f"< {RATIO_MAX:g}" if figure in SUMS else "", ratios[1]))
        parts += ["", aligned(cells)]
    return "\n".join(parts)
