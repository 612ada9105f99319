# SPDX-License-Identifier: BSL-1.0
"""`./neap bench linux-log`: neap-trace on stock Linux. Its log against the driver's counts over a million packets, and its cost.

Packets: TCP into a guest on the soft card, on each of Debian's kernels. The driver's statistics and /proc/interrupts are the judges.

Cost: Linux with memcached on the model machine, with the load of the published studies for a core. Loads with and without a run alternate
in one boot. The kernel's instructions are compared in proportion to the wake-ups of each load. So all effects of the hooks on the rest of
the kernel count. memcached's own instructions vary by its maintenance and are left out. The instructions of neap-trace itself are those at
its addresses.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import build, progress
from tools.bench.rows import Row

PACKETS = 1_000_000
TRAFFIC_SECONDS = 5
FLOWS = 8
ENTRIES = 8 << 20
CORES = 4
KERNELS = {"debian_12": False, "debian_13": True}
MODEL = "e5-2690"
RATE = 12_500.0
ARGUMENTS = ("itr=100us", "pstate=21", "trace=on")
WARM_UP_MS, PAUSE_MS, WINDOW_MS = 200.0, 30.0, 200.0
PAIRS = 3
INSTRUCTIONS_TARGET = 600
# Linux's kernel is above, and neap-trace, which is linked statically at a fixed address, is below. Other programs are between.
KERNEL_FROM, TRACER_TO = 0xFFFF_8000_0000_0000, 0x0100_0000


def rows() -> list[Row]:
    tests = str(build.REPOSITORY / "tests")
    if tests not in sys.path:
        sys.path.insert(0, tests)
    build.build_soft_card()
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
    from tools.model import experiment, linux

    def load(name: str, log: bool, warm_up_ms: float) -> experiment.Load:
        return experiment.Load(name, rate=RATE, window_ms=WINDOW_MS, warm_up_ms=warm_up_ms, log=log)

    loads = [load("first", False, WARM_UP_MS)]
    for number in range(PAIRS):
        loads += [load(f"on_{number}", True, PAUSE_MS), load(f"off_{number}", False, PAUSE_MS)]
    settings = experiment.Experiment(MODEL, cores=1, arguments=ARGUMENTS, profile=True)
    with tempfile.TemporaryDirectory() as name, progress.step("the cost of neap-trace on the model machine"):
        out = Path(name)
        results = experiment.run_sequence(settings, loads, experiment.System(*linux.image(with_trace=True)), out)
        counted = [_instructions(out / experiment.sequence_profile(number)) for number in range(len(loads))]
    chosen = {log: [number for number, each in enumerate(loads) if number and each.log == log] for log in (True, False)}
    wakeups, interrupts = (
        {log: sum(results[number].row()[what] for number in numbers) for log, numbers in chosen.items()}
        for what in ("wakeups", "interrupts")
    )
    kernel, own = ({log: sum(counted[number][part] for number in numbers) for log, numbers in chosen.items()} for part in (0, 1))
    kernel_part = (kernel[True] - kernel[False] * wakeups[True] / wakeups[False]) / interrupts[True]
    own_part = (own[True] - own[False]) / interrupts[True]
    unit = f"instructions an interrupt, {interrupts[True]:.0f} interrupts"
    return [
        Row("cost", unit, kernel_part + own_part, INSTRUCTIONS_TARGET),
        Row("cost.kernel", "instructions an interrupt: hooks, helpers, system calls", kernel_part),
        Row("cost.user", "instructions an interrupt: neap-trace", own_part),
        Row("cost.without", "instructions of the kernel an interrupt, without a run", kernel[False] / interrupts[False]),
    ]


def _instructions(profile: Path) -> Sequence[int]:
    """Returns the instructions of the kernel, and those of neap-trace."""
    kernel = own = 0
    for line in profile.read_text().splitlines():
        address, count, *_ = line.split()
        kernel += int(count) if int(address, 16) >= KERNEL_FROM else 0
        own += int(count) if int(address, 16) < TRACER_TO else 0
    return kernel, own
