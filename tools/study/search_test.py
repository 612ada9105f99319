# SPDX-License-Identifier: BSL-1.0
"""A search finds the last value that meets the limit, says what stopped it, and how sure it is. The runs are invented."""

import json
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from tools.errors import UsageError
from tools.study import schema, search

STUDY = """
title = "invented"
repeats = 3
window_ms = 100
[[arms]]
name = "Neap"
[settings]
itr_us = { from = 10, to = 1000, step = 10 }
frequency_ghz = [1.2, 2.9]
[[loads]]
name = "etc"
mix = "etc"
rate = 10000
"""
# A worker whose p99 is the interval, and 60 us more at 1.2 GHz, and up to 2 us by the seed; above 700 us the machine does not come up.
WORKER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "prepare" in request:
        answer = {"programs": {"model": {"QEMU": "1"}, "neap": {"neap image": "1"}}}
    else:
        words = dict(word.split("=") for word in request["run"]["words"])
        load = request["run"]["loads"][0]
        p99 = int(words.get("itr", "0us")[:-2]) + 60 * (words.get("pstate") == "12") + request["run"]["seed"] % 3
        p99 += load["rate"] / 1000
        requests = round(load["rate"] * load["window_ms"] / 1e3)
        figures = {"scheduled": requests, "rate_reached": load["rate"], "requests": requests, "window_s": load["window_ms"] / 1e3,
                   "failed_requests": 0, "lost_frames": 0, "p99_us": p99}
        answer = {"results": [{"figures": figures, "histogram": [[p99 / 2, 99], [p99, 1]], "log": None}]}
        if p99 > 700:
            answer = {"error": {"message": "the machine did not come up", "hint": None}}
    print(json.dumps(answer), flush=True)
"""


def run(folder: Path, kind: str, sla: str = "p99<500us", study: str = STUDY) -> dict:
    (folder / "study.toml").write_text(study)
    (folder / "rigs.toml").write_text(f"[[rigs]]\nname = 'here'\ncommand = {json.dumps([sys.executable, '-c', WORKER])}\n")
    out = folder / "out"
    assert search.search(kind, str(folder / "study.toml"), sla, str(out), None, str(folder / "rigs.toml"), "machines.toml", False) == 0
    return {one["combination"]: one for one in json.loads((out / search.RESULT).read_text())["found"]}


def test_itr_max_finds_the_boundary_with_few_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    found = run(tmp_path, "itr-max")
    slow, fast = (found[f"Neap, frequency_ghz={ghz}, etc at 10000/s"] for ghz in (1.2, 2.9))
    assert list(found.values()) == [slow, fast], "in the file's order"
    # p99 is 491 us at 480 us, and 501 us at 490 us.
    assert (fast["best"]["value"], fast["stopped_by"]["value"]) == (480, 490)
    assert (slow["best"]["value"], slow["stopped_by"]["value"]) == (420, 430)
    assert fast["measured"] <= 2 + 7 and 0.5 < fast["best"]["sure"] <= 1
    assert fast["best"]["above"] == 0 and fast["stopped_by"]["above"] == pytest.approx(0.01 * 2 / 3)
    said = capsys.readouterr().out
    assert "itr_us 480 is the last that meets p99 < 500 us (491.0 +- 2.5 us, 3 repeats, 99." in said
    assert "490 stopped it: 501.0 +- 2.5 us, 3 repeats, 88." in said
    rows = parquet.read_table(tmp_path / "out" / schema.RUNS).to_pylist()
    assert len(rows) == 3 * (slow["measured"] + fast["measured"]), "the search's runs are runs of the study"


def test_a_second_search_measures_only_what_is_new(tmp_path: Path):
    first = run(tmp_path, "itr-max")
    rows = parquet.read_table(tmp_path / "out" / schema.RUNS).num_rows
    again = run(tmp_path, "itr-max")
    assert first == again and parquet.read_table(tmp_path / "out" / schema.RUNS).num_rows == rows


def test_a_machine_that_does_not_come_up_stops_the_search(tmp_path: Path):
    found = run(tmp_path, "itr-max", sla="p99<5ms")
    fast = found["Neap, frequency_ghz=2.9, etc at 10000/s"]
    assert fast["stopped_by"]["failure"] == "the machine did not come up" and fast["best"]["value"] == 680


def test_a_search_that_nothing_stopped_and_one_that_could_not_begin_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    small = STUDY.replace("{ from = 10, to = 1000, step = 10 }", "[20, 30]")
    run(tmp_path, "itr-max", study=small)
    assert "nothing stopped the search, it is the last value of the file" in capsys.readouterr().out
    run(tmp_path, "itr-max", sla="p99<50us", study=small)
    assert "not even itr_us 20 meets p99 < 50 us: 91.0 +- 2.5 us" in capsys.readouterr().out


def test_peak_rate_over_other_settings(tmp_path: Path):
    study = STUDY.replace("{ from = 10, to = 1000, step = 10 }", "[16]").replace("rate = 10000", "rate = [100000, 300000, 420000, 450000]")
    found = run(tmp_path, "peak-rate", study=study.replace("frequency_ghz = [1.2, 2.9]", "tso = ['off', 'chain']\nrsc = [true, false]"))
    assert len(found) == 4
    assert {one["best"]["value"] for one in found.values()} == {450000}


def test_rapl_min_goes_down(tmp_path: Path):
    values = search.Bisection("x", sorted([30.0, 60.0, 90.0], reverse=True))
    seen = []
    while (value := values.next()) is not None:
        seen.append(value)
        values.take(search.Verdict(value, value >= 60, (1.0,)))
    assert seen == [90.0, 30.0, 60.0] and values.best and values.best.value == 60 and values.stop and values.stop.value == 30


def test_one_repeat_is_said_to_say_little():
    verdict = search.judge(1, [{"row": {"p99_us": 400.0}, "histogram": []}], [""], search.Limit.read("p99<500us"))
    assert verdict.meets and verdict.sure is None and "one repeat says nothing about others" in verdict.text


@pytest.mark.parametrize("sla", ["p99", "p98<5us", "p99<0us", "p99>5us", "p99<5s"])
def test_a_wrong_limit_is_named(tmp_path: Path, sla: str):
    with pytest.raises(UsageError, match="--sla takes a limit like 'p99<500us'"):
        run(tmp_path, "itr-max", sla=sla)


def test_a_search_without_its_axis_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match="line 7: rapl-min searches over rapl_w; add it"):
        run(tmp_path, "rapl-min")
    assert not (tmp_path / "out").exists()
