# SPDX-License-Identifier: BSL-1.0
"""Latencies of a load are found beside a log, are placed on the log's time axis, and bad files give a sentence instead of a curve."""

import json
from pathlib import Path

import pytest

from tools.log import load_results, report, synthetic

HZ = 2_000_000_000
BEGIN = 5 * HZ
LATENCY = {"p50_ns": 100_000, "p99_ns": 500_000, "p100_ns": 900_000}


def load_json(**more) -> dict:
    clock = {"tsc": BEGIN - HZ, "tsc_hz": HZ, "unix_ns": 1_000_000_000_000, "uncertainty_ns": 1000}
    run = {"seconds": 2.0, "began_unix_ns": 1_001_500_000_000, "log": {"clock": clock}, "loading": {"latency": LATENCY}, "measuring": None}
    return {"runs": [{**run, **more}], "agents": []}


def read(folder: Path) -> load_results.Load:
    return load_results.read([folder], load_results.TimeAxis(BEGIN, HZ, 3.0))


def test_a_window_is_placed_by_the_reading_of_the_machines_clock(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "load.json").write_text(json.dumps(load_json()))
    found = read(tmp_path / "log")
    # The clock was read one second before the log began, and the window began 1.5 seconds after the reading.
    assert found.windows == [{"from": 0.5, "to": 2.5, "p50": 100.0, "p99": 500.0, "max": 900.0}] and found.whole == found.windows[0]
    assert "no series over time" in found.note


def test_seconds_of_the_load_become_a_curve(tmp_path: Path) -> None:
    seconds = [{"from_s": second, "answered": 100, **LATENCY, "p99_ns": 1000 * second} for second in (0, 1)]
    (tmp_path / "load.json").write_text(json.dumps(load_json(over_time=[*seconds, {"from_s": 2, "answered": 0, **LATENCY}])))
    found = read(tmp_path)
    assert [(row["from"], row["to"], row["p99"]) for row in found.windows] == [(0.5, 1.5, 0.0), (1.5, 2.5, 1.0)]
    assert found.whole and found.whole["p99"] == 500.0 and "each second, of all connections" in found.note


def test_without_a_reading_of_the_clock_the_wall_clock_places_a_window_and_the_page_says_so(tmp_path: Path) -> None:
    (tmp_path / "load.json").write_text(json.dumps(load_json(log={"clock": None})))
    about = {"tsc_at_boot": BEGIN - 5 * HZ, "wall_clock_at_boot_ns": 996_000_000_000}
    found = load_results.read([tmp_path], load_results.TimeAxis.of(about, BEGIN, HZ, 3.0))
    assert [(row["from"], row["to"]) for row in found.windows] == [(0.5, 2.5)] and "wall clock" in found.note
    assert read(tmp_path).windows == [] and read(tmp_path).note == "load.json has no latencies with a known time"


def test_a_load_of_another_time_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "load.json").write_text(json.dumps(load_json(began_unix_ns=1_009_000_000_000)))
    found = read(tmp_path)
    assert found.windows == [] and found.whole is None and found.note == "load.json is of another time than this run"


def test_the_measuring_clients_latencies_come_first(tmp_path: Path) -> None:
    (tmp_path / "load.json").write_text(json.dumps(load_json(measuring={"latency": {**LATENCY, "p99_ns": 7000}})))
    assert read(tmp_path).windows[0]["p99"] == 7.0


def test_the_window_of_a_model_is_in_its_virtual_time(tmp_path: Path) -> None:
    world = {
        "window": {"from_ns": 5_250_000_000, "to_ns": 5_750_000_000},
        "latency_ns": {"p50": 1000, "p99": 2000, "max": 3000, "mean": 1.5},
    }
    (tmp_path / "world.json").write_text(json.dumps(world))
    (tmp_path / "result.json").write_text(json.dumps({"modelled": True, "model": "e5-2690"}))
    found = read(tmp_path)
    assert found.windows == [{"from": 0.25, "to": 0.75, "p50": 1.0, "p99": 2.0, "max": 3.0}] and found.model == "e5-2690"


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{", '{"runs": 7}', '{"runs": [7, {"log": 7}, {"log": {"clock": 7}}]}'),
        *(json.dumps(load_json(**wrong)) for wrong in ({"began_unix_ns": -1}, {"seconds": "2"}, {"loading": None}, {"log": None})),
        *(json.dumps(load_json(loading={"latency": {**LATENCY, "p99_ns": wrong}})) for wrong in (None, -1, "5", 1 << 70)),
        json.dumps(load_json(seconds=1e300)),
    ],
)
def test_a_damaged_result_gives_no_curve_and_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "load.json").write_text(content)
    found = read(tmp_path)
    assert found.windows == [] and found.note and found.whole is None


def test_a_modelled_run_says_so_on_its_page(tmp_path: Path) -> None:
    shape = synthetic.Shape(cores=1, records=50)
    synthetic.write(tmp_path, shape)
    assert 'class="modelled"' not in report.build(report.load([str(tmp_path)]))
    plain = synthetic.about
    try:
        synthetic.about = lambda shape, core: {**plain(shape, core), "cpu": "modelled Xeon E5-2690"}
        synthetic.write(tmp_path, shape)
    finally:
        synthetic.about = plain
    assert 'class="modelled">modelled (Xeon E5-2690)<' in report.build(report.load([str(tmp_path)]))
