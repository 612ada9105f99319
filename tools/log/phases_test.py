# SPDX-License-Identifier: BSL-1.0
"""Figures of phases equal figures computed by hand. A change that reaches two cores at different moments leaves a transition between them.
Repeats have mean and deviation, and unequal runs are refused.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tools.conftest import neap
from tools.errors import Failure, UsageError
from tools.log import decode, load_results, phases, repeats, steady, summary, synthetic
from tools.log.by_hand import HZ, entry, record, write_core
from tools.log.decode import ANCHOR, IDLE, INTERRUPT, POLICY, POLL, SETTINGS, START, STOP

# 65,536 counts are 1 J.
JOULE = 65536


def settings(tsc: int, generation: int, changed: int, itr_us: int, idle_state: int = 4) -> bytes:
    return entry("settings", tsc=tsc, kind=SETTINGS, generation=generation, changed=changed, itr_us=itr_us, idle_state=idle_state, turbo=1)


def one_core(changed_at: int, frames: int, energy: int = 0) -> bytes:
    """Four seconds: two sleep in c6 with `frames` frames an interrupt, then `itr` is set to 50 at `changed_at`, and two more seconds."""
    low = {"instructions": 1000, "cycles": 1000, "package_energy": energy}
    high = {"instructions": 5000, "cycles": 3000, "package_energy": energy + 40 * JOULE}
    return b"".join(
        [
            record(START, HZ, low),
            entry("anchor", kind=ANCHOR, tsc=HZ, requests=100, wall_clock_ns=10**18),
            settings(HZ, 7, 255, 8),
            entry("idle", kind=IDLE, tsc=HZ + HZ // 2, tsc_asleep=HZ + 5, idle_state=4, cause=1),
            record(INTERRUPT, HZ + HZ // 2, rx_frames=frames, idle_entries=1, idle_ticks=HZ // 4, idle_state=4),
            entry("idle", kind=IDLE, tsc=2 * HZ, tsc_asleep=2 * HZ - 100, idle_state=4, cause=3),
            record(POLL, 2 * HZ, rx_frames=1, idle_entries=1, idle_ticks=HZ // 4, idle_state=4),
            record(POLICY, changed_at, idle_entries=0, idle_ticks=0, idle_state=4),
            settings(changed_at, 8, 1, 50),
            record(INTERRUPT, 4 * HZ, rx_frames=4 * frames, idle_entries=2, idle_ticks=HZ // 2, idle_state=5, generation=8),
            record(STOP, 5 * HZ, high, idle_state=5, generation=8),
            entry("anchor", kind=ANCHOR, tsc=5 * HZ, requests=600),
        ]
    )


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    folder = tmp_path / "a"
    write_core(folder, 0, one_core(3 * HZ - HZ // 2, 10))
    write_core(folder, 1, one_core(3 * HZ, 20))
    return folder


def test_a_change_splits_the_run_and_its_transition_belongs_to_no_phase(changed: Path) -> None:
    found = summary.summarise(decode.load([str(changed)]))
    first, second = found["phases"]
    assert [(row["begin"], row["seconds"]) for row in (first, second)] == [(0.0, 1.5), (2.0, 2.0)]
    assert found["transitions"] == [{"begin": 1.5, "seconds": 0.5, "generations": [8]}]
    assert (first["generation"], second["generation"]) == (7, 8)
    assert (first["settings"]["itr_us"], second["settings"]["itr_us"]) == (8, 50)
    assert (first["interrupts"], first["polls"], first["rx_frames"]) == (2, 2, 32)
    assert (second["interrupts"], second["polls"], second["rx_frames"]) == (2, 0, 120)
    assert second["interrupts_per_second"] == 1.0 and second["frames_per_interrupt"] == 60.0
    # Instructions grow by 4000 in four seconds on each core, which the samples at both ends spread evenly.
    assert first["instructions"] == pytest.approx(3000) and second["instructions"] == pytest.approx(4000)
    assert first["ipc"] == pytest.approx(2.0) and first["misses_per_1000_instructions"] is None
    # Both cores read one counter of one package: 10 W.
    assert first["joules"] == pytest.approx(15) and second["watts"] == pytest.approx(10)
    assert second["joules_per_interrupt"] == pytest.approx(10)
    assert second["energy_delay_product_joule_seconds"] == pytest.approx(40)
    # The anchors are at the run's ends, so no phase's requests are known.
    assert first["requests"] is None and first["joules_per_request"] is None and first["latency_us"] is None
    assert found["total"]["requests"] == 1000


def test_sleep_is_divided_at_a_phases_bounds_and_counted_by_state_and_cause(changed: Path) -> None:
    first, second = summary.summarise(decode.load([str(changed)]))["phases"]
    assert first["sleeps_by_state"] == {"c6": 4} and second["sleeps_by_state"] == {"c7": 4}
    assert first["asleep_seconds_by_state"] == {"c6": 1.0} and first["asleep_share"] == pytest.approx(1 / 3)
    # Core 0's interval of 1.5 s began half a second before the phase: a third of its half second asleep is left out.
    assert second["asleep_seconds_by_state"]["c7"] == pytest.approx(0.5 + 0.5 * 2 / 3)
    assert first["wake_ups_by_cause"] == {"interrupt": 2, "timer": 2} and second["wake_ups_by_cause"] == {}


def test_a_run_without_a_change_is_one_phase_with_the_figures_of_the_run(tmp_path: Path) -> None:
    synthetic.write(tmp_path, synthetic.Shape(cores=4, packages=2, records=500, seconds=2, changes=0))
    found = summary.summarise(decode.load([str(tmp_path)]))
    (phase,) = found["phases"]
    assert found["transitions"] == [] and phase["wake_ups_by_cause"] is None
    for name in ("seconds", "interrupts", "requests", "requests_per_second", "joules_per_request", "rx_frames", "rx_bytes", "asleep_share"):
        assert phase[name] == found["total"][name], name
    for name in ("joules", "watts", "instructions", "ipc", "llc_misses", "energy_delay_product_joule_seconds"):
        assert phase[name] == pytest.approx(found["total"][name]), name


def test_phases_of_a_synthetic_run_sum_to_the_run(tmp_path: Path) -> None:
    shape = synthetic.Shape(cores=1, records=5000, seconds=2, changes=3)
    truth = synthetic.write(tmp_path, shape)
    found = summary.summarise(decode.load([str(tmp_path)]))
    rows = found["phases"]
    assert len(rows) == 4 and [row["settings"]["itr_us"] for row in rows] == [8, 16, 24, 32]
    assert sum(row["interrupts"] for row in rows) == truth.interrupts[0] and sum(row["rx_bytes"] for row in rows) == truth.rx_bytes[0]
    assert sum(row["instructions"] for row in rows) == pytest.approx(truth.instructions[0])
    assert sum(row["joules"] for row in rows) == pytest.approx(truth.joules[0])
    # Instructions grow evenly in a synthetic run: 0.6 a tick.
    assert all(row["instructions"] == pytest.approx(0.6 * row["seconds"] * shape.tsc_hz, rel=1e-3) for row in rows)


def test_a_hostile_number_of_changes_is_bounded(tmp_path: Path) -> None:
    changes = b"".join(
        record(POLICY, HZ + 1000 * number, generation=number) + settings(HZ + 1000 * number, number, 1, number)
        for number in range(1, 5 * phases.PHASES_MAX)
    )
    write_core(tmp_path, 0, record(START, HZ) + settings(HZ, 0, 255, 8) + changes + record(STOP, 2 * HZ), cores=1)
    found = summary.summarise(decode.load([str(tmp_path)]))
    assert len(found["phases"]) == phases.PHASES_MAX and any("up to change 100" in remark for remark in found["phase_remarks"])


# ---- the load's window ----


def load_json(folder: Path, clock: dict | None, began_unix_ns: int, seconds: float = 1.0) -> Path:
    latency = {"count": 90, "mean_ns": 2000.5, "p50_ns": 1000, "p99_ns": 9000, "p99.9_ns": 9900}
    run = {"seconds": seconds, "began_unix_ns": began_unix_ns, "log": {"clock": clock}, "measuring": None}
    run["loading"] = {"answered_in_window": 90, "latency": latency}
    path = folder / "load.json"
    path.write_text(json.dumps({"runs": [run]}))
    return path


def test_a_loads_window_gives_requests_and_latencies_to_its_phase(changed: Path) -> None:
    # The machine's TSC was 3.0 s when the client's clock was 50 s; the window is TSC 3.5 s to 4.5 s.
    clock = {"tsc": 3 * HZ, "tsc_hz": HZ, "unix_ns": 50 * 10**9, "uncertainty_ns": 1}
    run = decode.load([str(changed)])
    windows = load_results.read(load_json(changed.parent, clock, 50 * 10**9 + 5 * 10**8), run)
    found = summary.summarise(run, windows)
    inside = [row for row in found["phases"] if row["in_load_window"]]
    assert [(row["begin"], row["seconds"]) for row in inside] == [(2.5, 1.0)] and len(found["phases"]) == 4
    assert inside[0]["requests"] == 90 and inside[0]["interrupts"] == 2
    assert inside[0]["latency_us"] == {"p50": 1.0, "p99": 9.0, "p99.9": 9.9, "mean": 2.0005}
    assert inside[0]["joules_per_request"] == pytest.approx(10 / 90)
    text = summary.text(found)
    assert "outside of the load's windows are left out" in text and "9 us" in text
    assert [row["requests"] for row in found["phases"] if not row["in_load_window"]] == [None] * 3


def test_a_window_across_a_change_has_no_phase_of_its_own(changed: Path) -> None:
    run = decode.load([str(changed)])
    # Without a reading of the clock, the wall clock of the start anchor places the window: the whole run.
    found = summary.summarise(run, load_results.read(load_json(changed.parent, None, 10**18, 4.0), run))
    assert [row["requests"] for row in found["phases"]] == [None, None] and found["phases"][0]["latency_us"] is None
    assert any("change within the load's windows" in remark for remark in found["phase_remarks"])
    assert any("wall clocks" in remark for remark in found["phase_remarks"])


def test_parts_of_a_window_have_the_requests_and_latencies_of_the_loads_seconds(changed: Path) -> None:
    path = load_json(changed.parent, None, 10**18, 4.0)
    found = json.loads(path.read_text())
    replies = [(40, "1000 39 2000 1"), (10, "5000 10"), (100, "7000 100"), (20, "7000 10 9000 10")]
    rows = [{"from_s": at, "answered": answered, "p100_ns": 9999, "histogram_ns": each} for at, (answered, each) in enumerate(replies)]
    path.write_text(json.dumps({"runs": [{**found["runs"][0], "over_time": rows}]}))
    run = decode.load([str(changed)])
    summarised = summary.summarise(run, load_results.read(path, run))
    first, second = summarised["phases"]
    assert (first["seconds"], second["seconds"]) == (1.5, 2.0)
    assert (first["requests"], second["requests"]) == (45, 120)
    assert first["latency_us"] == {"p50": 1, "p90": 1, "p95": 1, "p99": 2, "p99.9": 2, "max": 9.999, "mean": pytest.approx(41 / 40)}
    assert (second["latency_us"]["p50"], second["latency_us"]["p95"]) == (7, 9)
    assert any("whole seconds" in remark for remark in summarised["phase_remarks"])


def test_a_model_runs_result_is_a_window_in_virtual_time(changed: Path) -> None:
    world = {"window": {"from_ns": 35 * 10**8, "to_ns": 45 * 10**8}, "answered": 70, "latency_ns": {"p50": 1500, "p999": 9000}}
    (changed.parent / "result.json").write_text(json.dumps({"world": world}))
    found = json.loads(neap("log", "summary", str(changed), "--json").stdout)
    inside = [row for row in found["phases"] if row["in_load_window"]]
    assert [row["requests"] for row in inside] == [70] and inside[0]["latency_us"] == {"p50": 1.5, "p99.9": 9.0}
    assert found["load"].endswith("result.json")


@pytest.mark.parametrize("content", ["", "[]", '{"runs": 3}', '{"runs": [{"seconds": -1}]}', '{"world": {"window": {"from_ns": "x"}}}'])
def test_a_file_that_is_no_loads_result_is_refused_in_one_sentence(changed: Path, content: str) -> None:
    path = changed.parent / "load.json"
    path.write_text(content)
    with pytest.raises(Failure, match="is no result of a load"):
        load_results.read(path, decode.load([str(changed)]))
    # Beside a log it may be anything, so there it is ignored.
    assert repeats.load([str(changed)], [])[0].windows == []
    with pytest.raises(Failure, match="is no result of a load"):
        repeats.load([str(changed)], [path])


def bursts(folder: Path, rates: list[int]) -> None:
    """A log of one core with a part of 0.1 s for each rate: so many records of 5 frames."""
    entries = [record(START, HZ)]
    for part, rate in enumerate(rates):
        at = HZ + part * HZ // 10 + (np.arange(rate) + 1) * (HZ // 10) // (rate + 1)
        entries += [record(INTERRUPT, int(tsc), rx_frames=5) for tsc in at]
    write_core(folder, 0, b"".join([*entries, record(STOP, HZ + len(rates) * HZ // 10)]), cores=1)


def test_a_window_of_steady_load_is_found_without_preload_and_pause(tmp_path: Path) -> None:
    # A preload, a pause, two short steady times around a burst, and the measured time.
    bursts(tmp_path, [900] + [0] * 2 + [100] * 6 + [300] + [100] * 30 + [0])
    run = decode.load([str(tmp_path)])
    found = summary.summarise(run, steady.windows(run, 20))
    (inside,) = [row for row in found["phases"] if row["in_load_window"]]
    assert inside["begin"] == pytest.approx(1.0, abs=0.1) and inside["seconds"] == pytest.approx(3.0, abs=0.2)
    assert inside["interrupts"] == pytest.approx(1000 * inside["seconds"], rel=0.01) and inside["load_variation"] < 0.2
    assert inside["requests"] is None and inside["latency_us"] is None
    assert any("steady load" in remark for remark in found["phase_remarks"])


def test_a_load_that_is_never_steady_has_no_window(tmp_path: Path) -> None:
    bursts(tmp_path, [100, 300] * 10)
    assert steady.windows(decode.load([str(tmp_path)]), 20) == []
    bursts(tmp_path, [3])
    assert steady.windows(decode.load([str(tmp_path)]), 20) == []
    with pytest.raises(UsageError, match="--steady takes a percentage"):
        steady.windows(decode.load([str(tmp_path)]), 0)


# ---- repeats ----


def test_repeats_have_mean_and_sample_deviation_by_phase(changed: Path, tmp_path: Path) -> None:
    for name, frames in (("b", 16), ("c", 13)):
        for core, at in ((0, 3 * HZ - HZ // 2), (1, 3 * HZ)):
            write_core(tmp_path / name, core, one_core(at, frames), boot_id=(name * 16))
    places = [str(tmp_path / name) for name in "abc"]
    runs = repeats.load(places, [])
    table = repeats.compare([{**summary.summarise(each.run), "load": None} for each in runs], [each.name for each in runs])
    first, second = table["phases"]
    spread = first["figures"]["rx_frames"]
    assert spread["values"] == [32, 34, 28] and spread["mean"] == pytest.approx(94 / 3)
    assert spread["standard_deviation"] == pytest.approx(np.std([32, 34, 28], ddof=1))
    assert second["figures"]["watts"]["mean"] == pytest.approx(10) and second["figures"]["watts"]["standard_deviation"] == pytest.approx(0)
    assert second["figures"]["requests"] == {"mean": None, "standard_deviation": None, "values": [None] * 3}
    text = neap("log", "summary", *places).stdout
    assert "3 runs of equal settings" in text and "deviation" in text


def test_files_of_one_run_are_one_run_and_equal_folders_are_repeats(changed: Path, tmp_path: Path) -> None:
    files = [str(changed / f"core{core}.log") for core in (0, 1)]
    assert len(repeats.load(files, [])) == 1
    for core in (0, 1):
        (tmp_path / f"part{core}").mkdir()
        (tmp_path / f"part{core}/core{core}.log").write_bytes((changed / f"core{core}.log").read_bytes())
    assert len(repeats.load([str(tmp_path / "part0"), str(tmp_path / "part1")], [])) == 1
    assert len(repeats.load([str(changed), str(changed)], [])) == 2


def test_runs_of_other_settings_have_no_mean(changed: Path, tmp_path: Path) -> None:
    synthetic.write(tmp_path / "other", synthetic.Shape(cores=2, records=50, run=9))
    found = [{**summary.summarise(decode.load([place])), "load": None} for place in (str(changed), str(tmp_path / "other"))]
    with pytest.raises(Failure, match="no common mean"):
        repeats.compare(found, ["a", "other"])
