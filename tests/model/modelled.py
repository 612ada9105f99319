# SPDX-License-Identifier: BSL-1.0
"""A run of one of our images on the model machine: its console, its exit status and the model's snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.target.images import BUILD
from tools.machine import Machine
from tools.model import cpu_model, plugin

RUN_SECONDS = 300


@dataclass(frozen=True)
class ModelledRun:
    status: int
    lines: list[str]
    snapshots: list[dict[str, Any]]

    def at_mark(self, mark: int) -> dict[str, Any]:
        return next(one for one in self.snapshots if one["event"] == "mark" and one["mark"] == mark)


def image(folder: str, name: str) -> Path:
    return BUILD / folder / f"{name}.elf"


def run(path: Path, directory: Path, *, model: str, cores: int = 1, smt: bool = False, words: str = "", **options: Any) -> ModelledRun:
    cpu = cpu_model.load(model, smt=smt)
    directory.mkdir(exist_ok=True)
    with Machine(
        path,
        cores=cores,
        threads_per_core=cpu.threads,
        memory="256M",
        arguments=words.split(),
        card=False,
        one_thread=True,
        cpu=cpu.qemu_cpu(),
        qemu_options=plugin.options(cpu, directory, **options),
    ) as machine:
        status = machine.wait_exit(RUN_SECONDS)
    return ModelledRun(status, machine.lines, plugin.snapshots(directory))
