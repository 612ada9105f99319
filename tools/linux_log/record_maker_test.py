# SPDX-License-Identifier: BSL-1.0
"""The record maker of neap-trace on invented raw entries: record_maker_check.c, compiled for the host."""

import dataclasses
import random
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.linux_log.build import C_OPTIONS, HERE, write_format_text
from tools.log.layout import ENTRY_BYTES
from tools.log.schema import DEFAULTS, Schema, parse
from tools.process import output_of

BASE, START, RAW, REST, STOP, MARK, CHANGE = range(7)
INTERRUPT, POLL, IDLE, SAMPLE, SLEEPS = 1, 2, 3, 4, 5
KIND_INTERRUPT, KIND_POLL, KIND_POLICY, KIND_START, KIND_STOP, KIND_SAMPLE, KIND_SETTINGS, KIND_IDLE = 1, 2, 3, 4, 5, 16, 18, 32
U32_MAX = (1 << 32) - 1
COUNTED = ("rx_frames", "rx_bytes", "tx_frames", "tx_bytes")
HOLD_SECONDS = 20


def schema() -> Schema:
    """The types that a Linux log's header states."""
    text = "".join(re.findall(r'"([^"]*)"', (HERE / "entries.h").read_text().partition("#define RECORD_FORM")[2].partition("\n\n")[0]))
    return parse({**DEFAULTS, "fields": {**DEFAULTS["fields"], "record": text}})


SCHEMA = schema()


@dataclasses.dataclass
class Maker:
    program: Path
    items: bytes = b""

    def add(self, operation: int, core: int, *numbers: int, ns: int = 0) -> None:
        self.items += struct.pack("<IIQ8Q", operation, core, ns, *numbers, *[0] * (8 - len(numbers)))

    def raw(
        self, core: int, kind: int, ns: int, queue: int, counts=(0, 0, 0, 0), *, sleeps=0, idle_ns=0, ring=7, itr=0, state=1, is_stale=False
    ) -> None:
        entry = struct.pack("<QBBHIQ4QIHH", ns, kind, state, queue, sleeps, idle_ns, *counts, ring, itr, is_stale)
        self.items += struct.pack("<IIQ", RAW, core, 0) + entry

    def sample(self, core: int, ns: int, instructions: int) -> None:
        entry = struct.pack("<QBBHI6Q", ns, SAMPLE, 0, 1, 0, instructions, 0, 0, 0, 0, 0)
        self.items += struct.pack("<IIQ", RAW, core, 0) + entry

    def entries(self) -> Iterator[dict]:
        made = subprocess.run([self.program], input=self.items, stdout=subprocess.PIPE, check=True, timeout=HOLD_SECONDS).stdout
        forms = dict(SCHEMA.kinds)
        for at in range(0, len(made), 8 + ENTRY_BYTES):
            entry = made[at + 8 : at + 8 + ENTRY_BYTES]
            form = SCHEMA.form[forms[entry[8]]]
            yield {"core": made[at], **{name: field.read(entry) for name, field in form.by_name.items() if not field.count}}

    def records(self) -> list[dict]:
        return [entry for entry in self.entries() if entry["kind"] <= KIND_STOP]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("record_maker")
    write_format_text(folder)
    made = folder / "check"
    sources = [str(HERE / name) for name in ("record_maker.c", "record_maker_check.c")]
    output_of(["gcc", *C_OPTIONS, "-fsanitize=undefined", "-fno-sanitize-recover", "-I", str(HERE), *sources, "-o", str(made)])
    return made


@pytest.fixture
def maker(program: Path) -> Maker:
    return Maker(program)


def test_a_record_has_the_growth_since_the_record_before(maker: Maker) -> None:
    maker.add(BASE, 0, 3, 10, 1000, 20, 2000)
    maker.add(START, 0, 5, 100, ns=50)
    maker.raw(0, INTERRUPT, 60, 3, (11, 1060, 20, 2000), sleeps=7, idle_ns=104, itr=40)
    maker.raw(0, INTERRUPT, 70, 3, (11, 1060, 23, 2300), sleeps=8, idle_ns=110)
    start, first, second = maker.records()
    assert start["kind"] == KIND_START and start["queue"] == 0xFFFF
    assert [first[name] for name in COUNTED] == [1, 60, 0, 0] and first["queue"] == 3 and first["itr_us"] == 10
    assert (first["idle_entries"], first["idle_ticks"]) == (2, 4)
    assert [second[name] for name in COUNTED] == [0, 0, 3, 300] and (second["idle_entries"], second["idle_ticks"]) == (1, 6)


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_exact_wherever_a_queues_interrupts_go_and_in_whatever_order_rings_are_read(maker: Maker, seed: int) -> None:
    # Each queue moves between cores; each ring is read in batches, one core after the other.
    chance = random.Random(seed)
    cores, queues = 4, 5
    now = {queue: [chance.randrange(1000) for _ in range(4)] for queue in range(queues)}
    base = {queue: list(counts) for queue, counts in now.items()}
    for queue, counts in now.items():
        maker.add(BASE, 0, queue, *counts)
    for core in range(cores):
        maker.add(START, core, ns=1)
    seen: dict[int, int] = {}
    rings: dict[int, list] = {core: [] for core in range(cores)}
    for ns in range(2, 500):
        queue, core = chance.randrange(queues), chance.randrange(cores)
        now[queue] = [value + chance.randrange(50) for value in now[queue]]
        rings[core].append((ns, queue, tuple(now[queue])))
        if chance.random() < 0.02:
            for reader in chance.sample(range(cores), cores):
                for raw_ns, of_queue, counts in rings[reader]:
                    maker.raw(reader, chance.choice((INTERRUPT, POLL)), raw_ns, of_queue, counts, ring=of_queue + 1)
                    seen[of_queue] = reader
                rings[reader].clear()
    for queue in range(queues):
        now[queue] = [value + 1 for value in now[queue]]
        maker.add(REST, seen.get(queue, 0), queue, *now[queue])
    for core in range(cores):
        maker.add(STOP, core, ns=600)
    records = maker.records()
    for place, name in enumerate(COUNTED):
        grown = sum(now[queue][place] - base[queue][place] for queue in range(queues))
        assert sum(record[name] for record in records) == grown, name


