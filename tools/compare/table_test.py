# SPDX-License-Identifier: BSL-1.0
"""The table has each row and arm with its ratio, and the exports have the same numbers."""

from pathlib import Path

import pytest
from pyarrow import parquet

from tools.compare import figures, plan, store, table
from tools.compare.figures import Measured
from tools.model.layers import LAYERS

ARMS = (plan.Arm("Neap", "neap"), plan.Arm("Linux static", "linux"))
PLAN = plan.Plan(
    "title", "e5-2690", (1, 2), 2, 1, ARMS, (plan.Workload("get", "GET 100 B"), plan.Workload("idle", rate=0, window_ms=10)), (), None
)


def run(arm: str, number: int, instructions: float, p99_us: float, cores: int = 1) -> Measured:
    values = {"instructions": instructions, "p99_us": p99_us, "watts": 30.0}
    return Measured("get", arm, cores, number, "request", 100.0, values, {LAYERS[0]: instructions / 4})


MEASURED = [
    run("Neap", 1, 1000, 10),
    run("Neap", 2, 1002, 12),
    run("Linux static", 1, 10_000, 40),
    run("Linux static", 2, 10_020, 48),
    run("Neap", 1, 1100, 9, cores=2),
    Measured("idle", "Neap", 1, 1, "second", 0.1, {"instructions": 5.0, "watts": 11.0}, {}),
]


def line_of(text: str, *words: str) -> str:
    (found,) = [line for line in text.splitlines() if line.split()[: len(words)] == list(words)]
    return found


def test_each_number_of_cores_has_its_tables():
    glance, work, _, latency, *others = table.text(PLAN, figures.cells(MEASURED)).split("\n\n")
    assert line_of(glance, "get", "1").split()[2:] == ["10.00", "/", "4.00", "/", "-"]
    assert line_of(glance, "idle", "1").split()[2:] == ["-"]
    assert work.startswith("1 core: instructions, by layer\n")
    assert others[0].startswith("2 cores: instructions, by layer\n")
    assert line_of(work, "get", "Neap").split()[2:5] == ["1001", "1.00", "250"]
    assert line_of(work, "get", "Linux", "static").split()[3:6] == ["10010", "10.00", "2502"]
    assert line_of(work, "idle", "Neap").endswith("a second")
    # 12.706 * the deviation 1.41 of the mean of two.
    assert "11.0 +-12.7" in line_of(latency, "get", "Neap")
    assert " 4.00 " in line_of(latency, "get", "Linux", "static")
    assert " - " in line_of(latency, "idle", "Neap")


def test_the_page_and_the_table_have_the_same_numbers():
    data = store.for_page(PLAN, figures.cells(MEASURED), ["Linux static: rx_ring 512"], None)
    cell = data["cells"]["get.cores_1"]["Linux static"]
    assert cell["instructions"]["mean"] == 10_010
    assert cell[f"{store.LAYER}{LAYERS[0]}"]["mean"] == 2502.5
    assert [(one["name"], one["cores"], one["unit"]) for one in data["workloads"]] == [
        ("get.cores_1", 1, "request"),
        ("get.cores_2", 2, "request"),
        ("idle.cores_1", 1, "second"),
    ]


def test_one_round_has_no_interval():
    assert store.rounds_text(1, "bars have intervals") == "1 round, so no confidence intervals"
    assert store.rounds_text(3, "bars have intervals") == "3 rounds; bars have intervals"
    data = store.for_page(PLAN, figures.cells(MEASURED), [], None)
    assert data["remarks"] == ["2 rounds; bars have confidence intervals of 95 %"]


def test_parquet_has_a_line_for_each_figure_of_each_run(tmp_path: Path):
    store.write_parquet(MEASURED, tmp_path / "runs.parquet")
    lines = parquet.read_table(tmp_path / "runs.parquet").to_pylist()
    assert len(lines) == sum(len(one.figures) + len(one.layers) for one in MEASURED)
    (found,) = [line for line in lines if (line["arm"], line["round"], line["figure"]) == ("Linux static", 2, "p99_us")]
    assert found["value"] == 48 and found["row"] == "get" and found["each"] == "request"


def test_a_ratio_is_absent_where_the_first_arm_lacks_the_row():
    text = table.text(PLAN, figures.cells([run("Linux static", 1, 10, 1)]))
    assert line_of(text.split("\n\n")[1], "get", "Linux", "static").split()[4] == table.MISSING
    with pytest.raises(ValueError):
        line_of(text, "get", "Neap")
