# SPDX-License-Identifier: BSL-1.0
"""The table of runs as a file: CSV of any query, and `runs.parquet` of a published dataset or of several studies together."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.errors import UsageError
from tools.log.tables import Making
from tools.study.view_columns import quoted
from tools.study.view_source import Source

ROWS_AT_ONCE = 20_000
# Spreadsheets take a text that begins with one of these signs for a formula.
FORMULA_SIGNS = ("=", "+", "-", "@")


def csv_pieces(source: Source, query: str, values: Sequence[Any], at_once: int = ROWS_AT_ONCE) -> Iterator[bytes]:
    """Gives a result as CSV, a piece for each `at_once` rows. Unknown values are empty."""
    cursor = source.cursor()
    try:
        cursor.execute(query, list(values))
        names = [each[0] for each in cursor.description]
        yield _csv([names])
        while rows := cursor.fetchmany(at_once):
            yield _csv(rows)
    finally:
        cursor.close()


def _csv(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_safe(value) for value in row] for row in rows)
    return text.getvalue().encode()


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_SIGNS) else value


def write(source: Source, out: Path) -> int:
    """Writes all runs as CSV or Parquet, as the file's name says. Returns their number. Raises UsageError for another name."""
    columns = ", ".join(quoted(name) for name in source.columns if not name.startswith("_"))
    if out.suffix == ".csv":
        with Making(out) as making, open(making, "wb") as file:
            file.writelines(csv_pieces(source, f"SELECT {columns} FROM runs", []))
    elif out.suffix == ".parquet":
        from pyarrow import parquet

        with Making(out) as making:
            table = source.arrow(f"SELECT {columns} FROM runs")
            parquet.write_table(table, making, compression="zstd")
    else:
        raise UsageError(f"--out names a .parquet or .csv file, not '{out.name}'", "with --figure also .svg or .html")
    return source.count
