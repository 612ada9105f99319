# SPDX-License-Identifier: BSL-1.0
"""Answers what a picture of a study shows: points, density, means, histograms; the run under the mouse; and the shown rows as a table.

A million points cannot be sent to a browser within a blink. So DuckDB counts them in the picture's cells, with the mean of the colour's
quantity or the count of each category. A cell with one run carries the run's row number. If at most POINTS_MAX runs are in view, the answer
has each of them. A click asks for the run that is nearest to it, so every run can be reached at any density.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tools.errors import UsageError
from tools.foreign import shown
from tools.study import view_filter
from tools.study.view_columns import LINEAR, LOG, quoted
from tools.study.view_source import Source

POINTS_MAX = 2500
CELLS_MAX = 2000  # of an axis
CATEGORIES_MAX = 32
PANELS_MAX = 12
# A number with more values is a colour ramp, not a category.
NUMBERS_AS_CATEGORIES_MAX = 16
MEANS_X_MAX = 400
BARS = 200
SOME_RUNS = 5000
# With more cells of all panels and colours together, only those with runs are counted.
DENSE_MAX = 8_000_000
NEAREST_PIXELS = 12
# Modes of a picture.
POINTS, MEANS, COUNT, CUMULATIVE = "points", "means", "count", "cumulative"
MODES = (POINTS, MEANS, COUNT, CUMULATIVE)


@dataclasses.dataclass(frozen=True)
class Axis:
    """A quantity as a coordinate. `span`: bounds in view, in the quantity's unit; None: all. `cells`: pixels or parts of them."""

    name: str
    scale: str
    span: tuple[float, float] | None
    cells: int

    def sql(self, source: Source) -> str:
        what = f"({source.quantity(self.name).expression})"
        kind = source.kind(self.name)
        if not kind.is_number:
            return f"(enum_code({what})::DOUBLE)" if kind.values is not None else "NULL::DOUBLE"
        return f"(CASE WHEN {what} > 0 THEN log10({what}) END)" if self.scale == LOG else f"({what})::DOUBLE"

    def to(self, value: float) -> float:
        return math.log10(value) if self.scale == LOG else value

    def back(self, value: float) -> float:
        return 10**value if self.scale == LOG else value


@dataclasses.dataclass(frozen=True)
class Picture:
    """A question of the page. `colour`: a quantity; None: the number of runs. `group`: a quantity with a panel for each value, or None."""

    x: Axis
    y: Axis | None
    colour: str | None
    group: str | None
    mode: str
    filters: tuple[view_filter.Filter, ...]


def parse(asked: Mapping[str, str], source: Source) -> Picture:
    """Returns the picture that a query string asks for. Raises UsageError for a value that is not allowed."""
    mode = asked.get("mode", POINTS)
    if mode not in MODES:
        raise UsageError(f"there is no picture '{shown(mode, 40)}'")

    def axis(which: str) -> Axis:
        name, scale = asked.get(which, ""), asked.get(f"{which}_scale", LINEAR)
        source.quantity(name)
        if scale not in (LINEAR, LOG):
            raise UsageError(f"there is no scale '{shown(scale, 40)}'")
        span, cells = asked.get(f"{which}_span"), asked.get(f"{which}_cells", "200")
        if not cells.isdecimal() or not 1 <= int(cells[:6]) <= CELLS_MAX:
            raise UsageError(f"an axis has 1 to {CELLS_MAX} cells")
        return Axis(name, scale if source.kind(name).is_number else LINEAR, _span(span, scale) if span else None, int(cells[:6]))

    optional = {which: asked.get(which) or None for which in ("colour", "group")}
    for name in filter(None, optional.values()):
        source.quantity(name)
    filters = tuple(view_filter.parse_json(asked["filters"])) if asked.get("filters") else ()
    y = axis("y") if mode in (POINTS, MEANS) else None
    return Picture(axis("x"), y, optional["colour"], optional["group"], mode, filters)


