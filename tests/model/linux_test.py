# SPDX-License-Identifier: BSL-1.0
"""Debian's Linux on the modelled CPU: its drivers take it for a real one, and its tools agree with the model's own sums within 1 %.

A script marks a snapshot by CPUID (docs/model-machine.md) before and after each measurement. The marks and the tools' own start and end
take some milliseconds, so a measurement lasts 10 s of virtual time. It passes in an instant, because the guest sleeps.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from linux_guest import guest_image
from linux_guest.guest import LinuxGuest

from tools.model import cpu_model, plugin

MODEL = "e5-2690"
TOLERANCE = 0.01
MARKS = """
modprobe cpuid; modprobe msr; modprobe intel_rapl_msr
mark() { dd if=/dev/cpu/0/cpuid bs=16 count=1 iflag=skip_bytes skip=$(( $1 * 4294967296 + 0x4e656170 )) >/dev/null 2>&1; }
"""


class Guest:
    """A running Linux with the snapshots of its model."""

    def __init__(self, linux: LinuxGuest, directory: Path):
        self.linux = linux
        self._directory = directory
        self._marks = 0

    def measured(self, script: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """Runs a script between two marks. Returns its output, and the snapshots before and after it."""
        first = self._marks + 1
        self._marks += 2
        result = self.linux.run(f"{MARKS}mark {first}\n{script}\nmark {first + 1}", seconds=120)
        assert result.ok, result.output
        found = {one["mark"]: one for one in plugin.snapshots(self._directory) if one["event"] == "mark"}
        return result.output, found[first], found[first + 1]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    directory = tmp_path_factory.mktemp("linux")
    cpu = cpu_model.load(MODEL)
    image = guest_image.build(power_programs=True)
    linux = LinuxGuest(image, card=None, memory="1G", kernel_words=["tsc=reliable"], qemu_options=plugin.options(cpu, directory))
    linux.machine.cpu, linux.machine.one_thread = cpu.qemu_cpu(), True
    with linux:
        yield Guest(linux, directory)


def residency_s(before: dict[str, Any], after: dict[str, Any], state: str) -> float:
    return (after["cpus"][0]["residency_ns"][state] - before["cpus"][0]["residency_ns"][state]) / 1e9


def test_linux_chooses_the_drivers_of_a_real_cpu(guest: Guest) -> None:
    files = "/sys/devices/system/cpu/cpuidle/current_driver /sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"
    result = guest.linux.run(f"cat {files}; grep 'model name' /proc/cpuinfo; cat /sys/devices/system/cpu/cpu0/cpuidle/state*/name")
    driver, frequency, name, *states = result.output.split("\n")
    assert driver == "intel_idle" and frequency in ("intel_cpufreq", "intel_pstate")
    assert "modelled Xeon E5-2690" in name
    assert {"C1", "C3", "C6", "C7"} <= set(states)


def test_powercap_counts_the_models_joules(guest: Guest) -> None:
    folder = "/sys/class/powercap/intel-rapl:0"
    output, before, after = guest.measured(f"a=$(cat {folder}/energy_uj); sleep 10; b=$(cat {folder}/energy_uj); echo $((b - a))")
    assert int(output) / 1e6 == pytest.approx(after["package_j"] - before["package_j"], rel=TOLERANCE)


def test_turbostat_agrees(guest: Guest) -> None:
    shown = "Busy%,TSC_MHz,CPU%c7,Pkg_J,Cor_J,RAM_J"
    output, before, after = guest.measured(f"turbostat -q -J -S -i 10 -n 1 --show {shown}")
    names, values = (line.split() for line in output.strip().splitlines()[-2:])
    seen = dict(zip(names, map(float, values), strict=True))
    seconds = (after["virtual_ns"] - before["virtual_ns"]) / 1e9
    for name, key in (("Pkg_J", "package_j"), ("Cor_J", "cores_j"), ("RAM_J", "dram_j")):
        assert seen[name] == pytest.approx(after[key] - before[key], rel=TOLERANCE), name
    assert seen["CPU%c7"] == pytest.approx(100 * residency_s(before, after, "C7") / seconds, rel=TOLERANCE)
    assert seen["TSC_MHz"] == pytest.approx(cpu_model.load(MODEL).values["frequency.base_ratio"] * 100, rel=TOLERANCE)


def test_intel_idles_own_accounting_agrees(guest: Guest) -> None:
    state = "/sys/devices/system/cpu/cpu0/cpuidle/state*/time"
    output, before, after = guest.measured(f"cat {state} > /tmp/before; sleep 10; cat /tmp/before {state}")
    times = [int(line) for line in output.split()]
    half = len(times) // 2
    slept_s = (sum(times[half:]) - sum(times[:half])) / 1e6
    assert slept_s == pytest.approx(sum(residency_s(before, after, one) for one in ("C1", "C1E", "C3", "C6", "C7")), rel=TOLERANCE)


@pytest.mark.parametrize("mhz", [1200, 2100, 2900])
def test_a_frequency_that_linux_sets_is_the_pace_of_the_core(guest: Guest, mhz: int) -> None:
    folder = "/sys/devices/system/cpu/cpu0/cpufreq"
    limits = (
        f"echo {mhz}000 > {folder}/scaling_min_freq; echo {mhz}000 > {folder}/scaling_max_freq; echo {mhz}000 > {folder}/scaling_min_freq"
    )
    assert guest.linux.run(limits).ok
    output, before, after = guest.measured("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; rdmsr -d 0x198 -f 15:8")
    assert int(output) == mhz // 100
    cycles, reference = (after["cpus"][0][key] - before["cpus"][0][key] for key in ("cycles", "reference_cycles"))
    base_mhz = cpu_model.load(MODEL).values["frequency.base_ratio"] * 100
    assert cycles / reference * base_mhz == pytest.approx(mhz, rel=TOLERANCE)


def test_perf_counts_the_models_instructions(guest: Guest) -> None:
    """perf counts its command, and the marks enclose perf as well: its count is a little lower than the model's."""
    loop = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    output, before, after = guest.measured(f"perf stat -x, -a -e instructions,cycles -- sh -c '{loop}' 2>&1")
    counted = {line.split(",")[2]: float(line.split(",")[0]) for line in output.splitlines() if line.count(",") > 3}
    core = {key: after["cpus"][0][key] - before["cpus"][0][key] for key in ("instructions", "cycles")}
    for name, value in counted.items():
        assert 0.9 * core[name.split(":")[0]] < value <= core[name.split(":")[0]], (name, value, core)
    assert len(counted) == 2
