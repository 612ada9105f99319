# SPDX-License-Identifier: BSL-1.0
"""All readers accept a log of Linux: its figures are right, figures that it lacks are not known, and no setting of Neap is assumed."""

import csv
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from tools.conftest import neap
from tools.errors import Failure
from tools.log import about, decode, diff, layout, phases, repeats, summary, synthetic, synthetic_linux, tables
from tools.log.synthetic import Shape
from tools.log.synthetic_linux import Arm

SHAPE = Shape(cores=2, records=400, changes=0)
DYNAMIC = Arm(is_adaptive=True, governor=synthetic_linux.SCHEDUTIL)


def loaded(folder: Path) -> decode.RunLog:
    return decode.load([str(folder)])


def test_the_summary_has_the_logs_figures_and_no_requests(tmp_path: Path) -> None:
    truth = synthetic_linux.write(tmp_path, SHAPE)
    found = summary.summarise(loaded(tmp_path))
    assert found["total"]["interrupts"] == sum(truth.interrupts) and found["total"]["rx_bytes"] == sum(truth.rx_bytes)
    assert found["total"]["joules"] == pytest.approx(sum(truth.joules), rel=1e-3)
    assert found["total"]["asleep_share"] == pytest.approx(0.6, rel=1e-3)
    for name in ("requests", "requests_per_second", "joules_per_request", "rx_descriptors"):
        assert found["total"][name] is None, name
    assert [row["rx_bytes"] for row in found["cores_detail"]] == truth.rx_bytes
    (phase,) = found["phases"]
    assert phase["requests"] is None and phase["joules_per_request"] is None
    assert phase["asleep_seconds_by_state"].keys() == {"c7s"}
    said = summary.text(found)
    assert f"run 1 of memcached, Linux {synthetic_linux.KERNEL} ixgbe, on 2 cores" in said and "no requests counted" in said
    assert "linux, 6.1.0-56-amd64, ixgbe, eth0, neap-trace 0.1.0" in said


def test_settings_are_linuxs_own(tmp_path: Path) -> None:
    synthetic_linux.write(tmp_path, SHAPE, DYNAMIC)
    found = summary.summarise(loaded(tmp_path))
    values = {row["setting"]: row["value"] for row in found["configuration"]["settings_at_start"]}
    assert values == {
        **{"idle": "c7s", "itr": "adaptive", "governor": "schedutil", "epp": "balance_performance", "no_turbo": "off"},
        **{"frequency_max": "2900000", "rx_ring": "512", "adaptive_itr": "on", "idle_governor": "menu"},
    }
    in_force = found["phases"][0]["settings"]
    assert in_force["itr_us"] == "adaptive" and in_force["governor"] == "schedutil"
    assert not {"poll_budget_us", "pstate", "power_limit_mw", "turbo"} & in_force.keys(), "settings of Neap"
    said = summary.text(found)
    assert "governor=schedutil" in said and "poll_budget" not in said and "pstate" not in said and "None" not in said


def test_changes_of_settings_divide_the_run(tmp_path: Path) -> None:
    synthetic_linux.write(tmp_path, Shape(cores=2, records=400, changes=2))
    found = summary.summarise(loaded(tmp_path))
    assert [phase["settings"]["itr_us"] for phase in found["phases"]] == [8, 16, 24]
    assert "itr=16us" in summary.text(found)


def test_a_log_without_counters_or_named_application_is_read(tmp_path: Path) -> None:
    files, _ = synthetic_linux.make(Shape(cores=1, records=50, counters=()))
    header = layout.parse_header(files[0], "a test")
    text = {name: value for name, value in header.about.items() if name != "application"}
    entries = files[0][layout.HEADER_BYTES :]
    (tmp_path / "core0.log").write_bytes(layout.build_header(0, header.entries, 0, 0, header.tsc_hz, text) + entries)
    found = summary.summarise(loaded(tmp_path))
    assert found["total"]["joules"] is None and found["total"]["ipc"] is None
    assert "of an application, Linux" in summary.text(found)


@pytest.mark.parametrize("table", tables.TABLES)
def test_tables_are_written(tmp_path: Path, table: str) -> None:
    synthetic_linux.write(tmp_path / "run", Shape(cores=2, records=100, idle_records=True), DYNAMIC)
    for action, out in (("csv", tmp_path / "out.csv"), ("parquet", tmp_path / "out.parquet")):
        done = neap("log", action, str(tmp_path / "run"), "--table", table, "--out", str(out))
        assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert len(rows) == parquet.read_table(tmp_path / "out.parquet").num_rows
    assert len(rows) > 10 or table in ("collections", "transactions"), "Linux's log has no entries of applications"
    if table == "records":
        assert {row["queue"] for row in rows} == {"0", "1"}, "the queue of Linux's Record"
        assert {row["itr_us"] for row in rows} == {"10", "20", "50"}, "a queue's present itr"
        assert {row["rx_descriptors"] for row in rows} == {""}
    if table == "settings":
        assert {row["poll_budget_us"] for row in rows} == {""} and {row["pstate"] for row in rows} == {""}
        assert "governor" in {row["changed"] for row in rows}
    if table == "configuration":
        assert {("header", "system", "linux"), ("header", "kernel", synthetic_linux.KERNEL)} <= {
            (row["part"], row["name"], row["value"]) for row in rows
        }
    if table == "idle":
        assert {row["idle_state"] for row in rows} == {"c7s"}


