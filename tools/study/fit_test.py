# SPDX-License-Identifier: BSL-1.0
"""`./neap fit`: its tables, JSON, CSV and residuals say the same; rows and models that are left out are named with their reason."""

import csv
import io
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from tools.errors import Failure, UsageError
from tools.study import closed_loop_test, fit, schema, twin
from tools.study.closed_loop_test import GHZ, ITR_US, LINK, Z_US
from tools.study.published import TABLE_6_1, Published

LINUX, EBBRT = TABLE_6_1[1], TABLE_6_1[4]


def study(folder: Path, rows: list[dict]) -> str:
    folder.mkdir(exist_ok=True)
    parquet.write_table(schema.runs_table(rows), folder / schema.RUNS)
    return str(folder)


def small(of: Published, seed: int = 1, **changes) -> list[dict]:
    return [{**row, **changes} for row in twin.rows(of, seed, itr_us=(50, 100, 200, 400), ghz=(1.2, 1.7, 2.3, 2.9), repeats=2)]


def run(capsys: pytest.CaptureFixture[str], *places: str, **options) -> str:
    assert fit.fit(places, **{"replicates": 50, **options}) == 0
    return capsys.readouterr().out


def test_all_outputs_have_the_same_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = study(tmp_path / "s", small(LINUX) + small(EBBRT))
    document = json.loads(run(capsys, place, as_json=True))
    assert [group["group"] for group in document["groups"]] == [{"arm": "EbbRT"}, {"arm": "Linux"}]
    of_json = {one["model"]: one["parameters"] for one in document["groups"][1]["fits"]}
    assert set(of_json) == {"6.1", "6.2", "6.3", "6.4", "power"}
    lines = list(csv.DictReader(io.StringIO(run(capsys, place, as_csv=True))))
    z = next(line for line in lines if line["arm"] == "Linux" and line["model"] == "6.3" and line["parameter"] == "Z")
    found = of_json["6.3"]["Z"]
    assert [float(z[name]) for name in ("value", "low", "high")] == [found["value"], found["low"], found["high"]]
    assert z["rows"] == "32" and z["settings"] == "16"
    shown = run(capsys, place)
    line = next(line for line in shown.split("6.3  latency")[1].splitlines() if line.startswith("Linux"))
    assert line.split()[1].startswith(f"{found['value']:.0f}"[:2]) and " 32 " in line
    assert found["value"] == pytest.approx(LINUX.z, rel=0.1)
    assert "log gamma" in shown and "b " in shown


def test_left_out_rows_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = small(LINUX)
    odd = [
        {**rows[0], "status": "failed"},
        {**rows[0], "load": schema.POLLING_BASELINE},
        {**rows[0], "rate_reached": 0.98 * rows[0]["rate_wanted"], "p99_us": 1e6},
        {**rows[0], "itr_us": None, "p99_us": 1e6},
        {**rows[0], "frequency_ghz": None, "p99_us": 1e6},
        {**rows[0], "p99_us": None},
        {**rows[0], "p99_us": 0.0},
    ]
    whole = study(tmp_path / "whole", rows)
    place = study(tmp_path / "odd", rows + odd)
    shown = run(capsys, place)
    for said in (
        "1 rows are left out: the run failed",
        "1 rows are left out: a baseline without requests",
        "1 rows are left out: less than 99 % of the wanted rate was reached",
        "1 rows are left out: ITR is adaptive or not known",
        "1 rows are left out: the frequency is a governor's or not known",
        "2 rows are left out: p99_us is not known or not positive",
    ):
        assert said in shown
    same = [json.loads(run(capsys, each, as_json=True))["groups"][0]["fits"] for each in (whole, place)]
    assert same[0] == same[1]
    kept = json.loads(run(capsys, place, as_json=True, keep_saturated=True))["groups"][0]["fits"][0]
    assert kept["model"] == "6.3" and kept["rows"] == 33


def test_models_that_are_not_determined_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = study(tmp_path / "s", [row for row in small(LINUX, energy_j=None) if row["frequency_ghz"] < 2])
    shown = run(capsys, place)
    assert "6.3 is not fitted: 2 distinct frequencies; the exponent of f needs 3 (Linux)" in shown
    assert "6.4 is not fitted: no row has energy_j and interrupts, and an ITR above 0 (Linux)" in shown
    assert "6.2  latency = t_work(f) + phi * ITR" in shown and "6.3  latency" not in shown


