# SPDX-License-Identifier: BSL-1.0
"""`./neap search`: the last value along one axis that meets a limit of latency (SLA), for each combination of the other settings.

    itr-max    the longest interval between interrupts
    rapl-min   the lowest power limit of the package
    peak-rate  the highest rate, such as over TSO x DCA x RSC

The study's file has the values. A search halves the range between a value that meets the limit and one that does not, so it assumes that
all values behind the first bad one are bad. Its runs are those of `./neap sweep` with the same file, and stay in the same folder.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools import progress
from tools.errors import UsageError
from tools.study import command, engine, plan, rigs, study_file
from tools.study.engine import Pending
from tools.study.folder import StudyFolder, write_text
from tools.study.plan import Run
from tools.study.study_file import Message, Study

# By the kind of search, its axis, and whether the values rise on the way to the worst.
AXES = {"itr-max": ("itr_us", True), "rapl-min": ("rapl_w", False), "peak-rate": ("rate", True)}
SLA = re.compile(r"(mean|p50|p90|p95|p99|p999|max)\s*<\s*([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(us|ms)")
RESULT = "search.json"


@dataclasses.dataclass(frozen=True)
class Limit:
    figure: str
    us: float

    @property
    def text(self) -> str:
        return f"{self.figure} < {self.us:g} us"

    @classmethod
    def read(cls, text: str) -> Limit:
        match = SLA.fullmatch(text.strip())
        if not match or float(match[2]) == 0:
            raise UsageError(f"--sla takes a limit like 'p99<500us', not '{text}'", "mean p50 p90 p95 p99 p999 max; us or ms")
        return cls(match[1], float(match[2]) * (1000 if match[3] == "ms" else 1))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How one value did. us: of each repeat. sure: the probability that the figure's mean over further repeats is on the same side of the
    limit; None for fewer than two repeats. above: the share of all requests above the limit."""

    value: float
    meets: bool
    us: tuple[float, ...] = ()
    sure: float | None = None
    above: float | None = None
    failure: str = ""

    @property
    def text(self) -> str:
        if self.failure:
            return self.failure
        mean = statistics.fmean(self.us)
        spread = f" +- {_half_interval(self.us):.1f}" if len(self.us) > 1 else ""
        repeats = f"{len(self.us)} repeat{'s' * (len(self.us) > 1)}"
        sure = "one repeat says nothing about others" if self.sure is None else f"{100 * self.sure:.1f} % sure"
        above = "" if self.above is None else f", {100 * self.above:.2f} % of the requests above it"
        return f"{mean:.1f}{spread} us, {repeats}, {sure}{above}"


def judge(value: float, contents: Sequence[Mapping[str, Any]], failures: Sequence[str], limit: Limit) -> Verdict:
    """Returns the verdict about the repeats of one value. `contents`: run.json of each. A failed run does not meet the limit."""
    if failed := next(filter(None, failures), ""):
        return Verdict(value, False, failure=failed)
    found = [content["row"].get(f"{limit.figure}_us") for content in contents]
    if any(each is None for each in found):
        return Verdict(value, False, failure=f"no {limit.figure} was measured")
    us = tuple(float(each) for each in found)
    mean = statistics.fmean(us)
    buckets = [bucket for content in contents for bucket in content.get("histogram") or ()]
    total = sum(count for _, count in buckets)
    above = sum(count for upper, count in buckets if upper > limit.us) / total if total else None
    return Verdict(value, mean <= limit.us, us, _sure(us, limit.us), above)


def _sure(us: Sequence[float], limit_us: float) -> float | None:
    """Returns the probability that the mean is on the side of the limit where it was measured, by Student's t over the repeats. Requests of
    one run depend on each other, so a run counts as one measurement."""
    if len(us) < 2:
        return None
    from scipy import stats

    deviation = statistics.stdev(us)
    distance = abs(limit_us - statistics.fmean(us))
    if deviation == 0:
        return 1.0 if distance else 0.5
    return float(stats.t.cdf(distance / (deviation / math.sqrt(len(us))), len(us) - 1))


def _half_interval(us: Sequence[float]) -> float:
    """Returns half of the 95 % confidence interval of the mean."""
    from scipy import stats

    return float(stats.t.ppf(0.975, len(us) - 1)) * statistics.stdev(us) / math.sqrt(len(us))


