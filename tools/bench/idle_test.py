# SPDX-License-Identifier: BSL-1.0
"""The exit counter's file is read by CPU and kind, a wrong count is named, and an idle Neap is compared with both Debians."""

import struct

import pytest

from tools.bench import idle
from tools.bench.exit_counter import KINDS, KNOWN, KNOWN_ROUNDS, NAMES, Counts, differences, parse
from tools.errors import Failure


def counts(**given: int) -> Counts:
    return Counts({**dict.fromkeys(NAMES, 0), **given})


def test_the_counts_of_all_cpus_are_added() -> None:
    cpus = [[cpu * 100 + word for word in range(16)] for cpu in range(3)]
    found = parse(b"".join(struct.pack("<16Q", *words) for words in cpus))
    assert [found.of[name] for name in NAMES] == [300 + 3 * word for word in range(len(NAMES))]
    assert found.exits == sum(found.of[kind] for kind in KINDS) and found.wakeups == found.of["wakeups"]


@pytest.mark.parametrize("written", [b"", b"\0" * 127])
def test_a_file_without_whole_counts_is_an_error(written: bytes) -> None:
    with pytest.raises(Failure, match="which are no counts"):
        parse(written)


def test_interrupts_that_end_a_halt_are_no_exits() -> None:
    found = counts(halt=5, taken=5, wakeups=5, passed_msr=7, apic=2, interrupt=1).since(counts(halt=1, taken=1, wakeups=1))
    assert (found.exits, found.wakeups) == (4 + 2 + 1, 4)


def test_a_count_other_than_the_known_one_is_named() -> None:
    right = counts(**KNOWN, wakeups=KNOWN_ROUNDS - 3)
    assert not differences(right)
    assert differences(right.since(counts(cpuid=1))) == [f"{KNOWN['cpuid'] - 1} of cpuid where {KNOWN['cpuid']} were"]
    assert differences(right.since(counts(wakeups=KNOWN_ROUNDS - 10))) == [f"7 wake-ups where {KNOWN_ROUNDS} were"]


def counted(neap_halts: int = 3) -> dict[str, Counts]:
    return {
        idle.NEAP: counts(halt=neap_halts, wakeups=neap_halts),
        idle.DEBIAN: counts(halt=60, apic=120, wakeups=60),
        idle.BARE: counts(halt=20, apic=70, wakeups=20),
    }


def test_neap_is_compared_with_both_systems() -> None:
    found = {row.name: row for row in idle.rows_of(4, counted(), seconds=30)}
    assert found["idle.cores_4.debian_memcached.apic"].value == 4 and found["idle.cores_4.debian.exits"].value == 3
    assert found["idle.cores_4.exits_of_debian_memcached"].value == pytest.approx(3 / 180)
    assert found["idle.cores_4.wakeups_of_debian"].value == pytest.approx(3 / 20)
    assert [name for name, row in found.items() if row.missed] == ["idle.cores_4.wakeups_of_debian"]


def test_an_idle_machine_without_any_exit_meets_the_target() -> None:
    assert not any(row.missed for row in idle.rows_of(1, counted(0)))
    with pytest.raises(Failure, match="Debian on 1 cores had no exits"):
        idle.rows_of(1, {**counted(0), idle.BARE: counts()})


def test_the_table_has_all_kinds_and_both_sums() -> None:
    text = idle.show([row for cores in idle.CORES for row in idle.rows_of(cores, counted(), seconds=30)])
    for cores in ("1 core ", "4 cores"):
        assert cores in text
    assert all(text.count(f"\n{figure} ") == 2 for figure in (*KINDS, *idle.SUMS))
    assert text.count("0.017") == 2 and text.count("< 0.1") == 4


def report(*lines: str) -> list[str]:
    return ["guest: clock tsc\r", *lines, "guest: ready"]


def test_the_processes_of_a_debian_guest_are_those_of_its_report() -> None:
    assert idle.require_sound(report("guest: runs cron memcached systemd"), has_memcached=True) == "cron memcached systemd"
    assert idle.require_sound(report("guest: runs cron systemd"), has_memcached=False) == "cron systemd"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (report("guest: failed memcached.service", "guest: runs cron systemd"), "failed: memcached.service"),
        (report("guest: runs cron systemd"), "runs cron systemd"),
        (["guest: clock hpet", "guest: runs cron memcached systemd"], "does not read its time from the TSC"),
    ],
)
def test_a_debian_guest_that_is_not_as_it_should_be_is_an_error(lines: list[str], message: str) -> None:
    with pytest.raises(Failure, match=message):
        idle.require_sound(lines, has_memcached=True)
