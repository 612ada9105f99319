# SPDX-License-Identifier: BSL-1.0
"""The machines on which `./neap tune --live` makes its trials.

A real machine serves requests while it is tuned. So its setting is a safe one whenever no trial is in progress: after a violation, an error
or Ctrl-C, and if the connection ended. If the machine cannot be reached to set it back, the error names its last setting.
On the model machine a trial is a short run of its own, in virtual time: nothing has to be set back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tools.control_client import Control, Refused
from tools.errors import Failure, UsageError
from tools.study import settings
from tools.study.schema import SET
from tools.study.tune_grid import Value, shown

PATIENCE_SECONDS = 30.0
RETRY_SECONDS = 1.0
# The part of a trial's time that decides whether the trial goes on.
PROBE_SHARE = 0.2
PERCENTILES = ("mean", "p50", "p90", "p95", "p99", "p999", "max")
SMALL_CORES = 4

Setting = Mapping[str, Value]


@dataclasses.dataclass(frozen=True)
class Measured:
    """One trial. latency_us: None if the load failed; `failure` says why. energy_j: of the whole trial, at the power of its window.
    figures: members of a row of the table of runs."""

    latency_us: float | None
    power_w: float | None
    energy_uj: float | None
    energy_j: float
    seconds: float
    ended_early: bool = False
    failure: str = ""
    figures: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Plant(Protocol):
    """A machine that can be tuned. `measure` makes one trial; after a violation of `sla_us` it MUST leave the machine at `safe`. `park`
    leaves the machine at a setting, and returns a sentence that names it."""

    repeatable: bool
    modelled: bool

    def measure(self, setting: Setting, safe: Setting, sla_us: float) -> Measured: ...

    def park(self, setting: Setting) -> str: ...


def words(setting: Setting) -> list[tuple[str, str]]:
    """The setting's names and values as control and the command line take them (docs/policy.md). Raises UsageError for a value that no
    machine takes."""
    found = []
    for name, value in setting.items():
        given = int(value) if isinstance(value, float) and value.is_integer() else value
        word, _, text = settings.word(name.removeprefix(SET), given, settings.NEAP, None).partition("=")
        found.append((word, text))
    return found


@dataclasses.dataclass(frozen=True)
class Offered:
    """The load of all trials. latency: a column of the table of runs, like p99_us."""

    preset: str = "etc"
    rate: float = 10_000.0
    seconds: float = 0.1
    warm_up: float = 0.02
    connections: int = 16
    latency: str = "p99_us"


class ModelPlant:
    """The model machine. Each trial has its own seed, so that two trials of a setting differ as two measurements do."""

    repeatable, modelled = True, True

    def __init__(self, model: str, cores: int, load: Offered, seed: int = 1, fixed_words: Sequence[str] = ()):
        from tools import build
        from tools.bench import modelled
        from tools.model import experiment

        self._wanted = experiment.Experiment(
            model,
            load=load.preset,
            rate=load.rate,
            window_ms=load.seconds * 1e3,
            warm_up_ms=load.warm_up * 1e3,
            cores=cores,
            memory="512M" if cores <= SMALL_CORES else "1G",
            connections=load.connections,
            seed=seed,
            arguments=tuple(fixed_words),
        )
        self._wanted.check()
        if f"{load.latency.removesuffix('_us')}" not in PERCENTILES:
            raise UsageError(f"--latency takes {', '.join(f'{name}_us' for name in PERCENTILES)}, not {load.latency}")
        modelled.prepare("memcached")
        self._system = experiment.System(build.image("memcached", "image"))
        self._load = load
        self._made = 0

    def measure(self, setting: Setting, safe: Setting, sla_us: float) -> Measured:
        from tools.model import experiment

        wanted = dataclasses.replace(
            self._wanted,
            seed=self._wanted.seed + self._made,
            arguments=[*self._wanted.arguments, *(f"{name}={value}" for name, value in words(setting))],
        )
        self._made += 1
        with tempfile.TemporaryDirectory(prefix="neap-tune-") as scratch:
            result = experiment.run(wanted, self._system, Path(scratch))
        world, seconds = result.world, result.window_ns / 1e9
        has_answers = result.answered > 0
        figures = {
            "machine": wanted.model,
            "cores": wanted.cores,
            "seed": wanted.seed,
            "rate_reached": result.answered / seconds,
            "requests": result.answered,
            "window_s": seconds,
            "failed_requests": world["failed"],
            **{f"{name}_us": world["latency_ns"][name] / 1e3 for name in PERCENTILES if has_answers and name in world["latency_ns"]},
            "energy_j": result.package_j,
            "energy_uj": result.package_j * 1e6 / result.answered if has_answers else None,
            "power_w": result.watts,
            "instructions": result.instructions,
            "interrupts": world["interrupts"],
            "wake_ups": sum(core.wakeups for core in result.cores),
        }
        failed = f"{world['failed']} requests failed" if world["failed"] else "" if has_answers else "no request was answered"
        took = seconds + self._load.warm_up
        latency = None if failed else figures.get(self._load.latency)
        return Measured(latency, result.watts, figures["energy_uj"], result.watts * took, took, False, failed, figures)

    def park(self, setting: Setting) -> str:
        return "a modelled machine ends with each trial"


# Offers load for some seconds, after a warm-up, and returns what was measured.
Step = Callable[[float, float], Measured]


class RealPlant:
    """A machine with control. A trial sets the setting and offers a short load first. If that violates the SLA, the trial ends there."""

    repeatable, modelled = True, False

    def __init__(
        self,
        address: tuple[str, int],
        token: str | None,
        step: Step,
        seconds: float,
        warm_up: float,
        patience_seconds: float = PATIENCE_SECONDS,
    ):
        self._address, self._token, self._step = address, token, step
        self._seconds, self._warm_up, self._patience = seconds, warm_up, patience_seconds
        self._connection: Control | None = Control(*address, token)
        self._present: Setting = {}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def measure(self, setting: Setting, safe: Setting, sla_us: float) -> Measured:
        try:
            self._set(setting)
            probe = self._step(self._seconds * PROBE_SHARE, self._warm_up)
            if probe.latency_us is None or probe.latency_us > sla_us:
                self._set(safe)
                return dataclasses.replace(probe, ended_early=True)
            rest = self._step(self._seconds * (1 - PROBE_SHARE), 0.0)
            if rest.latency_us is None or rest.latency_us > sla_us:
                self._set(safe)
            return dataclasses.replace(rest, energy_j=probe.energy_j + rest.energy_j, seconds=probe.seconds + rest.seconds)
        except Failure as failure:
            where = self.park(safe)
            raise Failure(f"the trial of {shown(setting)} was lost: {failure.message}; {where}", failure.hint, failure.details) from None
        except BaseException:
            self.park(safe)
            raise

    def park(self, setting: Setting) -> str:
        """Sets the setting, on a new connection if the old one ended. Returns a sentence that says at which setting the machine is."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._set(setting)
                return f"the machine is at {shown(setting)}"
            except Refused as refused:
                return f"the machine refused {shown(setting)} ({refused.message}), and is at {shown(self._present) or 'its own settings'}"
            except Failure as failure:
                self.close()
                if time.monotonic() >= deadline:
                    lines = " ".join(f"'{name},{value}'" for name, value in words(setting))
                    host, port = self._address
                    return (
                        f"the machine cannot be reached ({failure.message}), and was last set to {shown(self._present)}; "
                        f"when it is back: ./neap ctl {host}:{port} {lines}"
                    )
                time.sleep(min(RETRY_SECONDS, self._patience / 4))

    def _set(self, setting: Setting) -> None:
        """Raises Refused for a setting that the machine does not take, and Lost."""
        if self._connection is None:
            self._connection = Control(*self._address, self._token)
        for name, value in words(setting):
            answer = self._connection.ask(f"{name},{value}")
            if not answer.startswith("ok"):
                raise Refused(f"{name}={value}: {answer}", "--itr, --frequency and --axis take values that the machine accepts")
        self._present = dict(setting)


