# SPDX-License-Identifier: BSL-1.0
"""The commands of `./neap log` that need packages, like csv and report. They run in a virtual environment (tools/pythons.py)."""

import json
from pathlib import Path

from tools import progress
from tools.errors import Failure, UsageError
from tools.log import decode


def convert(arguments) -> int:
    """Executes a command; `arguments` come from the parser in cli.py."""
    if arguments.action == "csv" and arguments.study:
        return _study(arguments)
    if arguments.action == "summary":
        return _summary(arguments)
    if arguments.action == "diff":
        from tools.log import diff

        return diff.command(arguments.first, arguments.second, arguments.json)
    if arguments.action == "report":
        from tools.log import report

        runs = report.load(arguments.places, arguments.name or ())
        out = Path(arguments.out or _beside(arguments.places, "report.html"))
        size = report.write(runs, out)
        progress.say(f"neap: {out}, {size / 1e6:.1f} MB: open it in a browser")
        return 0
    run = decode.load(arguments.places)
    if arguments.action == "wakeups":
        from tools.log import wakeups

        print(wakeups.text(wakeups.latencies(run)))
        return 0
    from tools.log import tables

    pieces = tables.tables(run, arguments.table, arguments.untrimmed)
    if arguments.action == "csv":
        tables.write_csv(pieces, arguments.out or "-")
        if arguments.out and arguments.table != "configuration":
            # A second file: few tools can skip comment lines in the first one.
            beside = tables.configuration_path(arguments.out)
            tables.write_csv(iter([tables.configuration_table(run)]), str(beside))
            progress.say(f"neap: {arguments.out}, and the configuration in {beside}")
    else:
        out = arguments.out or _beside(arguments.places, f"{arguments.table}.parquet")
        tables.write_parquet(pieces, run, str(out))
        progress.say(f"neap: {out}")
    return 0


def _summary(arguments) -> int:
    from tools.log import repeats, summary

    runs = repeats.load(arguments.places, [Path(file) for file in arguments.load or ()], arguments.steady)
    found = [{**summary.summarise(each.run, each.windows), "load": each.file and str(each.file)} for each in runs]
    for each, row in zip(runs, found):
        if arguments.steady is not None and not each.windows:
            row["phase_remarks"].append("no time of steady load was found, so phases have all of the run")
    if len(found) > 1:
        table = repeats.compare(found, [each.name for each in runs])
        print(json.dumps(table, indent=2) if arguments.json else repeats.text(table))
    else:
        print(json.dumps(found[0], indent=2) if arguments.json else summary.text(found[0]))
    return 0


def _study(arguments) -> int:
    from tools.log import repeats, study, study_layout

    layout, setting = study_layout.parse_study(arguments.study)
    if arguments.setting is not None:
        setting = study_layout.parse_setting(arguments.setting, "--setting")
    if arguments.repetition < 0:
        raise UsageError("--repetition takes a number from 0 on")
    if arguments.qps is not None and not arguments.qps.isdecimal():
        raise UsageError(f"--qps takes requests per second, like 200000, not '{arguments.qps}'")
    runs = repeats.load(arguments.places, [Path(arguments.load)] if arguments.load else [])
    if len(runs) > 1:
        raise UsageError("--study takes one run", "--repetition I numbers the runs of one folder")
    folder = Path(arguments.out or _beside(arguments.places, "study"))
    wanted = study.Wanted(layout, setting, arguments.qps, arguments.repetition)
    written, remarks = study.write(runs[0].run, wanted, folder, runs[0].windows)
    for path in written:
        print(path)
    for remark in remarks:
        progress.say(f"neap: note: {remark}")
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