def _span(text: str, scale: str) -> tuple[float, float]:
    try:
        low, high = (float(each) for each in text.split(","))
    except ValueError:
        raise UsageError("a span is two numbers") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high) or (scale == LOG and low <= 0):
        raise UsageError("a span has a low end and a high end")
    return low, high


# ---- categories ----


@dataclasses.dataclass(frozen=True)
class Categories:
    """The values of a quantity that become colours or panels, in order. None is unknown. `key`: SQL that gives a number for each."""

    key: str
    values: tuple[Any, ...]
    keys: tuple[float, ...]

    def codes(self, found: np.ndarray) -> np.ndarray:
        """Returns the index in `values` for each number that `key` gave; -1 for another one."""
        order = np.argsort(self.keys)
        ordered = np.array(self.keys)[order]
        at = np.minimum(np.searchsorted(ordered, found), len(ordered) - 1)
        return np.where(ordered[at] == found, order[at], -1)


def categories(source: Source, name: str | None, most: int) -> Categories | None:
    """Returns the categories of a quantity, also those that filters exclude, so that colours stay. None if it has more than `most`."""
    return None if name is None else source.kept(("categories", name, most), lambda: _categories(source, name, most))


def _categories(source: Source, name: str, most: int) -> Categories | None:
    what, kind = source.quantity(name).expression, source.kind(name)
    if kind.values is not None:
        key = f"coalesce(enum_code({what})::DOUBLE, -1)"
        found = source.all(f"SELECT DISTINCT {key} AS k FROM runs ORDER BY k LIMIT {most + 1}")
        values = {float(at): value for at, value in enumerate(kind.values)}
    elif kind.is_number:
        key = f"coalesce(round(({what})::DOUBLE, 9), -1e300)"
        # A look at some runs tells a quantity with many values, without a hash table of all of them.
        if source.one(f"SELECT count(DISTINCT k) FROM (SELECT {key} AS k FROM runs LIMIT {SOME_RUNS})")[0] > most:
            return None
        found = source.all(f"SELECT DISTINCT {key} AS k FROM runs ORDER BY k LIMIT {most + 1}")
        values = {float(each): each for (each,) in found if each != -1e300}
    else:
        return None
    if len(found) > most:
        return None
    keys = sorted((float(each) for (each,) in found), key=lambda each: (each not in values, each))
    return Categories(key, tuple(values.get(each) for each in keys), tuple(keys))


# ---- bounds ----


def bounds(source: Source, axis: Axis, filters: Sequence[view_filter.Filter]) -> tuple[float, float]:
    """Returns the least and greatest coordinate of the filtered runs, with room for marks at the ends."""
    where, values = view_filter.condition(filters, source)
    query = f"SELECT min(v), max(v) FROM (SELECT {axis.sql(source)} AS v FROM runs WHERE {where}) WHERE isfinite(v)"
    low, high = source.kept((query, *values), lambda: source.one(query, values))
    if low is None:
        return 0.0, 1.0
    if not source.kind(axis.name).is_number:
        return low - 0.5, high + 0.5
    if axis.scale == LINEAR and 0 <= low < 0.3 * high:
        low = 0.0
    room = 0.03 * (high - low) or 0.05 * abs(high) or 0.5
    return (low if axis.scale == LINEAR and low == 0 else low - room), high + room


def _spans(source: Source, picture: Picture) -> list[tuple[float, float]]:
    found = []
    for axis in filter(None, (picture.x, picture.y)):
        found.append((axis.to(axis.span[0]), axis.to(axis.span[1])) if axis.span else bounds(source, axis, picture.filters))
    return found


# ---- pictures ----


