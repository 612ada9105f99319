# SPDX-License-Identifier: BSL-1.0
"""The folder of a comparison: each unit's result, so that an interrupted comparison goes on, and all that repeats it.

plan.json            the plan, and the commit, and hashes of all that takes part in a run
units/NAME.json      the figures of one boot; written when it has ended
machines/ARM.json    the machine's list of facts (./neap machine)
logs/ARM/            the cores' logs, as ./neap log reads them
comparison.json, runs.parquet, comparison.html, logs.html     made anew from the above at the end
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools import build, cache, qemu
from tools.compare.figures import Measured
from tools.compare.plan import Plan
from tools.compare.units import Booted, Outcome, Unit
from tools.errors import Failure, UsageError
from tools.foreign import parse_json, read_bounded
from tools.model import cpu_model, plugin
from tools.pxe import checkout_state

PLAN, UNITS, MACHINES, LOGS = "plan.json", "units", "machines", "logs"
FILE_BYTES_MAX = 64 << 20
VERSION = 1


class ResultFolder:
    """Raises UsageError if the folder has another comparison's results, and Failure for damaged files."""

    def __init__(self, path: Path, plan: Plan, participants: Mapping[str, str]):
        self.path = path
        self.plan = plan
        self.participants = dict(participants)
        commit, changed = checkout_state(build.REPOSITORY)
        about = {
            "version": VERSION,
            "digest": plan.digest,
            "participants": self.participants,
            "commit": f"{commit}{'+' if changed else ''}",
            "plan": dataclasses.asdict(plan),
        }
        place = path / PLAN
        if place.is_file():
            self._require_same(place)
            return
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"{path} has other files", "--out names a new folder, or that of a comparison that was interrupted")
        (path / UNITS).mkdir(parents=True, exist_ok=True)
        write(place, about)

    def _require_same(self, place: Path) -> None:
        found = _read(place)
        if found.get("version") != VERSION or found.get("digest") != self.plan.digest:
            raise UsageError(f"{self.path} has the results of another plan", "--out names a new folder, or the same options go on there")
        others = found.get("participants")
        if others != self.participants:
            known = others if isinstance(others, dict) else {}
            changed = [name for name in {**known, **self.participants} if known.get(name) != self.participants.get(name)]
            raise UsageError(
                f"{self.path} was begun with other versions of: {', '.join(changed)}",
                "--out names a new folder, so that no result is mixed",
            )

    @property
    def logs(self) -> Path:
        return self.path / LOGS

    def is_done(self, unit: Unit) -> bool:
        return self._place(unit).is_file()

    def keep(self, unit: Unit, outcome: Outcome) -> None:
        """Stores the end of a unit. MAY be called by any thread."""
        if outcome.machine is not None:
            (self.path / MACHINES).mkdir(exist_ok=True)
            write(self.path / MACHINES / f"{unit.arm.folder}.json", outcome.machine)
        write(self._place(unit), {"unit": unit.name, "measured": [dataclasses.asdict(one) for one in outcome.measured]})

    def measured(self, unit: Unit) -> list[Measured]:
        place = self._place(unit)
        try:
            return [Measured(**one) for one in _read(place)["measured"]]
        except (KeyError, TypeError) as error:
            raise Failure(f"{place} is not a unit's result: {error}", "remove it, and the same command measures it again") from None

    def machines(self) -> dict[str, dict[str, Any]]:
        """By the arm's name."""
        found = {arm.name: self.path / MACHINES / f"{arm.folder}.json" for arm in self.plan.arms}
        return {name: _read(place) for name, place in found.items() if place.is_file()}

    def _place(self, unit: Unit) -> Path:
        return self.path / UNITS / f"{unit.name}.json"


def participants(plan: Plan, booted: Mapping[str, Booted]) -> dict[str, str]:
    """Versions and hashes of all that takes part in a run, so that a result names what it was measured with."""
    found = {
        "QEMU": qemu.version_of(qemu.command()),
        "CPU model": cache.digest(cpu_model.load(plan.model).flat()),
        "neap-world": cache.file_sha256(build.WORLD),
        "plugin": cache.file_sha256(plugin.library()),
    }
    for system, files in booted.items():
        for role, one in (("memcached", files.memcached), ("NetPIPE", files.netpipe), ("traced", files.traced)):
            found[f"{system} {role}"] = cache.file_sha256(one.initramfs or one.kernel)
        if files.memcached.initramfs:
            found[f"{system} kernel"] = cache.file_sha256(files.memcached.kernel)
    return found


def write(path: Path, value: Any) -> None:
    """Writes JSON in one step, so that a killed process leaves no half of a file."""
    write_text(path, json.dumps(value, indent=1, sort_keys=False) + "\n")


def write_text(path: Path, text: str) -> None:
    making = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        making.write_text(text)
        making.rename(path)
    except OSError as error:
        making.unlink(missing_ok=True)
        raise Failure(f"cannot write {path}: {error.strerror or error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(read_bounded(path, FILE_BYTES_MAX))
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: {error}", "remove it, and the same command measures it again") from None
    if not isinstance(found, dict):
        raise Failure(f"{path} is no object of JSON", "remove it, and the same command measures it again")
    return found
