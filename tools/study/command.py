# SPDX-License-Identifier: BSL-1.0
"""The command `./neap sweep`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools import cache, installed, progress
from tools.errors import EXIT_FAILURE, Failure, UsageError
from tools.study import engine, plan, rigs, study_file, tables
from tools.study.engine import Pending
from tools.study.folder import StudyFolder
from tools.study.plan import Run, Unit
from tools.study.schema import FAILED
from tools.study.study_file import Study

LOCK_SECONDS = 5.0
TABLES_SECONDS = 60.0
FAILURES_SHOWN = 10
LOCK = ".lock"


def sweep(
    file: str | None,
    out: str | None,
    jobs: int | None,
    rigs_file: str | None,
    machines: str,
    retry_failed: bool,
    plan_only: bool,
    worker: bool,
) -> int:
    """Runs all runs that the folder lacks, and writes the tables. Returns the launcher's exit status: 1 if a run failed."""
    if worker:
        from tools.study import worker as worker_process

        return worker_process.main()
    if file is None:
        raise UsageError("sweep needs the file of a study", "./neap sweep tools/study/studies/itr-dvfs.toml")
    study = study_file.read(Path(file))
    units = plan.units(study)
    chosen = rigs_for(study, units, jobs, rigs_file, machines)
    if plan_only:
        print(_listed(units, study))
        return 0
    path = Path(out or f"{Path(file).stem}.study")
    begin = time.monotonic()
    folder = StudyFolder(path)
    with only_one(path):
        found = run_missing(Sweep(study, units, folder), chosen, retry_failed)
    took = progress.duration(time.monotonic() - begin)
    failed = [row for row in found if row["status"] == FAILED]
    print(f"{len(found) - len(failed)} runs in {folder.path / 'runs.parquet'}, {len(failed)} failed; this call took {took}")
    for row in failed[:FAILURES_SHOWN]:
        rate = f" at {row['rate_wanted']:g}/s" if row["rate_wanted"] else ""
        print(f"failed: {row['run']}: {row['arm']}, {row['settings']}, {row['load']}{rate}: {row['failure']}")
    if failed:
        print("--retry-failed runs them again")
    return EXIT_FAILURE if failed else 0


def rigs_for(study: Study, units: Sequence[Unit], jobs: int | None, rigs_file: str | None, machines: str) -> list[rigs.Rig]:
    """Returns the rigs of the command line. Raises UsageError if they cannot run all units."""
    chosen = rigs.chosen(jobs, rigs_file)
    engine.require_rigs(units, chosen)
    _require_machines(study, Path(machines))
    return chosen