def answer(source: Source, picture: Picture) -> tuple[dict, dict[str, np.ndarray]]:
    """Returns what the page draws: a description, and columns of numbers."""
    group = categories(source, picture.group, PANELS_MAX)
    if picture.group and group is None:
        raise UsageError(f"{picture.group} has too many values for panels (more than {PANELS_MAX})", "choose another one, or filter it")
    most = CATEGORIES_MAX if picture.colour and not source.kind(picture.colour).is_number else NUMBERS_AS_CATEGORIES_MAX
    colour = categories(source, picture.colour, most)
    if picture.colour and colour is None and not source.kind(picture.colour).is_number:
        raise UsageError(f"{picture.colour} has too many values for colours (more than {CATEGORIES_MAX})", "choose another one")
    made = _Made(source, picture, group, colour)
    about = {
        "mode": picture.mode,
        "x": made.spans[0],
        "y": made.spans[1] if picture.y else None,
        "panels": list(group.values) if group else [None],
        "categories": list(colour.values) if colour else None,
        "colour_span": made.colour_span(),
        "x_values": _names(source, picture.x),
        "y_values": _names(source, picture.y),
    }
    more, arrays = {POINTS: made.points, MEANS: made.means, COUNT: made.bars, CUMULATIVE: made.bars}[picture.mode]()
    return {**about, **more}, arrays


def _names(source: Source, axis: Axis | None) -> list[str] | None:
    found = source.kind(axis.name).values if axis else None
    return list(found) if found is not None else None