def test_a_difference_of_the_systems_names_common_settings_and_lists_the_others_once(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "neap", Shape(cores=2, records=400, changes=0, itr_us=16, facts=True))
    synthetic_linux.write(tmp_path / "linux", Shape(cores=2, records=400, changes=0, itr_us=8), Arm())
    found = diff.compare(str(tmp_path / "neap"), str(tmp_path / "linux"))
    said = diff.text(found).splitlines()
    assert said[0].endswith("neap, run 1, Neap 0.1.0") and said[1].endswith("linux, run 1, Linux 6.1.0-56-amd64 ixgbe")
    rows = {row["name"]: (row["first"], row["second"]) for row in found["settings_at_start"]}
    assert rows["governor"] == ("absent", "performance") and rows["rsc"] == ("off", "absent")
    only = [line for line in said if line.startswith(("settings of the first only", "settings of the second only"))]
    assert len(only) == 2 and "rsc=off" in only[0] and "governor=performance" in only[1]
    assert not any(line.startswith(("rsc ", "governor ")) for line in said)
    requests = next(row for row in found["figures"] if row["name"] == "requests")
    assert requests["second"] is None and requests["difference"] is None
    interrupts = next(row for row in found["figures"] if row["name"] == "interrupts")
    assert interrupts["difference"] == 0
    assert found["equal"] is False


def test_the_studies_files_are_written_with_named_settings(tmp_path: Path) -> None:
    truth = synthetic_linux.write(tmp_path / "run", SHAPE)
    words = ("log", "csv", str(tmp_path / "run"), "--study", "linux", "--qps", "1000", "--out", str(tmp_path / "study"))
    refused = neap(*words)
    assert refused.returncode != 0 and "the log does not know DVFS" in refused.stderr
    assert neap(*words, "--setting", "8_0x1d00_135").returncode == 0
    again = summary.summarise(loaded(tmp_path / "study"))
    assert again["total"]["rx_bytes"] == sum(truth.rx_bytes)
    assert again["system"] == "Linux"


def test_a_modelled_window_is_placed_by_the_headers_reading_of_the_tsc(tmp_path: Path) -> None:
    """The run begins at tick 5e9 of 2e9 ticks a second. The TSC was 3e9 at tick 0, at the same rate."""
    world = {"window": {"from_ns": 4_100_000_000, "to_ns": 4_600_000_000}, "answered": 70, "latency_ns": {"p50_ns": 9000, "p99_ns": 20000}}
    (tmp_path / "world.json").write_text(json.dumps(world))
    synthetic_linux.write(tmp_path, Shape(cores=1, records=500, changes=0))
    file = tmp_path / "world.json"
    assert repeats.windows_in(file, loaded(tmp_path), asked=False) == []
    with pytest.raises(Failure, match="does not relate its clock"):
        repeats.windows_in(file, loaded(tmp_path), asked=True)
    path = tmp_path / "core0.log"
    data = path.read_bytes()
    header = layout.parse_header(data, "a test")
    text = {**header.about, "raw_tsc": {"hz": 2_000_000_000, "at_tick_0": 3_000_000_000}}
    path.write_bytes(layout.build_header(0, header.entries, 0, 0, header.tsc_hz, text) + data[layout.HEADER_BYTES :])
    run = loaded(tmp_path)
    (window,) = repeats.windows_in(file, run, asked=True)
    assert (window.begin_tsc, window.end_tsc) == (5_200_000_000, 6_200_000_000)
    (phase,) = phases.chosen(summary.summarise(run, [window]))
    assert phase["begin"] == pytest.approx(0.1) and phase["seconds"] == pytest.approx(0.5) and phase["requests"] == 70


def test_summaries_of_several_linux_runs_have_a_mean(tmp_path: Path) -> None:
    for number in (1, 2):
        synthetic_linux.write(tmp_path / str(number), Shape(cores=1, records=300, changes=0, run=number, seed=number))
    done = neap("log", "summary", str(tmp_path / "1"), str(tmp_path / "2"), "--json")
    (phase,) = json.loads(done.stdout)["phases"]
    assert phase["figures"]["interrupts"]["mean"] == 300 and phase["figures"]["requests"]["mean"] is None


@pytest.mark.parametrize("unknown", [["core", "seconds", "interrupts", "lost"], ["no_such_figure"]])
def test_a_figure_that_each_log_has_cannot_be_unknown(tmp_path: Path, unknown: list[str]) -> None:
    files, truth = synthetic_linux.make(Shape(cores=1, records=50))
    header = layout.parse_header(files[0], "a test")
    entries = files[0][layout.HEADER_BYTES :]
    (tmp_path / "core0.log").write_bytes(
        layout.build_header(0, header.entries, 0, 0, header.tsc_hz, {**header.about, "unknown": unknown}) + entries
    )
    found = summary.summarise(loaded(tmp_path))
    assert found["total"]["interrupts"] == truth.interrupts[0] and found["total"]["seconds"] == pytest.approx(1)
    assert summary.text(found)


@pytest.mark.parametrize(
    ("member", "value"),
    [("system", "Linux"), ("system", 7), ("kernel", 6), ("driver", None), ("unknown", "requests"), ("unknown", ["a b"])],
)
def test_members_that_cannot_be_are_refused(member: str, value: object) -> None:
    text = {"boot_id": synthetic.BOOT_ID, "run": 1, "cores": 1, member: value}
    with pytest.raises(ValueError, match=f"its {member} cannot be"):
        about.parse(json.dumps(text).encode())


def test_phases_have_the_known_figures_in_the_text(tmp_path: Path) -> None:
    synthetic_linux.write(tmp_path, SHAPE)
    lines = phases.lines(summary.summarise(loaded(tmp_path)))
    assert any(line.startswith("not known:") and "requests" in line for line in lines)
    assert any(line.startswith("asleep in c7s") for line in lines)
