# SPDX-License-Identifier: BSL-1.0
"""The folder of a study. A sweep may be killed at any moment: each run is written under a temporary name and renamed when it is whole.

study.toml           the file as it was last swept
plan.json            hashes of all programs, the commit, and the names of all runs with their titles
runs/NAME/run.json   one run: `row`, `histogram`, `scheduled`, or `failure`
runs/NAME/log/       its log, if the study keeps logs
runs.parquet, histograms.parquet     made anew from the runs (tables.py)
"""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tools import build, cache
from tools.errors import Failure, UsageError
from tools.foreign import parse_json, read_bounded
from tools.pxe import checkout_state

STUDY, PLAN, RUNS, RUN, LOG = "study.toml", "plan.json", "runs", "run.json", "log"
TEMPORARY = ".new-"
REPLACED = ".old-"
FILE_BYTES_MAX = 64 << 20
VERSION = 1


class StudyFolder:
    """Raises UsageError if the folder has other files, or runs of other programs. The caller MUST hold the folder's lock."""

    def __init__(self, path: Path):
        self.path = path
        if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not (path / PLAN).is_file() and not self._is_begun())):
            raise UsageError(f"{path} has other files", "--out names a new folder, or that of a sweep that was interrupted")

    def _is_begun(self) -> bool:
        """A sweep that was killed before it wrote its plan leaves these."""
        return {each.name for each in self.path.iterdir()} <= {".lock", RUNS, STUDY, f"{STUDY}.new", f"{PLAN}.new"}

    def begin(self, text: str, programs: Mapping[str, Mapping[str, str]], titles: Mapping[str, str]) -> None:
        """Writes the study's file and the plan, and removes what a killed sweep left. Raises UsageError if other programs measured the runs
        that are here, because a table must not mix them."""
        (self.path / RUNS).mkdir(parents=True, exist_ok=True)
        flat = {name: value for one in programs.values() for name, value in one.items()}
        if (self.path / PLAN).is_file() and any(True for _ in self.names()):
            self._require_same(flat)
        for left in (self.path / RUNS).iterdir():
            if left.name.startswith((TEMPORARY, REPLACED)):
                cache.remove(left)
        commit, changed = checkout_state(build.REPOSITORY)
        write_text(self.path / STUDY, text)
        about = {"version": VERSION, "programs": flat, "commit": f"{commit}{'+' if changed else ''}", "runs": dict(titles)}
        write_text(self.path / PLAN, json.dumps(about, indent=1) + "\n")

    def _require_same(self, programs: Mapping[str, str]) -> None:
        found = read_json(self.path / PLAN, "--out names a new folder")
        known = found.get("programs")
        before = known if isinstance(known, dict) else {}
        # A system that the study had not before has no runs here.
        if changed := [name for name, value in programs.items() if name in before and before[name] != value]:
            message = f"{self.path} has runs of other versions of: {', '.join(changed)}"
            raise UsageError(message, "--out names a new folder, so that no table mixes them")

    def names(self) -> Iterable[str]:
        """Returns the names of the runs that are here."""
        place = self.path / RUNS
        return (each.name for each in place.iterdir() if not each.name.startswith(".")) if place.is_dir() else ()

    def read(self, name: str) -> dict[str, Any]:
        return read_json(self.path / RUNS / name / RUN, "remove its folder, and the same command measures it again")

    def keep(self, name: str, content: dict[str, Any], log: str | None = None) -> None:
        """Stores a run in one step. A run with this name that failed before is replaced."""
        place, making = self.path / RUNS / name, self.path / RUNS / f"{TEMPORARY}{name}"
        try:
            cache.remove(making)
            making.mkdir()
            if log:
                _unpack(log, making / LOG)
            with open(making / RUN, "w") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            if place.exists():
                old = place.with_name(f"{REPLACED}{name}")
                cache.remove(old)
                place.rename(old)
                making.rename(place)
                cache.remove(old)
            else:
                making.rename(place)
        except OSError as error:
            shutil.rmtree(making, ignore_errors=True)
            raise Failure(f"cannot write {place}: {error.strerror or error}", "make room, and the same command goes on") from None


def _unpack(packed: str, folder: Path) -> None:
    """The archive comes from a worker, so members outside of the folder are refused (PEP 706)."""
    try:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed))) as archive:
            archive.extractall(folder, filter="data")
    except (tarfile.TarError, ValueError) as error:
        raise Failure(f"a worker sent a log that cannot be unpacked: {error}") from None


def write_text(path: Path, text: str) -> None:
    making = path.with_name(f"{path.name}.new")
    try:
        with open(making, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        making.rename(path)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror or error}") from None


def read_json(path: Path, hint: str) -> dict[str, Any]:
    try:
        found = parse_json(read_bounded(path, FILE_BYTES_MAX))
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: {error.strerror if isinstance(error, OSError) else error}", hint) from None
    if not isinstance(found, dict):
        raise Failure(f"{path} is no object of JSON", hint)
    return found
