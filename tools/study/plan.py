# SPDX-License-Identifier: BSL-1.0
"""The runs of a study: arms x numbers of cores x settings x loads x repeats, and the baselines.

A run's name is a hash of all that it depends on: system, words, load, seed, CPU model and programs. So a study that was changed keeps the
runs that are the same, and measures only the others.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tools import cache
from tools.compare import units as comparison
from tools.compare.plan import Workload
from tools.errors import UsageError
from tools.model import cpu_model, experiment
from tools.study import schema, settings
from tools.study.settings import Value
from tools.study.study_file import Arm, Message, Study, is_fixed, is_left_out

VERSION = 1
RUNS_MAX = 200_000
# Keys of programs: those that take part in all runs on the model machine, and Neap with NetPIPE.
COMMON, NETPIPE = "model", "netpipe"


@functools.cache
def _model(name: str) -> tuple[cpu_model.CpuModel, str]:
    """Returns the modelled CPU, and the text that the plugin reads. A study names it once for each run."""
    found = cpu_model.load(name)
    return found, found.flat()


@dataclasses.dataclass(frozen=True)
class Run:
    """swept: the values of the swept settings. words: all words of the system."""

    arm: Arm
    cores: int
    swept: Mapping[str, Value]
    words: tuple[str, ...]
    load: Workload | Message
    repeat: int
    seed: int

    @property
    def settings(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.words)

    @property
    def title(self) -> str:
        """Names the run in messages."""
        parts = [self.arm.name, f"{self.cores} cores" if self.cores > 1 else "", *(f"{name}={value}" for name, value in self.swept.items())]
        rate = f" at {self.rate:g}/s" if self.rate else ""
        return ", ".join([*filter(None, parts), f"{self.load.name}{rate}", f"repeat {self.repeat}"])

    @property
    def rate(self) -> float | None:
        """The total rate of its cores; None for NetPIPE, which has none."""
        return None if isinstance(self.load, Message) else self.load.rate_of(self.cores)

    @property
    def virtual_ms(self) -> float:
        """The length of its load; 0 for NetPIPE, whose length is not known before."""
        return 0.0 if isinstance(self.load, Message) else self.load.warm_up_ms + self.load.window_ms_of(self.cores)

    @property
    def is_baseline(self) -> bool:
        return self.load.name in schema.BASELINES


@dataclasses.dataclass(frozen=True)
class Unit:
    """Runs that one boot measures, in this order. Linux boots in a quarter of a minute, so it measures all loads of one setting in a boot.
    NetPIPE measures all its sizes in one go. Each run depends on the ones before it, so a unit is always run whole."""

    runs: tuple[Run, ...]

    @property
    def arm(self) -> Arm:
        return self.runs[0].arm

    @property
    def message(self) -> Message | None:
        """The first one, if the unit is a NetPIPE."""
        load = self.runs[0].load
        return load if isinstance(load, Message) else None


def load_of(run: Run, study: Study) -> experiment.Load:
    """Returns the load of the model machine."""
    assert isinstance(run.load, Workload)
    made = comparison.load_of(run.load, run.cores, run.seed, log=study.log and not run.is_baseline)
    return dataclasses.replace(made, options={"any-connection": True}) if study.any_connection else made


def runs(study: Study) -> list[Run]:
    """Returns all runs in the order in which they are measured. Raises UsageError if there is none, or too many.

    Order `random`: a shuffle of the repeat's runs, repeat by repeat. So a machine that drifts does not shift one setting against another,
    and an interrupted study has whole repeats."""
    found: list[Run] = []
    for repeat in range(1, study.repeats + 1):
        of_repeat = list(_of_repeat(study, repeat))
        if study.order == "random":
            random.Random(f"{study.seed}-{repeat}").shuffle(of_repeat)
        found += of_repeat
    if not found:
        raise study.mistake("all runs are left out; remove a condition", "leave_out", 0)
    if len(found) > RUNS_MAX:
        raise study.mistake(f"there are {len(found)} runs, more than {RUNS_MAX}; sweep fewer values", "settings")
    return found


def _of_repeat(study: Study, repeat: int) -> Iterator[Run]:
    for arm in study.arms:
        for cores in arm.cores:
            seen = set()
            for swept in combinations(study, arm):
                words = words_of(arm, swept)
                setting: dict[str, Value] = {"arm": arm.name, "cores": cores, **swept}
                loads: list[Workload | Message] = [
                    load for load in study.loads if not is_left_out(study, {**setting, "load": load.name, "rate": load.rate})
                ]
                loads += [message for message in study.messages if not is_left_out(study, {**setting, "load": message.name})]
                if loads and (why := settings.conflict(dict(word.split("=", 1) for word in words))):
                    raise study.mistake(f"{why}; leave this combination out by [[leave_out]]", "settings")
                for load in loads:
                    yield Run(arm, cores, swept, words, load, repeat, study.seed + repeat)
                for run in _baselines(study, arm, cores, swept, repeat) if loads else ():
                    if (run.words, run.load.name) not in seen:
                        seen.add((run.words, run.load.name))
                        yield run


def combinations(study: Study, arm: Arm) -> Iterator[dict[str, Value]]:
    """Yields the values of the settings that this arm does not fix."""
    axes = {name: values for name, values in study.axes.items() if not is_fixed(arm, name)}
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def words_of(arm: Arm, swept: Mapping[str, Value]) -> tuple[str, ...]:
    cpu = None if arm.machine else _model(arm.model)[0]
    return (*arm.words, *(settings.word(name, value, arm.system, cpu) for name, value in swept.items()))


def _baselines(study: Study, arm: Arm, cores: int, swept: Mapping[str, Value], repeat: int) -> Iterator[Run]:
    """Interrupt moderation has no effect without frames, so a swept interval is left out of baselines."""
    window_ms = study.baselines.window_ms or study.window_ms
    for name, is_wanted in zip(schema.BASELINES, (study.baselines.idle, study.baselines.polling), strict=True):
        if is_wanted:
            kept = {axis: value for axis, value in swept.items() if axis != "itr_us"}
            words = words_of(arm, kept)
            if name == schema.POLLING_BASELINE:
                kept.pop("idle", None)
                words = (*(word for word in words if not word.startswith("idle=")), "idle=poll")
            load = Workload(name, mix="fixed", connections=1, rate=0.0, warm_up_ms=study.warm_up_ms, window_ms=window_ms, keys=1)
            yield Run(arm, cores, kept, words, load, repeat, study.seed + repeat)


def units(study: Study, *, alone: bool = False) -> list[Unit]:
    """Returns the boots, in the order of their first runs. `alone`: each run with a load has a boot of its own. Raises as `runs`."""
    boots: dict[Any, list[Run]] = {}
    for number, run in enumerate(runs(study)):
        message = run.load.of if isinstance(run.load, Message) else None
        is_shared = message or (run.arm.is_linux and not run.is_baseline and not alone)
        key = (run.arm.name, run.cores, run.words, run.repeat, message) if is_shared else number
        boots.setdefault(key, []).append(run)
    # Within a boot the loads are in the file's order, whatever the order of the study is, because later ones depend on earlier ones.
    place = {load: number for number, load in enumerate((*study.loads, *study.messages))}
    return [Unit(tuple(sorted(boot, key=lambda run: place.get(run.load, 0)))) for boot in boots.values()]


def names(units_of_study: Sequence[Unit], study: Study, programs: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[Unit, Run]]:
    """Returns the runs by their names. `programs`: hashes of what takes part, by system, and of all systems under COMMON."""
    found: dict[str, tuple[Unit, Run]] = {}
    for unit in units_of_study:
        before: list[str] = []
        for run in unit.runs:
            taking_part = {} if run.arm.machine else {**programs[COMMON], **programs[program_of(run)]}
            name = cache.digest(json.dumps({**identity(run, study), "before": before, "programs": taking_part}, sort_keys=True))
            if name in found:
                raise UsageError(f"two runs are the same: {found[name][1].title}; {run.title}")
            found[name] = (unit, run)
            before.append(name)
    return found


def program_of(run: Run) -> str:
    """Returns the key of the programs that the run boots. Linux has memcached and NetPIPE in one image."""
    return NETPIPE if isinstance(run.load, Message) and not run.arm.is_linux else run.arm.system


def identity(run: Run, study: Study) -> dict[str, Any]:
    """Returns what a run depends on, beside the programs."""
    arm = run.arm
    return {
        "version": VERSION,
        "arm": arm.name,
        "system": arm.system,
        "place": [arm.machine, arm.address, arm.service, *arm.client] if arm.machine else [arm.model, _model(arm.model)[1]],
        "cores": run.cores,
        "words": sorted(run.words),
        "load": {"seed": run.seed, **dataclasses.asdict(run.load)} if isinstance(run.load, Message) else load_of(run, study).member(),
        "repeat": run.repeat,
        "cable_us": study.cable_us,
    }


def columns(name: str, run: Run, study: Study) -> dict[str, Any]:
    """Returns the members of a run's row that are known before it runs."""
    return {
        "study": study.title,
        "run": name,
        "arm": run.arm.name,
        "system": run.arm.system,
        "machine": run.arm.place,
        "modelled": not run.arm.machine,
        "cores": run.cores,
        "load": run.load.name,
        "repeat": run.repeat,
        "seed": run.seed,
        **settings.columns(run.settings),
        "settings": json.dumps(run.settings, sort_keys=True),
        **{f"{schema.SET}{axis}": run.swept.get(axis, run.settings.get(axis)) for axis in other_axes(study)},
        "rate_wanted": run.rate,
    }


def other_axes(study: Study) -> list[str]:
    """Returns the swept settings that have no column of their own."""
    return [name for name in study.axes if name not in (*schema.OWN_SETTINGS, "pstate")]


def order_of(unit: Unit, study: Study) -> dict[str, Any]:
    """Returns what a worker needs to run a unit, as JSON (tools/study/worker.py)."""
    first = unit.runs[0]
    arm = first.arm
    return {
        "system": arm.system,
        "model": arm.model,
        "machine": arm.machine,
        "address": arm.address,
        "service": arm.service,
        "client": list(arm.client),
        "cores": first.cores,
        "words": list(first.words),
        "seed": first.seed,
        "cable_us": study.cable_us,
        "loads": [] if unit.message else [dataclasses.asdict(load_of(run, study)) for run in unit.runs],
        "sizes": [run.load.bytes for run in unit.runs if isinstance(run.load, Message)],
        "trips": unit.message.of.repeats if unit.message else 0,
    }
