# SPDX-License-Identifier: BSL-1.0
"""A comparison for programs: one JSON with all estimates, and a Parquet table with a row for each run, row, arm and figure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tools.compare.figures import FIGURES, Cell, Estimate, Measured, ratio
from tools.compare.folder import VERSION, ResultFolder
from tools.compare.plan import Plan
from tools.log.tables import Making
from tools.machine_list import Difference
from tools.model.layers import LAYERS

RUNS = "runs.parquet"
LAYER = "instructions: "


def document(
    results: ResultFolder, cells: Mapping[tuple[str, int], Mapping[str, Cell]], differences: Mapping[str, list[Difference]]
) -> dict:
    """The content of comparison.json."""
    first = results.plan.arms[0].name
    return {
        "version": VERSION,
        "modelled": True,
        "title": results.plan.title,
        "plan": dataclasses.asdict(results.plan),
        "participants": results.participants,
        "machines": results.machines(),
        "machine_differences": {arm: [_difference(one) for one in found] for arm, found in differences.items()},
        "figures": [dataclasses.asdict(figure) for figure in FIGURES],
        "rows": [
            {
                "row": row,
                "cores": cores,
                "arms": {arm: _cell(cell, found.get(first)) for arm, cell in found.items()},
            }
            for (row, cores), found in cells.items()
        ],
    }


def _difference(one: Difference) -> dict:
    return {**dataclasses.asdict(one), "weight": one.weight.value}


def _cell(cell: Cell, base: Cell | None) -> dict:
    return {
        "each": cell.each,
        "count": cell.count,
        "figures": {name: _estimate(found) for name, found in cell.figures.items()},
        "ratios": {name: found for name in cell.figures if base and (found := ratio(cell, base, name)) is not None},
        "layers": {name: _estimate(found) for name, found in cell.layers.items()},
    }


def _estimate(found: Estimate) -> dict:
    return {"mean": found.mean, "low": found.low, "high": found.high, "rounds": found.rounds}


def write_parquet(measured: Sequence[Measured], path: Path) -> None:
    """One line for each run, row, arm and figure; layers are figures named `instructions: LAYER`."""
    lines = [
        (one.row, one.cores, one.arm, one.round, one.each, one.count, name, float(value))
        for one in measured
        for name, value in [*one.figures.items(), *((f"{LAYER}{name}", value) for name, value in one.layers.items())]
    ]
    names = ("row", "cores", "arm", "round", "each", "count", "figure", "value")
    kinds = (pa.string(), pa.int32(), pa.string(), pa.int32(), pa.string(), pa.float64(), pa.string(), pa.float64())
    columns = {name: pa.array([line[at] for line in lines], kind) for at, (name, kind) in enumerate(zip(names, kinds, strict=True))}
    with Making(path) as making:
        parquet.write_table(pa.table(columns), making, compression="zstd")


def rounds_text(rounds: int, intervals: str) -> str:
    """Says how many rounds there were. `intervals`: how confidence intervals are shown; one round has none."""
    return "1 round, so no confidence intervals" if rounds == 1 else f"{rounds} rounds; {intervals}"


def for_page(
    plan: Plan, cells: Mapping[tuple[str, int], Mapping[str, Cell]], differences: Sequence[str], log_page: str | None
) -> dict[str, Any]:
    """The data of page.build."""
    abouts = {one.name: one.about for one in plan.workloads}
    abouts |= {row: f"{one.about}, {size} bytes" for one in plan.ping_pong for row, size in zip(one.rows(), one.sizes)}
    workloads, found = [], {}
    for (row, cores), arms in cells.items():
        key = f"{row}.cores_{cores}"
        each = next(iter(arms.values())).each
        workloads.append({"name": key, "about": abouts.get(row, row), "cores": cores, "unit": each})
        found[key] = {arm: _page_figures(cell) for arm, cell in arms.items()}
    return {
        "title": plan.title,
        "model": plan.model,
        "arms": [{"name": arm.name, "about": arm.about} for arm in plan.arms],
        "workloads": workloads,
        "cells": found,
        "figures": [{"name": one.name, "title": one.title, "unit": one.unit, "better": one.better} for one in FIGURES],
        "layers": list(LAYERS),
        "machine_differences": list(differences),
        "remarks": [rounds_text(plan.rounds, "bars have confidence intervals of 95 %")],
        "logs": log_page,
    }


def _page_figures(cell: Cell) -> dict[str, Any]:
    layers = {f"{LAYER}{name}": found for name, found in cell.layers.items()}
    return {name: {"mean": one.mean, "low": one.low, "high": one.high} for name, one in {**cell.figures, **layers}.items()}


def read(path: Path) -> dict:
    return json.loads(path.read_text())