class Bisection:
    """The search over one combination. values: in the direction in which latency rises. The first and the last value are measured first."""

    def __init__(self, title: str, values: Sequence[float]):
        self.title = title
        self.values = list(values)
        self.verdicts: dict[float, Verdict] = {}
        self._good, self._bad = -1, len(self.values)

    def next(self) -> float | None:
        """Returns the value to measure next; None at the end of the search."""
        if self._bad - self._good <= 1:
            return None
        if self.values[0] not in self.verdicts:
            return self.values[0]
        if self.values[-1] not in self.verdicts:
            return self.values[-1]
        return self.values[(self._good + self._bad) // 2]

    def take(self, verdict: Verdict) -> None:
        self.verdicts[verdict.value] = verdict
        at = self.values.index(verdict.value)
        if verdict.meets:
            self._good = max(self._good, at)
        else:
            self._bad = min(self._bad, at)

    @property
    def best(self) -> Verdict | None:
        return self.verdicts[self.values[self._good]] if self._good >= 0 else None

    @property
    def stop(self) -> Verdict | None:
        return self.verdicts[self.values[self._bad]] if self._bad < len(self.values) else None

    def text(self, axis: str, limit: Limit) -> str:
        if self.best is None:
            assert self.stop
            return f"{self.title}: not even {axis} {self.stop.value:g} meets {limit.text}: {self.stop.text}"
        said = f"{self.title}: {axis} {self.best.value:g} is the last that meets {limit.text} ({self.best.text})"
        if self.stop is None:
            return f"{said}; nothing stopped the search, it is the last value of the file"
        return f"{said}; {self.stop.value:g} stopped it: {self.stop.text}"


def search(kind: str, file: str, sla: str, out: str | None, jobs: int | None, rigs_file: str | None, machines: str, as_json: bool) -> int:
    """Runs the searches of all combinations beside each other, and prints what each found."""
    if kind not in AXES:
        raise UsageError(f"there is no search '{kind}'", f"choose from {', '.join(AXES)}")
    limit, (axis, rises) = Limit.read(sla), AXES[kind]
    study = study_file.read(Path(file))
    if axis != "rate" and axis not in study.axes:
        raise study.mistake(f"{kind} searches over {axis}; add it, such as {axis} = {{ from = 2, to = 500, step = 2 }}", "settings")
    units = plan.units(study, alone=True)
    chosen = command.rigs_for(study, units, jobs, rigs_file, machines)
    path = Path(out or f"{Path(file).stem}.study")
    folder = StudyFolder(path)
    with command.only_one(path):
        found = _run(command.Sweep(study, units, folder), chosen, axis, rises, limit)
    document = {"search": kind, "sla": limit.text, "axis": axis, "found": [_member(one) for one in found]}
    write_text(path / RESULT, json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1) if as_json else "\n".join(one.text(axis, limit) for one in found))
    return 0


def _member(one: Bisection) -> dict[str, Any]:
    return {
        "combination": one.title,
        "best": one.best and dataclasses.asdict(one.best),
        "stopped_by": one.stop and dataclasses.asdict(one.stop),
        "measured": len(one.verdicts),
    }


def _value(run: Run, axis: str) -> float | None:
    """Returns a run's value on the axis; None if its arm fixes the setting, or if it has no requests."""
    if isinstance(run.load, Message) or run.load.is_idle:
        return None
    value = run.load.rate if axis == "rate" else run.swept.get(axis)
    return float(value) if isinstance(value, (int, float)) else None


def _combination(run: Run, axis: str) -> str:
    others = [f"{name}={value}" for name, value in run.swept.items() if name != axis]
    cores = [f"{run.cores} cores"] if run.cores > 1 else []
    rate = "" if axis == "rate" else f" at {run.rate:g}/s"
    return ", ".join([run.arm.name, *cores, *others, f"{run.load.name}{rate}"])


def grouped(study: Study, runs: Mapping[str, Run], axis: str) -> dict[str, dict[float, list[str]]]:
    """Returns the names of the runs by combination and value. Combinations are in the file's order, whatever the order of the runs is."""
    in_order = plan.runs(dataclasses.replace(study, order="given", repeats=1))
    found: dict[str, dict[float, list[str]]] = {_combination(run, axis): {} for run in in_order if _value(run, axis) is not None}
    for name, run in runs.items():
        value = _value(run, axis)
        if value is not None:
            found[_combination(run, axis)].setdefault(value, []).append(name)
    if not found:
        raise study.mistake(f"no run has a number for {axis}; add values", "settings")
    return found


def _run(sweep: command.Sweep, chosen: Sequence[rigs.Rig], axis: str, rises: bool, limit: Limit) -> list[Bisection]:
    def report(done: Pending, outcome: Mapping[str, Any], started: float, took_s: float) -> None:
        sweep.keep(done, outcome, started, took_s, ())

    running = engine.Engine(chosen, command.preparation(sweep), report)
    with running.started():
        sweep.begin(running.programs)
        names = grouped(sweep.study, sweep.names, axis)
        searches = [Bisection(title, sorted(values, reverse=not rises)) for title, values in names.items()]
        try:
            while steps := [(one, value) for one in searches if (value := one.next()) is not None]:
                wanted = {name for one, value in steps for name in names[one.title][value]}
                pending = sweep.pending(only=wanted)
                if pending:
                    running.reach(pending)
                    with progress.step(f"{len(pending)} runs for {len(steps)} of {len(searches)} searches"):
                        running.run(pending)
                for one, value in steps:
                    of_value = names[one.title][value]
                    contents = [sweep.known[name] for name in of_value]
                    one.take(judge(value, contents, [sweep.failures.get(name, "") for name in of_value], limit))
        finally:
            sweep.write()
    return searches