def test_new_rings_count_from_zero_and_late_entries_of_old_rings_add_nothing(maker: Maker) -> None:
    maker.add(BASE, 0, 0, 100, 0, 0, 0)
    for core in (0, 1):
        maker.add(START, core, ns=1)
    maker.raw(0, INTERRUPT, 10, 0, (130, 0, 0, 0), ring=1)
    maker.raw(0, INTERRUPT, 20, 0, (7, 0, 0, 0), ring=2)
    maker.raw(1, INTERRUPT, 15, 0, (131, 0, 0, 0), ring=1)
    maker.raw(0, INTERRUPT, 30, 0, (9, 0, 0, 0), ring=2)
    assert [record["rx_frames"] for record in maker.records() if record["kind"] == KIND_INTERRUPT] == [30, 7, 0, 2]


def test_counters_that_the_driver_set_back_count_from_zero(maker: Maker) -> None:
    maker.add(START, 0, ns=1)
    for ns, packets in ((10, 50), (20, 3)):
        maker.raw(0, INTERRUPT, ns, 0, (packets, 0, 0, 0))
    assert [record["rx_frames"] for record in maker.records()] == [0, 50, 3]


def test_a_read_that_failed_adds_nothing_and_the_next_one_continues(maker: Maker) -> None:
    maker.add(START, 0, ns=1)
    for ns, packets in ((10, 50), (20, 0), (30, 53)):
        maker.raw(0, INTERRUPT, ns, 0, (packets, 0, 0, 0))
    assert [record["rx_frames"] for record in maker.records()] == [0, 50, 0, 3]


def test_a_sample_belongs_to_the_interrupt_of_its_time_only(maker: Maker) -> None:
    maker.add(START, 0, 0, 0, 1000, ns=1)
    maker.sample(0, 10, 5000)
    maker.raw(0, INTERRUPT, 10, 0)
    maker.sample(0, 20, 6000)  # its interrupt found the ring full
    maker.raw(0, INTERRUPT, 30, 0)
    maker.add(STOP, 0, 0, 0, 7000, ns=40)
    found = list(maker.entries())
    assert [entry["flags"] for entry in found if entry["kind"] <= KIND_STOP] == [1, 1, 0, 1]
    assert [(entry["tsc"], entry["instructions"]) for entry in found if entry["kind"] == KIND_SAMPLE] == [(1, 1000), (10, 5000), (40, 7000)]


def test_energy_is_in_units_of_2_to_the_minus_16_joules_and_wraps_at_32_bits(maker: Maker) -> None:
    """perf counts in 2^-32 J and in 64 bits. Readers know how to add steps of a counter of 32 bits."""
    package, memory = (1 << 48) + (5 << 16) + 99, (1 << 32) * 3 // 2
    maker.add(START, 0, 0, 0, 1000, ns=1)
    package_and_memory = 1 << 4 | 1 << 5
    entry = struct.pack("<QBBHI6Q", 10, SAMPLE, 0, package_and_memory, 0, 0, 0, 0, 0, package, memory)
    maker.items += struct.pack("<IIQ", RAW, 0, 0) + entry
    maker.raw(0, INTERRUPT, 10, 0)
    (found,) = [entry for entry in maker.entries() if entry["kind"] == KIND_SAMPLE and entry["tsc"] == 10]
    assert (found["flags"], found["package_energy"], found["dram_energy"]) == (package_and_memory, 5, 3 << 15)


def test_entries_from_before_the_start_are_left_out_and_their_frames_are_in_the_base(maker: Maker) -> None:
    maker.add(BASE, 0, 0, 40, 0, 0, 0)
    maker.add(START, 0, ns=100)
    maker.raw(0, INTERRUPT, 100, 0, (38, 0, 0, 0))
    maker.raw(0, INTERRUPT, 101, 0, (39, 0, 0, 0))
    maker.raw(0, INTERRUPT, 102, 0, (41, 0, 0, 0))
    assert [(record["tsc"], record["rx_frames"]) for record in maker.records()] == [(100, 0), (101, 0), (102, 1)]


