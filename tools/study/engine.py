# SPDX-License-Identifier: BSL-1.0
"""Runs the units of a sweep on its workers, here or on other hosts, until none is left.

A worker is a process (worker.py). If it ends during a unit, another worker runs that unit, and the worker is started again. A unit that
ended `UNIT_ENDS_MAX` workers is kept as failed, so a run that crashes its worker cannot stop the sweep.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tools import build, process, progress
from tools.errors import Failure, UsageError
from tools.foreign import parse_json, shown
from tools.study.plan import Unit
from tools.study.rigs import Rig

UNIT_ENDS_MAX = 3
# A worker that ends so often without a result in between is not started again.
WORKER_ENDS_MAX = 3
RESTART_SECONDS = 1.0
ANSWER_BYTES_MAX = 1 << 31


class Ended(Exception):
    """The worker's process ended."""


class Worker:
    """One worker process of a rig."""

    def __init__(self, rig: Rig):
        self.rig = rig
        argv = list(rig.command) or [sys.executable, "-m", "tools.study.worker"]
        self._process = process.spawn(argv, stdin=process.subprocess.PIPE, stdout=process.subprocess.PIPE, cwd=build.REPOSITORY)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer. Raises Ended, and Failure for an answer that is an error."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline(ANSWER_BYTES_MAX)
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            raise Ended(self.rig.name)
        try:
            answer = parse_json(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Failure(f"the worker of {self.rig.name} answers '{shown(line[:80].decode(errors='replace'))}'", self.rig.hint)
        if isinstance(error := answer.get("error"), dict):
            raise Failure(str(error.get("message")), error.get("hint"), [str(line) for line in error.get("details") or []])
        return answer

    def end(self) -> None:
        process.kill_session(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe
                pipe.close()


@dataclasses.dataclass(eq=False)
class Pending:
    """A unit that has to be run. ends: workers that ended during it."""

    unit: Unit
    order: Mapping[str, Any]
    ends: int = 0


Report = Callable[[Pending, Mapping[str, Any], float, float], None]


class Engine:
    """report: called with a unit, its outcome (`results`, or `failure` and `hint`), when it began by the wall clock, and how long it
    took. Calls come from several threads, one at a time."""

    def __init__(self, rigs: Sequence[Rig], preparation: Mapping[str, Any], report: Report):
        self._rigs = [dataclasses.replace(rig, name=rig.name_of(number)) for rig in rigs for number in range(rig.jobs)]
        self._claimed = {machine for rig in rigs for machine in rig.machines}
        self._preparation = preparation
        self._report = report
        self._guard = threading.Condition()
        self._queue: collections.deque[Pending] = collections.deque()
        self._running: list[Pending] = []
        self._workers: dict[str, Worker] = {}
        self._given_up: dict[str, str] = {}
        self._fatal: Failure | None = None
        self._stopped = False
        self.programs: dict[str, dict[str, str]] = {}

    @contextlib.contextmanager
    def started(self) -> Iterator[Engine]:
        """Starts and prepares all workers, one after the other, because the first one builds."""
        try:
            for rig in self._rigs:
                self._workers[rig.name] = self._start(rig)
            yield self
        finally:
            with self._guard:
                self._stopped = True
                self._guard.notify_all()
            for worker in list(self._workers.values()):
                worker.end()

    def _start(self, rig: Rig) -> Worker:
        worker = Worker(rig)
        try:
            found = worker.ask({"prepare": self._preparation}).get("programs") or {}
        except Ended:
            worker.end()
            raise Failure(f"the worker of {rig.name} ended before its first run", rig.hint) from None
        except BaseException:
            worker.end()
            raise
        self.programs = self.programs or found
        flat = {name: value for one in found.values() for name, value in one.items()}
        first = {name: value for one in self.programs.values() for name, value in one.items()}
        if changed := [name for name in {**first, **flat} if first.get(name) != flat.get(name)]:
            worker.end()
            raise Failure(f"{rig.name} has other versions of: {', '.join(changed)}", "check out the same commit there, and build it")
        return worker

    def reach(self, pending: Sequence[Pending]) -> None:
        """Asks the real machines of these units for an answer, each by a worker that may run it. Raises Failure for one that is down:
        its runs would fail one after the other."""
        addresses = {one.unit.arm.machine: one.unit.arm.address for one in pending if one.unit.arm.machine}
        for machine, address in addresses.items():
            rig = next(rig for rig in self._rigs if self._may_run(rig, machine))
            try:
                self._workers[rig.name].ask({"reach": {"machine": machine, "address": address}})
            except Ended:
                raise Failure(f"the worker of {rig.name} ended before its first run", rig.hint) from None

    def run(self, pending: Sequence[Pending]) -> None:
        """Runs all units. Raises Failure if no worker is left for some of them, after the others' runs."""
        self._queue.extend(pending)
        threads = [threading.Thread(target=self._serve, args=(rig,), daemon=True) for rig in self._rigs]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
        if self._fatal:
            raise self._fatal
        if self._queue:
            reasons = "; ".join(f"{name}: {why}" for name, why in self._given_up.items())
            raise Failure(f"no worker is left for {len(self._queue)} units ({reasons})", "the same command goes on")

    def _serve(self, rig: Rig) -> None:
        ends = 0
        while (taken := self._take(rig)) is not None:
            started, begin = time.time(), time.monotonic()
            try:
                outcome = self._workers[rig.name].ask({"run": taken.order})
                if len(outcome.get("results") or ()) != len(taken.unit.runs):
                    outcome = {"failure": "the worker gave no result for some loads", "hint": rig.hint}
                ends = 0
            except Failure as failure:
                outcome = {"failure": failure.message, "hint": failure.hint, "details": failure.details}
                ends = 0
            except Ended:
                if self._stopped:
                    return
                ends += 1
                outcome = self._after_end(taken, rig)
            if outcome:
                self._finish(taken, outcome, started, time.monotonic() - begin)
            if ends and not self._restart(rig, ends):
                return

    def _take(self, rig: Rig) -> Pending | None:
        """Waits for a unit that this rig may run. Returns None if none is left. A real machine runs one unit at a time."""
        with self._guard:
            while not self._stopped:
                busy = {one.unit.arm.machine for one in self._running if one.unit.arm.machine}
                for one in self._queue:
                    if self._may_run(rig, one.unit.arm.machine) and one.unit.arm.machine not in busy:
                        self._queue.remove(one)
                        self._running.append(one)
                        return one
                waits = [one for one in (*self._queue, *self._running) if self._may_run(rig, one.unit.arm.machine)]
                if not waits:
                    return None
                self._guard.wait()
        return None

    def _may_run(self, rig: Rig, machine: str) -> bool:
        if machine:
            return machine in rig.machines or (not rig.machines and machine not in self._claimed)
        return not rig.machines

    def _after_end(self, taken: Pending, rig: Rig) -> dict[str, Any] | None:
        """Puts the unit back, before all others. Returns an outcome if it has ended too many workers."""
        with self._guard:
            taken.ends += 1
            if taken.ends >= UNIT_ENDS_MAX:
                return {"failure": f"{taken.ends} workers ended during it", "hint": None}
            progress.say(f"neap: the worker {rig.name} ended during {taken.unit.runs[0].title}; it will be run again")
            self._running.remove(taken)
            self._queue.appendleft(taken)
            self._guard.notify_all()
        return None

    def _finish(self, taken: Pending, outcome: Mapping[str, Any], started: float, took_s: float) -> None:
        with self._guard:
            try:
                self._report(taken, outcome, started, took_s)
            except Failure as failure:
                # Such as a full disk: no further result could be kept.
                self._fatal = failure
                self._stopped = True
            self._running.remove(taken)
            self._guard.notify_all()

    def _restart(self, rig: Rig, ends: int) -> bool:
        """Starts a worker that has ended. Returns False if it is given up."""
        self._workers[rig.name].end()
        why = f"it ended {ends} times"
        if ends < WORKER_ENDS_MAX:
            try:
                with self._guard:
                    if self._stopped:
                        return False
                time.sleep(RESTART_SECONDS)
                self._workers[rig.name] = self._start(rig)
                return True
            except Failure as failure:
                why = failure.message
        progress.say(f"neap: the worker {rig.name} is given up: {why}")
        with self._guard:
            self._given_up[rig.name] = why
            self._guard.notify_all()
        return False


def require_rigs(units: Sequence[Unit], rigs: Sequence[Rig]) -> None:
    """Raises UsageError if no rig may run a unit."""
    claimed = {machine for rig in rigs for machine in rig.machines}
    free = [rig for rig in rigs if not rig.machines]
    for unit in units:
        machine = unit.arm.machine
        if not free and machine not in claimed:
            what = f"the machine {machine}" if machine else "the model machine"
            raise UsageError(f"no rig runs {what} of the arm {unit.arm.name}", "add [[rigs]] without machines, or with that one")
