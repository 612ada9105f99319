# SPDX-License-Identifier: BSL-1.0
"""Latencies of a load are found beside a log, are placed on the log's time axis, and bad files give a sentence instead of a curve."""

import json
from pathlib import Path

import pytest

from tools.log import decode, layout, load_results, repeats, report, synthetic

SHAPE = synthetic.Shape(cores=1, records=50, seconds=3.0)
HZ = SHAPE.tsc_hz
# The TSC at which a synthetic run begins.
BEGIN = 5_000_000_000
LATENCY = {"p50_ns": 100_000, "p99_ns": 500_000, "p100_ns": 900_000}


def load_json(**more) -> dict:
    clock = {"tsc": BEGIN - HZ, "tsc_hz": HZ, "unix_ns": 1_000_000_000_000, "uncertainty_ns": 1000}
    run = {"seconds": 2.0, "began_unix_ns": 1_001_500_000_000, "log": {"clock": clock}, "measuring": None}
    run["loading"] = {"answered_in_window": 7, "latency": LATENCY}
    return {"runs": [{**run, **more}], "agents": []}


def read(folder: Path, **about: object) -> load_results.Curve:
    """Returns the curve of a run whose log is in `folder`/log. `about`: members of its header; None removes one."""
    text = {name: value for name, value in {**synthetic.about(SHAPE, 0), **about}.items() if value is not None}
    (data,), _ = synthetic.make(SHAPE)
    header = layout.parse_header(data, "a test")
    entries = bytearray(data[header.size :])
    for at in range(0, len(entries), layout.ENTRY_BYTES):
        if about and entries[at + layout.KIND_OFFSET] == decode.ANCHOR:
            entries[at + layout.KIND_OFFSET] = 200  # a log without anchors, which have the wall clock, too
    (folder / "log").mkdir(exist_ok=True)
    (folder / "log/core0.log").write_bytes(layout.build_header(0, header.entries, 0, 0, HZ, text) + entries)
    run = decode.load([str(folder / "log")])
    file = load_results.beside([folder / "log"])
    return load_results.curve(file, repeats.windows_in(file, run, asked=False), BEGIN, HZ, 3.0)


def test_a_window_is_placed_by_the_reading_of_the_machines_clock(tmp_path: Path) -> None:
    (tmp_path / "load.json").write_text(json.dumps(load_json()))
    found = read(tmp_path)
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
    found = read(tmp_path, tsc_at_boot=BEGIN - 2 * HZ, wall_clock_at_boot_ns=999_000_000_000)
    assert [(row["from"], row["to"]) for row in found.windows] == [(0.5, 2.5)] and "wall clock" in found.note
    found = read(tmp_path, tsc_at_boot=None)
    assert found.windows == [] and found.note == "load.json has no latencies with a known time"


def test_a_load_of_another_time_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "load.json").write_text(json.dumps(load_json(began_unix_ns=1_009_000_000_000)))
    found = read(tmp_path)
    assert found.windows == [] and found.whole is None and found.note == "load.json is of another time than this run"


def test_the_measuring_clients_latencies_come_first(tmp_path: Path) -> None:
    (tmp_path / "load.json").write_text(json.dumps(load_json(measuring={"answered_in_window": 1, "latency": {**LATENCY, "p99_ns": 7000}})))
    assert read(tmp_path).windows[0]["p99"] == 7.0


def test_the_window_of_a_model_is_in_its_virtual_time(tmp_path: Path) -> None:
    world = {
        "window": {"from_ns": 2_750_000_000, "to_ns": 3_250_000_000},
        "latency_ns": {"p50": 1000, "p99": 2000, "max": 3000, "mean": 1.5},
        "answered": 5,
        "rate": 70.0,
        "runs": [{"name": "", "rate": 70.0, "answered": 5}],
    }
    (tmp_path / "world.json").write_text(json.dumps(world))
    assert load_results.offered(tmp_path / "world.json") == {"file": "world.json", "offered_per_second": [70.0]}
    expected = {"from": 0.25, "to": 0.75, "p50": 1.0, "p99": 2.0, "max": 3.0}
    assert read(tmp_path).windows == [expected]
    (tmp_path / "result.json").write_text(json.dumps({"modelled": True, "model": "e5-2690", "world": world}))
    assert read(tmp_path).windows == [expected]
    file = load_results.beside([tmp_path / "log"])
    assert file == tmp_path / "result.json" and load_results.model_of(file) == "e5-2690"
    assert load_results.offered(file) == {"file": "result.json", "offered_per_second": [70.0]}


def test_a_result_is_found_in_the_folder_of_the_logs_or_above_it(tmp_path: Path) -> None:
    (tmp_path / "run/log").mkdir(parents=True)
    (tmp_path / "load.json").write_text("{}")
    assert load_results.beside([tmp_path / "run/log"]) is None, "a file two folders up belongs to something else"
    assert load_results.beside([tmp_path / "run"]) is None
    (tmp_path / "run/load.json").write_text("{}")
    for place in (tmp_path / "run", tmp_path / "run/log"):
        found = load_results.beside([place])
        assert found is not None and found.resolve() == (tmp_path / "run/load.json").resolve()
    (tmp_path / "run/log/load.json").write_text("{}")
    assert load_results.beside([tmp_path / "run/log"]) == tmp_path / "run/log/load.json"
    assert load_results.beside([tmp_path / "no"]) is None and load_results.beside([tmp_path / "load.json"]) is None


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{", '{"runs": 7}', '{"runs": [7, {"log": 7}, {"log": {"clock": 7}}]}'),
        *(json.dumps(load_json(**wrong)) for wrong in ({"began_unix_ns": -1}, {"seconds": "2"}, {"loading": None}, {"seconds": True})),
        *(
            json.dumps(load_json(loading={"answered_in_window": 7, "latency": {**LATENCY, "p99_ns": wrong}}))
            for wrong in (None, -1, "5", 1 << 70)
        ),
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
