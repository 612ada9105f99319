# SPDX-License-Identifier: BSL-1.0
"""`./neap bench model-judges`: programs that do not know the model measure it, on Debian 12's and on Debian 13's Linux.

Each program's value is printed beside the model's own sum over the same time. Energy, residency and frequency agree within 1 %, counts of
instructions exactly. The model's sums are in snapshots that the guest requests by CPUID (docs/model-machine.md), before and after each
measurement. The requests, and the start and end of a program, take some milliseconds. So a measurement lasts 10 s of virtual time, which
pass in an instant, because the guest sleeps.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools import build, progress
from tools.bench.rows import Row, aligned
from tools.errors import Failure
from tools.model import cpu_model, plugin

if TYPE_CHECKING:
    from linux_guest.guest import LinuxGuest

MODEL = "e5-2690"
KERNELS = {"Debian 12": False, "Debian 13": True}  # whether the guest's kernel is Debian 13's
TOLERANCE_PERCENT = 1.0
NAP_SECONDS = 10
SCRIPT_SECONDS = 120
STATES = ("C1", "C1E", "C3", "C6", "C7")
MHZ = (1200, 2100, 2900)
BUSY = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
CPU = "/sys/devices/system/cpu/cpu0"
MARKS = """
modprobe cpuid; modprobe msr; modprobe intel_rapl_msr
mark() { dd if=/dev/cpu/0/cpuid bs=16 count=1 iflag=skip_bytes skip=$(( $1 * 4294967296 + 0x4e656170 )) >/dev/null 2>&1; }
"""


@dataclasses.dataclass(frozen=True)
class Judgement(Row):
    """A program's value beside the model's. `value` is the deviation: in percent, or in instructions if the values must be equal."""

    judge: str = ""
    seen: float = 0.0
    truth: float = 0.0

    def fields(self) -> dict[str, str | float | None]:
        return {**super().fields(), "judge": self.judge, "seen": self.seen, "truth": self.truth}


def judged(judge: str, what: str, seen: float, truth: float) -> Judgement:
    deviation = abs(seen / truth - 1) * 100 if truth else float(seen != 0) * 100
    return Judgement(what, "%", deviation, TOLERANCE_PERCENT, judge=judge, seen=seen, truth=truth)


def counted(judge: str, what: str, seen: int, truth: int) -> Judgement:
    """For counts that must be equal."""
    return Judgement(what, "counts", float(abs(seen - truth)), 1.0, judge=judge, seen=seen, truth=truth)


@dataclasses.dataclass(frozen=True)
class Measured:
    """A script's output, and the model's sums over the time from before it to after it."""

    output: str
    before: dict[str, Any]
    after: dict[str, Any]

    def truth(self, key: str) -> float:
        return self.after[key] - self.before[key]

    def of_core(self, key: str) -> int:
        return self.after["cpus"][0][key] - self.before["cpus"][0][key]

    def slept_ns(self, state: str) -> int:
        return self.after["cpus"][0]["residency_ns"][state] - self.before["cpus"][0]["residency_ns"][state]

    @property
    def mhz(self) -> float:
        return self.of_core("cycles") / self.of_core("reference_cycles") * base_mhz()


class JudgedGuest:
    """A running Linux with the snapshots of its model."""

    def __init__(self, linux: LinuxGuest, directory: Path):
        self.linux = linux
        self._directory = directory
        self._marks = 0

    def new_marks(self) -> int:
        """The number of the first of two unused marks."""
        self._marks += 2
        return self._marks - 1

    def between(self, first: int, output: str) -> Measured:
        found = {one["mark"]: one for one in plugin.snapshots(self._directory) if one["event"] == "mark"}
        return Measured(output, found[first], found[first + 1])

    def measured(self, script: str) -> Measured:
        """Runs a script between two marks."""
        first = self.new_marks()
        return self.between(first, self.linux.output_of(f"{MARKS}mark {first}\n{script}\nmark {first + 1}", seconds=SCRIPT_SECONDS))


@contextmanager
def guest(kernel: str, directory: Path) -> Iterator[JudgedGuest]:
    """Boots Linux on the modelled CPU. `kernel` is a key of KERNELS."""
    if str(build.REPOSITORY / "tests") not in sys.path:
        sys.path.insert(0, str(build.REPOSITORY / "tests"))
    from linux_guest import guest_image, known_count  # noqa: PLC0415
    from linux_guest.guest import LinuxGuest  # noqa: PLC0415

    cpu = cpu_model.load(MODEL)
    image = guest_image.build(debian_13_kernel=KERNELS[kernel], power_programs=True)
    linux = LinuxGuest(image, card=None, memory="1G", kernel_words=["tsc=reliable"], qemu_options=plugin.options(cpu, directory))
    linux.machine.cpu, linux.machine.one_thread = cpu.qemu_cpu(), True
    with linux:
        known_count.install(linux)
        yield JudgedGuest(linux, directory)


def base_mhz() -> int:
    return cpu_model.load(MODEL).values["frequency.base_ratio"] * 100


# --- The judges --------------------------------------------------------------------------------------------------------------------------


def powercap(on: JudgedGuest) -> list[Judgement]:
    folder = "/sys/class/powercap/intel-rapl:0"
    ranges = [
        int(line) / 1e6 for line in on.linux.output_of(f"{MARKS}cat {folder}/max_energy_range_uj {folder}/*/max_energy_range_uj").split()
    ]
    done = on.measured(f"for i in 1 2; do cat {folder}/energy_uj {folder}/*/energy_uj; [ $i = 2 ] || sleep {NAP_SECONDS}; done")
    values = [int(line) / 1e6 for line in done.output.split()]
    half = len(values) // 2
    names = [("package", "package_j"), ("cores", "cores_j"), ("dram", "dram_j")]
    # Counters of 32 bits wrap: while the guest waits for the next script, hours of idle time pass in an instant.
    return [
        judged("powercap", f"{name}, J", (values[half + i] - values[i]) % ranges[i], done.truth(key)) for i, (name, key) in enumerate(names)
    ]


def turbostat(on: JudgedGuest) -> list[Judgement]:
    shown = "TSC_MHz,CPU%c7,Pkg%pc7,Pkg_J,Cor_J,RAM_J"
    done = on.measured(f"turbostat -q -J -S -i {NAP_SECONDS} -n 1 --show {shown}")
    names, values = (line.split() for line in done.output.strip().splitlines()[-2:])
    seen = dict(zip(names, map(float, values), strict=True))
    joules = [judged("turbostat", name, seen[name], done.truth(key))
              for name, key in (("Pkg_J", "package_j"), ("Cor_J", "cores_j"), ("RAM_J", "dram_j"))]  # fmt: skip
    in_package = done.after["package_residency_ns"]["PC7"] - done.before["package_residency_ns"]["PC7"]
    return [
        *joules,
        judged("turbostat", "CPU%c7", seen["CPU%c7"], 100 * done.slept_ns("C7") / done.truth("virtual_ns")),
        judged("turbostat", "Pkg%pc7", seen["Pkg%pc7"], 100 * in_package / done.truth("virtual_ns")),
        judged("turbostat", "TSC_MHz", seen["TSC_MHz"], base_mhz()),
    ]


def intel_idle(on: JudgedGuest) -> list[Judgement]:
    state = f"{CPU}/cpuidle/state*/time"
    done = on.measured(f"cat {state} > /tmp/before; sleep {NAP_SECONDS}; cat /tmp/before {state}")
    times = [int(line) for line in done.output.split()]
    half = len(times) // 2
    slept_s = (sum(times[half:]) - sum(times[:half])) / 1e6
    return [judged("intel_idle", "all states, s", slept_s, sum(done.slept_ns(one) for one in STATES) / 1e9)]


def rdmsr(on: JudgedGuest) -> list[Judgement]:
    """Energy, TSC and residency over a nap, and APERF and MPERF over work: asleep they count nothing."""
    values = cpu_model.load(MODEL).values
    unit, dram_unit = (2.0 ** -values[f"energy.{key}"] for key in ("unit_exponent", "dram_unit_exponent"))
    tsc_ns = 1e3 / base_mhz()
    registers = {
        "package energy, J": (0x611, unit, lambda done: done.truth("package_j")),
        "cores energy, J": (0x639, unit, lambda done: done.truth("cores_j")),
        "DRAM energy, J": (0x619, dram_unit, lambda done: done.truth("dram_j")),
        "C7 residency, s": (0x3FE, tsc_ns / 1e9, lambda done: done.slept_ns("C7") / 1e9),
        "TSC, s": (0x10, tsc_ns / 1e9, lambda done: done.truth("virtual_ns") / 1e9),
    }
    read = "; ".join(f"rdmsr -d {number:#x}" for number, _, _ in registers.values())
    done = on.measured(f"{read}; sleep {NAP_SECONDS}; {read}")
    numbers = [int(line) for line in done.output.split()]
    half = len(numbers) // 2
    found = []
    for i, (name, (_, scale, truth)) in enumerate(registers.items()):
        difference = numbers[half + i] - numbers[i]
        found.append(judged("rdmsr", name, (difference % (1 << 32) if "energy" in name else difference) * scale, truth(done)))
    read = "rdmsr -d 0xe8; rdmsr -d 0xe7"
    done = on.measured(f"{read}; {BUSY}; {read}")
    aperf, mperf, aperf_end, mperf_end = (int(line) for line in done.output.split())
    return [*found, judged("rdmsr", "APERF to MPERF, MHz", (aperf_end - aperf) / (mperf_end - mperf) * base_mhz(), done.mhz)]


def cpupower(on: JudgedGuest) -> list[Judgement]:
    values = cpu_model.load(MODEL).values
    limits = on.linux.output_of("cpupower frequency-info -l").split()[-2:]
    found = [
        judged("cpupower", "lowest, kHz", int(limits[0]), values["frequency.min_ratio"] * 1e5),
        judged("cpupower", "highest, kHz", int(limits[1]), values["frequency.turbo_ratios"][0] * 1e5),
    ]
    done = on.measured(f"cpupower monitor -i {NAP_SECONDS}")
    names, shares = (re.split(r"[\s|]+", line.strip(" |")) for line in done.output.strip().splitlines()[-2:])
    seen = dict(zip(reversed(names), reversed(shares), strict=True))  # from the right: names occur twice, the first are the MSRs'
    seen_by_msr = dict(zip(names[:10], shares[:10], strict=True))
    return [
        *found,
        judged("cpupower", "C7 by MSR, %", float(seen_by_msr["C7"]), 100 * done.slept_ns("C7") / done.truth("virtual_ns")),
        judged("cpupower", "Cx by MPERF, %", float(seen["Cx"]), 100 - done.of_core("c0_ns") / done.truth("virtual_ns") * 100),
    ]


def frequency(on: JudgedGuest) -> list[Judgement]:
    """The pace of the core at each frequency that Linux sets, as three programs see it."""
    found = []
    folder = f"{CPU}/cpufreq"
    for mhz in MHZ:
        limit = f"echo {mhz}000 > {folder}/scaling_"
        on.linux.output_of(f"{limit}min_freq; {limit}max_freq; {limit}min_freq")
        done = on.measured(f"{BUSY}; rdmsr -d 0x198 -f 15:8")
        found.append(judged("rdmsr", f"PERF_STATUS at {mhz}, MHz", int(done.output) * 100, done.mhz))
        done = on.measured(f"turbostat -q --show Bzy_MHz -S sh -c '{BUSY}'")
        found.append(judged("turbostat", f"Bzy_MHz at {mhz}", float(done.output.split()[-1]), done.mhz))
        done = on.measured(f"perf stat -x, -a -e cycles,ref-cycles -- sh -c '{BUSY}' 2>&1")
        cycles, reference = (int(line.split(",")[0]) for line in done.output.splitlines() if line.count(",") > 3)
        found.append(judged("perf stat", f"cycles at {mhz}, MHz", cycles / reference * base_mhz(), done.mhz))
    return found


def perf(on: JudgedGuest) -> list[Judgement]:
    """Instructions to the last one: of a program with a known number, by level, and between two points by RDPMC."""
    from linux_guest import known_count  # noqa: PLC0415

    events = ("instructions:u", "instructions:k", "instructions")
    output = on.linux.output_of(f"perf stat -x, -e {','.join(events)} {known_count.PROGRAM} 2>&1", seconds=SCRIPT_SECONDS)
    user, system, every = (int(line.split(",")[0]) for line in output.splitlines() if line.count(",") > 3)
    found = [
        counted("perf stat", "instructions:u of a known program", user, known_count.KNOWN_INSTRUCTIONS),
        counted("perf stat", "instructions = :u + :k", every, user + system),
    ]
    for event, key, exact in ((1, "instructions", True), (0, "cycles", False), (9, "reference_cycles", False)):
        first = on.new_marks()
        done = on.between(first, on.linux.output_of(f"{known_count.PROGRAM} {event} all {first}"))
        if exact:
            inside = int(done.output) - known_count.COUNTED_OUTSIDE
            found.append(counted("perf rdpmc", "instructions, all levels", inside, done.of_core(key)))
        else:
            found.append(judged("perf rdpmc", key.replace("_", " "), int(done.output), done.of_core(key)))
    first = on.new_marks()
    done = on.between(first, on.linux.output_of(f"{known_count.PROGRAM} 1 user {first}"))
    inside = int(done.output) - known_count.COUNTED_OUTSIDE
    # Another program of the guest may run in between, so the known number is only a lower bound here.
    if done.of_core("user_instructions") < known_count.MARKED_INSTRUCTIONS:
        raise Failure(f"the model counts fewer than the {known_count.MARKED_INSTRUCTIONS} instructions between two marks")
    return [*found, counted("perf rdpmc", "instructions, user level", inside, done.of_core("user_instructions"))]


JUDGES: dict[str, Callable[[JudgedGuest], list[Judgement]]] = {
    "powercap": powercap,
    "turbostat": turbostat,
    "intel_idle": intel_idle,
    "rdmsr": rdmsr,
    "cpupower": cpupower,
    "frequency": frequency,
    "perf": perf,
}


def rows() -> list[Row]:
    found: list[Row] = []
    for kernel in KERNELS:
        step = progress.step(f"{kernel}'s Linux on the modelled {MODEL}")
        with tempfile.TemporaryDirectory(prefix="neap-judges-") as name, step, guest(kernel, Path(name)) as on:
            found += [dataclasses.replace(row, name=f"{kernel}: {row.name}") for judge in JUDGES.values() for row in judge(on)]
    return found


def show(found: Sequence[Row]) -> str:
    cells = [("what", "program's value", "model's value", "deviation", "target", "program")]
    for row in found:
        assert isinstance(row, Judgement)
        unit = " %" if row.unit == "%" else ""
        cells.append((row.name, f"{row.seen:.12g}", f"{row.truth:.12g}", f"{row.value:.3g}{unit}", f"< {row.target:g}{unit}", row.judge))
    return f"modelled ({MODEL}); deviations in percent, or in counts\n{aligned(cells)}"
