# SPDX-License-Identifier: BSL-1.0
"""The commands of `./neap log` that need packages: csv, parquet, summary, report. They run in a virtual environment (tools/pythons.py)."""

import json
from pathlib import Path

from tools import progress
from tools.errors import Failure, UsageError
from tools.log import decode


def convert(arguments) -> int:
    """Executes a command; `arguments` come from the parser in cli.py."""
    if arguments.action == "csv" and arguments.study:
        return _study(arguments)
    run = decode.load(arguments.places)
    if arguments.action == "summary":
        from tools.log import summary

        found = summary.summarise(run)
        print(json.dumps(found, indent=2) if arguments.json else summary.text(found))
        return 0
    if arguments.action == "report":
        from tools.log import report

        out = Path(arguments.out or _beside(arguments.places, "report.html"))
        size = report.write(run, out)
        progress.say(f"neap: {out}, {size / 1e6:.1f} MB: open it in a browser")
        return 0
    from tools.log import tables

    pieces = tables.tables(run, arguments.table, arguments.untrimmed)
    if arguments.action == "csv":
        tables.write_csv(pieces, arguments.out or "-")
    else:
        out = arguments.out or _beside(arguments.places, f"{arguments.table}.parquet")
        tables.write_parquet(pieces, run, str(out))
        progress.say(f"neap: {out}")
    return 0


def _study(arguments) -> int:
    from tools.log import study

    name = study.check_name(arguments.study)
    if arguments.repetition < 0:
        raise UsageError("--repetition takes a number from 0 on")
    folder = Path(arguments.out or _beside(arguments.places, "study"))
    for path in study.write(decode.load(arguments.places), name, arguments.repetition, folder):
        print(path)
    return 0


def _beside(places: list[str], name: str) -> Path:
    """Returns the path of a result if --out is not given: `name` in the folder of the logs."""
    if not places:
        raise UsageError("no log is named", "./neap log summary DIR")
    first = Path(places[0])
    folder = first if first.is_dir() else first.parent
    if not folder.is_dir():
        raise Failure(f"there is no {first}")
    return folder / name
