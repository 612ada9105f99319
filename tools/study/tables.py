# SPDX-License-Identifier: BSL-1.0
"""The tables of a study's folder: checks of each run, baselines beside the runs with the same settings, and the Parquet files."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyarrow import parquet

from tools.log.tables import Making
from tools.study import plan, schema
from tools.study.folder import LOG, RUNS, StudyFolder
from tools.study.plan import Run
from tools.study.schema import FAILED, OK
from tools.study.study_file import Message, Study

# The rate is answered requests of the window. So many more or fewer may be in flight at its end than at its begin, for each core.
IN_FLIGHT_A_CORE = 16


def failure_of(content: Mapping[str, Any], run: Run, study: Study) -> str:
    """Returns what is wrong with a run by the study's checks; empty if nothing is. `content`: run.json."""
    if content.get("failure"):
        return str(content["failure"])
    row, checks = content["row"], study.checks
    if row["failed_requests"]:
        return f"{row['failed_requests']} requests failed"
    if checks.no_losses and row["lost_frames"]:
        return f"{row['lost_frames']} frames were lost"
    if isinstance(run.load, Message) or run.load.is_idle:
        return ""
    if not row["requests"]:
        return "no request was answered"
    wanted, reached = content["scheduled"] / row["window_s"], row["rate_reached"]
    slack = max(checks.rate_within * wanted, IN_FLIGHT_A_CORE * run.cores / row["window_s"])
    if checks.rate_within and abs(reached - wanted) > slack:
        return f"{reached:.0f} requests/s were answered of {wanted:.0f} scheduled ones"
    logged = content.get("log_requests")
    # Linux's log counts no requests.
    if checks.log_is_load and not run.arm.is_linux:
        if logged is None:
            return "the log has no number of requests"
        if abs(logged - row["requests"]) > checks.rate_within * row["requests"] + run.load.connections * run.load.depth:
            return f"the log has {logged} requests, the load {row['requests']}"
    return ""


def rows(folder: StudyFolder, names: Mapping[str, Run], study: Study, known: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row for each run that has ended, in the order of the plan. `known`: run.json by name."""
    found = []
    for name, run in names.items():
        if name not in known:
            continue
        content = known[name]
        failure = failure_of(content, run, study)
        has_log = (folder.path / RUNS / name / LOG).is_dir()
        found.append(
            {
                **content.get("row", {}),
                **plan.columns(name, run, study),
                "status": FAILED if failure else OK,
                "failure": failure or None,
                "started": datetime.datetime.fromtimestamp(content["started"], datetime.UTC),
                "took_s": content["took_s"],
                "log": f"{RUNS}/{name}/{LOG}" if has_log else None,
            }
        )
    _add_baselines(found, names)
    return found


def _add_baselines(found: list[dict[str, Any]], names: Mapping[str, Run]) -> None:
    """Gives each row the power of its baselines: those of the same arm, cores and repeat whose settings are among its own."""
    power: dict[tuple, float] = {}
    for row in found:
        if row["load"] in schema.BASELINES and row["status"] == OK and row.get("power_w") is not None:
            power[row["load"], *_machine(names[row["run"]], row["load"])] = row["power_w"]
    for row in found:
        for load, column in zip(schema.BASELINES, ("idle_w", "polling_w"), strict=True):
            row[column] = power.get((load, *_machine(names[row["run"]], load)))


def _machine(run: Run, baseline: str) -> tuple:
    """Returns what a baseline has in common with the runs beside it."""
    without = {"itr_us", *(("idle",) if baseline == schema.POLLING_BASELINE else ())}
    kept = {name: value for name, value in run.swept.items() if name not in without}
    return run.arm.name, run.cores, run.repeat, json.dumps(kept, sort_keys=True)


def write(folder: StudyFolder, found: list[dict[str, Any]], known: Mapping[str, Mapping[str, Any]], study: Study) -> None:
    """Replaces both Parquet files, each in one step."""
    table = schema.runs_table(found, plan.other_axes(study))
    histograms = schema.histograms_table({row["run"]: known[row["run"]].get("histogram") or [] for row in found})
    for name, made in ((schema.RUNS, table), (schema.HISTOGRAMS, histograms)):
        with Making(Path(folder.path / name)) as making:
            parquet.write_table(made, making, compression="zstd")
