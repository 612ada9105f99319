# SPDX-License-Identifier: BSL-1.0
"""`./neap pareto`: its tables, JSON and CSV say the same; wrong options end before anything is read."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from pyarrow import parquet

from tools.errors import Failure, UsageError
from tools.study import fronts_test, pareto, schema


@pytest.fixture
def place(tmp_path: Path) -> str:
    derived = {"instructions": 2e9, "cycles": 2.5e9, "energy_j": 4.0, "c0": 0.5}
    given = fronts_test.rows(3, **derived) + fronts_test.rows(3, seed=2, arm="Linux", **derived)
    given.append({**given[0], "status": "failed"})
    parquet.write_table(schema.runs_table(given), tmp_path / schema.RUNS)
    return str(tmp_path)


def run(capsys: pytest.CaptureFixture[str], place: str, **options) -> str:
    assert pareto.pareto([place], **{"replicates": 50, **options}) == 0
    return capsys.readouterr().out


def table(capsys: pytest.CaptureFixture[str], place: str, name: str, **options) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run(capsys, place, as_csv=True, table=name, **options))))


def test_all_outputs_have_the_same_figures(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, place, as_json=True, sla="100,300"))
    assert document["excluded"] == [{"reason": "the run failed", "rows": 1}]
    linux = document["groups"][0]
    assert linux["group"] == {"arm": "Linux"} and len(linux["settings"]) == 20
    members = [linux["settings"][at] for at in linux["front"]]
    assert all(one["on_front"] for one in members) and sum(one["on_front"] for one in linux["settings"]) == len(members)
    front = [line for line in table(capsys, place, "front") if line["arm"] == "Linux"]
    assert [float(line["energy_uj"]) for line in front] == [one["energy_uj"] for one in members]
    assert [float(line["on_front_share"]) for line in front] == [one["on_front_share"] for one in members]
    assert len(table(capsys, place, "settings")) == 40
    band = [line for line in table(capsys, place, "band") if line["arm"] == "Linux"]
    assert [float(line["least_energy_uj"]) for line in band] == [one["least_energy_uj"] for one in linux["band"]]
    assert float(band[-1]["least_energy_uj"]) == members[-1]["energy_uj"]
    best = [line for line in table(capsys, place, "best", sla="100,300") if line["arm"] == "Linux"]
    assert [line["choice"] for line in best] == (["best", "second_best", "itr_alone"] + ["dvfs_alone"] * 5) * 2
    for sla, one in zip((100, 300), linux["best"]):
        line = next(line for line in best if float(line["sla_us"]) == sla and line["choice"] == "itr_alone")
        assert float(line["loss"]) == one["itr_alone"]["loss"] and float(line["loss_low"]) == one["itr_alone"]["loss_low"]
        setting = linux["settings"][one["itr_alone"]["setting"]]
        assert (float(line["itr_us"]), float(line["frequency_ghz"])) == (setting["itr_us"], setting["frequency_ghz"])


def test_text(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, place, sla="1,300", default_itr=50.0)
    document = json.loads(run(capsys, place, as_json=True, sla="1,300", default_itr=50.0))
    neap = document["groups"][1]
    assert f"front of Neap: {len(neap['front'])} of 20 settings" in shown and "from 50 replicates of 3 repeats" in shown
    assert "IPC" in shown and "non-idle" in shown and "instr/J" in shown
    assert "Neap        1" in shown and "no setting is within this SLA" in shown
    at_default = next(one["choice"] for one in neap["best"][1]["dvfs_alone"] if one["itr_us"] == 50)
    losses = shown.split("additional energy of simpler choices")[1].split("\n\n")[0].splitlines()
    line = next(line for line in losses if line.startswith("Neap"))
    assert f"{100 * at_default['loss']:+.1f} %" in line and line.endswith(" at 50")
    assert "1 rows are left out: the run failed" in shown
    assert "settings with fewer than 10 repeats: their scatter is taken from all settings of the group (Linux; Neap)" in shown
    assert "-0.0 %" not in shown


def test_without_repeats(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, place, where="repeat = 1")
    assert "there are no bands" in shown and "[" not in shown.split("left out")[0] and "nan" not in shown
    document = json.loads(run(capsys, place, where="repeat = 1", as_json=True))
    assert document["groups"][0]["band"][0]["low_uj"] is None


def test_nothing_left(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no row left" in run(capsys, place, where="status = 'failed'")
    slow = tmp_path / "slow.csv"
    slow.write_text("arm,itr_us,frequency_ghz,p99_us,energy_uj,rate_wanted,rate_reached\nNeap,10,2.9,50,100,1000,900\n")
    shown = run(capsys, str(slow))
    assert "there is no row left" in shown and "SLA" not in shown
    assert re.search(r"^1 rows are left out: .*rate.*--keep-saturated.* \(Neap\)$", shown, re.MULTILINE)
    with pytest.raises(Failure, match="--where: none of the 121 rows fulfils it"):
        run(capsys, place, where="itr_us > 1e6")


def test_other_percentiles(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Failure, match="the column 'p50_us' has no value"):
        run(capsys, place, latency="p50_us")
    assert "EDP" in run(capsys, place, latency="energy_j")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sla": "fast"}, "--sla takes latencies"),
        ({"sla": "100,-1"}, "--sla takes latencies"),
        ({"sla": ""}, "--sla takes latencies"),
        ({"sure": 0.2}, "--sure takes a share"),
        ({"replicates": -1}, "--replicates takes"),
        ({"as_json": True, "as_csv": True}, "one of them"),
    ],
)
def test_usage(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pareto.pareto(["/nowhere"], **options)
