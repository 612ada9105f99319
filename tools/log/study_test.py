# SPDX-License-Identifier: BSL-1.0
"""A run in the published studies' files gives the truth to the studies' cleaners, and comes back from the files. The cleaners here are a
statement of their arithmetic (study_cleaners.py); `./neap bench cleaners` can run the published scripts themselves.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tools.conftest import neap
from tools.errors import Failure, UsageError
from tools.log import decode, load_results, report, study, study_cleaners, study_layout, study_reader, summary, synthetic, tables
from tools.log.decode import ANCHOR, INTERRUPT, POLL, START, STOP
from tools.log.load_results import LoadWindow
from tools.log.phases_test import HZ, entry, load_json, record, settings, write_core
from tools.log.study_layout import LAYOUTS, Setting

TAILS = {"linux": "10_0x1800_135_200000", "ebbrt": "10_0x1800_135_200000_c7"}
SHAPE = synthetic.Shape(
    cores=4, packages=2, records=4000, seconds=15.5, tsc_hz=2_500_000_000, package_watts=(30.0, 50.0), **study_cleaners.SETTING
)


def wanted(system: str, **more) -> study.Wanted:
    return study.Wanted(LAYOUTS[system], **{"qps": "200000", **more})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, synthetic.Truth]:
    """A synthetic run in all layouts. Its energy counter and its 48-bit counters wrap."""
    folder = tmp_path_factory.mktemp("study")
    truth = synthetic.write(folder / "run", SHAPE)
    for system in LAYOUTS:
        study.write(decode.load([str(folder / "run")]), wanted(system), folder / system)
    return folder, truth


@pytest.mark.parametrize("system", ["linux", "ebbrt"])
def test_the_cleaners_arithmetic_finds_the_truth(written: tuple[Path, synthetic.Truth], system: str) -> None:
    folder, truth = written
    found = study_cleaners.RESTATED[system](folder / system, TAILS[system])
    assert found.joules == pytest.approx(sum(truth.joules), rel=1e-3)
    assert found.instructions == sum(truth.instructions)
    assert found.interrupts == pytest.approx(sum(truth.interrupts), rel=1e-3)
    assert found.rx_bytes == sum(truth.rx_bytes) and found.sleeps == SHAPE.cores * (SHAPE.records + 1)


@pytest.mark.parametrize(
    "shape", [{"cores": 1}, {"cores": 3}, {"cores": 16, "packages": 2, "records": 300}, {"counters": ("instructions", "package_energy")}]
)
@pytest.mark.parametrize("system", ["linux", "ebbrt"])
def test_one_package_many_cores_and_missing_counters_give_the_truth(tmp_path: Path, shape: dict, system: str) -> None:
    made = dataclasses.replace(SHAPE, **{"cores": 2, "packages": 1, "records": 500, **shape})
    truth = synthetic.write(tmp_path / "log", made)
    _, remarks = study.write(decode.load([str(tmp_path / "log")]), wanted(system), tmp_path / "out")
    found = study_cleaners.RESTATED[system](tmp_path / "out", TAILS[system])
    assert found.joules == pytest.approx(sum(truth.joules), rel=1e-3) and found.instructions == sum(truth.instructions)
    # Each core has a row at each bound beside those of interrupts. Without a core 15, the EbbRT file 15 has one row more.
    assert 0 <= found.interrupts - sum(truth.interrupts) <= 2 * made.cores + 1
    assert len(list((tmp_path / "out").iterdir())) == 18


def test_polls_are_added_to_the_next_interrupt(tmp_path: Path) -> None:
    counters = {"instructions": 10, "cycles": 10, "reference_cycles": 10, "llc_misses": 0, "package_energy": 5}
    later = {name: value + 65536 for name, value in counters.items()}
    entries = [
        record(START, HZ, counters) + settings(HZ, 1, 255, 10) + entry("anchor", kind=ANCHOR, tsc=HZ, requests=0),
        record(POLL, HZ + 100, rx_bytes=5, rx_descriptors=1),
        record(INTERRUPT, HZ + 200, rx_bytes=7, rx_descriptors=1),
        # Energy did not grow since the sample before. The cleaners would drop this row with its instructions, so it has no sample.
        record(INTERRUPT, HZ + 250, {**counters, "instructions": 60}, rx_bytes=1),
        record(POLL, HZ + 300, {**later, "package_energy": 77}, rx_bytes=11),
        record(STOP, 2 * HZ, later, tx_bytes=3) + entry("anchor", kind=ANCHOR, tsc=2 * HZ, requests=50),
    ]
    write_core(tmp_path, 0, b"".join(entries), cores=1)
    study.write(decode.load([str(tmp_path)]), wanted("linux", setting=Setting("10", "0x1800", "135")), tmp_path / "out")
    rows = np.loadtxt(tmp_path / f"out/linux.mcd.dmesg.0_0_{TAILS['linux']}", np.int64)
    column = study_layout.LINUX_COLUMNS.index
    assert rows[:, column("rx_bytes")].tolist() == [0, 12, 1, 11] and rows[:, column("rx_desc")].tolist() == [0, 2, 0, 0]
    assert rows[:, column("instructions")].tolist() == [10, 0, 0, 65546] and rows[:, column("joules")].tolist() == [1, 0, 0, 65537]
    # A counter of 0 misses is raised to 1. Times are in the ticks that the cleaners assume.
    assert rows[0, column("llc_miss")] == 1 and rows[-1, column("tsc")] - rows[0, column("tsc")] == study_layout.CLOCK_HZ
    assert (tmp_path / f"out/linux.mcd.out.0_{TAILS['linux']}").read_text().splitlines() == [
        "#type avg std min 5th 10th 50th 90th 95th 99th",
        "read nan nan nan nan nan nan nan nan nan",
        "Total QPS = 50.0 (50 / 1.0s)",
    ]


def test_rate_and_latencies_come_from_the_load(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "log", dataclasses.replace(SHAPE, records=50))
    run = decode.load([str(tmp_path / "log")])
    window = LoadWindow(
        0, 20 * SHAPE.tsc_hz, 4_000_000, {"mean": 80.0, "min": 20.0, "p50": 70.0, "p90": 90.0, "p99": 150.25}, offered=200000.0
    )
    study.write(run, study.Wanted(LAYOUTS["ebbrt"]), tmp_path / "out", [window])
    text = (tmp_path / f"out/ebbrt_out.0_{TAILS['ebbrt']}").read_text()
    assert "read 80.0 nan 20.0 nan nan 70.0 90.0 nan 150.2\n" in text and "Total QPS = 200000.0 (4000000 / 20.0s)\n" in text
    with pytest.raises(Failure, match="the load's result says 200000 requests/s, not 400000"):
        study.write(run, study.Wanted(LAYOUTS["ebbrt"], qps="400000"), tmp_path / "other", [window])


# ---- the settings in the names ----


def test_a_setting_that_contradicts_the_log_is_refused(written: tuple[Path, synthetic.Truth], tmp_path: Path) -> None:
    run = decode.load([str(written[0] / "run")])
    for setting, said in ((Setting("8", "0x1800", "135"), "ITR 10, not 8"), (Setting("10", "0x1900", "135"), "DVFS 0x1800, not 0x1900")):
        with pytest.raises(Failure, match=said):
            study.write(run, wanted("log", setting=setting), tmp_path)
    paths, _ = study.write(run, wanted("log", setting=Setting("10", "0x1800", "135")), tmp_path)
    assert paths[0].name == "memcached.log.0_0_10_0x1800_135"
    done = neap("log", "csv", str(written[0] / "run"), "--study", "8_0x1800_135", "--out", str(tmp_path))
    assert done.returncode != 0 and "the log says ITR 10, not 8" in done.stderr


def test_what_the_log_does_not_know_must_be_given(tmp_path: Path) -> None:
    synthetic.write(tmp_path, dataclasses.replace(SHAPE, records=10, performance=0))
    run = decode.load([str(tmp_path)])
    with pytest.raises(UsageError, match="does not know DVFS"):
        study.write(run, wanted("linux"), tmp_path / "out")
    with pytest.raises(UsageError, match="needs the offered rate"):
        study.write(run, wanted("linux", qps=None, setting=Setting("10", "0xffff", "135")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_of_two_settings_is_refused(tmp_path: Path) -> None:
    synthetic.write(tmp_path, dataclasses.replace(SHAPE, records=100, changes=1))
    with pytest.raises(Failure, match="the run has itr 10 and 20"):
        study.write(decode.load([str(tmp_path)]), wanted("linux"), tmp_path / "out")


def test_settings_that_the_cleaners_do_not_look_for_are_named(tmp_path: Path) -> None:
    synthetic.write(tmp_path, dataclasses.replace(SHAPE, records=10, itr_us=7, seconds=30.0))
    _, remarks = study.write(decode.load([str(tmp_path)]), wanted("ebbrt", qps="123"), tmp_path / "out")
    assert [remark.split(";")[-1] for remark in remarks[:2]] == [" it does not read files of 7", " it does not read files of 123"]
    assert any("of which the published ebbrt cleaner reads 20" in remark for remark in remarks)
    for shape in ({"cores": 4, "packages": 4, "package_watts": ()}, {"cores": 17, "packages": 1}):
        synthetic.write(tmp_path / "many", dataclasses.replace(SHAPE, records=10, **shape))
        with pytest.raises(Failure, match="read 16 cores of 2"):
            study.write(decode.load([str(tmp_path / "many")]), wanted("linux"), tmp_path / "out")


@pytest.mark.filterwarnings("error")
def test_a_damaged_log_whose_times_run_backwards_gives_files_and_a_page(tmp_path: Path) -> None:
    for core, times in enumerate(([1000, 900], [1000, 1 << 62, 950])):
        write_core(tmp_path / "run", core, b"".join(record(INTERRUPT, time) for time in times))
    run = decode.load([str(tmp_path / "run")])
    written, _ = study.write(run, wanted("ebbrt", setting=Setting("10", "0x1800", "135")), tmp_path / "out")
    times = [int(row.split()[-1]) for row in written[15].read_text().splitlines()[1:]]
    assert times == [1000, 1000], "the file that gives the run's time does not end before it begins"
    assert report.build([report.NamedRun("damaged", run, [tmp_path])])


# ---- the reader ----


@pytest.mark.parametrize("system", list(LAYOUTS))
def test_published_files_are_a_run_with_the_same_figures(written: tuple[Path, synthetic.Truth], system: str) -> None:
    folder, truth = written
    run = decode.load([str(folder / system)])
    found = summary.summarise(run, run.windows)
    total, (phase,) = found["total"], found["phases"]
    assert total["rx_bytes"] == sum(truth.rx_bytes) and total["interrupts"] == pytest.approx(sum(truth.interrupts), rel=2e-3)
    assert total["instructions"] == sum(truth.instructions)
    if system != "log":  # these files have the log's own clock and numbers of cores, which the reader cannot know
        assert total["seconds"] == pytest.approx(SHAPE.seconds, rel=1e-6)
        assert total["joules"] == pytest.approx(sum(truth.joules), rel=1e-3)
    assert phase["sleeps_by_state"] == {"c7": SHAPE.cores * (SHAPE.records + 1)}
    assert phase["settings"]["itr_us"] == 10 and phase["settings"]["pstate"] == "0x1800"
    # The files lack these figures, so they are unknown, not 0.
    for name in ("rx_frames", "polls", "asleep_share", "control_rx_frames", "dram_joules"):
        assert total[name] is None, name
    assert phase["frames_per_interrupt"] is None and phase["asleep_seconds_by_state"] is None
    records = next(tables.tables(run, "records", False))
    assert records["rx_frames"].null_count == len(records) and records["rx_bytes"].null_count == 0
    text = summary.text(found)
    assert "time asleep, polls and control traffic are not in the files" in text and "unknown polls" in text
    assert "published data" in report.build([report.NamedRun("a run", run, [])])


def test_linux_rows_with_several_states_keep_the_count_of_each(tmp_path: Path) -> None:
    rows = [
        "0 1 66 1 90 100 100 100 9 5 1 0 0 7 1000 2000",
        "1 2 80 2 91 0 0 0 0 0 0 0 0 0 0 2500",
        "2 1 70 1 95 200 180 190 12 8 1 4 0 9 1900 3000",
    ]
    (tmp_path / "linux.mcd.dmesg.3_1_8_0x1D00_135_400000").write_text("\n".join(rows) + "\n")
    (tmp_path / "linux.mcd.rdtsc.3_8_0x1D00_135_400000").write_text("0 0 1000 2900\n1 1 2000 3000\n")
    (tmp_path / "linux.mcd.out.3_8_0x1D00_135_400000").write_text(
        "read 90 10 30 40 50 80 120 130 200.5\nTotal QPS = 400000.0 (8000000 / 20.0s)\n"
    )
    found = json.loads(neap("log", "summary", str(tmp_path), "--json").stdout)
    (phase,) = found["phases"]
    assert phase["sleeps_by_state"] == {"c1": 3, "c3": 4, "c7": 2} and phase["sleeps"] == 9
    assert (phase["interrupts"], phase["rx_bytes"], phase["requests"]) == (3, 216, 8_000_000)
    assert phase["latency_us"] == {"mean": 90, "min": 30, "p5": 40, "p10": 50, "p50": 80, "p90": 120, "p95": 130, "p99": 200.5}
    assert found["run"] == 3 and found["packages"][0]["package"] == 1 and found["packages"][0]["joules"] == 900 / 65536
    (tmp_path / "linux.mcd.dmesg.4_1_8_0x1D00_135_400000").write_text(rows[0] + "\n")
    with pytest.raises(Failure, match="holds 2 runs"):
        decode.load([str(tmp_path)])
    assert len(decode.load([str(tmp_path / "linux.mcd.dmesg.3_1_8_0x1D00_135_400000")]).cores) == 1


@pytest.mark.parametrize(
    "name", ["linux.mcd.dmesg.0_15_8_0xffff_135_200000", "ebbrt_dmesg.0_1_8_0x1d00_135_c7.csv", "ebbrt.dmesg.5_64_5000_8_0x1D00_135"]
    + ["linux.np.log.0_1_64_5000_8_0xd00_55", "linux.node.server.log.2_1_0_0xffff_75", "memcached.log.0_3_8_0x1800_135"]
)  # fmt: skip
def test_names_of_the_published_files_are_known(name: str) -> None:
    assert study_reader.name_of(Path(name)) is not None
    assert study_reader.name_of(Path(name + "x")) is None and study_reader.name_of(Path("core0.log")) is None


@pytest.mark.parametrize(
    "text", ["", "a\n", "1 2 3\n", "0 1 66 1 90 100 100 100 9 5 1 0 0 7 1000 -5\n", "0 1 66 1 90 100 100 100 9 5 1 0 0 7 1000 x\n"]
)
def test_damaged_published_files_are_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "linux.mcd.dmesg.0_0_8_0xd00_135_40000").write_text(text)
    with pytest.raises(Failure, match="is no file of the published studies"):
        decode.load([str(tmp_path)])


def test_the_offered_rate_of_a_load_is_read(tmp_path: Path, written: tuple[Path, synthetic.Truth]) -> None:
    path = load_json(tmp_path, {"tsc": 0, "tsc_hz": 1, "unix_ns": 0}, 10**9)
    content = json.loads(path.read_text())
    content["runs"][0]["rate"] = {"asked": 20000.0}
    path.write_text(json.dumps(content))
    assert load_results.read(path, decode.load([str(written[0] / "run")]))[0].offered == 20000.0


def test_random_changes_of_published_files_are_read_or_refused(tmp_path: Path, written: tuple[Path, synthetic.Truth]) -> None:
    chance = np.random.default_rng(19)
    folder = written[0] / "ebbrt"
    names = [f"ebbrt_dmesg.0_1_{TAILS['ebbrt']}.csv", f"ebbrt_rdtsc.0_{TAILS['ebbrt']}", f"ebbrt_out.0_{TAILS['ebbrt']}"]
    files = {name: (folder / name).read_bytes()[:4000].rsplit(b"\n", 1)[0] + b"\n" for name in names}
    refused = 0
    for turn in range(120):
        for name, content in files.items():
            changed = bytearray(content)
            for _ in range(int(chance.integers(0, 4)) if name == names[turn % 3] else 0):
                at = int(chance.integers(0, len(changed)))
                changed[at : at + 1] = chance.choice([b"-", b" ", b"\n", b"9", b"nan", b"\xff", b"", b"99999999999999999999"])
            (tmp_path / name).write_bytes(changed)
        try:
            run = decode.load([str(tmp_path)])
            summary.text(summary.summarise(run, run.windows))
        except Failure as failure:
            refused += 1
            assert "\n" not in failure.message
    assert 0 < refused < 120
