# SPDX-License-Identifier: BSL-1.0
"""Quantities of a run that axes, colours and ready figures show: title, unit, scale, and how DuckDB computes them.

A quantity is a column of the table of runs, or an expression over columns, such as interrupts per request. It is available if the table has
all columns that it needs. Columns without an entry here, such as `set_NAME` of a swept setting, are shown under their own names.
"""

import dataclasses
from collections.abc import Collection, Mapping

LINEAR, LOG = "linear", "log"
# Columns that a reader does not want as an axis.
NOT_SHOWN = ("run", "settings", "log", "failure", "started")


@dataclasses.dataclass(frozen=True)
class Quantity:
    """`expression`: SQL over the columns in `needs`. `scale`: the usual one."""

    name: str
    title: str
    unit: str
    expression: str
    needs: tuple[str, ...]
    scale: str = LINEAR

    @property
    def label(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


def quoted(name: str) -> str:
    """Returns an SQL identifier. Names of columns come from files."""
    return '"' + name.replace('"', '""') + '"'


def _column(name: str, title: str, unit: str = "", scale: str = LINEAR) -> Quantity:
    return Quantity(name, title, unit, quoted(name), (name,), scale)


def _share(state: str) -> Quantity:
    return Quantity(f"{state}_percent", f"time in {state.upper()}", "% of core time", f"100 * {state}", (state,))


def _ratio(name: str, title: str, unit: str, part: str, whole: str, scale: str = LINEAR) -> Quantity:
    return Quantity(name, title, unit, f"{part} / nullif({whole}, 0)", (part, whole), scale)


_ALL = (
    _column("itr_us", "ITR", "us"),
    _column("frequency_ghz", "frequency", "GHz"),
    _column("rapl_w", "power limit", "W"),
    _column("idle", "idle state"),
    _column("rate_wanted", "offered rate", "requests/s"),
    _column("rate_reached", "reached rate", "requests/s"),
    _column("mean_us", "mean latency", "us", LOG),
    _column("p50_us", "p50 latency", "us", LOG),
    _column("p90_us", "p90 latency", "us", LOG),
    _column("p95_us", "p95 latency", "us", LOG),
    _column("p99_us", "p99 latency", "us", LOG),
    _column("p999_us", "p99.9 latency", "us", LOG),
    _column("max_us", "maximum latency", "us", LOG),
    _column("energy_uj", "energy per request", "uJ"),
    _column("energy_j", "energy of the window", "J"),
    _column("power_w", "power", "W"),
    _column("idle_w", "power when idle", "W"),
    _column("polling_w", "power when polling", "W"),
    _ratio("interrupts_per_request", "interrupts per request", "", "interrupts", "requests"),
    _ratio("interrupts_per_second", "interrupts per second", "1/s", "interrupts", "window_s"),
    _ratio("wake_ups_per_request", "wake-ups per request", "", "wake_ups", "requests"),
    _ratio("instructions_per_request", "instructions per request", "", "instructions", "requests"),
    _ratio("cycles_per_request", "cycles per request", "", "cycles", "requests"),
    _ratio("ipc", "instructions per cycle", "", "instructions", "cycles"),
    _ratio("misses_per_request", "LLC misses per request", "", "llc_misses", "requests"),
    _ratio("instructions_per_joule", "instructions per joule", "1/J", "instructions", "energy_j"),
    _ratio("frames_per_interrupt", "received frames per interrupt", "", "frames_in", "interrupts"),
    Quantity("non_idle_percent", "non-idle ratio", "% of core time", "100 * c0", ("c0",)),
    Quantity("delay_product", "energy-delay product", "uJ ms", "energy_uj * mean_us / 1000", ("energy_uj", "mean_us")),
    *(_share(state) for state in ("c1", "c1e", "c3", "c6", "c7")),
    _column("mhz", "frequency while awake", "MHz"),
    _column("requests", "requests"),
    _column("failed_requests", "failed requests"),
    _column("lost_frames", "lost frames"),
    _column("window_s", "measured window", "s"),
    _column("took_s", "time that the run took", "s"),
    _column("repeat", "repeat"),
    _column("seed", "seed"),
    _column("cores", "cores"),
    _column("arm", "arm"),
    _column("system", "system"),
    _column("machine", "machine"),
    _column("load", "load"),
    _column("study", "study"),
    _column("status", "status"),
    _column("modelled", "modelled"),
)
KNOWN: Mapping[str, Quantity] = {each.name: each for each in _ALL}


def quantity(name: str) -> Quantity:
    """Returns a known quantity, or that of a column without an entry."""
    return KNOWN.get(name) or _column(name, name.removeprefix("set_"))


def available(columns: Collection[str]) -> list[Quantity]:
    """Returns the quantities of a table, in the order of a menu: first those with an entry, then the table's further columns."""
    found = [each for each in _ALL if all(name in columns for name in each.needs)]
    covered = {name for each in _ALL for name in each.needs if each.expression == quoted(name)}
    parts = {name for each in _ALL for name in each.needs} - covered
    rest = [name for name in columns if name not in covered and name not in NOT_SHOWN and not name.startswith("_")]
    return found + [quantity(name) for name in rest if name not in parts] + [quantity(name) for name in rest if name in parts]
