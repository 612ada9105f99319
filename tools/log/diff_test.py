# SPDX-License-Identifier: BSL-1.0
"""`./neap log diff` names every difference of two runs and no other, says in one sentence that runs are equal, and escapes their texts."""

import json
from pathlib import Path

from tools.conftest import neap
from tools.log import diff, layout, synthetic
from tools.log.decode import INTERRUPT, START, STOP
from tools.log.phases_test import HZ, one_core, record, settings, write_core


def test_equal_runs_are_equal_in_one_sentence(tmp_path: Path) -> None:
    for name in "ab":
        synthetic.write(tmp_path / name, synthetic.Shape(cores=2, records=200, run=ord(name)))
    done = neap("log", "diff", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1 and "are equal" in done.stdout


def test_differences_of_header_settings_changes_and_figures_are_named(tmp_path: Path) -> None:
    # The member `card` is of a later version: it is compared although this version does not know it.
    write_core(tmp_path / "a", 0, one_core(3 * HZ, 10), cores=1, cpu="One CPU", card={"rx_ring": 512, "rsc": "off"})
    write_core(
        tmp_path / "b", 0, one_core(3 * HZ + 500, 15), cores=1, cpu="Two CPU", card={"rx_ring": 1024, "rsc": "off"}, boot_id="1" * 16
    )
    found = json.loads(neap("log", "diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json").stdout)
    assert found["configuration"] == [
        {"name": "cpu", "first": "One CPU", "second": "Two CPU"},
        {"name": "card.rx_ring", "first": 512, "second": 1024},
    ]
    assert found["settings_at_start"] == [] and found["equal"] is False
    (change,) = found["changes"]
    assert change["first"] == {"seconds": 2.0, "change": "itr=50us", "cores": [0]} and change["second"]["seconds"] == 2.0000005
    frames = next(row for row in found["figures"] if row["name"] == "rx_frames")
    assert frames == {"name": "rx_frames", "first": 51, "second": 76, "difference": 25, "relative": 25 / 51}
    assert any(row["name"] == "phase 2: frames_per_interrupt" and row["difference"] == 20.0 for row in found["figures"])
    text = diff.text(found)
    assert "card.rx_ring" in text and "card.rsc" not in text and "+49.020 %" in text and "itr=50us" in text


def test_settings_at_the_start_are_compared(tmp_path: Path) -> None:
    for name, itr in (("a", 8), ("b", 16)):
        write_core(tmp_path / name, 0, record(START, HZ) + settings(HZ, 1, 255, itr) + record(STOP, 2 * HZ), cores=1)
    found = diff.compare(str(tmp_path / "a"), str(tmp_path / "b"))
    assert found["settings_at_start"] == [{"name": "itr_us", "first": 8, "second": 16}] and found["configuration"] == []
    assert "all figures are equal" in diff.text(found)


def test_other_types_of_entries_are_one_line(tmp_path: Path) -> None:
    for name, is_other in (("a", False), ("b", True)):
        more = {} if not is_other else {"idle_states": ["halt", "c1"], "settings": {"0": "idle:idle_state:choice"}}
        write_core(tmp_path / name, 0, record(START, HZ) + record(STOP, 2 * HZ), cores=1, **more)
    found = diff.compare(str(tmp_path / "a"), str(tmp_path / "b"))
    assert {row["name"].split(".")[0] for row in found["configuration"]} == {"idle_states", "settings"}
    assert [line for line in diff.text(found).splitlines() if "idle_states" in line or "settings.1" in line] == []
    assert f"{len(found['configuration'])} members differ" in diff.text(found)


def test_runs_with_other_numbers_of_phases_are_compared_as_a_whole(tmp_path: Path) -> None:
    write_core(tmp_path / "a", 0, one_core(3 * HZ, 10), cores=1)
    write_core(tmp_path / "b", 0, record(START, HZ) + record(INTERRUPT, 2 * HZ, rx_frames=3) + record(STOP, 3 * HZ), cores=1)
    text = diff.text(diff.compare(str(tmp_path / "a"), str(tmp_path / "b")))
    assert "figures of phases are not compared" in text and "phase 1:" not in text and "interrupts" in text


def test_hostile_texts_are_escaped(tmp_path: Path) -> None:
    for name, text in (("a", "calm"), ("b", "\x1b]0;owned\x07")):
        about = {**synthetic.about(synthetic.Shape(cores=1, tsc_hz=HZ), 0), "later\x1b[2J": text, "deep": {"\u202e": {"x": [1, text]}}}
        (tmp_path / name).mkdir()
        (tmp_path / name / "core0.log").write_bytes(layout.build_header(0, 0, 0, 0, HZ, about))
    text = diff.text(diff.compare(str(tmp_path / "a"), str(tmp_path / "b")))
    assert "owned" in text and all(letter.isprintable() or letter == "\n" for letter in text)