class _Made:
    """One picture in the making."""

    def __init__(self, source: Source, picture: Picture, group: Categories | None, colour: Categories | None):
        self.source, self.picture, self.group, self.colour = source, picture, group, colour
        self.spans = _spans(source, picture)
        where, values = view_filter.condition(picture.filters, source)
        x = picture.x.sql(source)
        y = picture.y.sql(source) if picture.y else "0"
        self._is_mean = picture.colour is not None and colour is None
        tint = source.quantity(picture.colour).expression if self._is_mean and picture.colour else None
        self._query = (
            f"SELECT {x} AS x, {y} AS y, {group.key if group else '0.0'} AS g, {colour.key if colour else '0.0'} AS c, "
            f"({tint or 'NULL'})::DOUBLE AS t, rowid::INTEGER AS r FROM runs WHERE {where}"
        )
        self._inner, self._values = f"({self._query})", values

    def colour_span(self) -> list[float] | None:
        if not self._is_mean:
            return None
        query = f"SELECT min(t), max(t) FROM {self._inner} WHERE isfinite(t)"
        found = self.source.kept((query, *self._values), lambda: self.source.one(query, self._values))
        return [0.0, 1.0] if found[0] is None else list(found)

    def _in_view(self) -> tuple[str, list[float]]:
        text, values = "isfinite(x) AND x BETWEEN ? AND ?", [*self.spans[0]]
        if self.picture.y:
            text, values = f"{text} AND isfinite(y) AND y BETWEEN ? AND ?", [*values, *self.spans[1]]
        return text, values

    def _coded(self, found: dict[str, Any]) -> dict[str, np.ndarray]:
        """Returns the columns with the indices of panels and categories in place of their keys."""
        for name, known in (("g", self.group), ("c", self.colour)):
            values = np.asarray(found[name], np.float64)
            found[name] = known.codes(values).astype(np.int32) if known else np.zeros(len(values), np.int32)
        return found

    def _coordinates(self) -> dict[str, np.ndarray]:
        found = self.source.picture(self._query, self._values)
        if "code" not in found:
            coded = self._coded(found)
            colours = len(self.colour.values) if self.colour else 1
            found |= {name: _filled(found[name]) for name in ("x", "y", "t")}
            found["r"] = np.asarray(found["r"], np.int32)
            found["code"] = coded["g"] * colours + coded["c"]
        return found

    def points(self) -> tuple[dict, dict[str, np.ndarray]]:
        x, y = self.picture.x, self.picture.y
        assert y is not None
        found = self._coordinates()
        (x_low, x_high), (y_low, y_high) = self.spans
        at = np.flatnonzero((found["x"] >= x_low) & (found["x"] <= x_high) & (found["y"] >= y_low) & (found["y"] <= y_high))
        if len(at) <= POINTS_MAX:
            return {"kind": "points", "inside": len(at)}, {name: found[name][at] for name in ("g", "c", "r", "x", "y", "t")}
        column = np.minimum(((found["x"][at] - x_low) * (x.cells / (x_high - x_low))).astype(np.int32), x.cells - 1)
        row = np.minimum(((found["y"][at] - y_low) * (y.cells / (y_high - y_low))).astype(np.int32), y.cells - 1)
        cells = x.cells * y.cells
        key = found["code"][at].astype(np.int64) * cells + row * x.cells + column
        codes = (len(self.group.values) if self.group else 1) * (len(self.colour.values) if self.colour else 1)
        if codes * cells > DENSE_MAX:
            there, key = np.unique(key, return_inverse=True)
            size = len(there)
        else:
            there, size = None, codes * cells
        counts = np.bincount(key, minlength=size)
        first = np.empty(size, np.int32)
        first[key] = found["r"][at]  # any run of a cell
        sums = np.bincount(key, weights=np.nan_to_num(found["t"][at]), minlength=size) if self._is_mean else None
        filled = np.flatnonzero(counts)
        where = filled if there is None else there[filled]
        colours = len(self.colour.values) if self.colour else 1
        code, cell = where // cells, where % cells
        return {"kind": "cells", "inside": len(at)}, {
            **{"g": (code // colours).astype(np.int32), "c": (code % colours).astype(np.int32), "cell": cell.astype(np.int32)},
            **{"n": counts[filled].astype(np.int32), "r": first[filled]},
            "t": (sums[filled] / counts[filled]).astype(np.float32) if sums is not None else np.zeros(0, np.float32),
        }

    def means(self) -> tuple[dict, dict[str, np.ndarray]]:
        """Returns mean, least and greatest y for each x of each colour. If x has too many values, they are put into equal spans."""
        view, bounds_ = self._in_view()
        low, high = self.spans[0]
        many = self.source.one(f"SELECT count(DISTINCT x) FROM {self._inner} WHERE {view}", [*self._values, *bounds_])[0] > MEANS_X_MAX
        colour = "c" if self.colour else "0.0"
        key, factors = ("x", []) if not many else (f"? + (least(floor((x - ?) * ?), {BARS - 1}) + 0.5) * ?", [low, low])
        if many:
            factors += [BARS / (high - low), (high - low) / BARS]
        # The mean is that of the quantity, not of its logarithm.
        assert self.picture.y is not None
        power = "power(10, y)" if self.picture.y.scale == LOG else "y"
        found = self.source.arrays(
            f"SELECT g, {colour} AS c, {key} AS x, avg({power}) AS y, min(y) AS low, max(y) AS high, count(*)::INTEGER AS n, "
            f"min(r)::INTEGER AS r FROM {self._inner} WHERE {view} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
            [*factors, *self._values, *bounds_],
        )
        coded = self._coded(found)
        y = _filled(found["y"])
        if self.picture.y.scale == LOG:
            y = np.log10(y)
        whole = {name: np.asarray(found[name], np.int32) for name in ("n", "r")}
        return {"kind": "means", "spans": BARS if many else None, "inside": int(whole["n"].sum())}, {
            **{name: coded[name] for name in ("g", "c")},
            **{name: _filled(found[name]) for name in ("x", "low", "high")},
            "y": y,
            **whole,
        }

    def bars(self) -> tuple[dict, dict[str, np.ndarray]]:
        """Returns the number of runs in equal spans of x, and for each group and colour the number below and in all."""
        low, high = self.spans[0]
        colour = "c" if self.colour else "0.0"
        found = self.source.arrays(
            f"SELECT g, {colour} AS c, greatest(-1, least(floor((x - ?) * ?), {BARS}))::INTEGER AS cell, count(*)::INTEGER AS n "
            f"FROM {self._inner} WHERE isfinite(x) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
            [low, BARS / (high - low), *self._values],
        )
        coded = self._coded(found)
        arrays = {name: coded[name] for name in ("g", "c")} | {name: np.asarray(found[name], np.int32) for name in ("cell", "n")}
        inside = int(arrays["n"][(arrays["cell"] >= 0) & (arrays["cell"] < BARS)].sum())
        return {"kind": "bars", "bars": BARS, "inside": inside}, arrays


def _filled(values: Any) -> np.ndarray:
    """Returns numbers with NaN for unknown ones."""
    return np.ma.filled(np.ma.asarray(values, np.float64), np.nan)


# ---- single runs, and tables ----


def nearest(source: Source, picture: Picture, panel: int, at: tuple[float, float]) -> int | None:
    """Returns the row of the run that is nearest to a place in view, or None if none is near. `at`: coordinates; distances are in cells."""
    assert picture.y is not None
    spans = _spans(source, picture)
    sizes = [(high - low) / axis.cells for (low, high), axis in zip(spans, (picture.x, picture.y))]
    where, values = view_filter.condition(picture.filters, source)
    group = categories(source, picture.group, PANELS_MAX)
    in_panel = f"{group.key} = {group.keys[panel]!r}" if group and 0 <= panel < len(group.keys) else "true"
    near = [at[0] - NEAREST_PIXELS * sizes[0], at[0] + NEAREST_PIXELS * sizes[0]]
    near += [at[1] - NEAREST_PIXELS * sizes[1], at[1] + NEAREST_PIXELS * sizes[1]]
    found = source.all(
        f"SELECT r FROM (SELECT {picture.x.sql(source)} AS x, {picture.y.sql(source)} AS y, rowid AS r FROM runs "
        f"WHERE {where} AND {in_panel}) WHERE x BETWEEN ? AND ? AND y BETWEEN ? AND ? "
        "ORDER BY pow((x - ?) / ?, 2) + pow((y - ?) / ?, 2), r LIMIT 1",
        [*values, *near, at[0], sizes[0], at[1], sizes[1]],
    )
    return found[0][0] if found else None


def run(source: Source, row: int) -> dict[str, Any]:
    """Returns all columns of a run, as they are in the table. Raises Failure if there is no such row."""
    found = source.rows("SELECT * FROM runs WHERE rowid = ?", [row])
    if not found:
        raise UsageError(f"there is no run {row}")
    return {name: _json(value) for name, value in found[0].items() if not name.startswith("_")}


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def shown_rows(source: Source, picture: Picture) -> tuple[str, list[Any]]:
    """Returns the query for the runs in view with the columns that identify them and the chosen quantities."""
    where, values = view_filter.condition(picture.filters, source)
    known = (
        "study",
        "run",
        "arm",
        "system",
        "load",
        "repeat",
        "seed",
        "status",
        "itr_us",
        "frequency_ghz",
        "idle",
        "rapl_w",
        "rate_wanted",
    )
    names = [name for name in known if name in source.columns] + [name for name in source.columns if name.startswith("set_")]
    chosen = [axis.name for axis in (picture.x, picture.y) if axis] + [name for name in (picture.colour, picture.group) if name]
    quantities = [f"({source.quantity(name).expression}) AS {quoted(name)}" for name in dict.fromkeys(chosen) if name not in names]
    conditions, bounds_ = [where], []
    for axis, span in zip((each for each in (picture.x, picture.y) if each), _spans(source, picture)):
        conditions.append(f"{axis.sql(source)} BETWEEN ? AND ?")
        bounds_ += span
    columns = ", ".join([*(quoted(name) for name in names), *quantities])
    return f"SELECT {columns} FROM runs WHERE {' AND '.join(conditions)} ORDER BY rowid", [*values, *bounds_]
