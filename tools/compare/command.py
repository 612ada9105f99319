# SPDX-License-Identifier: BSL-1.0
"""The command `./neap compare`."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools import machine_list, progress, run
from tools.bench import modelled
from tools.compare import figures, folder, page, plan, store, table, units
from tools.compare.figures import Measured
from tools.errors import Failure
from tools.log import report

COMPARISON, PAGE, LOG_PAGE, TABLE = "comparison.json", "comparison.html", "logs.html", "comparison.txt"
LOCK_SECONDS = 5.0


def compare(file: str | None, out: str, only: Sequence[str], rounds: int | None, cores: Sequence[int] | None, jobs: int | None) -> int:
    """Runs all units that the folder lacks, and prints the table. Returns the launcher's exit status."""
    wanted = plan.read(Path(file) if file else plan.DEFAULT).narrowed(only, rounds, cores)
    run.require_build_packages()
    booted = units.boot_files(wanted)
    results = folder.ResultFolder(Path(out), wanted, folder.participants(wanted, booted))
    with _only_one(results.path):
        _run_missing(results, booted, jobs or len(os.sched_getaffinity(0)))
        measured = [one for unit in units.units(wanted) for one in results.measured(unit)]
        print(_write(results, measured))
    progress.say(f"neap: {results.path / PAGE}: open it in a browser")
    return 0


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Two processes would measure the same units twice."""
    from tools import cache

    with cache.lock(path / ".lock", work=f"writes to {path}", timeout_seconds=LOCK_SECONDS):
        yield


def _run_missing(results: folder.ResultFolder, booted: Mapping[str, units.Booted], jobs: int) -> None:
    """Runs the units that have no result. After a failure no further unit begins; those in progress end."""
    wanted = units.units(results.plan)
    missing = [unit for unit in wanted if not results.is_done(unit)]
    if len(missing) < len(wanted):
        progress.say(f"neap: {len(wanted) - len(missing)} of {len(wanted)} runs are in {results.path} already")
    countdown = modelled.Countdown(len(missing))
    stopped = threading.Event()

    def one(unit: units.Unit) -> None:
        if stopped.is_set():
            return
        try:
            results.keep(unit, units.run(unit, results.plan, booted[unit.arm.system], results.logs))
        except BaseException:
            stopped.set()
            raise
        countdown.finished()

    if not missing:
        return
    with progress.step(f"{len(missing)} runs on the model machine"), concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(one, unit) for unit in missing]
        try:
            for future in futures:
                future.result()
        except BaseException:
            progress.say("neap: this ends when the runs in progress have ended, at most some minutes; their results are kept")
            raise
        finally:
            stopped.set()
            if progress.on_terminal():
                progress.show_status("")


def _write(results: folder.ResultFolder, measured: Sequence[Measured]) -> str:
    """Writes all files that are made from the units. Returns the table as text."""
    wanted = results.plan
    cells = figures.cells(measured)
    differences = _differences(results)
    rounds = store.rounds_text(wanted.rounds, "+- is half of a 95 % confidence interval")
    head = f"{wanted.title}\nmodelled ({wanted.model}), virtual time, {rounds}"
    head += f"\nratios are to {wanted.arms[0].name}"
    text = "\n\n".join([head, table.text(wanted, cells), *(said for said in [_difference_text(differences)] if said)])
    has_logs = _log_page(results)
    folder.write_text(results.path / TABLE, text + "\n")
    folder.write(results.path / COMPARISON, store.document(results, cells, differences))
    store.write_parquet(measured, results.path / store.RUNS)
    shown = page.build(store.for_page(wanted, cells, _difference_lines(differences), LOG_PAGE if has_logs else None))
    folder.write_text(results.path / PAGE, shown)
    return text


def _log_page(results: folder.ResultFolder) -> bool:
    """Makes the page that has the logs of all arms over each other. False if no log was asked for."""
    places = [results.logs / arm.folder for arm in results.plan.arms]
    if results.plan.log is None or not all(place.is_dir() for place in places):
        return False
    report.write(report.load([str(place) for place in places], names=[arm.name for arm in results.plan.arms]), results.path / LOG_PAGE)
    return True


def _differences(results: folder.ResultFolder) -> dict[str, list[Any]]:
    """Returns the differences between the first arm's machine and each other one, by the other arm's name."""
    machines = results.machines()
    first = results.plan.arms[0].name
    others = [arm.name for arm in results.plan.arms[1:]]
    if missing := [name for name in (first, *others) if name not in machines]:
        raise Failure(f"the list of the machine of {missing[0]} is missing", "remove the folder's units/log.*, and run the command again")
    return {name: machine_list.differences(machines[first], machines[name]) for name in others}


def _difference_lines(differences: Mapping[str, list[Any]]) -> list[str]:
    return [f"{arm}: {line}" for arm, found in differences.items() if found for line in machine_list.lines(found)]


def _difference_text(differences: Mapping[str, list[Any]]) -> str:
    lines = _difference_lines(differences)
    return "\n".join(["the machines differ from the first arm's:", *(f"  {line}" for line in lines)]) if lines else ""
