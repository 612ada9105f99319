# SPDX-License-Identifier: BSL-1.0
"""Exits and wake-ups of a guest, counted by a plugin of the emulated CPU (bench/exit_counter.c, which defines each kind)."""

import dataclasses
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tools import build, progress, qemu, qemu_plugin
from tools.errors import Failure
from tools.machine import Machine
from tools.process import run_logged

SOURCE = build.REPOSITORY / "bench/exit_counter.c"
KNOWN_SOURCE = build.REPOSITORY / "bench/known_exits.S"
OLDEST_API = 7
# A guest on KVM has neither MONITOR nor MWAIT, unless its host grants them. On the emulated CPU, MWAIT does not sleep.
CPU = "max,-monitor"
WORDS_OF_CPU = 16
# The kinds of exits, in the plugin's order.
KINDS = ("halt", "apic", "msr", "port", "device", "cpuid", "interrupt", "other")
NAMES = (*KINDS, "wakeups", "taken", "passed_msr")
START_SECONDS = 60.0
QUIET_SECONDS = 0.3
KNOWN_ROUNDS = 100
# Exits of the guest with known exits: bench/known_exits.S states those of a round. The way to x2APIC mode, the
# last four letters and the last HLT count, too.
KNOWN = {
    "halt": KNOWN_ROUNDS + 1,
    "apic": 6 * KNOWN_ROUNDS,
    "msr": KNOWN_ROUNDS + 2,
    "port": 2 * KNOWN_ROUNDS + len("end\n"),
    "device": KNOWN_ROUNDS,
    "cpuid": KNOWN_ROUNDS,
    "interrupt": KNOWN_ROUNDS,
    "other": 0,
    "taken": 2 * KNOWN_ROUNDS,
    "passed_msr": KNOWN_ROUNDS,
}


@dataclasses.dataclass(frozen=True)
class Counts:
    """The sums of all CPUs since the machine's start, or of a time. `of` has an entry for each of NAMES."""

    of: dict[str, int]

    def since(self, before: "Counts") -> "Counts":
        return Counts({name: count - before.of[name] for name, count in self.of.items()})

    @property
    def exits(self) -> int:
        return sum(self.of[kind] for kind in KINDS)

    @property
    def wakeups(self) -> int:
        return self.of["wakeups"]


def options(live: Path) -> list[str]:
    """Returns QEMU's arguments for counting; `read` reads the file `live`. Raises Failure if the QEMU is too old."""
    version = qemu.version_of(qemu.command())
    if version is None or qemu_plugin.plugin_api(version) < OLDEST_API:
        raise Failure(f"QEMU {version} cannot count exits", "QEMU 11.1 or newer can; NEAP_QEMU= names one")
    return qemu_plugin.option(qemu_plugin.library(SOURCE), f"live={live}")


def read(live: Path) -> Counts:
    """Reads the counts of a running machine. Raises Failure if the counter has left none."""
    try:
        return parse(live.read_bytes())
    except OSError as error:
        raise Failure(f"the exit counter wrote nothing: {error}") from None


def parse(written: bytes) -> Counts:
    """Returns the sums of a file of the plugin. Raises Failure for another file."""
    if not written or len(written) % (8 * WORDS_OF_CPU):
        raise Failure(f"the exit counter wrote {len(written)} bytes, which are no counts")
    cpus = struct.iter_unpack(f"<{WORDS_OF_CPU}Q", written)
    return Counts(dict(zip(NAMES, (sum(words) for words in zip(*cpus, strict=True)))))


def require_exact() -> None:
    """Checks the counter by a guest with known exits. Raises Failure if a count differs."""
    with tempfile.TemporaryDirectory(prefix="neap-bench-") as name, progress.step("checking the exit counter by known exits"):
        directory = Path(name)
        image, live = directory / "known_exits", directory / "live"
        _assemble(image, directory)
        with Machine(image, memory="256M", card=False, cpu=CPU, qemu_command=qemu.command(), qemu_options=options(live)) as machine:
            machine.wait_for_line("begin", START_SECONDS)
            before = read(live)
            machine.wait_for_line("end", START_SECONDS)
            time.sleep(QUIET_SECONDS)
            counted = read(live).since(before)
    if wrong := differences(counted):
        raise Failure(f"the exit counter is wrong: {', '.join(wrong)}")


def differences(counted: Counts) -> Sequence[str]:
    """Returns a sentence for each count that is not the known one. A HLT that finds an interrupt pending does not sleep."""
    wrong = [f"{counted.of[kind]} of {kind} where {known} were" for kind, known in KNOWN.items() if counted.of[kind] != known]
    if not KNOWN_ROUNDS / 2 <= counted.wakeups <= KNOWN_ROUNDS:
        wrong.append(f"{counted.wakeups} wake-ups where {KNOWN_ROUNDS} were")
    return wrong


def _assemble(image: Path, directory: Path) -> None:
    made = directory / "known_exits.o"
    log = build.log_path("known_exits")
    run_logged(["as", "--32", "-o", str(made), str(KNOWN_SOURCE)], log, "assembling known_exits.S")
    link = ["ld", "-m", "elf_i386", "-N", "--no-warn-rwx-segments", "-Ttext-segment=0x100000"]
    run_logged([*link, "-o", str(image), str(made)], log, "linking known_exits.S")
