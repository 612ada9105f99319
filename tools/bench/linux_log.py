# SPDX-License-Identifier: BSL-1.0
"""`./neap bench linux-log`: neap-trace on stock Linux. Its log against the driver's counts over a million packets, and its cost.

Packets: TCP into a guest on the soft card, on each of Debian's kernels. The driver's statistics and /proc/interrupts are the judges.

Cost: Linux with memcached on the model machine, with the load of the published studies for a core. Loads with and without a run alternate
in one boot. The kernel's work varies by more than the hooks cost, so the hooks are found by function: those functions count that execute at
least a tenth more instructions a wake-up during a run. The programs in BPF, their helpers and the tracepoints do; the scheduler does not.
memcached's own instructions are left out. The instructions of neap-trace itself are those at its addresses.
"""

from __future__ import annotations

import bisect
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools import build, progress
from tools.bench.rows import Row

PACKETS = 1_000_000
TRAFFIC_SECONDS = 10
# QEMU's user network resets connections if many are made at once.
FLOWS = 4
ENTRIES = 8 << 20
CORES = 4
KERNELS = {"debian_12": False, "debian_13": True}
MODEL = "e5-2690"
RATE = 12_500.0
ARGUMENTS = ("itr=100us", "pstate=21", "trace=on")
WARM_UP_MS, PAUSE_MS, WINDOW_MS = 200.0, 30.0, 200.0
PAIRS = 4
INSTRUCTIONS_TARGET = 600
# Linux's kernel is above, and neap-trace, which is linked statically at a fixed address, is below. Other programs are between. The kernel's
# modules and the compiled BPF programs share the topmost part.
KERNEL_FROM, MODULES_FROM, TRACER_TO = 0xFFFF_8000_0000_0000, 0xFFFF_FFFF_C000_0000, 0x0100_0000
TRACER, PROGRAMS, OTHERS = "neap-trace", "BPF programs", "other programs"
# A function counts if a wake-up during a run executes this many times the instructions of a wake-up without one.
GROWTH_MIN = 1.1
MODULE = re.compile(r"linux: module (\S+) (\d+) 0x([0-9a-f]+)")


def rows() -> list[Row]:
    tests = str(build.REPOSITORY / "tests")
    if tests not in sys.path:
        sys.path.insert(0, tests)
    build.build_soft_card()
    build.build_world()
    table = []
    for name, is_debian_13 in KERNELS.items():
        table += _packets(name, is_debian_13)
    return table + cost()


def _packets(name: str, is_debian_13: bool) -> list[Row]:
    from linux_guest import guest_image
    from linux_guest.driver import BRING_UP, PATIENT_SECONDS, PING, TRAFFIC_PORT
    from linux_guest.guest import LinuxGuest
    from linux_guest.traced import CONTROL_PORT, Traced, traffic
    from linux_guest.tracer import with_tracer

    image = guest_image.build(debian_13_kernel=is_debian_13)
    with tempfile.TemporaryDirectory() as folder, progress.step(f"a million packets, {name}"):
        larger = with_tracer(image, Path(folder) / "initramfs")
        with LinuxGuest(larger, cores=CORES, memory="2G", forward_ports=[CONTROL_PORT, TRAFFIC_PORT]) as guest:
            guest.output_of(BRING_UP + PING, seconds=PATIENT_SECONDS)
            traced = Traced(guest, image)
            traced.start_tracer(f"--entries {ENTRIES}")

            def send() -> None:
                before = _frames(traced)
                while _frames(traced) - before < PACKETS:
                    traffic(traced, seconds=TRAFFIC_SECONDS, flows=FLOWS)

            compared = traced.compare(send)
    frames = compared.driver_counts["rx_frames"] + compared.driver_counts["tx_frames"]
    differences = sum(abs(compared.log_counts[each] - count) for each, count in compared.driver_counts.items())
    interrupts = sum(abs(compared.log_interrupts[queue] - count) for queue, count in compared.kernel_interrupts.items())
    return [
        Row(f"{name}.packets", "packets compared", frames),
        Row(f"{name}.difference", "frames and bytes that differ from ethtool -S", differences, 1),
        Row(f"{name}.interrupts", "interrupts in /proc/interrupts", sum(compared.kernel_interrupts.values())),
        Row(f"{name}.interrupts_difference", "interrupts that differ from /proc/interrupts", interrupts, 1),
        Row(f"{name}.unwritten", "entries that found no room", compared.unwritten, 1),
    ]