class LoadStep:
    """Offers load by `./neap load`, whose window the machine's log covers; the log has the energy."""

    def __init__(self, target: str, address: tuple[str, int], token_file: str | None, load: Offered, further: Sequence[str] = ()):
        from tools import build, control_client

        self._program = build.build_load()
        self._target, self._address, self._token_file = target, address, token_file
        self._token = control_client.read_token(token_file)
        self._load, self._further = load, list(further)

    def __call__(self, seconds: float, warm_up: float) -> Measured:
        with tempfile.TemporaryDirectory(prefix="neap-tune-") as scratch:
            return self._run(Path(scratch), seconds, warm_up)

    def _run(self, scratch: Path, seconds: float, warm_up: float) -> Measured:
        import io

        from tools.load import TIME_OUT_SECONDS
        from tools.log import collect, decode, load_results, summary
        from tools.process import run_logged

        load, result, log = self._load, scratch / "load.json", scratch / "log"
        argv = [str(self._program), self._target, "--preset", load.preset, "--rate", f"{load.rate:.15g}", "--seconds", f"{seconds:.15g}"]
        argv += ["--warm-up", f"{warm_up:.15g}", "--connections", str(load.connections), "--time-out", str(TIME_OUT_SECONDS)]
        argv += ["--json", str(result), "--control", f"{self._address[0]}:{self._address[1]}"]
        argv += ["--control-token-file", self._token_file] if self._token_file else []
        took = seconds + warm_up
        run_logged([*argv, *self._further], scratch / "load.txt", "neap-load", timeout_seconds=took + 10 * TIME_OUT_SECONDS)
        with contextlib.redirect_stdout(io.StringIO()):
            collect.collect(self._address, log, live=False, token=self._token, as_json=True, patience_seconds=PATIENCE_SECONDS)
        run = decode.load([str(log)])
        windows = load_results.read(result, run)
        total = summary.summarise(run, windows)["total"]
        watts = total["watts"]
        if watts is None:
            raise Failure(
                "the machine's log has no energy, so there is nothing to tune", "the CPU needs RAPL; --model tunes a modelled machine"
            )
        window = windows[-1]
        name = load.latency.removesuffix("_us").replace("p999", "p99.9")
        latency = window.latency_us.get(name)
        answered = window.requests or 0
        figures = {
            "rate_reached": answered / seconds,
            "requests": answered,
            "window_s": seconds,
            **{f"{each}_us": window.latency_us.get(each.replace("p999", "p99.9")) for each in PERCENTILES},
            "energy_j": total["joules"],
            "energy_uj": 1e6 * watts * seconds / answered if answered else None,
            "power_w": watts,
            "instructions": total["instructions"],
            "cycles": total["cycles"],
            "interrupts": total["interrupts"],
        }
        failure = "" if answered else "no request was answered"
        return Measured(latency if answered else None, watts, figures["energy_uj"], watts * took, took, False, failure, figures)
