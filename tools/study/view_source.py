# SPDX-License-Identifier: BSL-1.0
"""The table that `./neap view` shows: the runs of one study or several, in DuckDB.

A place is a study's folder, a Parquet or CSV file with columns of the table of runs (schema.py), or a folder with files of the published
studies. All places become one table `runs`. Texts with few values are stored as numbers (ENUM), so that filters and colours are fast.

Files come from other programs, so DuckDB may not open any further file once the table is there.
"""

import collections
import contextlib
import dataclasses
import glob
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import parquet

from tools.errors import Failure, UsageError
from tools.foreign import shown
from tools.study import published_runs, view_columns
from tools.study.view_columns import Quantity, quoted

RUNS, HISTOGRAMS = "runs.parquet", "histograms.parquet"
PLACES_MAX = 32
COLUMNS_MAX = 500
ROWS_MAX = 10_000_000
# A text with more values is no category, such as a run's name.
TEXT_VALUES_MAX = 1000
QUERY_SECONDS_MAX = 30.0
MEMORY_MAX = "4GB"
# Results that are kept: bounds and categories, and the coordinates of whole pictures.
KEPT_MAX = 200
PICTURES_MAX = 4
# The number of the place that a row comes from.
PLACE = "_place"


@dataclasses.dataclass(frozen=True)
class Kind:
    """The type of a quantity. `values`: those of a text that is stored as ENUM, in order."""

    is_number: bool
    values: tuple[str, ...] | None = None