def _frames(traced) -> int:
    counts = traced.counts().frames
    return counts["rx_frames"] + counts["tx_frames"]


def cost() -> list[Row]:
    """Measures the instructions of an interrupt on the model machine."""
    from tools.model import experiment, linux, linux_symbols

    def load(name: str, log: bool, warm_up_ms: float) -> experiment.Load:
        return experiment.Load(name, rate=RATE, window_ms=WINDOW_MS, warm_up_ms=warm_up_ms, log=log)

    loads = [load("first", False, WARM_UP_MS)]
    # The order on, off, off, on cancels a steady drift: memcached's threads wake up less often the longer they have found no work.
    for number in range(PAIRS):
        pair = [load(f"on_{number}", True, PAUSE_MS), load(f"off_{number}", False, PAUSE_MS)]
        loads += reversed(pair) if number % 2 else pair
    settings = experiment.Experiment(MODEL, cores=1, arguments=ARGUMENTS, profile=True)
    console: list[str] = []
    with tempfile.TemporaryDirectory() as name, progress.step("the cost of neap-trace on the model machine"):
        out = Path(name)
        system = experiment.System(*linux.image(with_trace=True))
        results = experiment.run_sequence(settings, loads, system, out, on_line=console.append)
        functions = Functions(linux_symbols.of_kernel().kernel, console)
        counted = [functions.count(out / experiment.sequence_profile(number)) for number in range(len(loads))]
    figures = [result.row() for result in results]
    on, off = ([number for number, load in enumerate(loads) if number and load.log == log] for log in (True, False))
    with_run, without = (sum((counted[number] for number in numbers), Counter()) for numbers in (on, off))
    wakeups = sum(figures[number]["wakeups"] for number in on) / sum(figures[number]["wakeups"] for number in off)
    interrupts = sum(figures[number]["interrupts"] for number in on)
    grown = {each: value / interrupts for each, value in growth(with_run, without, wakeups).items()}
    user = grown.pop(TRACER, 0.0)
    most = ", ".join(f"{each} {value:.0f}" for each, value in sorted(grown.items(), key=lambda pair: -pair[1])[:6])
    return [
        Row("cost", f"instructions an interrupt, {interrupts:.0f} interrupts", sum(grown.values()) + user, INSTRUCTIONS_TARGET),
        Row("cost.kernel", f"instructions an interrupt; most: {most}", sum(grown.values())),
        Row("cost.user", "instructions an interrupt of neap-trace itself", user),
    ]


def growth(with_run: Counter[str], without: Counter[str], wakeups: float) -> dict[str, float]:
    """Returns the additional instructions of the functions that neap-trace causes. `wakeups`: those with a run, for each one without."""
    found = {}
    for name, count in with_run.items():
        expected = without[name] * wakeups
        if name != OTHERS and count >= GROWTH_MIN * expected:
            found[name] = count - expected
    return found


class Functions:
    """Names of the kernel's functions by address. `symbols`: sorted addresses with names. `console`: lines that name the modules."""

    def __init__(self, symbols: Sequence[tuple[int, str]], console: Iterable[str]):
        self._addresses = [address for address, _ in symbols]
        self._names = [name for _, name in symbols]
        self._modules = [(int(found[3], 16), int(found[2]), found[1]) for line in console if (found := MODULE.search(line))]

    def count(self, profile: Path) -> Counter[str]:
        """Returns the instructions of each function."""
        counted: Counter[str] = Counter()
        for line in profile.read_text().splitlines():
            address, count, *_ = line.split()
            counted[self.name(int(address, 16))] += int(count)
        return counted

    def name(self, address: int) -> str:
        if address < KERNEL_FROM:
            return TRACER if address < TRACER_TO else OTHERS
        if address >= MODULES_FROM:
            inside = (name for start, size, name in self._modules if start <= address < start + size)
            return next(inside, PROGRAMS)
        return self._names[bisect.bisect_right(self._addresses, address) - 1]
