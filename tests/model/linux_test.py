# SPDX-License-Identifier: BSL-1.0
"""Linux on the modelled CPU: its drivers take it for a real one, and its programs agree with the model's own sums.

The measurements are those of `./neap bench model-judges` (tools/bench/model_judges.py), which also takes Debian 13's kernel.
"""

from collections.abc import Iterator

import pytest

from tools.bench import model_judges
from tools.bench.model_judges import CPU, JUDGES, JudgedGuest


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgedGuest]:
    with model_judges.guest("Debian 12", tmp_path_factory.mktemp("linux")) as running:
        yield running


def test_linux_chooses_the_drivers_of_a_real_cpu(guest: JudgedGuest) -> None:
    files = f"/sys/devices/system/cpu/cpuidle/current_driver {CPU}/cpufreq/scaling_driver"
    output = guest.linux.output_of(f"cat {files}; grep 'model name' /proc/cpuinfo; cat {CPU}/cpuidle/state*/name")
    driver, frequency, name, *states = output.split("\n")
    assert driver == "intel_idle" and frequency in ("intel_cpufreq", "intel_pstate")
    assert "modelled Xeon E5-2690" in name
    assert {"C1", "C3", "C6", "C7"} <= set(states)


@pytest.mark.parametrize("judge", JUDGES)
def test_programs_agree_with_the_model(guest: JudgedGuest, judge: str) -> None:
    """Energy, residency and frequency within 1 %, counts of instructions exactly."""
    rows = JUDGES[judge](guest)
    assert rows
    missed = [f"{row.judge}, {row.name}: {row.seen}, model {row.truth}" for row in rows if row.missed]
    assert not missed, "\n".join(missed)


def test_counters_are_for_user_level_only_if_the_kernel_allows_it(guest: JudgedGuest) -> None:
    """Without CR4.PCE, RDPMC faults at user level (SDM 2B, RDPMC)."""
    program = "/tmp/known_count"
    guest.linux.output_of("echo 0 > /sys/bus/event_source/devices/cpu/rdpmc")
    assert not guest.linux.run(f"{program} 1 all {guest.new_marks()}").ok
    guest.linux.output_of("echo 1 > /sys/bus/event_source/devices/cpu/rdpmc")
    assert guest.linux.run(f"{program} 1 all {guest.new_marks()}").ok
