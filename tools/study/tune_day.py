# SPDX-License-Identifier: BSL-1.0
"""Tuning under a day's load: each hour has its rate, and begins with a new search.

The trials' energy is part of the hour. The rest of the hour runs at the setting that the search found, or at the safest setting. So a day
takes the energy of the trials and of the hours' rests. It can be compared for ITR alone, DVFS alone and both, and with the best setting
that is never changed (static; known for tables only).
"""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.errors import Failure, UsageError
from tools.study.tune_run import Search

HOUR_SECONDS = 3600.0
HOURS_MAX = 10_000
RATE_MAX = 1e9


@dataclasses.dataclass(frozen=True)
class Hour:
    hour: float
    rate: float


@dataclasses.dataclass(frozen=True)
class TunedHour:
    """energy_j: of the whole hour. additional_j: part of it that the search took beyond its result. None: not known."""

    hour: Hour
    search: Search
    energy_j: float | None

    @property
    def additional_j(self) -> float | None:
        return self.search.additional_j


@dataclasses.dataclass(frozen=True)
class Day:
    """One SLA and one way to choose settings."""

    sla_us: float
    mode: str
    hours: tuple[TunedHour, ...]
    static_j: float | None = None
    static_setting: str = ""

    @property
    def energy_j(self) -> float | None:
        known = [hour.energy_j for hour in self.hours if hour.energy_j is not None]
        return sum(known) if len(known) == len(self.hours) else None

    @property
    def additional_j(self) -> float:
        return sum(hour.additional_j or 0.0 for hour in self.hours)

    @property
    def violations(self) -> int:
        return sum(hour.search.violations for hour in self.hours)

    @property
    def without_result(self) -> int:
        return sum(hour.search.best is None for hour in self.hours)


def read_trace(path: Path) -> list[Hour]:
    """Lines of `hour,rate`; the first line may be a heading. Raises Failure or UsageError that names the line."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"--day: {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    found: list[Hour] = []
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        if not row or row[0].startswith("#"):
            continue
        try:
            hour, rate = (float(word) for word in row)
            if not (math.isfinite(hour) and 0 < rate <= RATE_MAX):
                raise ValueError
        except ValueError:
            if not found and number == 1:
                continue
            raise UsageError(f"--day: {path}, line {number}: '{','.join(row)}' is no hour and rate", "lines like 13,400000") from None
        found.append(Hour(hour, rate))
    if not 0 < len(found) <= HOURS_MAX:
        raise UsageError(f"--day: {path} has {len(found)} hours; 1 to {HOURS_MAX} can be tuned", "lines like 13,400000")
    return found


def day(trace: Sequence[Hour], sla_us: float, mode: str, search: Callable[[Hour], Search], hour_seconds: float) -> Day:
    """Searches in each hour. `search` makes the trials at the hour's rate."""
    hours = []
    for hour in trace:
        found = search(hour)
        power = found.best_power_w if found.best is not None else found.measured[0].power_w if found.measured else None
        rest = max(0.0, hour_seconds - found.seconds)
        hours.append(TunedHour(hour, found, None if power is None else found.energy_j + power * rest))
    return Day(sla_us, mode, tuple(hours))
