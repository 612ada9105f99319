# SPDX-License-Identifier: BSL-1.0
"""The figures equal figures computed by hand, with counters that wrap, packages and missing values. Tables and study files have the same
figures.
"""

import csv
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from tools.conftest import neap
from tools.errors import UsageError
from tools.log import decode, layout, study_layout, summary, synthetic
from tools.log.by_hand import HZ, entry, record, write_core
from tools.log.decode import ANCHOR, COLLECTION, COUNTERS, INTERRUPT, POLL, START, STOP


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    """A log of two cores of one package over two seconds. The energy unit is 2^-16 J; the counter wraps after 65,536 counts (1 J)."""
    near_wrap = (1 << 32) - 65536
    counters = {"instructions": (1 << 48) - 10, "cycles": 100, "reference_cycles": 0, "llc_misses": 5}
    later = {"instructions": 990, "cycles": 600, "reference_cycles": 500_000_000, "llc_misses": 25}
    first = [
        record(START, 1 * HZ, {**counters, "package_energy": near_wrap}, rx_bytes=777, rx_frames=7, idle_ticks=9),
        entry("anchor", kind=ANCHOR, tsc=1 * HZ, requests=100),
        record(INTERRUPT, 1 * HZ + 500_000_000, rx_bytes=1000, rx_frames=10, idle_entries=1, idle_ticks=400_000_000, idle_state=1),
        record(POLL, 2 * HZ, {"package_energy": 65536}, rx_bytes=60, rx_frames=1, control_rx_frames=1, control_rx_bytes=60),
        record(STOP, 3 * HZ, {**later, "package_energy": 131072}, tx_bytes=5, idle_entries=1, idle_ticks=600_000_000, idle_state=5),
        entry("anchor", kind=ANCHOR, tsc=3 * HZ, requests=1100),
        record(INTERRUPT, 4 * HZ, rx_bytes=888),
    ]
    second = [
        record(START, 1 * HZ + 1000, {**counters, "package_energy": near_wrap + 1}),
        entry("anchor", kind=ANCHOR, tsc=1 * HZ + 1000, requests=0),
        # This is lower than the other core's reading 10 ticks earlier, because two cores may record readings in either order.
        record(INTERRUPT, 2 * HZ + 10, {"package_energy": 65535}),
        record(STOP, 3 * HZ - 1000, {**later, "package_energy": 131071}),
        entry("anchor", kind=ANCHOR, tsc=3 * HZ - 1000, requests=50),
    ]
    write_core(tmp_path, 0, b"".join(first))
    write_core(tmp_path, 1, b"".join(second))
    return tmp_path


def test_figures_are_those_computed_by_hand(by_hand: Path) -> None:
    found = summary.summarise(decode.load([str(by_hand)]))
    core = found["cores_detail"][0]
    total = found["total"]
    assert core["seconds"] == 2.0 and total["seconds"] == 2.0
    # The figures include neither the counts of the start record (from before the run) nor the records behind the stop record.
    assert core["rx_bytes"] == 1060 and core["tx_bytes"] == 5
    assert core["application_rx_bytes"] == 1000 and core["application_rx_frames"] == 10
    assert (core["interrupts"], core["polls"], core["records"]) == (1, 1, 3)
    assert core["asleep_share"] == 0.5 and core["idle_share_by_state"] == {"c1": 0.2, "c7": 0.3}
    assert core["polling_in_vain_share"] == 0 and core["sleeps"] == 2
    # The 48-bit counter of instructions wrapped. There were 1000 instructions in 500 cycles.
    assert core["instructions"] == 1000 and core["ipc"] == 2.0 and core["llc_misses"] == 20
    assert core["misses_per_1000_instructions"] == 20.0 and core["non_idle_ratio"] == 0.25 and core["requests"] == 1000
    # 65,536 counts before the wrap and 131,072 after the wrap are 3 J, which count once for both cores.
    assert [package["joules"] for package in found["packages"]] == [3.0] and total["joules"] == 3.0
    assert total["watts"] == 1.5 and total["requests"] == 1050 and total["energy_delay_product_joule_seconds"] == 6.0
    assert total["instructions_per_second_per_watt"] == pytest.approx(2000 / 2 / 1.5)
    assert total["joules_per_request"] == pytest.approx(3 / 1050)
    assert core["interval_us"]["p50"] == 500_000.0
    assert found["remarks"] == []