class Source:
    """The tables `runs` and, if a place has histograms, `histograms`. Threads MAY query at the same time."""

    def __init__(self, places: Sequence[str]):
        if not places:
            raise UsageError("no study is named", "./neap view STUDY")
        if len(places) > PLACES_MAX:
            raise UsageError(f"{len(places)} places are named, a view shows at most {PLACES_MAX}")
        self.places = [Path(place) for place in places]
        self.folders: list[Path] = []
        self.notes: list[str] = []
        self._connection = duckdb.connect(":memory:", config={"memory_limit": MEMORY_MAX})
        self._guard = threading.Lock()
        self._kept: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        self._pictures: collections.OrderedDict[tuple, dict[str, Any]] = collections.OrderedDict()
        # Of each table's file: a stamp that changes with it, and its number of runs.
        self._files: dict[Path, tuple[tuple[int, int], int | None]] = {}
        self._load()
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        self.columns: dict[str, Kind] = self._kinds()
        self.quantities: dict[str, Quantity] = {each.name: each for each in view_columns.available(self.columns)}
        self.count: int = self.one("SELECT count(*) FROM runs")[0]
        if self.count == ROWS_MAX:
            self.notes.append(f"only the first {ROWS_MAX:,} runs are shown")
        if not self.count:
            raise Failure(f"{shown(self.places[0])} has no run", "./neap sweep STUDY.toml makes them")

    # ---- queries ----

    def cursor(self) -> duckdb.DuckDBPyConnection:
        with self._guard:
            return self._connection.cursor()

    def _run(self, query: str, values: Sequence[Any], take: Callable[[duckdb.DuckDBPyConnection], Any]) -> Any:
        """Runs a query that ends after QUERY_SECONDS_MAX in any case."""
        cursor = self.cursor()
        timer = threading.Timer(QUERY_SECONDS_MAX, cursor.interrupt)
        timer.daemon = True
        timer.start()
        try:
            return take(cursor.execute(query, list(values)))
        except duckdb.InterruptException:
            raise Failure(f"a question to the table took more than {QUERY_SECONDS_MAX:.0f} s") from None
        finally:
            timer.cancel()
            cursor.close()

    def all(self, query: str, values: Sequence[Any] = ()) -> list[tuple]:
        return self._run(query, values, lambda cursor: cursor.fetchall())

    def one(self, query: str, values: Sequence[Any] = ()) -> tuple:
        return self.all(query, values)[0]

    def arrays(self, query: str, values: Sequence[Any] = ()) -> dict[str, Any]:
        """Returns the columns of a result as numpy arrays. The query MUST give numbers."""
        return self._run(query, values, lambda cursor: cursor.fetchnumpy())

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        def take(cursor: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
            names = [each[0] for each in cursor.description]
            return [dict(zip(names, row)) for row in cursor.fetchall()]

        return self._run(query, values, take)

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """Returns `make()`, or its earlier result for this key. The table does not change, so results stay true."""
        with self._guard:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._guard:
            self._kept[key] = made
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return made

    def forget(self) -> None:
        """Drops all kept results, so that a measurement begins as a new server does."""
        with self._guard:
            self._kept.clear()
            self._pictures.clear()

    def picture(self, query: str, values: Sequence[Any]) -> dict[str, Any]:
        """Returns the columns of a query as numpy arrays, which are kept for the last PICTURES_MAX queries. So zooms into one picture
        compute its coordinates once."""
        key = (query, *values)
        with self._guard:
            if key in self._pictures:
                self._pictures.move_to_end(key)
                return self._pictures[key]
        made = self.arrays(query, values)
        with self._guard:
            self._pictures[key] = made
            while len(self._pictures) > PICTURES_MAX:
                self._pictures.popitem(last=False)
        return made

    def arrow(self, query: str) -> Any:
        """Returns a result as a table of pyarrow."""
        return self.cursor().sql(query).to_arrow_table()

    def quantity(self, name: str) -> Quantity:
        """Returns a quantity of the table. Raises UsageError if the table lacks a column that it needs."""
        if found := self.quantities.get(name):
            return found
        if known := view_columns.KNOWN.get(name):
            missing = [each for each in known.needs if each not in self.columns]
            raise UsageError(f"{shown(self.places[0])} has no column {' and '.join(missing)}, which {known.title} needs")
        raise UsageError(f"there is no quantity '{shown(name, 60)}'", "the page lists them")

    def kind(self, name: str) -> Kind:
        return self.columns.get(name, Kind(True))

    def news(self) -> dict[str, Any]:
        """Returns whether a table's file has changed since it was read, and how many runs were added; None: not known."""
        found: dict[Path, int | None] = {}
        for path, (stamp, before) in self._files.items():
            with contextlib.suppress(OSError):  # between the removal of a file and its return
                if _stamp(path) != stamp:
                    now = _rows(path)
                    found[path] = None if now is None or before is None else now - before
        added = list(found.values())
        return {"changed": bool(found), "added": None if None in added else sum(filter(None, added))}

    @property
    def has_histograms(self) -> bool:
        return self._has_histograms

    # ---- a run's files ----

    def log_places(self, row: int) -> list[str]:
        """Returns the folder of a run's log, or the files of a published run. They are inside of the study's folder. Raises Failure if
        there is no log."""
        found = self.all(f"SELECT {PLACE}, log FROM runs WHERE rowid = ?", [row]) if "log" in self.columns else []
        if not found or not found[0][1]:
            raise Failure("this run has no log")
        base = self.folders[found[0][0]].resolve()
        path = (base / str(found[0][1])).resolve()
        if not path.is_relative_to(base) or not path.exists():
            raise Failure(f"the log of this run is not in {base}")
        if path.is_dir():
            return [str(path)]
        from tools.study import dataset

        return dataset.files_of(path)

    # ---- loading ----

    def _load(self) -> None:
        parts, histograms = [], []
        for place in self.places:
            number = len(self.folders)
            if place.is_dir() and (place / RUNS).is_file():
                reader, path, folder = "read_parquet({})", place / RUNS, place
                if (place / HISTOGRAMS).is_file():
                    histograms.append(place / HISTOGRAMS)
            elif place.is_file() and place.suffix == ".parquet":
                reader, path, folder = "read_parquet({})", place, place.parent
                if place.name == RUNS and (place.parent / HISTOGRAMS).is_file():
                    histograms.append(place.parent / HISTOGRAMS)
            elif place.is_file() and place.suffix == ".csv" and not published_runs.is_published(place):
                reader, path, folder = "read_csv({}, header = true, sample_size = 100000)", place, place.parent
            elif place.is_dir() or (place.is_file() and published_runs.is_published(place)):
                self._load_published(place, number)
                parts.append(f"SELECT *, {number} AS {PLACE} FROM published{number}")
                self.folders.append(place)
                continue
            else:
                hint = "a folder of ./neap sweep, a runs.parquet, a CSV file, or a folder of the published studies' files"
                raise UsageError(f"{shown(place)} is no study", hint)
            parts.append(f"SELECT *, {number} AS {PLACE} FROM {reader.format(_literal(path))}")
            self._files[path] = _stamp(path), _rows(path)
            self.folders.append(folder)
        try:
            # A view, because a table would be a second copy of all rows.
            self._connection.execute(f"CREATE VIEW raw AS {' UNION ALL BY NAME '.join(parts)}")
            self._has_histograms = bool(histograms)
            if histograms:
                union = " UNION ALL BY NAME ".join(
                    f"SELECT run, upper_us, count FROM read_parquet({_literal(path)})" for path in histograms
                )
                self._connection.execute(f"CREATE TABLE histograms AS {union}")
            self._store_texts_as_numbers()
        except (duckdb.Error, OSError) as error:
            raise Failure(f"{shown(self.places[0])} cannot be read: {shown(str(error).splitlines()[0], 200)}") from None

    def _load_published(self, place: Path, number: int) -> None:
        from tools.study import dataset

        if place.is_dir():
            table = dataset.read(place)
            self.notes += dataset.NOTES
        else:
            table = published_runs.read(place)
        self._connection.register("arriving", table)
        self._connection.execute(f"CREATE TABLE published{number} AS SELECT * FROM arriving")
        self._connection.unregister("arriving")

    def _store_texts_as_numbers(self) -> None:
        described = self._connection.execute("DESCRIBE raw").fetchall()
        if len(described) > COLUMNS_MAX:
            raise Failure(f"{shown(self.places[0])} has {len(described)} columns; a table of runs has at most {COLUMNS_MAX}")
        chosen = []
        for at, (name, kind, *_) in enumerate(described):
            column = quoted(name)
            if kind == "BOOLEAN":
                chosen.append(f"CASE WHEN {column} THEN 'yes' WHEN NOT {column} THEN 'no' END::ENUM('no', 'yes') AS {column}")
                continue
            is_text = kind == "VARCHAR" and name not in view_columns.NOT_SHOWN
            few = is_text and self._connection.execute(f"SELECT approx_count_distinct({column}) FROM raw").fetchall()[0][0]
            if few and few <= TEXT_VALUES_MAX:
                self._connection.execute(
                    f"CREATE TYPE text{at} AS ENUM (SELECT DISTINCT {column} FROM raw WHERE {column} IS NOT NULL ORDER BY 1)"
                )
                chosen.append(f"{column}::text{at} AS {column}")
            else:
                chosen.append(column)
        self._connection.execute(f"CREATE TABLE runs AS SELECT {', '.join(chosen)} FROM raw LIMIT {ROWS_MAX}")
        self._connection.execute("DROP VIEW raw")

    def _kinds(self) -> dict[str, Kind]:
        found = {}
        for name, kind, *_ in self._connection.execute("DESCRIBE runs").fetchall():
            if kind.startswith("ENUM"):
                values = self._connection.execute(f"SELECT enum_range({quoted(name)}) FROM runs LIMIT 1").fetchall()
                found[name] = Kind(False, tuple(values[0][0]) if values else ())
            else:
                found[name] = Kind(kind not in ("VARCHAR", "BOOLEAN") and not kind.startswith(("TIMESTAMP", "DATE", "STRUCT", "MAP")))
        return found


def _stamp(path: Path) -> tuple[int, int]:
    there = path.stat()
    return there.st_mtime_ns, there.st_size


def _rows(path: Path) -> int | None:
    """Returns the number of rows of a Parquet file; None for another file."""
    try:
        return parquet.ParquetFile(path).metadata.num_rows if path.suffix == ".parquet" else None
    except pa.ArrowException:
        return None


def _literal(path: Path) -> str:
    """Returns a file's name as an SQL text. Signs of a pattern in it are meant literally."""
    return "'" + glob.escape(str(path)).replace("'", "''") + "'"
