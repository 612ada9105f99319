# SPDX-License-Identifier: BSL-1.0
"""Reads a table of runs for analysis: a study's folder, its runs.parquet, or a CSV with some of the schema's columns.

Analysis commands need numbers, groups of runs and a list of the rows that they left out. So this module reads a table into a `Runs`, which
gives columns as numpy arrays: NaN for a missing number, None for a missing text. A column that a command needs and the table lacks is an
error of one sentence.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from tools.errors import Failure, UsageError
from tools.study import published_runs, schema
from tools.study.repeats import Repeats, of_codes

CSV_NULLS = ["", "NA", "NaN", "nan", "null", "None"]
# The parts of a group's name, and the settings of a run, in the order of tables.
GROUP_COLUMNS = ("study", "machine", "arm", "system", "cores", "load", "rate_wanted")
SETTING_COLUMNS = ("itr_us", "frequency_ghz", "idle", "rapl_w")


@dataclasses.dataclass(frozen=True)
class Excluded:
    """Rows that an analysis left out, and why."""

    reason: str
    rows: int


@dataclasses.dataclass(frozen=True)
class Runs:
    """Rows of runs. `source` is for messages."""

    table: pa.Table
    source: str

    def __len__(self) -> int:
        return self.table.num_rows

    def has(self, name: str) -> bool:
        """True if there is such a column with at least one value."""
        return name in self.table.column_names and self.table.column(name).null_count < len(self)

    def require(self, *names: str) -> None:
        """Raises Failure if a column is missing or has no value."""
        for name in names:
            if not self.has(name):
                kind = "has no value" if name in self.table.column_names else "is missing"
                raise Failure(f"{self.source}: the column '{name}' {kind}", f"columns with values: {', '.join(self.known()) or 'none'}")

    def known(self) -> list[str]:
        return [name for name in self.table.column_names if self.has(name)]

    def numbers(self, name: str) -> np.ndarray:
        """A column as floats; NaN for a missing value. Raises Failure for a column of texts."""
        if not self.has(name):
            return np.full(len(self), np.nan)
        column = self.table.column(name)
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
            raise Failure(f"{self.source}: the column '{name}' has texts, where numbers are needed")
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(float)

    def values(self, name: str) -> np.ndarray:
        """A column as Python objects; None for a missing value. Whole floats become integers, so that they print well."""
        if name not in self.table.column_names:
            return np.full(len(self), None, object)
        found = np.empty(len(self), object)
        found[:] = [_plain(value) for value in self.table.column(name).to_pylist()]
        return found

    def only(self, mask: np.ndarray) -> Runs:
        return Runs(self.table.filter(pa.array(mask)), self.source)

    def further_settings(self) -> list[str]:
        return [name for name in self.table.column_names if name.startswith(schema.SET)]

    def coded(self, name: str) -> tuple[np.ndarray, list[Any]]:
        """A column as numbers of its distinct values, and these values as values() has them."""
        if name not in self.table.column_names or not len(self):
            return np.zeros(len(self), int), [None]
        encoded = self.table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        numbers: dict[Any, int] = {}
        # NaN and null are one value.
        codes = np.array([numbers.setdefault(_plain(value), len(numbers)) for value in encoded.dictionary.to_pylist()])
        return codes[encoded.indices.to_numpy(zero_copy_only=False)], list(numbers)

    def among(self, name: str, wanted: Sequence[Any]) -> np.ndarray:
        """For each row, whether the column has one of these values."""
        codes, values = self.coded(name)
        return np.array([value in wanted for value in values])[codes]

    def varying(self, names: Sequence[str]) -> list[str]:
        """Those of the columns that have more than one value, where a missing value counts as one."""
        return [name for name in names if name in self.table.column_names and len(self.coded(name)[1]) > 1]

    def combinations(self, names: Sequence[str]) -> tuple[list[dict[str, Any]], Repeats]:
        """The combinations of values, in a stable order, and the rows of each."""
        columns = [self.coded(name) for name in names]
        of = of_codes([np.zeros(len(self), int), *(codes for codes, _ in columns)])
        keys = [tuple(values[code] for (_, values), code in zip(columns, each)) for each in zip(*(codes[of.first] for codes, _ in columns))]
        keys = keys if columns else [()] * len(of)
        order = sorted(range(len(keys)), key=lambda at: _order(keys[at]))
        return [dict(zip(names, keys[at], strict=True)) for at in order], of.ordered(np.array(order, int))

    def groups(self, names: Sequence[str]) -> Iterator[tuple[dict[str, Any], Runs]]:
        """Yields the rows of each combination of values, in a stable order."""
        keys, of = self.combinations(names)
        for key, rows in zip(keys, of.rows()):
            yield key, Runs(self.table.take(pa.array(rows)), self.source)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else int(value) if value.is_integer() and abs(value) < 1e15 else value
    return value


def _order(key: tuple) -> tuple:
    """Numbers sort as numbers, before texts; missing values are last."""
    return tuple((2, 0.0, "") if v is None else (0, float(v), "") if isinstance(v, (int, float)) else (1, 0.0, str(v)) for v in key)


def read(places: Sequence[str | Path], where: str | None = None) -> Runs:
    """Reads the tables of all places into one. `where`: an SQL condition over the columns that rows must fulfil. Raises Failure."""
    tables = [_read_one(Path(place)) for place in places]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise Failure(f"the tables do not fit together: {error}") from None
    source = str(places[0]) if len(places) == 1 else f"{len(places)} tables"
    if not table.num_rows:
        raise Failure(f"{source}: the table has no row")
    chosen = _where(table, where) if where else table
    if not chosen.num_rows:
        raise Failure(f"--where: none of the {table.num_rows} rows fulfils it")
    return Runs(chosen, source)


def _read_one(place: Path) -> pa.Table:
    path = place / schema.RUNS if place.is_dir() else place
    if not path.is_file():
        hint = "./neap sweep writes it" if place.is_dir() else "it takes a study's folder, a Parquet file or a CSV file"
        raise Failure(f"{path}: no such file", hint)
    if path.suffix.lower() == ".csv" and published_runs.is_published(path):
        return published_runs.read(path)
    try:
        if path.suffix.lower() == ".csv":
            options = csv.ConvertOptions(null_values=CSV_NULLS, strings_can_be_null=True)
            table = csv.read_csv(path, convert_options=options)
        else:
            table = parquet.read_table(path)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError) as error:
        raise Failure(f"{path}: {str(error).splitlines()[0]}", "it is no table of runs") from None
    if len(set(table.column_names)) < table.num_columns:
        double = next(name for name in table.column_names if table.column_names.count(name) > 1)
        raise Failure(f"{path}: two columns are named '{double}'")
    return _typed(table, path)


def _typed(table: pa.Table, path: Path) -> pa.Table:
    """The table, in which the schema's columns have the schema's types."""
    for at, name in enumerate(table.column_names):
        column, wanted = table.column(at), schema.TYPES.get(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if wanted in (schema.WHOLE, schema.NUMBER):
            wanted = schema.NUMBER  # a CSV may have 1e5 for a whole number
        if wanted is not None and not pa.types.is_timestamp(wanted) and column.type != wanted:
            try:
                column = column.cast(wanted)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                kind = "numbers are" if wanted == schema.NUMBER else f"{wanted} is"
                raise Failure(f"{path}: column '{name}': {str(error).splitlines()[0]}", f"{kind} needed there") from None
        table = table.set_column(at, name, column)
    return table


def _where(table: pa.Table, where: str) -> pa.Table:
    """The rows that fulfil the condition. DuckDB may open no file meanwhile."""
    with duckdb.connect(config={"enable_external_access": "false"}) as base:
        base.register("runs", table)
        try:
            found = base.sql(f"SELECT * FROM runs WHERE ({where})").to_arrow_table()
        except duckdb.Error as error:
            raise UsageError(f"--where: {str(error).splitlines()[0]}", "an SQL condition, like 'itr_us >= 50 and p99_us <= 500'") from None
    return found


def measured(runs: Runs) -> tuple[Runs, list[Excluded]]:
    """Drops failed runs and baselines, and says how many."""
    excluded: list[Excluded] = []
    runs = drop(runs, runs.among("status", [schema.FAILED]), "the run failed", excluded)
    return drop(runs, runs.among("load", schema.BASELINES), "a baseline without requests", excluded), excluded


def drop(runs: Runs, bad: np.ndarray, reason: str, excluded: list[Excluded]) -> Runs:
    """The rows that are not `bad`. Adds the others to `excluded`."""
    if bad.any():
        excluded.append(Excluded(reason, int(bad.sum())))
    return runs.only(~bad) if bad.any() else runs


def grouping(runs: Runs, by: str | None, further: Sequence[str] = ()) -> list[str]:
    """The columns that make groups: those of `--by`, or the usual ones and `further` that vary, and always the arm if there is one."""
    if by is None:
        names = [*GROUP_COLUMNS, *further]
        varying = runs.varying(names)
        # The system follows from the arm.
        return [name for name in names if name in varying and not (name == "system" and "arm" in varying)] or (
            ["arm"] if runs.has("arm") else []
        )
    names = [name.strip() for name in by.split(",") if name.strip()]
    for name in names:
        if name not in runs.table.column_names:
            raise UsageError(f"--by: there is no column '{name}'", f"columns: {', '.join(runs.known())}")
    return names


def group_name(key: dict[str, Any]) -> str:
    return ", ".join(_labelled(name, value) for name, value in key.items()) or "all runs"


def _labelled(name: str, value: Any) -> str:
    if value is None:
        return f"no {name}"
    if name == "rate_wanted":
        return f"{value:,} requests/s"
    if name == "cores":
        return f"{value} core{'s' * (value != 1)}"
    return str(value) if name in ("arm", "load", "study", "machine") else f"{name.removeprefix(schema.SET)} {value}"
