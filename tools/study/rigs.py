# SPDX-License-Identifier: BSL-1.0
"""The rigs' file: where a sweep's workers run.

    [[rigs]]
    name = "left"
    jobs = 2                                                            # workers there (1)
    command = ["ssh", "left", "cd neap && exec ./neap sweep --worker"]  # without one: a worker on this host
    machines = ["rack1", "rack2"]                                       # real machines that only this rig reaches

A command may be any program that passes standard input and output on, such as ssh or srun.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from tools.compare.plan import NAME
from tools.errors import Failure, UsageError
from tools.toml_lines import line_of, lines
from tools.toml_tables import Mistake, list_of, made, parse, read_text, require

RIGS_MAX, JOBS_MAX = 256, 256


@dataclasses.dataclass(frozen=True)
class Rig:
    """jobs: workers. command: starts a worker; empty: on this host. machines: real machines that this rig alone runs; a rig with machines
    runs no other units."""

    name: str
    jobs: int = 1
    command: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()

    def name_of(self, number: int) -> str:
        return self.name if self.jobs == 1 else f"{self.name}.{number + 1}"

    @property
    def hint(self) -> str:
        if not self.command:
            return "the lines above say why"
        return f"does `{' '.join(self.command)}` start a worker? The lines above say what it wrote"


def chosen(jobs: int | None, file: str | None) -> list[Rig]:
    """Returns the rigs of `--jobs` or `--rigs`. By default each core of this host has a worker. Raises Failure or UsageError."""
    if jobs is not None and file:
        raise UsageError("--jobs and --rigs exclude each other", "a rig has a member jobs")
    if file:
        return read(Path(file))
    if jobs is not None and not 1 <= jobs <= JOBS_MAX:
        raise UsageError(f"--jobs takes 1 to {JOBS_MAX}, not {jobs}")
    return [Rig("here", jobs=jobs or len(os.sched_getaffinity(0)))]


def read(path: Path) -> list[Rig]:
    """Raises Failure or UsageError with one sentence that names the line."""
    try:
        text = read_text(path)
        table = parse(text)
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: {error.strerror if isinstance(error, OSError) else error}; docs/study.md shows the form") from None
    try:
        for key in table:
            require(key == "rigs", f"there is no member '{key}'; write [[rigs]]", key)
        found = [made(Rig, each, "rigs", at) for at, each in enumerate(list_of(table, "rigs", RIGS_MAX))]
        require(bool(found), "there is no rig; write [[rigs]] with name and command")
        names = [rig.name for rig in found]
        for at, rig in enumerate(found):
            require(NAME.fullmatch(rig.name) is not None, f"'{rig.name}' is no name", "rigs", at, "name")
            require(rig.name not in names[:at], f"two rigs are named '{rig.name}'", "rigs", at, "name")
            require(1 <= rig.jobs <= JOBS_MAX, f"jobs is 1 to {JOBS_MAX}, not {rig.jobs}", "rigs", at, "jobs")
            claimed = {machine for other in found[:at] for machine in other.machines}
            for machine in rig.machines:
                require(machine not in claimed, f"two rigs have the machine {machine}", "rigs", at, "machines")
    except Mistake as mistake:
        raise UsageError(f"{path}, line {line_of(mistake.path, lines(text))}: {mistake}") from None
    return found
