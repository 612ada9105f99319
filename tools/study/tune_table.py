# SPDX-License-Identifier: BSL-1.0
"""Tuning on a table of runs: a trial looks up a run of the setting, so its noise is that of the repeats.

The table has all settings, so the true optimum is known: the setting of least mean cost whose mean latency meets the SLA.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tools.errors import Failure, UsageError
from tools.study import runs_table
from tools.study.runs_table import Excluded, Runs
from tools.study.schema import OWN_SETTINGS
from tools.study.tune_grid import FREQUENCY, ITR, Grid, Value, axis, shown


@dataclasses.dataclass(frozen=True)
class Optimum:
    setting: Mapping[str, Value]
    latency_us: float
    cost: float


class Table:
    """The settings of one group of runs, with the latencies and costs of their repeats."""

    def __init__(self, grid: Grid, latencies: Sequence[np.ndarray], costs: Sequence[np.ndarray], source: str, seed: int = 1):
        self.grid = grid
        self.source = source
        chance = np.random.default_rng(seed)
        self._latencies, self._costs = latencies, costs
        self._order = [chance.permutation(len(each)) for each in latencies]
        self._asked = [0] * len(grid)
        self.mean_latency = np.array([each.mean() for each in latencies])
        self.mean_cost = np.array([each.mean() for each in costs])

    @property
    def has_repeats(self) -> bool:
        return any(len(each) > 1 for each in self._latencies)

    def measure(self, place: int) -> tuple[float, float]:
        """Latency and cost of the next repeat of a setting, in random order. After the last one it begins again."""
        order = self._order[place]
        row = order[self._asked[place] % len(order)]
        self._asked[place] += 1
        return float(self._latencies[place][row]), float(self._costs[place][row])

    def optimum(self, sla_us: float) -> Optimum:
        """Raises Failure if no setting meets the SLA."""
        meets = self.mean_latency <= sla_us
        if not meets.any():
            at = int(self.mean_latency.argmin())
            raise Failure(
                f"{self.source}: no setting meets an SLA of {sla_us:g} us",
                f"the nearest is {shown(self.grid.setting(at))} with {self.mean_latency[at]:.1f} us",
            )
        at = int(np.where(meets, self.mean_cost, np.inf).argmin())
        return Optimum(self.grid.setting(at), float(self.mean_latency[at]), float(self.mean_cost[at]))

    def only(self, name: str, fixed: Mapping[str, Value]) -> Table:
        """The part in which all axes but one have the values of `fixed`."""
        grid = self.grid.only(name, fixed)
        kept = {tuple(ranks) for ranks in grid.ranks.tolist()}
        places = [at for at, ranks in enumerate(self.grid.ranks.tolist()) if tuple(ranks) in kept]
        return Table(grid, [self._latencies[at] for at in places], [self._costs[at] for at in places], self.source)


def from_runs(runs: Runs, latency: str, cost: str, axes: Sequence[str] | None = None, seed: int = 1) -> tuple[Table, list[Excluded]]:
    """Makes the table of one group. `axes`: columns of settings; None: those that vary. Raises Failure for a table that cannot be tuned."""
    runs.require(latency, cost)
    runs, excluded = runs_table.measured(runs)
    names = list(axes) if axes else runs.varying([*OWN_SETTINGS, *runs.further_settings()])
    if axes:
        runs.require(*names)
    if not names:
        raise UsageError(
            f"{runs.source}: all rows have one setting, so there is nothing to tune", f"settings: {', '.join(OWN_SETTINGS)}, set_*"
        )
    _require_one_group(runs)
    for name in names:
        missing = f"{name} is not set, so it has no place on the axis"
        runs = runs_table.drop(runs, np.array([value is None for value in runs.values(name)], bool), missing, excluded)
    latencies, costs = runs.numbers(latency), runs.numbers(cost)
    usable = (latencies > 0) & (costs > 0)
    runs = runs_table.drop(runs, ~usable, f"{latency} or {cost} is missing", excluded)
    latencies, costs = latencies[usable], costs[usable]
    if not len(runs):
        raise Failure(f"{runs.source}: no row is left for the tuner", "; ".join(one.reason for one in excluded))
    columns = [runs.values(name).tolist() for name in names]
    found = [axis(name, sorted(set(column), key=_order)) for name, column in zip(names, columns, strict=True)]
    places: dict[tuple[int, ...], list[int]] = {}
    ranks_of = [{value: rank for rank, value in enumerate(one.values)} for one in found]
    for row, values in enumerate(zip(*columns, strict=True)):
        places.setdefault(tuple(ranks[value] for ranks, value in zip(ranks_of, values, strict=True)), []).append(row)
    if len(places) < 2:
        raise UsageError(f"{runs.source}: the rows have one setting, so there is nothing to tune", "a sweep over ITR or frequency has more")
    keys = sorted(places)
    grid = Grid(tuple(found), np.array(keys))
    return Table(grid, [latencies[places[key]] for key in keys], [costs[places[key]] for key in keys], runs.source, seed), excluded


def _require_one_group(runs: Runs) -> None:
    mixed = [name for name in runs.varying(runs_table.GROUP_COLUMNS) if name != "study"]
    if mixed:
        values = [value for value in runs.values(mixed[0]).tolist() if value is not None]
        example = values[0] if values else ""
        condition = f"{mixed[0]} = {example!r}" if isinstance(example, str) else f"{mixed[0]} = {example}"
        raise UsageError(
            f"{runs.source}: the rows differ in {', '.join(mixed)}, and a tuner needs one such group", f'--where "{condition}"'
        )


def _order(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))


def modes(grid: Grid) -> dict[str, str | None]:
    """The ways to choose settings that a day compares: by name, the free axis; None: all axes."""
    names = [one.name for one in grid.axes]
    found: dict[str, str | None] = {"ITR alone": ITR} if ITR in names else {}
    found |= {"DVFS alone": FREQUENCY} if FREQUENCY in names else {}
    return found | {"both": None} if len(names) > 1 else found
