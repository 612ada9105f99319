# SPDX-License-Identifier: BSL-1.0
"""The trials of a live search as rows of the table of runs, so that the other commands of a study read them."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

from pyarrow import parquet

from tools import cache
from tools.errors import Failure
from tools.study import schema
from tools.study.tune_live import Measured, Offered, Setting, words

RUN_DIGITS = 16


class Rows:
    """`out`: a Parquet file, or None. Trials are kept until `write`, which replaces the file in one step."""

    def __init__(self, out: Path | None, load: Offered):
        if out is not None and out.suffix != ".parquet":
            raise Failure(f"--out: {out} is no name of a Parquet file", "a name like trials.parquet")
        self._out, self._load = out, load
        self.found: list[dict[str, Any]] = []
        self._swept: set[str] = set()

    def add(self, setting: Setting, one: Measured, rate: float, modelled: bool) -> None:
        settings = dict(words(setting))
        number = len(self.found) + 1
        started = datetime.datetime.now(datetime.UTC)
        row: dict[str, Any] = {
            "study": "tune",
            "run": cache.digest(json.dumps([number, started.isoformat(), settings]))[:RUN_DIGITS],
            "arm": "tune",
            "system": "neap",
            "modelled": modelled,
            "load": self._load.preset,
            "repeat": number,
            "status": schema.FAILED if one.failure else schema.OK,
            "failure": one.failure or None,
            "started": started,
            "took_s": one.seconds,
            "settings": json.dumps(settings),
            "rate_wanted": rate,
            **one.figures,
        }
        for name, value in setting.items():
            row[name] = value
            if name not in schema.OWN_SETTINGS:
                self._swept.add(name.removeprefix(schema.SET))
        self.found.append(row)

    def write(self) -> None:
        if self._out is None or not self.found:
            return
        making = self._out.with_name(f"{self._out.name}.{os.getpid()}.new")
        try:
            parquet.write_table(schema.runs_table(self.found, sorted(self._swept)), making, compression="zstd")
            making.rename(self._out)
        except OSError as error:
            making.unlink(missing_ok=True)
            raise Failure(f"cannot write {self._out}: {error.strerror or error}") from None
