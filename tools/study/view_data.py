# SPDX-License-Identifier: BSL-1.0
"""What the ready figures compute from the table of runs: means over repeats, the best setting of each arm, and Pareto fronts.

Failed runs and baselines are left out. A setting is the combination of ITR, frequency, idle state, power limit and all swept settings. A
point of a figure is the mean over the repeats of one setting, or over all settings that the figure does not tell apart.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tools.errors import Failure
from tools.study import schema, view_filter
from tools.study.view_columns import quoted
from tools.study.view_picture import Series, number_text
from tools.study.view_source import Source

PANELS_MAX = 12
PANEL_KEYS = ("arm", "load", "rate_wanted")
UNITS = {"itr_us": "us", "frequency_ghz": "GHz", "rapl_w": "W", "rate_wanted": "requests/s"}
UNSET = {"itr_us": "adaptive ITR", "frequency_ghz": "governor"}
SLAS_US = (100, 200, 500, 1000, 2000, 5000)


@dataclasses.dataclass(frozen=True)
class Options:
    """`row`: the run of a timeline. `slas_us`: limits of p99; none: usual ones within the data."""

    filters: tuple[view_filter.Filter, ...] = ()
    row: int | None = None
    slas_us: tuple[float, ...] = ()


class Data:
    """The runs of a figure. All queries have the options' filters, and only good runs."""

    def __init__(self, source: Source, options: Options):
        self.source, self.options = source, options
        where, self._values = view_filter.condition(options.filters, source)
        conditions = [where]
        if "status" in source.columns:
            conditions.append(f"coalesce(status::VARCHAR, '{schema.OK}') = '{schema.OK}'")
        if "load" in source.columns:
            conditions.append(f"coalesce(load::VARCHAR, '') NOT IN ({', '.join(repr(name) for name in schema.BASELINES)})")
        self.where = " AND ".join(conditions)
        self.settings = [name for name in source.columns if name in schema.OWN_SETTINGS or name.startswith(schema.SET)]

    def column(self, name: str) -> str:
        return f"({self.source.quantity(name).expression})"

    def key(self, name: str) -> str:
        return f"{self.column(name)}::VARCHAR" if not self.source.kind(name).is_number else self.column(name)

    def query(self, text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        return self.source.rows(text, [*self._values, *values])

    def values_of(self, name: str) -> list[Any]:
        """Returns the values of a column in the figure's runs, in order; None last."""
        if name not in self.source.columns:
            return [None]
        rows = self.query(f"SELECT DISTINCT {self.key(name)} AS v FROM runs WHERE {self.where}")
        found = [row["v"] for row in rows]
        return sorted(each for each in found if each is not None) + ([None] if None in found else [])

    def panels(self, keys: Sequence[str] = PANEL_KEYS) -> list[dict[str, Any]]:
        """Returns the combinations of the keys that have more than one value. Raises Failure if they are too many for a page."""
        chosen = [key for key in keys if key in self.source.columns and len(self.values_of(key)) > 1]
        if not chosen:
            return [{}]
        listed = ", ".join(f"{self.key(key)} AS {quoted(key)}" for key in chosen)
        order = ", ".join(f"{quoted(key)} NULLS LAST" for key in reversed(chosen))
        found = self.query(f"SELECT DISTINCT {listed} FROM runs WHERE {self.where} ORDER BY {order}")
        if len(found) > PANELS_MAX:
            names = " and ".join(f"{len(self.values_of(key))} values of {key}" for key in chosen)
            raise Failure(f"{names} are {len(found)} panels; a figure has at most {PANELS_MAX}", "--where NAME=VALUE,VALUE chooses some")
        return found

    def within(self, panel: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """Returns the condition of a panel and its parameters."""
        parts = [self.where] + [f"{self.key(name)} IS NOT DISTINCT FROM ?" for name in panel]
        return " AND ".join(parts), list(panel.values())

    def means(self, panel: Mapping[str, Any], by: Sequence[str], y: str) -> list[dict[str, Any]]:
        """Returns mean, least and greatest y, and the number of runs, for each combination of `by`."""
        where, values = self.within(panel)
        keys = "".join(f"{self.key(name)} AS {quoted(name)}, " for name in by)
        count = ", ".join(str(at + 1) for at in range(len(by)))
        grouped = f"GROUP BY {count} ORDER BY {count}" if count else "HAVING count(*) > 0"
        return self.query(
            f"SELECT {keys}avg({self.column(y)}) AS y, min({self.column(y)}) AS low, max({self.column(y)}) AS high, "
            f"count({self.column(y)}) AS n FROM runs WHERE {where} AND {self.column(y)} IS NOT NULL {grouped}",
            values,
        )

    def by_setting(
        self, panel: Mapping[str, Any], more: Sequence[str] = (), figures: Sequence[str] = ("p99_us", "energy_uj")
    ) -> list[dict]:
        """Returns a row for each arm, setting and value of `more`, with the means of `figures` over repeats."""
        where, values = self.within(panel)
        by = [name for name in dict.fromkeys(("arm", *more, *self.settings)) if name in self.source.columns]
        keys = ", ".join(f"{self.key(name)} AS {quoted(name)}" for name in by)
        means = ", ".join(f"avg({self.column(name)}) AS {quoted('mean_' + name)}" for name in figures)
        count = ", ".join(str(at + 1) for at in range(len(by)))
        known = " AND ".join(f"{self.column(name)} IS NOT NULL" for name in figures)
        return self.query(
            f"SELECT {keys}, {means}, count(*) AS n FROM runs WHERE {where} AND {known} GROUP BY {count} ORDER BY {count}",
            values,
        )

    def arm_series(self, arm: Any) -> Series:
        arms = self.source.kind("arm").values or ()
        return Series(str(arm) if arm is not None else "all runs", colour=arms.index(arm) if arm in arms else 0)

    def series(self, name: str) -> list[tuple[Any, Series]]:
        """Returns the values of a quantity with their looks: a ramp for an ordered quantity, colours for texts."""
        found = self.values_of(name)
        if name == "arm":
            return [(value, self.arm_series(value)) for value in found]
        numbers = [value for value in found if value is not None]
        looks = []
        for value in found:
            if value is None:
                looks.append(
                    (None, Series(UNSET.get(name, f"no {name}") if len(found) > 1 or name in UNSET else "", colour=7, dashed=False))
                )
            elif self.source.kind(name).is_number:
                shade = 0.15 + 0.85 * numbers.index(value) / max(1, len(numbers) - 1)
                looks.append((value, Series(value_text(name, value), colour=numbers.index(value), shade=shade)))
            else:
                looks.append((value, Series(str(value), colour=found.index(value))))
        return looks

    def slas(self) -> list[float]:
        """Returns the limits of p99: the user's, or those of 1, 2 and 5 that some runs meet and others do not."""
        if self.options.slas_us:
            return sorted(self.options.slas_us)
        rows = self.query(f"SELECT min(p99_us) AS low, max(p99_us) AS high FROM runs WHERE {self.where}")
        low, high = rows[0]["low"], rows[0]["high"]
        if low is None:
            raise Failure("no run has a p99 latency")
        steps = [digit * 10.0**power for power in range(0, 8) for digit in (1, 2, 5)]
        found = [step for step in steps if low < step < 2.5 * high][:6]
        return found or [step for step in steps if step >= high][:1]

    def notes(self) -> list[str]:
        """Returns what a reader of the figure must know: modelled figures, filters, the number of runs."""
        count = self.query(f"SELECT count(*) AS n FROM runs WHERE {self.where}")[0]["n"]
        found = []
        if "modelled" in self.source.columns and (
            machines := self.query(f"SELECT DISTINCT machine::VARCHAR AS m FROM runs WHERE {self.where} AND modelled = 'yes'")
            if "machine" in self.source.columns
            else []
        ):
            names = ", ".join(sorted(str(row["m"]) for row in machines))
            found.append(f"Modelled ({names}): no figure is of a real machine.")
        text = f"{count:,} runs."
        if self.options.filters:
            text += " Only " + "; ".join(_filter_text(each) for each in self.options.filters) + "."
        return [*found, text, *self.source.notes]


def _filter_text(each: view_filter.Filter) -> str:
    if each.values is not None:
        return f"{each.name} {' or '.join(view_filter.NOT_SET if value is None else str(value) for value in each.values)}"
    ends = [text for text in (each.low is not None and f"from {each.low:g}", each.high is not None and f"to {each.high:g}") if text]
    return f"{each.name} {' '.join(ends)}"


def value_text(name: str, value: Any) -> str:
    if value is None:
        return UNSET.get(name, view_filter.NOT_SET)
    text = number_text(value) if isinstance(value, int | float) else str(value)
    return f"{text} {UNITS[name]}" if name in UNITS and isinstance(value, int | float) else text


def setting_text(row: Mapping[str, Any], names: Sequence[str], varied: Sequence[str]) -> str:
    """Returns the settings of a row that vary in the study, such as `50 us, 1.6 GHz`."""
    parts = []
    for name in names:
        if name in varied:
            text = value_text(name, row[name])
            parts.append(f"{name.removeprefix(schema.SET)} {text}" if name.startswith(schema.SET) else text)
    return ", ".join(parts) or "the only setting"


def title_of(panel: Mapping[str, Any]) -> str:
    return ", ".join(value_text(name, value) for name, value in panel.items())


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Returns the indices of the points that no other point beats in both coordinates, by the first coordinate."""
    best, found = math.inf, []
    for at in sorted(range(len(points)), key=lambda at: points[at]):
        if points[at][1] < best:
            best = points[at][1]
            found.append(at)
    return found


def varied(data: Data) -> list[str]:
    """Returns the settings that have more than one value in the figure's runs."""
    return [name for name in data.settings if len(data.values_of(name)) > 1]