def test_a_core_that_polls_does_not_sleep(tmp_path: Path) -> None:
    records = [record(START, HZ), record(INTERRUPT, 2 * HZ, idle_entries=3, idle_ticks=HZ // 4, idle_state=0)]
    records.append(record(STOP, 3 * HZ, idle_entries=1000, idle_ticks=HZ // 2, idle_state=6))
    write_core(tmp_path, 0, b"".join(records))
    core = summary.summarise(decode.load([str(tmp_path)]))["cores_detail"][0]
    assert (core["asleep_share"], core["polling_in_vain_share"], core["sleeps"]) == (0.125, 0.25, 3)


def test_what_the_cpu_does_not_have_is_unknown_and_never_zero(tmp_path: Path) -> None:
    synthetic.write(tmp_path, synthetic.Shape(cores=2, records=100, counters=("instructions",)))
    found = summary.summarise(decode.load([str(tmp_path)]))
    core = found["cores_detail"][0]
    assert core["instructions"] > 0
    unknown = [core[name] for name in ("cycles", "ipc", "llc_misses", "non_idle_ratio")] + list(core["residency_share"].values())
    unknown += [found["total"][name] for name in ("joules", "watts", "ipc", "joules_per_request", "energy_delay_product_joule_seconds")]
    unknown += [found["packages"][0][name] for name in ("joules", "watts", "dram_joules")]
    assert unknown == [None] * len(unknown)
    text = summary.text(found)
    assert "energy not on this CPU" in text and "IPC not on this CPU" in text


def test_a_log_without_its_anchors_is_counted_as_far_as_it_goes_and_says_so(tmp_path: Path) -> None:
    write_core(tmp_path, 0, b"".join(record(INTERRUPT, HZ + tick, rx_bytes=1) for tick in range(10)))
    found = summary.summarise(decode.load([str(tmp_path)]))
    assert found["total"]["rx_bytes"] == 10 and found["total"]["requests"] is None
    assert [remark.split(":")[0] for remark in found["remarks"]] == ["1 of 2 cores are not among the files", "core 0", "core 0"]


def test_a_log_with_no_record_at_all_has_no_figures_and_no_error(tmp_path: Path) -> None:
    write_core(tmp_path, 0, b"")
    found = summary.summarise(decode.load([str(tmp_path)]))
    assert found["total"]["seconds"] == 0 and found["total"]["ipc"] is None
    summary.text(found)


def test_garbage_collections_are_counted_and_their_time_is_a_share(tmp_path: Path) -> None:
    def collection(begin: int, end: int, **fields: int) -> bytes:
        return entry("collection", kind=COLLECTION, tsc=end, tsc_begin=begin, **fields)

    first = [
        record(START, 1 * HZ),
        collection(1 * HZ - 10, 1 * HZ + 10),  # began before the run
        collection(1 * HZ + 100_000_000, 1 * HZ + 400_000_000, bytes_before=9000, bytes_after=1000),
        collection(2 * HZ, 2 * HZ - 1),  # damaged: it ends before it begins
        record(STOP, 3 * HZ),
    ]
    write_core(tmp_path, 0, b"".join(first))
    write_core(tmp_path, 1, record(START, 1 * HZ) + collection(2 * HZ, 2 * HZ + 100_000_000) + record(STOP, 3 * HZ))
    found = summary.summarise(decode.load([str(tmp_path)]))
    assert found["total"]["collections"] == {"count": 2, "seconds": 0.4, "share": 0.1}
    assert "garbage collections: 2, 10.0% of the cores' time" in summary.text(found)
    done = neap("log", "csv", str(tmp_path), "--table", "collections")
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [(row["core"], row["bytes_before"], row["bytes_after"]) for row in rows if row["bytes_before"] != "0"] == [("0", "9000", "1000")]


def test_a_log_without_collections_says_nothing_of_them(by_hand: Path) -> None:
    found = summary.summarise(decode.load([str(by_hand)]))
    assert "collections" not in found["total"] and "collection" not in summary.text(found)


def test_a_long_pause_between_energy_readings_is_doubted(tmp_path: Path) -> None:
    write_core(tmp_path, 0, record(START, HZ, {"package_energy": 0}) + record(STOP, 201 * HZ, {"package_energy": 65536}))
    found = summary.summarise(decode.load([str(tmp_path)]))
    assert found["packages"][0]["joules"] == 1.0 and found["packages"][0]["energy_doubtful"]
    assert "may have come around more than once" in summary.text(found)


def test_synthetic_truth_is_found_over_packages(tmp_path: Path) -> None:
    truth = synthetic.write(tmp_path, synthetic.Shape(cores=4, packages=2, records=500, seconds=3, idle_records=True))
    found = summary.summarise(decode.load([str(tmp_path)]))
    for core, row in enumerate(found["cores_detail"]):
        assert row["interrupts"] == truth.interrupts[core] and row["instructions"] == truth.instructions[core]
        assert (row["rx_bytes"], row["control_rx_bytes"]) == (truth.rx_bytes[core], truth.control_rx_bytes[core])
    assert [row["joules"] for row in found["packages"]] == truth.joules
    assert found["total"]["joules"] == sum(truth.joules)


# ---- tables ----


def test_csv_and_parquet_hold_the_same(tmp_path: Path) -> None:
    events = ("branch_misses", "event=0xd1,umask=0x20")
    synthetic.write(tmp_path, synthetic.Shape(cores=2, records=200, idle_records=True, counters=COUNTERS[:5], events=events))
    for which in ("records", "settings", "idle"):
        done = neap("log", "csv", str(tmp_path), "--table", which)
        assert done.returncode == 0, done.stderr
        rows = list(csv.DictReader(done.stdout.splitlines()))
        assert neap("log", "parquet", str(tmp_path), "--table", which).returncode == 0
        table = parquet.read_table(tmp_path / f"{which}.parquet")
        assert list(rows[0]) == table.column_names and len(rows) == table.num_rows
        for name in table.column_names:
            for row, value in zip(rows, table[name].to_pylist()):
                cell = row[name]
                assert (value is None) == (cell == ""), (name, row)
                if value is not None:
                    assert type(value)(cell) == value, (name, row)
        assert json.loads(table.schema.metadata[b"neap"])[1]["core"] == 1
        if which == "records":
            assert {row["core_c7"] for row in rows} == {""}, "not on this CPU"
            assert {row["instructions"] == "" for row in rows} == {True, False}, "sampled now and then"
            for event in ("branch_misses", "event=0xd1:umask=0x20"):
                assert {row[event] == "" for row in rows} == {True, False}, "sampled with the other counters"


def test_chosen_events_are_counted_under_their_names(tmp_path: Path) -> None:
    every_event = 7 << 13
    for core in range(2):
        data = b""
        for kind, tsc, counts in ((START, 10, (5, 1 << 47, 7)), (INTERRUPT, 500, None), (STOP, 1000, (25, 3, 9))):
            flags = every_event if counts else 0
            data += entry("record", kind=kind, tsc=tsc, flags=flags)
            if counts:
                data += entry("events", kind=21, tsc=tsc, flags=flags, event1=counts[0], event2=counts[1], event3=counts[2])
        names = ["branch_misses", "event=0xd1,umask=0x20", "reference_cycles"]
        write_core(tmp_path, core, data, counters=["event1", "event2", "event3"], events=names)
    found = summary.summarise(decode.load([str(tmp_path)]))
    assert found["total"]["events"] == {
        "branch_misses": 40,
        "event=0xd1,umask=0x20": 2 * ((1 << 47) + 3),  # 48 bits, which wrap
        "reference_cycles": 4,
    }
    assert found["cores_detail"][0]["events"]["branch_misses"] == 20
    assert "branch_misses: 40\n" in summary.text(found)
    rows = list(csv.DictReader(neap("log", "csv", str(tmp_path)).stdout.splitlines()))
    assert [row["branch_misses"] for row in rows if row["core"] == "0"] == ["5", "", "25"]
    assert rows[-1]["event=0xd1:umask=0x20"] == "3"
    assert rows[-1]["event_reference_cycles"] == "9" and rows[-1]["reference_cycles"] == "", "the counter of that name is not in this log"


def test_a_log_without_chosen_events_has_none(by_hand: Path) -> None:
    assert "events" not in summary.summarise(decode.load([str(by_hand)]))["total"]


@pytest.mark.parametrize("events", [["a"] * 4, ["=1+1"], [""], ["a b"], [1], "a", ["a" * 65]])
def test_names_of_events_are_checked(tmp_path: Path, events: object) -> None:
    write_core(tmp_path, 0, entry("record", kind=START, tsc=1), cores=1, events=events)
    with pytest.raises(layout.Damaged):
        decode.load([str(tmp_path)])


def test_sums_over_the_table_are_the_summarys(by_hand: Path) -> None:
    rows = list(csv.DictReader(neap("log", "csv", str(by_hand)).stdout.splitlines()))
    assert sum(int(row["rx_bytes"]) for row in rows) == summary.summarise(decode.load([str(by_hand)]))["total"]["rx_bytes"]
    assert max(float(row["package_joules"]) for row in rows if row["package_joules"]) == 3.0
    assert [float(row["seconds"]) for row in rows if row["core"] == "0"] == [0.0, 0.5, 1.0, 2.0]
    assert len(list(csv.DictReader(neap("log", "csv", str(by_hand), "--untrimmed").stdout.splitlines()))) == len(rows) + 1


def test_summary_as_json_is_the_summary(by_hand: Path) -> None:
    assert json.loads(neap("log", "summary", str(by_hand), "--json").stdout)["total"]["joules"] == 3.0


# ---- the published studies' layout ----


def test_a_study_file_has_the_published_columns_and_zero_where_nothing_was_sampled(by_hand: Path) -> None:
    done = neap("log", "csv", str(by_hand), "--study", "8_0x1800_135", "--repetition", "3")
    folder = by_hand / "study"
    names = ["memcached.log.3_0_8_0x1800_135", "memcached.log.3_1_8_0x1800_135", "memcached.log.packages.3_8_0x1800_135"]
    assert done.stdout.splitlines() == [str(folder / name) for name in names]
    assert (folder / names[-1]).read_text() == "0 0\n1 0\n"
    rows = [dict(zip(study_layout.LINUX_COLUMNS, map(int, text.split(" ")))) for text in (folder / "memcached.log.3_0_8_0x1800_135").open()]
    names = "i rx_desc rx_bytes tx_desc tx_bytes instructions cycles ref_cycles llc_miss c1 c1e c3 c6 c7 joules tsc"
    assert tuple(names.split()) == study_layout.LINUX_COLUMNS
    assert [row["i"] for row in rows] == [0, 1, 2, 3]
    assert [row["tsc"] for row in rows] == [HZ, HZ + HZ // 2, 2 * HZ, 3 * HZ]
    assert [row["rx_bytes"] for row in rows] == [0, 1000, 60, 0]
    # The counter of 48 bits wrapped. The file's counters do not wrap.
    assert [row["instructions"] for row in rows] == [(1 << 48) - 10, 0, 0, (1 << 48) + 990]
    # A counter that begins with 0 is raised by 1, because 0 means "not sampled".
    assert [row["ref_cycles"] for row in rows] == [1, 0, 0, 500_000_001]
    # c1 and c7 count the requests of the idle state so far, in rows with a sample.
    assert [row["c1"] for row in rows] == [0, 0, 1, 1] and [row["c7"] for row in rows] == [0, 0, 0, 1]
    # `joules` are counts of 2^-16 J, begin with 1, and do not wrap.
    assert [row["joules"] for row in rows] == [1, 0, 131073, 196609]


@pytest.mark.parametrize("name", ["", "8", "8_0x1800", "8_0x1800_135_2", "8/_0_1", "a b_c_d"])
def test_a_study_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--study takes ITR_DVFS_RAPL"):
        study_layout.parse_study(name)
