# SPDX-License-Identifier: BSL-1.0
"""The table of apps/wakeup is read whole or not at all, and stands beside the model's latencies."""

import pytest

from tools.bench import wakeup as bench
from tools.errors import Failure
from tools.model import cpu_model, wakeup

LINES = [
    "wakeup: core 0 rings, core 1 sleeps; 1000 us from sleep to doorbell; CPU: modelled Xeon Gold 6430",
    "wakeup: state     doorbell      rounds    min ns median ns    p99 ns    max ns  repeated",
    "wakeup: poll      ipi              100        41        45        49        49         0",
    "wakeup: c6        timer-all        100    290093    290094    290095    290095         2",
    "wakeup: end of the table",
    "wakeup: boot option for this machine: wake_up_times=c1:1us,c6:290us",
]


def test_the_table_is_read() -> None:
    first, second = wakeup.parse(LINES)
    assert first == wakeup.Latency("poll", "ipi", 100, 41, 45, 49, 49, 0)
    assert (second.name, second.median, second.repeated) == ("c6.timer-all", 290_094, 2)


def test_a_table_that_is_not_whole_is_refused() -> None:
    with pytest.raises(Failure, match="no whole table"):
        wakeup.parse(LINES[:-2])
    with pytest.raises(Failure, match="empty table"):
        wakeup.parse([*LINES[:2], *LINES[-2:]])


def test_the_boot_option_is_read() -> None:
    assert wakeup.boot_option(LINES) == "wake_up_times=c1:1us,c6:290us"
    with pytest.raises(Failure, match="no boot option"):
        wakeup.boot_option(LINES[:-1])


def test_the_packages_latency_counts_only_if_every_core_sleeps() -> None:
    cpu = cpu_model.load("xeon-6430")
    assert wakeup.model_us(cpu, "c6", "timer") == 190
    assert wakeup.model_us(cpu, "c6", "timer-all") == 290
    assert wakeup.model_us(cpu, "c1e", "timer-all") == 2, "in C1E the package does not sleep"
    assert wakeup.model_us(cpu, "monitor", "write") == wakeup.model_us(cpu, "halt", "ipi") == 1
    assert wakeup.model_us(cpu, "poll", "write") == 0


def test_an_instructions_time_is_that_at_the_frequency_of_the_start() -> None:
    # 0.8 cycles at 2.9 GHz and 0.3 ns; with HWP the lowest frequency: 0.5 cycles at 0.8 GHz and 0.03 ns.
    assert wakeup.instruction_us(cpu_model.load("e5-2690")) == pytest.approx(0.8 / 2900 + 0.0003)
    assert wakeup.instruction_us(cpu_model.load("xeon-6430")) == pytest.approx(0.5 / 800 + 0.00003)


def test_the_benchmark_misses_its_target_if_a_wake_up_takes_too_long() -> None:
    good, late = (bench.rows_of("xeon-6430", wakeup.Latency("c6", "ipi", 100, 190_050, ns, ns, ns, 0)) for ns in (190_100, 190_200))
    assert not any(row.missed for row in good)
    assert [row.name for row in late if row.missed] == ["xeon-6430.c6.ipi.median"]
    write, late_write = (
        bench.rows_of("xeon-6430", wakeup.Latency("c6", "write", 100, 190_050, ns, ns, ns, 0)) for ns in (192_100, 192_200)
    )
    assert not any(row.missed for row in write), "the model sees a write up to 2 us late"
    assert [row.name for row in late_write if row.missed] == ["xeon-6430.c6.write.median"]
    polled = bench.rows_of("xeon-6430", wakeup.Latency("poll", "write", 100, 50, 200, 200, 200, 0))
    assert [row.name for row in polled if row.missed] == ["xeon-6430.poll.write.median"]
    table = bench.show(good).splitlines()
    row = next(line.split() for line in table if line.startswith("c6 "))
    assert row[:3] == ["c6", "ipi", "100"] and row[-2:] == ["190", "+0.100"]
