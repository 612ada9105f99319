# SPDX-License-Identifier: BSL-1.0
"""Derived figures have their definitions, and are absent if a column is."""

import numpy as np
import pyarrow as pa
import pytest

from tools.study import derived
from tools.study.repeats import repeats
from tools.study.runs_table import Runs

ROW = {
    "energy_uj": 40.0,
    "p99_us": 250.0,
    "energy_j": 4.0,
    "power_w": 20.0,
    "idle_w": 8.0,
    "rate_reached": 5e5,
    "requests": 100_000.0,
    "window_s": 0.2,
    "cores": 4.0,
    "instructions": 2e9,
    "cycles": 2.5e9,
    "ref_cycles": 1.16e9,
    "tsc_ghz": 2.9,
    "llc_misses": 3e5,
    "interrupts": 5e4,
    "wake_ups": 2e4,
}


def figures(row: dict) -> dict[str, float]:
    runs = derived.added(Runs(pa.table({name: [value] for name, value in row.items()}), "test"), "p99_us")
    return derived.means(runs, repeats(np.zeros(1)))[0]


def test_definitions() -> None:
    assert figures(ROW) == pytest.approx(
        {
            "non_idle": 0.5,  # 1.16e9 of 2.9e9 * 0.2 * 4
            "ipc": 0.8,
            "instructions_per_joule": 5e8,
            "above_idle_uj": 24.0,
            "instructions_per_request": 20_000,
            "misses_per_request": 3,
            "interrupts_per_request": 0.5,
            "wake_ups_per_request": 0.2,
            "edp_uj_ms": 10.0,
        }
    )
    assert set(figures(ROW)) == set(derived.TITLES)


def test_c0_is_the_non_idle_ratio() -> None:
    assert figures({**ROW, "c0": 0.6})["non_idle"] == 0.6


def test_missing_columns() -> None:
    few = {name: ROW[name] for name in ("energy_uj", "p99_us", "instructions", "requests")}
    assert figures(few) == pytest.approx({"instructions_per_request": 20_000, "edp_uj_ms": 10})
    assert "interrupts_per_request" not in figures({**ROW, "requests": 0.0})
