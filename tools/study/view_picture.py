# SPDX-License-Identifier: BSL-1.0
"""What a ready figure consists of: panels with lines, points, bars or cells, axes with units, and the numbers as a table."""

import csv
import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.study.view_columns import LINEAR


@dataclasses.dataclass(frozen=True)
class Series:
    """The name of a line or of points, and its look. `shade`: from 0 to 1 a place on the colour ramp, for an ordered quantity; None: colour
    number `colour` of the palette."""

    name: str
    colour: int = 0
    shade: float | None = None
    dashed: bool = False


@dataclasses.dataclass(frozen=True)
class Line:
    """Points from left to right. `low` and `high`: bars of each point, or none. `steps`: the value holds until the next x."""

    series: Series
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    steps: bool = False
    markers: bool = True


@dataclasses.dataclass(frozen=True)
class Points:
    series: Series
    x: Sequence[float]
    y: Sequence[float]
    texts: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Level:
    """A horizontal line over the whole panel, such as the value of a run without the setting across."""

    series: Series
    y: float


@dataclasses.dataclass(frozen=True)
class Stack:
    """Stacked bars: for each name of `bars`, a value for each of `series`."""

    bars: Sequence[str]
    series: Sequence[Series]
    values: Sequence[Sequence[float]]


@dataclasses.dataclass(frozen=True)
class Cells:
    """A table of coloured cells. `values[row][column]`; NaN: empty. `texts`: lines in each cell. `marked`: the best cell."""

    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Sequence[float]]
    texts: Sequence[Sequence[Sequence[str]]]
    marked: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Density:
    """Counts in a grid, row 0 at the bottom, over the panel's own axes."""

    counts: np.ndarray
    x: tuple[float, float]
    y: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Envelope:
    """Least, mean and greatest value of each column of equal width."""

    series: Series
    x: tuple[float, float]
    low: np.ndarray
    mean: np.ndarray
    high: np.ndarray


@dataclasses.dataclass(frozen=True)
class Panel:
    """`y_label`, `y_scale`: if panels differ in them. `tall`: height in pixels, if not the usual one. `includes`: values that such an axis
    has in any case."""

    title: str
    layers: Sequence[Any]
    y_label: str | None = None
    y_scale: str | None = None
    tall: float | None = None
    includes: Sequence[float] = ()


@dataclasses.dataclass(frozen=True)
class Made:
    """A figure that is ready to be drawn. `header`, `rows`: its numbers. `wide`: each panel has the whole width."""

    name: str
    title: str
    panels: Sequence[Panel]
    x_label: str
    y_label: str
    x_scale: str = LINEAR
    y_scale: str = LINEAR
    notes: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    wide: bool = False
    from_zero: bool = False
    legend_title: str = ""

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows(self.rows)
        return text.getvalue()


def number_text(value: float) -> str:
    """Returns a short text of a number, such as 100k."""
    for least, factor, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{float(f'{value / factor:.3g}'):g}{letter}"
    return f"{float(f'{value:.4g}'):g}"
