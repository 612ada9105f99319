# SPDX-License-Identifier: BSL-1.0
"""The peers of `./neap bench kernel`: the same steps on Linux (bench/kernel_peers.cpp), counted by the same plugin.

Debian's kernel runs one program as its first process, on a machine of two CPUs without a network. Mitigations against speculative execution
are off, as in Neap. The figure is the median of 10,000 runs, because Linux's own interrupts fall into some of them.
"""

import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import build, packages, progress
from tools.bench.instructions import counter_options, read_counts
from tools.bench.rows import Row
from tools.errors import Failure
from tools.machine import POWER_OFF, Machine
from tools.process import run_logged

SOURCE = build.REPOSITORY / "bench/kernel_peers.cpp"
RUN_SECONDS = 600


@dataclasses.dataclass(frozen=True)
class Peer:
    """A step on Linux. `region`: its number in bench/kernel_peers.cpp. `less`: the region to subtract, as in kernel.Step."""

    what: str
    region: int | None = None
    less: int | None = None


PEERS = {
    "kernel.spawn_and_run": Peer("std::deque of std::function", 2),
    "kernel.remote_spawn.sender": Peer("write to a pipe", 3),
    "kernel.remote_spawn.receiver": Peer("read from a pipe", 4),
    "kernel.timer_add_cancel": Peer("timerfd_settime, twice", 5),
    "kernel.timer_push_back": Peer("timerfd_settime", 6),
    "kernel.ebb_call": Peer("thread_local object", 7, less=8),
    "kernel.rcu_read": Peer("pthread_rwlock", 9, less=10),
    "kernel.await_ready": Peer("none: a compiler's matter"),
    "kernel.await_task": Peer("least task of host's g++", 11),
    "kernel.interrupt_to_handler": Peer("signal to oneself", 12),
    "memory.malloc_free_64": Peer("glibc", 13),
    "memory.malloc_free_4096": Peer("glibc", 14),
    "memory.malloc_64": Peer("glibc", 15),
    "memory.free_64": Peer("glibc", 16),
    "memory.remote_free_64": Peer("glibc", 17),
}


def beside(rows: Sequence[Row]) -> list[Row]:
    """Adds each row's peer. If Linux is not available, the rows say why and have no peers."""
    try:
        values = measure()
    except Failure as failure:
        progress.say(f"neap: no figures of Linux's: {failure}")
        values = {}
    found = []
    for row in rows:
        peer = PEERS.get(row.name)
        found.append(dataclasses.replace(row, peer=values.get(row.name), peer_is=peer.what) if peer else row)
    return found


def measure() -> dict[str, float]:
    """Returns each step's instructions on Linux, by the names in PEERS. Raises Failure if this machine cannot make or boot the guest."""
    with tempfile.TemporaryDirectory(prefix="neap-bench-") as name:
        directory = Path(name)
        kernel, archive, out = _kernel(), directory / "initramfs", directory / "counts.json"
        _write_archive(archive, _program(directory / "peers"))
        with progress.step("counting instructions of Linux"):
            options = counter_options(out)
            with Machine(kernel, initrd=archive, cores=2, memory="512M", card=False, arguments=_words(), qemu_options=options) as machine:
                status = machine.wait_exit(RUN_SECONDS)
        if status != POWER_OFF or "peers: counted" not in machine.lines:
            raise Failure(f"Linux ended with status {status}", details=machine.lines[-20:])
        regions = read_counts(out).regions
    if regions[0].median != 1000:
        raise Failure(f"the instruction counter is wrong: {regions[0].median} where 1000 ran")
    values = {}
    for step, peer in PEERS.items():
        if peer.region is not None:
            values[step] = float(regions[peer.region].median - (regions[peer.less].median if peer.less is not None else 0))
    return values


def _kernel() -> Path:
    sys.path.insert(0, str(build.REPOSITORY / "tests"))
    from linux_guest import guest_image  # noqa: PLC0415

    return guest_image.build().kernel


def _words() -> list[str]:
    from linux_guest.guest import KERNEL_WORDS  # noqa: PLC0415

    return [*KERNEL_WORDS, "quiet"]


def _program(path: Path) -> Path:
    packages.require("card")
    argv = ["g++", "-std=gnu++23", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-static", f"-I{build.REPOSITORY}"]
    run_logged([*argv, "-o", str(path), str(SOURCE)], build.log_path("kernel-peers"), "building the program for Linux")
    return path


def _write_archive(path: Path, program: Path) -> None:
    from linux_guest.cpio import CpioWriter  # noqa: PLC0415

    with path.open("wb") as stream:
        archive = CpioWriter(stream)
        archive.character_device("dev/console", 5, 1)
        archive.file("init", program.read_bytes(), mode=0o755)
        archive.close()