def _require_machines(study: Study, machines: Path) -> None:
    """Raises UsageError for a real machine that the machines' file does not have."""
    from tools import boot_machines

    for at, arm in enumerate(study.arms):
        if not arm.machine:
            continue
        if not machines.is_file():
            message = f"the arm needs the machine '{arm.machine}', and there is no file {machines}; --machines names it (docs/booting.md)"
            raise study.mistake(message, "arms", at, "machine")
        try:
            boot_machines.read(machines).find(arm.machine)
        except Failure as failure:
            raise study.mistake(f"{failure.message} in {machines}; {failure.hint}", "arms", at, "machine") from None


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Two sweeps into one folder would measure the same runs twice."""
    with cache.lock(path / LOCK, work=f"sweeps into {path}", timeout_seconds=LOCK_SECONDS):
        yield


class Sweep:
    """A study and its folder while a sweep is under way. names: all runs by name. known: run.json of those that have ended. failures: what
    failed in them."""

    def __init__(self, study: Study, units: Sequence[Unit], folder: StudyFolder):
        self.study = study
        self.units = units
        self.folder = folder
        self.names: dict[str, Run] = {}
        self.known: dict[str, dict[str, Any]] = {}
        self.failures: dict[str, str] = {}
        self._names_of: dict[int, list[str]] = {}
        self._written_at = time.monotonic()

    def begin(self, programs: Mapping[str, Mapping[str, str]]) -> None:
        """Names all runs, and reads those that are in the folder."""
        named = plan.names(self.units, self.study, programs)
        self.names = {name: run for name, (_, run) in named.items()}
        for name, (unit, _) in named.items():
            self._names_of.setdefault(id(unit), []).append(name)
        self.folder.begin(self.study.text, programs, {name: run.title for name, run in self.names.items()})
        here = set(self.folder.names())
        for name in self.names:
            if name in here:
                self._take(name, self.folder.read(name))

    def _take(self, name: str, content: dict[str, Any]) -> str:
        """Returns what failed in the run; empty if nothing did."""
        self.known[name] = content
        self.failures.pop(name, None)
        if failure := tables.failure_of(content, self.names[name], self.study):
            self.failures[name] = failure
        return failure

    def pending(self, again: Sequence[str] = (), only: Container[str] | None = None) -> list[Pending]:
        """Returns the units with a run that the folder lacks, or that is in `again`. `only`: of these runs."""
        lacking = {name for name in {*self.names} - {*self.known} | {*again} if only is None or name in only}
        wanted = [unit for unit in self.units if lacking.intersection(self._names_of[id(unit)])]
        return [Pending(unit, plan.order_of(unit, self.study)) for unit in wanted]

    def keep(self, done: Pending, outcome: Mapping[str, Any], started: float, took_s: float, again: Sequence[str]) -> None:
        """Stores the runs of a unit that the folder lacks."""
        names = self._names_of[id(done.unit)]
        for number, name in enumerate(names):
            if name in self.known and name not in again:
                continue
            content: dict[str, Any] = {"run": name, "title": self.names[name].title}
            content |= {"started": started, "took_s": took_s / len(names)}
            log = None
            if "failure" in outcome:
                content |= {"failure": outcome["failure"], "details": outcome.get("details") or []}
            else:
                result = outcome["results"][number]
                figures = dict(result["figures"])
                content |= {"scheduled": figures.pop("scheduled", None), "log_requests": figures.pop("log_requests", None)}
                content |= {"row": figures, "histogram": result["histogram"]}
                log = result.get("log")
            self.folder.keep(name, content, log)
            if failure := self._take(name, content):
                progress.say(f"neap: failed: {content['title']}: {failure}")

    def rows(self) -> list[dict[str, Any]]:
        return tables.rows(self.folder, self.names, self.study, self.known)

    def write(self) -> list[dict[str, Any]]:
        found = self.rows()
        tables.write(self.folder, found, self.known, self.study)
        self._written_at = time.monotonic()
        return found

    def write_now_and_then(self) -> None:
        """So that a table exists while a long sweep is under way."""
        if time.monotonic() - self._written_at >= TABLES_SECONDS:
            self.write()


class Countdown:
    """Reports finished runs and an estimate of the time left, from the mean time of each arm's runs, also of earlier calls."""

    def __init__(self, sweep: Sweep, pending: Sequence[Pending], workers: int):
        self._total = len(sweep.names)
        self._workers = workers
        self._left: dict[str, int] = {}
        for one in pending:
            self._left[one.unit.arm.name] = self._left.get(one.unit.arm.name, 0) + 1
        self._times: dict[str, list[float]] = {}
        for name, content in sweep.known.items():
            run = sweep.names[name]
            if not content.get("failure"):
                self._times.setdefault(run.arm.name, []).append(content["took_s"])
        self._shown_at = time.monotonic()

    def finished(self, done: Pending, took_s: float, ended: int, failed: int) -> None:
        arm = done.unit.arm.name
        self._left[arm] -= 1
        self._times.setdefault(arm, []).append(took_s)
        now = time.monotonic()
        interval = progress.TERMINAL_INTERVAL_SECONDS if progress.on_terminal() else progress.QUIET_INTERVAL_SECONDS
        if now - self._shown_at < interval or not sum(self._left.values()):
            return
        self._shown_at = now
        named = f", {failed} failed" if failed else ""
        progress.show_status(f"neap: {ended} of {self._total} runs{named}, about {progress.duration(self.seconds_left())} left")

    def seconds_left(self) -> float:
        """An arm without a finished run counts as the mean of the others."""
        means = {arm: sum(times) / len(times) for arm, times in self._times.items() if times}
        other = sum(means.values()) / len(means) if means else 0.0
        return sum(left * means.get(arm, other) for arm, left in self._left.items()) / self._workers


def run_missing(sweep: Sweep, chosen: Sequence[rigs.Rig], retry_failed: bool) -> list[dict[str, Any]]:
    """Runs what the folder lacks. Returns the rows of all runs that have ended. The tables are written also after an interruption."""
    again: list[str] = []
    countdown: Countdown

    def report(done: Pending, outcome: Mapping[str, Any], started: float, took_s: float) -> None:
        sweep.keep(done, outcome, started, took_s, again)
        countdown.finished(done, took_s, len(sweep.known), len(sweep.failures))
        sweep.write_now_and_then()

    workers = sum(rig.jobs for rig in chosen)
    running = engine.Engine(chosen, preparation(sweep), report)
    with running.started():
        sweep.begin(running.programs)
        again = list(sweep.failures) if retry_failed else []
        pending = sweep.pending(again)
        there = len(sweep.known) - len(again)
        if there:
            progress.say(f"neap: {there} of {len(sweep.names)} runs are in {sweep.folder.path} already")
        countdown = Countdown(sweep, pending, workers)
        try:
            if pending:
                running.reach(pending)
                runs = sum(len(one.unit.runs) for one in pending)
                with progress.step(f"{runs} runs by {workers} worker{'s' * (workers > 1)}"):
                    running.run(pending)
        finally:
            if progress.on_terminal():
                progress.show_status("")
            found = sweep.write()
    return found


def preparation(sweep: Sweep) -> dict[str, Any]:
    """Returns what workers build. An installed Neap has its own images, but compiles for guests with Linux."""
    runs = [run for unit in sweep.units for run in unit.runs]
    if any(run.arm.is_linux for run in runs if not run.arm.machine):
        installed.require_copy()
    return {"systems": sorted({plan.program_of(run) for run in runs if not run.arm.machine}), "load": any(run.arm.machine for run in runs)}


def _listed(units: Sequence[Unit], study: Study) -> str:
    titles = [run.title for unit in units for run in unit.runs]
    virtual_s = sum(run.virtual_ms for unit in units for run in unit.runs) / 1e3
    lines = [*titles, f"{study.title}: {len(titles)} runs in {len(units)} boots; {virtual_s:.1f} s of load in all"]
    return "\n".join(lines)
