# SPDX-License-Identifier: BSL-1.0
"""The ready figures that have a curve for each value of a quantity: CURVES says what is across, what is up, and what a curve is."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tools.errors import Failure
from tools.study.view_columns import KNOWN, LINEAR, LOG, quantity
from tools.study.view_data import PANEL_KEYS, UNSET, Data, title_of, varied
from tools.study.view_picture import Level, Line, Made, Panel, Series
from tools.study.view_source import Source


@dataclasses.dataclass(frozen=True)
class Figure:
    """`needs`: columns of the table. `about`: its counterpart in the studies. `make` gives panels and all else."""

    name: str
    title: str
    about: str
    needs: tuple[str, ...]
    make: Callable[["Figure", Data], Made]
    needs_histograms: bool = False

    def lacks(self, source: Source) -> str | None:
        """Returns what a table lacks for this figure, or None."""
        missing = [name for name in self.needs if name not in source.columns]
        if missing:
            return f"a column {' and '.join(missing)}"
        return "histograms.parquet" if self.needs_histograms and not source.has_histograms else None


@dataclasses.dataclass(frozen=True)
class Curve:
    """A figure of curves: quantities across and up, a curve `of` each value of a quantity, and a panel for each combination of `keys`."""

    name: str
    title: str
    about: str
    x: str
    y: str
    of: str
    keys: tuple[str, ...] = PANEL_KEYS


CURVES = (
    Curve("latency-itr", "p99 latency against ITR", "latency against ITR for each DVFS", "itr_us", "p99_us", "frequency_ghz"),
    Curve("median-itr", "p50 latency against ITR", "latency against ITR for each DVFS", "itr_us", "p50_us", "frequency_ghz"),
    Curve("energy-itr", "Energy per request against ITR", "energy against ITR for each DVFS", "itr_us", "energy_uj", "frequency_ghz"),
    Curve("power-itr", "Power against ITR", "power against ITR for each DVFS", "itr_us", "power_w", "frequency_ghz"),
    Curve(
        "instructions-itr",
        "Instructions per request against ITR",
        "instructions against ITR",
        "itr_us",
        "instructions_per_request",
        "frequency_ghz",
    ),
    Curve("ipc-itr", "Instructions per cycle against ITR", "IPC against ITR", "itr_us", "ipc", "frequency_ghz"),
    Curve("misses-itr", "LLC misses per request against ITR", "misses against ITR", "itr_us", "misses_per_request", "frequency_ghz"),
    Curve(
        "interrupts-itr",
        "Interrupts per request against ITR",
        "interrupts against ITR",
        "itr_us",
        "interrupts_per_request",
        "frequency_ghz",
    ),
    Curve("non-idle-itr", "Non-idle ratio against ITR", "reference cycles over TSC", "itr_us", "non_idle_percent", "frequency_ghz"),
    Curve("delay-product-itr", "Energy-delay product against ITR", "energy-delay product", "itr_us", "delay_product", "frequency_ghz"),
    Curve(
        "instructions-joule-itr",
        "Instructions per joule against ITR",
        "instructions per watt",
        "itr_us",
        "instructions_per_joule",
        "frequency_ghz",
    ),
    Curve("latency-rate", "p99 latency against the rate", "latency against load", "rate_wanted", "p99_us", "arm", ("load",)),
    Curve(
        "interrupts-rate",
        "Interrupts per request against the rate",
        "interrupts vanish at high load",
        "rate_wanted",
        "interrupts_per_request",
        "arm",
        ("load",),
    ),
    Curve(
        "non-idle-rate",
        "Non-idle ratio against the rate",
        "reference cycles over TSC by load",
        "rate_wanted",
        "non_idle_percent",
        "arm",
        ("load",),
    ),
)


def scale_of(values: Sequence[float]) -> str:
    """Returns LOG for positive values that differ much."""
    known = [value for value in values if value is not None]
    is_wide = bool(known) and min(known) > 0 and max(known) > 8 * min(known)
    return LOG if is_wide else LINEAR


def curves(curve: Curve) -> Callable[[Figure, Data], Made]:
    """Returns the function that makes a figure of curves."""

    def made(figure: Figure, data: Data) -> Made:
        of = curve.of if curve.of in data.source.columns else "arm"
        looks = data.series(of)
        panels, rows = [], []
        x_values: list[float] = []
        for keys in data.panels(curve.keys):
            layers: list[Any] = []
            found = data.means(keys, [name for name in (of, curve.x) if name in data.source.columns], curve.y)
            for value, series in looks:
                own = [row for row in found if row.get(of) == value]
                points = [row for row in own if row[curve.x] is not None]
                x_values += [row[curve.x] for row in points]
                if points:
                    columns = {name: [row[name] for row in points] for name in (curve.x, "y", "low", "high")}
                    layers.append(Line(series, columns[curve.x], columns["y"], columns["low"], columns["high"]))
                for row in own:
                    rows.append([*(str(each) for each in keys.values()), value, row[curve.x], row["y"], row["low"], row["high"], row["n"]])
                    if row[curve.x] is None:
                        layers.append(Level(_level(series, of, curve.x, value), row["y"]))
            if layers:
                panels.append((keys, layers))
        if not panels:
            raise Failure(f"no run has {KNOWN[curve.y].title}")
        panels = _levels_beside(panels)
        y, first = KNOWN[curve.y], data.panels(curve.keys)[0]
        y_values = [row[-4] for row in rows]
        note = "A point is the mean of its runs, a bar extends from the least to the greatest."
        if others := [name for name in varied(data) if name not in (of, curve.x)]:
            note += f" Means are over all values of {', '.join(quantity(name).title for name in others)}."
        return Made(
            figure.name,
            figure.title,
            panels,
            KNOWN[curve.x].label,
            y.label,
            scale_of(x_values),
            scale_of(y_values),
            [note, *data.notes()],
            [*first, of, curve.x, curve.y, "least", "greatest", "runs"],
            rows,
            legend_title="" if of == "arm" else KNOWN[of].title,
        )

    return made


def _levels_beside(found: Sequence[tuple[dict, list]]) -> list[Panel]:
    """Returns the panels. An arm of levels alone, such as Linux with adaptive ITR, is drawn in the panels of the other arms."""

    def others(keys: dict) -> dict:
        return {name: value for name, value in keys.items() if name != "arm"}

    levels = [(keys, layers) for keys, layers in found if "arm" in keys and all(isinstance(layer, Level) for layer in layers)]
    curves = [each for each in found if each not in levels]
    panels = []
    for keys, layers in curves:
        beside = [
            dataclasses.replace(layer, series=dataclasses.replace(layer.series, name=f"{at['arm']} ({layer.series.name})"))
            for at, own in levels
            if others(at) == others(keys)
            for layer in own
        ]
        panels.append(Panel(title_of(keys), [*layers, *beside]))
    alone = [(keys, layers) for keys, layers in levels if not any(others(keys) == others(at) for at, _ in curves)]
    return panels + [Panel(title_of(keys), layers) for keys, layers in alone]


def _level(series: Series, of: str, x: str, value: Any) -> Series:
    """A run without the setting across, such as one with adaptive ITR, is a level in all of the panel."""
    name = UNSET.get(x, f"no {x}")
    if value is None and of in UNSET:
        name = f"{name} and {UNSET[of]}"
    elif series.name:
        name = f"{name}, {series.name}"
    return dataclasses.replace(series, name=name, dashed=True, colour=7 if value is None else series.colour)


def needs(curve: Curve) -> tuple[str, ...]:
    """Returns the columns that a figure of curves needs."""
    return tuple(dict.fromkeys(name for each in (curve.x, curve.y) for name in KNOWN[each].needs))
