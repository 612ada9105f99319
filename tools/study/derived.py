# SPDX-License-Identifier: BSL-1.0
"""Figures that follow from a run's columns, as the published studies use them. A figure whose columns are missing is absent.

non_idle                 share of the cores' time in which they are awake: c0, or reference cycles over TSC cycles
ipc                      instructions per core cycle
edp_uj_ms                energy-delay product: energy per request times latency
instructions_per_joule   work per energy
above_idle_uj            energy per request above that of the idle machine
per request              instructions, LLC misses, interrupts, wake-ups
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tools.study.repeats import Repeats
from tools.study.runs_table import Runs

Column = Callable[[str], np.ndarray]


def _non_idle(column: Column) -> np.ndarray:
    """Reference cycles count at the TSC's rate while a core is awake. The column tsc_ghz is no part of the schema; a table may have it."""
    of_cycles = column("ref_cycles") / (column("tsc_ghz") * 1e9 * column("window_s") * column("cores"))
    return np.where(np.isnan(column("c0")), of_cycles, column("c0"))


def _above_idle(column: Column) -> np.ndarray:
    return 1e6 * (column("power_w") - column("idle_w")) / column("rate_reached")


FIGURES: dict[str, tuple[str, Callable[[Column], np.ndarray]]] = {
    "non_idle": ("non-idle", _non_idle),
    "ipc": ("IPC", lambda column: column("instructions") / column("cycles")),
    "instructions_per_joule": ("instr/J", lambda column: column("instructions") / column("energy_j")),
    "above_idle_uj": ("uJ above idle", _above_idle),
    "instructions_per_request": ("instr", lambda column: column("instructions") / column("requests")),
    "misses_per_request": ("LLC misses", lambda column: column("llc_misses") / column("requests")),
    "interrupts_per_request": ("interrupts", lambda column: column("interrupts") / column("requests")),
    "wake_ups_per_request": ("wake-ups", lambda column: column("wake_ups") / column("requests")),
}
DELAY_PRODUCT = ("edp_uj_ms", "EDP uJ ms")
TITLES = {name: title for name, (title, _) in FIGURES.items()} | dict([DELAY_PRODUCT])


def added(runs: Runs, latency: str) -> Runs:
    """The table with a column for each figure that at least one row has. `latency`: the column of the energy-delay product."""
    table = runs.table
    with np.errstate(divide="ignore", invalid="ignore"):
        made = {name: formula(runs.numbers) for name, (_, formula) in FIGURES.items()}
        made[DELAY_PRODUCT[0]] = runs.numbers("energy_uj") * runs.numbers(latency) / 1e3
    for name, values in made.items():
        usable = np.isfinite(values)
        if usable.any() and name not in table.column_names:
            table = table.append_column(name, pa.array(values, mask=~usable))
    return Runs(table, runs.source)


def means(runs: Runs, of: Repeats) -> list[dict[str, float]]:
    """For each setting, the mean of each figure over its repeats; a figure is absent if no repeat has it."""
    found: list[dict[str, float]] = [{} for _ in range(len(of))]
    for name in TITLES:
        if runs.has(name):
            values = runs.numbers(name)
            known = np.isfinite(values)
            counts = np.bincount(of.setting[known], minlength=len(of))
            sums = np.bincount(of.setting[known], values[known], len(of))
            for at in np.flatnonzero(counts).tolist():
                found[at][name] = float(sums[at] / counts[at])
    return found
