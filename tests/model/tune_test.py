# SPDX-License-Identifier: BSL-1.0
"""`./neap tune --model`: a search whose trials are runs of the model machine."""

import json
from pathlib import Path

from pyarrow import parquet

from tools.study import tune


def test_a_search_on_the_model_machine(tmp_path: Path, capsys) -> None:
    out = tmp_path / "trials.parquet"
    status = tune.tune(
        [],
        model="e5-2690",
        sla="250",
        itr="2,50,100,150,200,300",
        frequency="1.2,2.0,2.9",
        rate=20_000,
        trials=9,
        out=str(out),
        as_json=True,
    )
    found = json.loads(capsys.readouterr().out)
    assert status == 0 and 5 <= len(found["trials"]) <= 9
    first, best = found["trials"][0], found["best"]
    assert first["setting"] == {"itr_us": 2, "frequency_ghz": 2.9} and first["verdict"] == "meets"
    assert best["cost"] < 0.95 * first["cost"] and best["latency_us"] <= 250
    assert found["additional_j"] > 0 and "ends with each trial" in found["machine"]
    table = parquet.read_table(out)
    assert table.num_rows == len(found["trials"]) and set(table.column("modelled").to_pylist()) == {True}
    rows = table.to_pylist()
    assert [row["power_w"] for row in rows] == [trial["cost"] for trial in found["trials"]]
    assert all(row["status"] == "ok" and row["requests"] > 0 and json.loads(row["settings"])["itr"].endswith("us") for row in rows)
