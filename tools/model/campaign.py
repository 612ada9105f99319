# SPDX-License-Identifier: BSL-1.0
"""`./neap soak model`: runs on the model machine with faults drawn from a seed, each checked against what must hold after any fault.

./neap soak model --seeds 1000                        seeds 1 to 1000
./neap soak model --first-seed 4711 --seeds 1         one seed again: the same events at the same virtual times, and the same finding
./neap soak model --seeds 3 --fault 'at window+5s drop tx all'    with a fault that does not end, so that the checks must find it

tools/model/campaign_plan.py draws the faults, campaign_checks.py has the checks. Time is virtual, so a finding does not depend on the host.
The image, the programs and the CPU model are copied first, so that a build in the meantime does not change a campaign.
"""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import build, progress, qemu, run
from tools.errors import EXIT_FAILURE, Failure, UsageError
from tools.model import cpu_model, ending, experiment, plugin
from tools.model.campaign_checks import check
from tools.model.campaign_plan import CORES, MODEL, Plan, plan

SEEDS = 1000
FIRST_SEED = 1
JOBS = 2
# A run takes some seconds. A plan limits the instructions of its guest; this limit of the host's time is for a QEMU or a world that hangs.
RUN_SECONDS = 1800.0
SHOWN_LINES = 30
PROGRESS_EVERY = 50


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of one run. findings: sentences, none if all checks passed. digest: of all events and their times; of a run that ended early,
    of the CPUs' events."""

    plan: Plan
    findings: list[str]
    digest: str
    requests: int
    console: list[str]

    def again(self) -> str:
        """The command that repeats the run."""
        cores = self.plan.experiment.cores
        more = "".join(f" --fault {shlex.quote(fault)}" for fault in self.plan.added)
        return f"./neap soak model --first-seed {self.plan.seed} --seeds 1" + (f" --cores {cores}" if cores != CORES else "") + more

    def text(self) -> str:
        lines = [f"neap: soak: model: seed {self.plan.seed}: FINDING: {finding}" for finding in self.findings]
        lines += [f"    plan    | {line}" for line in self.plan.lines()]
        lines += [f"    console | {line}" for line in self.console[-SHOWN_LINES:]]
        return "\n".join([*lines, f"    digest {self.digest}; again: {self.again()}"])


@dataclasses.dataclass(frozen=True)
class Machine:
    """Image, programs and CPU model that all runs use. model: a .toml file, if not the checkout's."""

    image: Path
    programs: experiment.Programs
    model: Path | None = None

    @classmethod
    def copied(cls, image: Path, programs: experiment.Programs, directory: Path) -> Machine:
        world, library = (Path(shutil.copy2(path, directory)) for path in (programs.world, programs.plugin))
        model = Path(shutil.copy2(cpu_model.MODELS / f"{MODEL}.toml", directory))
        return cls(Path(shutil.copy2(image, directory)), experiment.Programs(world, library), model)


def run_plan(drawn: Plan, machine: Machine) -> Outcome:
    """Runs a plan and checks its end. Raises Failure if the world did not start: then nothing of the plan has run."""
    console: list[str] = []
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        out = Path(scratch)
        try:
            wanted = dataclasses.replace(drawn.experiment, model=str(machine.model or drawn.experiment.model))
            result = experiment.run(wanted, machine.image, out, console.append, machine.programs, RUN_SECONDS)
            findings = check(drawn, result.world, out / experiment.LOG, console)
            return Outcome(drawn, findings, result.digest, result.world["trial"]["requests"]["answered"], console)
        except Failure as failure:
            if not console:
                raise
            # The reason is the last line of the world's or of QEMU's messages, if there is one.
            said = [line.partition("| ")[2] for line in failure.details if line.startswith(("card ", "qemu "))]
            snapshots = plugin.snapshots(out)
            return Outcome(
                drawn, [*dict.fromkeys(ending.messages(said)), str(failure)], snapshots[-1]["digest"] if snapshots else "none", 0, console
            )


def campaign(plans: Sequence[Plan], machine: Machine, jobs: int, report: Callable[[Outcome], None]) -> list[Outcome]:
    """Runs all plans, `jobs` at a time. Returns the outcomes with findings. `report` is called with each outcome."""
    found: list[Outcome] = []
    guard = threading.Lock()

    def one(drawn: Plan) -> bool:
        outcome = run_plan(drawn, machine)
        with guard:
            if outcome.findings:
                found.append(outcome)
            report(outcome)
        return not outcome.findings

    run.in_lanes(one, plans, jobs)
    return sorted(found, key=lambda outcome: outcome.plan.seed)


def soak(seeds: int = SEEDS, first_seed: int = FIRST_SEED, cores: int = CORES, jobs: int = JOBS, faults: Sequence[str] = ()) -> int:
    """Prints each finding with the command that repeats it, and a summary. `faults` are added to each plan, and do not end with the others.
    Returns 1 if there was a finding."""
    for name, value, maximum in (("--seeds", seeds, 10**6), ("--cores", cores, experiment.CORES_MAX), ("--jobs", jobs, 256)):
        if not 1 <= value <= maximum:
            raise UsageError(f"{name} takes a number from 1 to {maximum}, not {value}")
    if not 0 <= first_seed < 1 << 63:
        raise UsageError(f"--first-seed takes a number from 0 to 2^63 - 1, not {first_seed}")
    run.require_build_packages()
    qemu.command()
    programs = experiment.Programs.built()
    build.build_world()
    build.build("image-debug", ["memcached.elf"])
    start = time.monotonic()
    done = requests = 0

    def report(outcome: Outcome) -> None:
        nonlocal done, requests
        done += 1
        requests += outcome.requests
        if outcome.findings:
            print(outcome.text(), flush=True)
        if seeds == 1:
            print("\n".join(outcome.plan.lines()), flush=True)
            print(f"digest {outcome.digest}, {outcome.requests} requests answered", flush=True)
        elif done % PROGRESS_EVERY == 0:
            print(f"neap: soak: model: {done} of {seeds} seeds, {progress.duration(time.monotonic() - start)}", flush=True)

    plans = [plan(seed, cores, faults) for seed in range(first_seed, first_seed + seeds)]
    with tempfile.TemporaryDirectory(prefix="neap-campaign-") as scratch:
        machine = Machine.copied(build.image("memcached", "image-debug"), programs, Path(scratch))
        found = campaign(plans, machine, jobs, report)
    names = "".join(f" {outcome.plan.seed}" for outcome in found)
    took = progress.duration(time.monotonic() - start)
    print(f"{done} seeds of a modelled machine with {cores} cores, {requests} requests answered, {took}:")
    print(f"{done - len(found)} without a finding, {len(found)} with one" + (f":{names}" if names else ""))
    return EXIT_FAILURE if found else 0
