# SPDX-License-Identifier: BSL-1.0
"""Phases are divided at the load's marks. Texts leave preload, warm-up and drain out, and the window of a load's result wins."""

import json
from pathlib import Path

import pytest

from tools.log import decode, load_marks, load_results, phases, repeats, report, steady, summary
from tools.log.by_hand import HZ, mark, record, setting, write_core
from tools.log.decode import INTERRUPT, POLICY, START, STOP, RunLog
from tools.log.load_results import LoadWindow

TENTH = HZ // 10
# Marks by tenths of a second since the run's begin, which lasts 2 s.
USUAL = {0: "preload", 5: "warm_up", 8: "window", 15: "drain", 17: "end"}


def run_of(folder: Path, marks: dict[float, str], changed_at: float | None = None) -> RunLog:
    """Writes a core's log with an interrupt of 3 frames each tenth of a second; `changed_at`: tenth at which itr is set."""
    entries = {HZ: [record(START, HZ) + setting(HZ, 255, 0, itr_us=8)], 3 * HZ: [record(STOP, 3 * HZ)]}
    for tenth in range(1, 20):
        entries.setdefault(HZ + tenth * TENTH, []).append(record(INTERRUPT, HZ + tenth * TENTH, rx_frames=3))
    for tenth, what in marks.items():
        # A mark is 10 us behind an interrupt, or is the run's first entry.
        tsc = HZ + int(tenth * TENTH) + (HZ // 100_000 if tenth > 0 else 0)
        entries.setdefault(tsc, []).append(mark(tsc, what))
    if changed_at is not None:
        tsc = HZ + int(changed_at * TENTH)
        entries.setdefault(tsc, []).append(record(POLICY, tsc, generation=2) + setting(tsc, 1, 0, generation=2, itr_us=50))
    write_core(folder, 0, b"".join(b"".join(each) for _, each in sorted(entries.items())), cores=1)
    return decode.load([str(folder)])


def parts(found: dict) -> list[tuple[str | None, int, bool]]:
    return [(row["load_part"], row["interrupts"], row["in_load_window"]) for row in found["phases"]]


def test_phases_are_divided_at_marks_and_the_text_has_the_window_only(tmp_path: Path) -> None:
    found = summary.summarise(run_of(tmp_path, USUAL))
    assert parts(found) == [
        ("preload", 5, False),
        ("warm_up", 3, False),
        ("window", 7, True),
        ("drain", 2, False),
        (None, 2, False),
    ]
    assert [round(row["seconds"], 4) for row in found["phases"]] == [0.5, 0.3, 0.7, 0.2, 0.3]
    (shown,) = phases.chosen(found)
    assert shown["load_part"] == "window" and shown["requests"] is None and shown["latency_us"] is None
    text = "\n".join(phases.lines(found))
    assert "1.300000 s outside of the load's windows are left out (preload 0.50001 s, warm_up 0.3 s, drain 0.2 s); --json has them" in text
    assert found["configuration"]["marks"][2] == {"seconds": 0.80001, "what": "window"}
    assert found["phase_remarks"] == []


def test_settings_divide_a_marked_window(tmp_path: Path) -> None:
    found = summary.summarise(run_of(tmp_path, USUAL, changed_at=11.5))
    inside = phases.chosen(found)
    assert [(row["load_part"], row["settings"]["itr_us"], row["interrupts"]) for row in inside] == [("window", 8, 3), ("window", 50, 4)]


def test_without_a_window_the_parts_that_are_not_steady_are_left_out(tmp_path: Path) -> None:
    found = summary.summarise(run_of(tmp_path, {0: "preload", 5: "end"}))
    assert [row["load_part"] for row in found["phases"]] == ["preload", None]
    assert [row["interrupts"] for row in phases.chosen(found)] == [14]
    only = summary.summarise(run_of(tmp_path, {0: "preload"}))
    assert len(phases.chosen(only)) == 1, "a run without any other part is shown"
    assert "part of load" in "\n".join(phases.lines(only)) and "preload" in "\n".join(phases.lines(only))


def test_a_run_without_marks_has_no_parts(tmp_path: Path) -> None:
    found = summary.summarise(run_of(tmp_path, {}))
    assert parts(found) == [(None, 19, False)] and "part of load" not in summary.text(found)


def result(folder: Path, *windows: tuple[float, float]) -> Path:
    """Writes a load's result with windows in tenths of a second since the run's begin; the machine's TSC is the client's clock."""
    latency = {"p50_ns": 1000, "p99_ns": 9000}
    runs = [
        {
            "seconds": (end - begin) / 10,
            "began_unix_ns": HZ + int(begin * TENTH),
            "log": {"clock": {"tsc": HZ, "unix_ns": HZ}},
            "loading": {"answered_in_window": 70, "latency": latency},
        }
        for begin, end in windows
    ]
    path = folder / "load.json"
    path.write_text(json.dumps({"runs": runs}))
    return path


def test_the_results_window_wins_and_marks_that_are_a_little_late_do_not_divide_it(tmp_path: Path) -> None:
    run = run_of(tmp_path / "log", {0: "preload", 5: "warm_up", 8.05: "window", 15.05: "drain", 17: "end"})
    found = summary.summarise(run, load_results.read(result(tmp_path, (8, 15)), run))
    assert [(row["load_part"], row["in_load_window"]) for row in found["phases"]] == [
        ("preload", False),
        ("warm_up", False),
        ("window", True),
        ("drain", False),
        (None, False),
    ]
    (inside,) = phases.chosen(found)
    assert (inside["begin"], inside["seconds"]) == (0.8, 0.7) and inside["requests"] == 70 and inside["latency_us"]["p99"] == 9.0
    assert found["phase_remarks"] == []


def test_a_disagreement_of_marks_and_result_is_a_note(tmp_path: Path) -> None:
    run = run_of(tmp_path / "log", USUAL)
    found = summary.summarise(run, load_results.read(result(tmp_path, (9, 14)), run))
    (inside,) = phases.chosen(found)
    assert (inside["begin"], inside["requests"]) == (0.9, 70)
    assert found["phase_remarks"] == [
        "the log's marks have a window from 0.800010 to 1.500010 s, the load's result from 0.900000 to 1.400000 s: the result's is taken"
    ]
    assert found["phase_remarks"][0] in summary.text(found)


def test_windows_that_only_one_of_both_has_are_notes(tmp_path: Path) -> None:
    run = run_of(tmp_path / "log", {2: "window", 5: "drain", 12: "window", 15: "end"})
    found = summary.summarise(run, load_results.read(result(tmp_path, (2, 5), (7, 9)), run))
    assert [row["begin"] for row in phases.chosen(found)] == [0.2, 0.7]
    assert found["phase_remarks"] == [
        "the load's result has a window from 0.700000 to 0.900000 s, and the log's marks have none there",
        "the log's marks have a window from 1.200010 to 1.500010 s, which the load's result has not",
    ]
    assert [row["load_part"] for row in found["phases"] if row["in_load_window"]] == ["window", "drain"]


def test_two_windows_of_a_scan_are_matched_each(tmp_path: Path) -> None:
    run = run_of(tmp_path / "log", {1: "warm_up", 2: "window", 8: "window", 14: "end"})
    found = summary.summarise(run, load_results.read(result(tmp_path, (2, 7.99), (8, 14)), run))
    inside = phases.chosen(found)
    assert [(row["begin"], row["load_part"], row["requests"]) for row in inside] == [(0.2, "window", 70), (0.8, "window", 70)]
    assert found["phase_remarks"] == []


def test_a_result_of_another_time_leaves_the_marks_window(tmp_path: Path) -> None:
    run = run_of(tmp_path / "log", USUAL)
    found = summary.summarise(run, load_results.read(result(tmp_path, (80, 90)), run))
    assert [row["load_part"] for row in phases.chosen(found)] == ["window"] and phases.chosen(found)[0]["requests"] is None
    assert found["phase_remarks"] == ["no window of the load lies in the run, so phases have no latencies"]


def test_a_window_that_was_searched_for_is_not_moved_to_marks(tmp_path: Path) -> None:
    run = run_of(tmp_path, USUAL)
    found = summary.summarise(run, [LoadWindow(HZ + 10 * TENTH, HZ + 14 * TENTH, None, {}, found=True)])
    (inside,) = phases.chosen(found)
    assert (inside["begin"], inside["load_part"]) == (1.0, "window")
    assert [row["load_part"] for row in found["phases"]].count("window") == 3
    assert steady.windows(run, 5) == []


def test_marks_outside_of_the_run_and_unknown_ones_are_bounded(tmp_path: Path) -> None:
    assert load_marks.spans([{"tsc": 5, "what": "window"}], 10, 100)[0].what == "window", "the run begins in a part"
    spans = load_marks.spans([{"tsc": 500, "what": "window"}], 10, 100)
    assert [(span.begin, span.end, span.what) for span in spans] == [(0, 100, None)]
    many = [{"tsc": 10 + number, "what": "7"} for number in range(5000)]
    assert len(load_marks.spans(many, 10, 10_000)) <= load_marks.SPANS_MAX + 1
    found = summary.summarise(run_of(tmp_path, {number / 10: "window" for number in range(1, 190)}))
    assert len(found["phases"]) <= load_marks.SPANS_MAX + 1


def test_the_report_and_repeats_know_marks(tmp_path: Path) -> None:
    for name in "ab":
        run_of(tmp_path / name, USUAL)
    page = report.build(report.load([str(tmp_path / "a")]))
    data = json.loads(page.split('id="data">', 1)[1].split("</script>", 1)[0])
    assert [row["text"] for row in data["runs"][0]["marks"]] == [f"load: {what}" for what in USUAL.values()]
    found = [summary.summarise(decode.load([str(tmp_path / name)])) for name in "ab"]
    table = repeats.compare([{**each, "load": None} for each in found], ["a", "b"])
    (phase,) = table["phases"]
    assert phase["figures"]["interrupts"]["mean"] == 7 and "load_part" not in phase["figures"]


@pytest.mark.parametrize("form", [None, "tsc:u64:ticks kind:u8: what:u8: reserved:u8x2: generation:u32: reserved2:u8x48:"])
def test_a_log_that_does_not_name_the_parts_is_decoded(tmp_path: Path, form: str | None) -> None:
    from tools.log.schema import DEFAULTS

    lines, fields = dict(DEFAULTS["lines"]), dict(DEFAULTS["fields"])
    if form is None:
        # As in a log of an older build, with a kind that it does not know.
        del lines["33"], fields["mark"]
    else:
        fields["mark"] = form
    write_core(tmp_path, 0, record(START, HZ) + mark(HZ, "window") + record(STOP, 2 * HZ), cores=1, lines=lines, fields=fields)
    core = decode.load([str(tmp_path)]).cores[0]
    assert (core.unknown, [row["what"] for row in core.marks]) == ((1, []) if form is None else (0, ["window"]))
