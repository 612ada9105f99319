# SPDX-License-Identifier: BSL-1.0
"""`./neap tune` on tables and under a day's load: results, output and refusals."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from tools.errors import Failure, UsageError
from tools.study import tune, tune_day, tune_table, twin
from tools.study.published import TABLE_6_1
from tools.study.runs_table import Runs

LINUX_400K = TABLE_6_1[1]


def table(rates=(LINUX_400K,), itr=range(10, 500, 20), ghz=twin.GHZ, noise=0.01, repeats=3) -> list[dict]:
    """Rows of the twin, whose power falls with ITR as in the companion model."""
    found = []
    for of in rates:
        for row in twin.rows(of, 1, noise=noise, itr_us=list(itr), ghz=ghz, repeats=repeats):
            row["power_w"] = (
                100 * of.rate / 4e5 * row["frequency_ghz"] ** 0.9 * row["itr_us"] ** -0.11 * (1 + noise * np.sin(len(found)) / 2)
            )
            found.append(row)
    return found


def write(path: Path, rows: list[dict], drop: tuple[str, ...] = ()) -> str:
    names = [name for name in rows[0] if name not in drop]
    csv.write_csv(pa.table({name: [row.get(name) for row in rows] for name in names}), path)
    return str(path)


def test_a_table_is_searched_by_its_rows(tmp_path: Path, capsys) -> None:
    place = write(tmp_path / "runs.csv", table())
    assert tune.tune([place], sla="500") == 0
    text = capsys.readouterr().out
    assert "best: ITR" in text and "1.2 GHz" in text and "best of the whole table" in text and "J more than the best setting" in text
    assert tune.tune([place], sla="500", as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["trials"]) <= 30 and found["settings"] == 25 * 18
    true = found["optimum"]
    assert found["best"]["cost"] / true["cost"] < 1.02 and found["best"]["latency_us"] <= 500
    assert found["trials"][0]["setting"] == {"itr_us": 10, "frequency_ghz": 2.9}
    assert found["search_j"] == pytest.approx(sum(trial["cost"] * 20 for trial in found["trials"]))
    assert not [trial for trial in found["trials"][5:] if trial["verdict"] == "violates"]


def test_a_further_axis(tmp_path: Path, capsys) -> None:
    rows = []
    for tso, factor in (("off", 1.1), ("chain", 1.0)):
        for row in table(itr=(20, 100, 200, 300), ghz=(1.2, 2.0, 2.9), noise=0.005):
            rows.append({**row, "set_tso": tso, "power_w": row["power_w"] * factor})
    assert tune.tune([write(tmp_path / "runs.csv", rows)], sla="500", as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == 24 and found["best"]["setting"]["set_tso"] == "chain"


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"sla": "60"}, "no setting meets an SLA of 60 us"),
        ({"drop": ("power_w",)}, {}, "column 'power_w' is missing"),
        ({"drop": ("p99_us",)}, {}, "column 'p99_us' is missing"),
        ({"itr": (50,), "ghz": (1.2,)}, {}, "one setting"),
        ({"rates": TABLE_6_1[:2]}, {}, "rows differ in rate_wanted"),
        ({}, {"sla": "0"}, "--sla takes a latency"),
        ({}, {"sla": "fast"}, "--sla takes a latency"),
        ({}, {"sla": "200,500"}, "one limit without --day"),
        ({}, {"guard": 90.0}, "--guard takes"),
        ({}, {"trials": 1}, "--trials takes"),
        ({}, {"itr": "2:8:2"}, "belong to --live"),
        ({}, {"axes": ["tso"]}, "column 'set_tso' is missing"),
        ({}, {"live": True}, "no host is named so|neither an application|nothing answers"),
        ({}, {"model": "e5-2690"}, "--live takes one machine"),
    ],
)
def test_refusals(tmp_path: Path, change: dict, options: dict, message: str) -> None:
    drop = change.pop("drop", ())
    place = write(tmp_path / "runs.csv", table(**{"itr": (50, 200), "ghz": (1.2, 2.9), **change}), drop)
    with pytest.raises((Failure, UsageError), match=message):
        tune.tune([place], **options)


def test_the_nearest_setting_is_named_if_none_meets_the_sla(tmp_path: Path) -> None:
    place = write(tmp_path / "runs.csv", table(itr=(50, 200), ghz=(1.2, 2.9)))
    with pytest.raises(Failure) as refused:
        tune.tune([place], sla="60")
    assert refused.value.hint and "ITR 50 us, 2.9 GHz" in refused.value.hint


def test_rows_without_a_place_on_an_axis_are_counted() -> None:
    rows = [*table(itr=(50, 200), ghz=(1.2, 2.9)), {**table(itr=(50,), ghz=(1.2,))[0], "itr_us": None}]
    names = list(rows[0])
    runs = Runs(pa.table({name: [row.get(name) for row in rows] for name in names}), "rows")
    found, excluded = tune_table.from_runs(runs, "p99_us", "power_w")
    assert len(found.grid) == 4 and [one.rows for one in excluded] == [1] and "itr_us" in excluded[0].reason


def test_a_day_is_tuned_for_each_sla_and_way(tmp_path: Path, capsys) -> None:
    place = write(tmp_path / "runs.csv", table(rates=TABLE_6_1[:2], itr=range(20, 480, 40), ghz=(1.2, 1.6, 2.0, 2.4, 2.9)))
    (tmp_path / "day.csv").write_text("hour,rate\n0,200000\n12,390000\n")
    assert tune.tune([place], sla="400,500", day=str(tmp_path / "day.csv"), trials=12, as_json=True) == 0
    days = json.loads(capsys.readouterr().out)
    assert [(day["sla_us"], day["mode"]) for day in days] == [
        (sla, mode) for sla in (400, 500) for mode in ("ITR alone", "DVFS alone", "both")
    ]
    both = {day["mode"]: day for day in days if day["sla_us"] == 500}
    assert both["both"]["energy_j"] < min(both["ITR alone"]["energy_j"], both["DVFS alone"]["energy_j"])
    assert both["ITR alone"]["hours"][0]["setting"]["frequency_ghz"] == 2.9 and both["DVFS alone"]["hours"][0]["setting"]["itr_us"] == 20
    # A search begins at the setting that takes most.
    assert all(0 < day["additional_j"] < day["energy_j"] for day in days)
    assert both["both"]["hours"][1]["rate_of_table"] == 400_000 and both["both"]["static_j"] > 0
    assert tune.tune([place], sla="500", day=str(tmp_path / "day.csv"), trials=8) == 0
    text = capsys.readouterr().out
    assert "DVFS alone" in text and "nearest rate" in text and "static, SLA 500 us" in text


def test_the_energy_of_a_day(tmp_path: Path) -> None:
    """An hour takes its trials and, for the rest, the power of its result."""
    from tools.study.tune_grid import ITR, axis, product
    from tools.study.tune_live import Measured
    from tools.study.tune_run import search
    from tools.study.tuner import Goal

    def measure(setting, _safe) -> Measured:
        power = 100.0 - setting[ITR]
        return Measured(setting[ITR] + 1.0, power, None, power * 10, 10.0)

    def one(_hour):
        return search(product([axis(ITR, [2, 4, 6])]), Goal(100, trials=3, repeatable=False), measure)

    day = tune_day.day([tune_day.Hour(0, 5.0)], 100.0, "ITR alone", one, 3600.0)
    trials = day.hours[0].search
    assert trials.setting == {ITR: 6} and trials.best_power_w == 94
    spent = sum(10 * (100.0 - trials.grid.setting(trial.place)[ITR]) for trial in trials.trials)
    assert day.energy_j == pytest.approx(spent + 94 * (3600 - 10 * len(trials.trials)))
    assert day.additional_j == pytest.approx(spent - 94 * 10 * len(trials.trials)) and day.additional_j > 0


@pytest.mark.parametrize("text", ["", "hour,rate\n", "0,100\nx,5\n", "0,-1\n1,2\n3,nan\n", "0,1,2\n3,4,5\n"])
def test_a_damaged_trace_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "day.csv").write_text(text)
    with pytest.raises(UsageError, match="--day"):
        tune_day.read_trace(tmp_path / "day.csv")