def test_further_settings_make_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two idle states are two groups; in one fit their difference would count as noise."""
    slower = [{**row, "p99_us": row["p99_us"] + 100} for row in small(LINUX, idle="c6")]
    document = json.loads(run(capsys, study(tmp_path / "s", small(LINUX, idle="c1") + slower), as_json=True))
    assert [group["group"] for group in document["groups"]] == [{"idle": "c1"}, {"idle": "c6"}]
    assert all(group["fits"][0]["residual_spread"] < 0.03 for group in document["groups"])
    one = json.loads(run(capsys, str(tmp_path / "s"), as_json=True, by="arm"))
    assert len(one["groups"]) == 1 and one["groups"][0]["fits"][0]["residual_spread"] > 0.1


def test_residuals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = study(tmp_path / "s", small(LINUX))
    run(capsys, place, residuals=str(tmp_path / "r.csv"))
    lines = [line for line in csv.DictReader((tmp_path / "r.csv").open()) if line["model"] == "6.3"]
    assert len(lines) == 32
    for line in lines:
        measured, predicted = float(line["measured"]), float(line["predicted"])
        assert float(line["residual"]) == pytest.approx(measured / predicted - 1, abs=1e-3)
    energy = [line for line in csv.DictReader((tmp_path / "r.csv").open()) if line["model"] == "6.4"]
    assert all(0.8 < float(line["measured"]) / float(line["predicted"]) < 1.2 for line in energy)


def net_pipe(watts: tuple[float, float, float] = (15.0, 4.0, 28.0)) -> list[dict]:
    rows = []
    for number in Z_US:
        one = closed_loop_test.made(number, watts)
        for itr, ghz, us, uj in zip(one.times.itr_us, one.times.ghz, one.times.value, one.energy_uj):  # type: ignore[arg-type]
            rows.append({"arm": "Neap", "load": f"ping_pong.{number}", "itr_us": itr, "frequency_ghz": ghz, "p50_us": us, "energy_uj": uj})
    return rows


def test_ping_pong_rows_have_the_closed_loops_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = net_pipe()
    assert len(rows) == len(Z_US) * len(ITR_US) * len(GHZ)
    place = study(tmp_path / "s", rows + small(LINUX, p50_us=1.0))
    document = json.loads(run(capsys, place, as_json=True, by="arm", link_delay_us=LINK.delay_us))
    models = {group["group"]["arm"]: [one["model"] for one in group["fits"]] for group in document["groups"]}
    sizes = ("64 bytes", "8192 bytes", "65536 bytes")
    assert models["Neap"] == [*(f"6.5, {size}" for size in sizes), "6.6", *(f"longer, {size}" for size in sizes), "6.6, longer"]
    assert "6.3" in models["Linux"]
    energy = next(one for one in document["groups"][1]["fits"] if one["model"] == "6.6")
    assert [energy["parameters"][name]["value"] for name in ("CFa", "CFb", "CFc")] == pytest.approx([15, 4, 28], rel=1e-2)
    shown = run(capsys, place, link_delay_us=LINK.delay_us)
    assert "6.6  round trip = 2 (CFa t_wait + CFb t_tx + CFc t_work)" in shown and "6.5, 64 bytes" in shown


def test_usage(tmp_path: Path) -> None:
    place = study(tmp_path / "s", small(LINUX))
    for options, message in (
        ({"replicates": -1}, "--replicates takes 0 to"),
        ({"link_gbps": 0.0}, "--link-gbps takes"),
        ({"as_json": True, "as_csv": True}, "one of them"),
        ({"by": "color"}, "there is no column 'color'"),
    ):
        with pytest.raises(UsageError, match=message):
            fit.fit([place], **options)  # type: ignore[arg-type]
    with pytest.raises(Failure, match="the column 'p999_us' has no value"):
        fit.fit([place], latency="p999_us")
    with pytest.raises(Failure, match="the column 'frequency_ghz' is missing"):
        (tmp_path / "t.csv").write_text("itr_us,p99_us\n1,2\n")
        fit.fit([str(tmp_path / "t.csv")])