def test_a_count_beyond_32_bits_is_continued_in_the_next_record(maker: Maker) -> None:
    maker.add(START, 0, ns=1)
    maker.raw(0, INTERRUPT, 10, 0, (0, 2 * U32_MAX + 5, 0, 0))
    maker.add(STOP, 0, ns=20)
    records = maker.records()
    assert [record["rx_bytes"] for record in records[1:]] == [U32_MAX, U32_MAX, 5] and records[-1]["kind"] == KIND_STOP


def test_the_number_of_sleeps_wraps_at_32_bits_and_an_older_number_adds_nothing(maker: Maker) -> None:
    maker.add(START, 0, U32_MAX - 1, 500, ns=1)
    maker.raw(0, INTERRUPT, 10, 0, sleeps=U32_MAX - 2, idle_ns=490)
    maker.raw(0, INTERRUPT, 20, 0, sleeps=3, idle_ns=520)
    records = maker.records()
    assert [(record["idle_entries"], record["idle_ticks"]) for record in records] == [(0, 0), (0, 0), (5, 20)]


def test_a_number_of_sleeps_that_is_read_seldom_is_exact_at_the_end(maker: Maker) -> None:
    # Between two reads, an entry with more time asleep has one sleep. The next read adds those that are missing.
    maker.add(START, 0, 100, 500, ns=1)
    for ns, idle_ns in ((10, 510), (20, 510), (30, 540)):
        maker.raw(0, INTERRUPT, ns, 0, idle_ns=idle_ns, is_stale=True)
    maker.raw(0, SLEEPS, 35, 0, sleeps=105)
    maker.raw(0, INTERRUPT, 40, 0, idle_ns=550, is_stale=True)
    maker.add(STOP, 0, 107, 560, ns=50)
    records = maker.records()
    assert [record["idle_entries"] for record in records] == [0, 1, 0, 1, 4, 1]
    assert [record["idle_ticks"] for record in records] == [0, 10, 0, 30, 10, 10]


def test_too_many_assumed_sleeps_are_made_good_by_later_ones(maker: Maker) -> None:
    maker.add(START, 0, 0, 0, ns=1)
    for ns in (10, 20, 30):
        maker.raw(0, INTERRUPT, ns, 0, idle_ns=ns, is_stale=True)
    maker.raw(0, SLEEPS, 35, 0, sleeps=1)  # two of the three were in the state that does not sleep
    for ns in (40, 50, 60):
        maker.raw(0, INTERRUPT, ns, 0, idle_ns=ns, is_stale=True)
    maker.add(STOP, 0, 5, 70, ns=80)
    assert [record["idle_entries"] for record in maker.records()] == [0, 1, 1, 1, 0, 0, 1, 1]


def test_times_of_a_core_never_go_back(maker: Maker) -> None:
    maker.add(START, 0, ns=1)
    for ns in (10, 9, 11):
        maker.raw(0, INTERRUPT, ns, 0)
    assert [record["tsc"] for record in maker.records()] == [1, 10, 10, 11]


def test_a_sleep_has_its_begin_its_end_and_the_queue_that_ended_it(maker: Maker) -> None:
    maker.add(START, 0, ns=100)
    maker.raw(0, IDLE, 150, 3, idle_ns=90, state=2)
    maker.raw(0, IDLE, 180, 0xFFFF, idle_ns=160, state=1)
    sleeps = [entry for entry in maker.entries() if entry["kind"] == KIND_IDLE]
    assert [(each["tsc_asleep"], each["tsc"], each["idle_state"]) for each in sleeps] == [(100, 150, 2), (160, 180, 1)]
    causes = SCHEMA.form["idle"].by_name["cause"].choices
    assert [(causes[each["cause"]], each["vector"]) for each in sleeps] == [("interrupt", 3), ("unknown", 0)]


def test_a_change_closes_the_interval_and_states_the_new_value(maker: Maker) -> None:
    maker.add(START, 0, ns=1)
    maker.raw(0, INTERRUPT, 10, 0, (5, 0, 0, 0))
    maker.add(CHANGE, 0, 1, 50, ns=20)
    found = list(maker.entries())
    policy, settings = found[-2:]
    assert policy["kind"] == KIND_POLICY and settings["kind"] == KIND_SETTINGS
    assert (settings["tsc"], settings["generation"], settings["changed"], settings["itr_us"]) == (20, 1, 1, 50)


def test_a_raw_entry_of_an_impossible_queue_adds_no_counts(maker: Maker) -> None:
    maker.add(START, 0, ns=1)
    maker.raw(0, INTERRUPT, 10, 60000, (5, 5, 5, 5))
    assert [record[name] for record in maker.records() for name in COUNTED] == [0] * 8
