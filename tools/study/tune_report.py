# SPDX-License-Identifier: BSL-1.0
"""The results of `./neap tune` as text and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tools.bench.rows import aligned
from tools.study.runs_table import Excluded
from tools.study.tune_day import HOUR_SECONDS, Day
from tools.study.tune_grid import Grid, Value, shown
from tools.study.tune_live import Measured
from tools.study.tune_run import Search
from tools.study.tune_table import Optimum, Table
from tools.study.tuner import POWER, Trial

UNITS = {POWER: "W"}
HEAD = ("trial", "why", "latency us", "cost", "verdict")
SETTING_WIDTH = 34


@dataclasses.dataclass(frozen=True)
class Report:
    source: str
    latency: str
    cost: str
    parked: str = ""

    @property
    def unit(self) -> str:
        return UNITS.get(self.cost, "uJ a request")


def _unit(cost: str) -> str:
    return "W" if cost == POWER else "uJ"


def trial_head(cost: str) -> str:
    return f"{'trial':>5}  {'why':<9}  {'setting':<{SETTING_WIDTH}}  {'latency us':>10}  {_unit(cost):>9}  verdict"


def trial_line(grid: Grid, trial: Trial, one: Measured, cost: str) -> str:
    latency = "-" if trial.latency_us is None else f"{trial.latency_us:.1f}"
    spent = "-" if trial.cost is None else f"{trial.cost:.3f}"
    remarks = ", ".join(([one.failure] if one.failure else []) + (["ended early"] if one.ended_early else []))
    setting = shown(grid.setting(trial.place))
    verdict = trial.verdict + (f" ({remarks})" if remarks else "")
    return f"{trial.number:>5}  {trial.why:<9}  {setting:<{SETTING_WIDTH}}  {latency:>10}  {spent:>9}  {verdict}"


def text(report: Report, found: Search, optimum: Optimum | None, excluded: Sequence[Excluded], *, with_trials: bool = True) -> str:
    goal = found.goal
    lines = []
    if with_trials:
        lines += [trial_head(report.cost)]
        lines += [trial_line(found.grid, trial, one, report.cost) for trial, one in zip(found.trials, found.measured, strict=True)]
    lines.append(f"{len(found.trials)} trials of {len(found.grid):,} settings of {report.source}; it ended because {found.ended_because}")
    if found.setting is None:
        lines.append(found.refusal())
    else:
        cost = _mean_cost(found)
        lines.append(
            f"best: {shown(found.setting)}; {report.latency} {_best_latency(found):.1f} us for an SLA of {goal.sla_us:g} us, "
            f"{cost:.3f} {report.unit}"
        )
    violations = [trial.number for trial in found.trials if trial.verdict == "violates"]
    above = f"trials {', '.join(map(str, violations))} were measured above the SLA" if violations else "no trial was measured above the SLA"
    lines.append(f"{above}; guard band {100 * goal.guard:g} %")
    if found.additional_j is not None:
        lines.append(
            f"the search took {found.energy_j:.3f} J in {found.seconds:g} s of trials, "
            f"{found.additional_j:.3f} J more than the best setting"
        )
    if optimum is not None:
        excess = "" if found.best is None else f"; the result takes {100 * _excess(found, optimum):.2f} % more"
        lines.append(
            f"best of the whole table: {shown(optimum.setting)}, {optimum.latency_us:.1f} us, {optimum.cost:.3f} {report.unit}{excess}"
        )
    if report.parked:
        lines.append(report.parked)
    lines += [f"{one.rows} rows are left out: {one.reason}" for one in excluded]
    return "\n".join(lines)


def _mean_cost(found: Search) -> float:
    return float(np.mean([trial.cost for trial in found.trials if trial.place == found.best and trial.cost is not None]))


def _best_latency(found: Search) -> float:
    return float(np.mean([trial.latency_us for trial in found.trials if trial.place == found.best and trial.latency_us is not None]))


def _excess(found: Search, optimum: Optimum) -> float:
    """Of the measured means, so noise may make it negative."""
    return _mean_cost(found) / optimum.cost - 1


def json_text(report: Report, found: Search, optimum: Optimum | None, excluded: Sequence[Excluded]) -> str:
    document: dict[str, Any] = {
        "source": report.source,
        "latency": report.latency,
        "cost": report.cost,
        "sla_us": found.goal.sla_us,
        "guard": found.goal.guard,
        "settings": len(found.grid),
        "trials": [
            {
                "number": trial.number,
                "why": trial.why,
                "setting": found.grid.setting(trial.place),
                "latency_us": trial.latency_us,
                "cost": trial.cost,
                "verdict": trial.verdict,
                "ended_early": one.ended_early,
                "failure": one.failure or None,
                "energy_j": one.energy_j,
                "seconds": one.seconds,
            }
            for trial, one in zip(found.trials, found.measured, strict=True)
        ],
        "ended_because": found.ended_because,
        "best": None
        if found.setting is None
        else {"setting": found.setting, "latency_us": _best_latency(found), "cost": _mean_cost(found)},
        "refusal": None if found.setting is not None else found.refusal(),
        "search_j": found.energy_j,
        "additional_j": found.additional_j,
        "optimum": None if optimum is None else dataclasses.asdict(optimum),
        "machine": report.parked or None,
        "excluded": [dataclasses.asdict(one) for one in excluded],
    }
    return json.dumps(document, indent=1)


def static_of(tables: Sequence[Table], sla_us: float) -> tuple[Mapping[str, Value], float] | None:
    """The setting that meets the SLA in all hours with the least sum of power, and that sum; None if there is none. `tables`: one for each
    hour."""
    candidates: dict[tuple, list[float]] = {}
    for table in tables:
        for at in np.flatnonzero(table.mean_latency <= sla_us):
            key = tuple(table.grid.setting(int(at)).items())
            candidates.setdefault(key, []).append(float(table.mean_cost[at]))
    sums = {key: sum(powers) for key, powers in candidates.items() if len(powers) == len(tables)}
    if not sums:
        return None
    best = min(sums, key=lambda key: sums[key])
    return dict(best), sums[best]


def day_text(days: Sequence[Day], nearest: Mapping[float, float], excluded: Sequence[Excluded]) -> str:
    cells = [("SLA us", "tuned", "kWh a day", "of it the search", "static kWh", "against static", "above SLA", "hours without a result")]
    for day in days:
        energy, static = day.energy_j, day.static_j
        cells.append(
            (
                f"{day.sla_us:g}",
                day.mode,
                "-" if energy is None else f"{energy / 3.6e6:.4f}",
                f"{day.additional_j / 3.6e6:.4f}",
                "-" if static is None else f"{static / 3.6e6:.4f}",
                "-" if static is None or energy is None else f"{100 * (energy / static - 1):+.2f} %",
                str(day.violations),
                str(day.without_result),
            )
        )
    hours = len(days[0].hours) if days else 0
    notes = [
        f"{hours} hours, each of {HOUR_SECONDS:g} s and with a search of its own; `of it the search`: what trials took beyond their result"
    ]
    notes += [f"static, SLA {day.sla_us:g} us: {day.static_setting}" for day in days if day.static_setting and day.mode == days[0].mode]
    if any(
        abs(rate - hour.hour.rate) > 0.01 * hour.hour.rate
        for day in days[:1]
        for hour in day.hours
        if (rate := nearest.get(hour.hour.hour))
    ):
        notes.append("hours whose rate the table does not have use the nearest rate")
    notes += [f"{one.rows} rows are left out: {one.reason}" for one in excluded]
    return "\n".join([aligned(cells), *notes])


def day_json(days: Sequence[Day], nearest: Mapping[float, float]) -> str:
    document = [
        {
            "sla_us": day.sla_us,
            "mode": day.mode,
            "energy_j": day.energy_j,
            "additional_j": day.additional_j,
            "static_j": day.static_j,
            "static_setting": day.static_setting or None,
            "violations": day.violations,
            "hours": [
                {
                    "hour": one.hour.hour,
                    "rate": one.hour.rate,
                    "rate_of_table": nearest.get(one.hour.hour),
                    "setting": one.search.setting,
                    "trials": len(one.search.trials),
                    "violations": one.search.violations,
                    "energy_j": one.energy_j,
                    "additional_j": one.additional_j,
                }
                for one in day.hours
            ],
        }
        for day in days
    ]
    return json.dumps(document, indent=1)
