# SPDX-License-Identifier: BSL-1.0
"""`./neap run … --model M --record DIR` and `./neap replay DIR`: a run of the model machine, and the same run again.

A run follows from its settings, its seed and its programs. So a record holds the settings, the CPU model's numbers, and the hashes of the
image, of neap-world, of the plugin, and QEMU's version; and beside them the results. The model machine has no input from outside: its
clients, commands and faults are part of the settings. A replay refuses if any of the programs is another one, because it would be another
run. Otherwise it has to give the same files, byte by byte.

With --gdb the machine waits for gdb before its first instruction. Virtual time stands still while gdb has stopped the machine. So
breakpoints are hit at the same virtual times in each replay, and the files are equal, too.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools import build, debugger, progress, qemu
from tools.errors import Failure, UsageError
from tools.foreign import parse_json, read_bounded, shown_lines
from tools.model import cpu_model, experiment, plugin
from tools.model.experiment import Experiment, Programs

RECORD = "record.json"
RECORD_BYTES_MAX = 1 << 20
END_WORDS = "'quit' lets it run to its end, 'kill' ends it"
VERSION = 1
# The JSON types of an Experiment's fields; all others are numbers.
TEXTS = ("model", "load", "memory", "protocol")
LISTS = ("arguments", "faults", "world_options")
FLAGS = ("trace_interrupts", "trace", "smt", "profile", "moved_lines")
OPTIONAL = ("keys", "value_bytes", "instructions_max")


@dataclasses.dataclass(frozen=True)
class Record:
    """programs: hashes by name, and QEMU's version. files: the hash of each result, by its name in the record's folder."""

    application: str
    image: Path
    experiment: Experiment
    programs: Mapping[str, str]
    files: Mapping[str, str]


def file_hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def programs_of(wanted: Experiment, image: Path, programs: Programs) -> dict[str, str]:
    """Returns versions and hashes of the programs that a run depends on."""
    return {
        "image": file_hash(image),
        "CPU model": hashlib.sha256(cpu_model.load(wanted.model).flat().encode()).hexdigest(),
        "neap-world": file_hash(programs.world),
        "plugin": file_hash(programs.plugin),
        "QEMU": str(qemu.version_of(qemu.command())),
    }


def results_of(directory: Path) -> dict[str, str]:
    """The hashes of a run's files: the world's report, the CPUs' snapshots, and the cores' logs."""
    logs = sorted((directory / experiment.LOG).glob("core*.log"))
    paths = [directory / experiment.WORLD_RESULT, directory / plugin.SNAPSHOTS, *logs]
    return {str(path.relative_to(directory)): file_hash(path) for path in paths if path.is_file()}


def write(application: str, image: Path, wanted: Experiment, directory: Path) -> None:
    """Adds the record to the folder of a finished run."""
    document = {
        "version": VERSION,
        "application": application,
        "image": str(image.resolve()),
        "experiment": wanted.about(),
        "programs": programs_of(wanted, image, Programs.built()),
        "files": results_of(directory),
    }
    (directory / RECORD).write_text(json.dumps(document, indent=1) + "\n")


def require_new(directory: Path) -> None:
    """Raises UsageError if the folder exists and is not empty, because files of two runs would be mixed."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"--record {directory}: it exists and is not an empty folder", "choose another name")


def read(directory: Path) -> Record:
    """Raises Failure if the folder holds no valid record."""
    path = directory / RECORD
    try:
        document = parse_json(read_bounded(path, RECORD_BYTES_MAX))
    except FileNotFoundError:
        raise Failure(f"{directory} holds no record", "./neap run memcached --model e5-2690 --load etc --record DIR makes one") from None
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: {error}") from None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise Failure(f"{path} is no record of version {VERSION}")
    application, image = document.get("application"), document.get("image")
    programs, files = (_texts(document.get(name)) for name in ("programs", "files"))
    wanted = _experiment(document.get("experiment"))
    if not isinstance(application, str) or not isinstance(image, str) or None in (programs, files, wanted) or not files:
        raise Failure(f"{path} is damaged: a member is missing or has another type")
    assert programs is not None and wanted is not None
    return Record(application, Path(image), wanted, programs, files)


def _texts(value: object) -> dict[str, str] | None:
    valid = isinstance(value, dict) and all(isinstance(name, str) and isinstance(text, str) for name, text in value.items())
    return dict(value) if valid and isinstance(value, dict) else None


def _experiment(value: object) -> Experiment | None:
    fields = {field.name for field in dataclasses.fields(Experiment)}
    if isinstance(value, dict):
        value = {"profile": False, **value}  # earlier records have no such member
    if not isinstance(value, dict) or value.keys() != fields:
        return None
    if not all(_has_type(name, one) for name, one in value.items()):
        return None
    stall: Any = value["stall"]
    wanted = Experiment(**{**value, "stall": None if stall is None else (stall[0], stall[1])})
    try:
        wanted.check()
    except UsageError:
        return None
    return wanted


def _has_type(name: str, value: object) -> bool:
    """True if the value can be this field of an Experiment."""
    if name in TEXTS:
        return isinstance(value, str)
    if name in LISTS:
        return isinstance(value, list) and all(isinstance(word, str) for word in value)
    if name in FLAGS:
        return isinstance(value, bool)
    if name == "stall":
        return value is None or (isinstance(value, list) and len(value) == 2 and all(_is_number(number) for number in value))
    return _is_number(value) or (name in OPTIONAL and value is None)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def require_same_programs(record: Record, programs: Programs) -> None:
    """Raises Failure, in one sentence, if the run would be another one."""
    if not record.image.is_file():
        raise Failure(f"the recorded image {record.image} is gone", "build the recorded commit")
    for name, now in programs_of(record.experiment, record.image, programs).items():
        if record.programs.get(name) != now:
            was = f": it was {record.programs.get(name)}, and is {now}" if name == "QEMU" else ""
            raise Failure(f"{name} is not the recorded one{was}", "a replay needs the programs of the recording")


def replay(directory: str, with_gdb: bool = False) -> int:
    """Repeats a recorded run and compares its files. Returns the launcher's exit status."""
    folder = Path(directory)
    record = read(folder)
    if with_gdb:
        debugger.require()
    if not build.WORLD.is_file():
        build.build_world()
    programs = Programs.built()
    require_same_programs(record, programs)
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        out = Path(scratch)
        if with_gdb:
            _run_under_gdb(record, out, programs)
            if not (out / experiment.WORLD_RESULT).is_file():
                progress.say("neap: replay: gdb ended the machine before the end of the run, so no files are compared")
                return 0
        else:
            experiment.run(record.experiment, record.image, out, lambda line: progress.say(shown_lines(line)), programs)
        require_equal(record, results_of(out))
    print(f"replayed: all {len(record.files)} files are equal, modelled ({record.experiment.model}, seed {record.experiment.seed})")
    return 0


def _run_under_gdb(record: Record, out: Path, programs: Programs) -> None:
    """Runs the machine under gdb in this terminal. gdb's `quit` leaves the machine running, and then its end is waited for."""
    system = experiment.System(record.image)
    console = functools.partial(print, flush=True)
    with experiment.ModelMachine(system, record.experiment, out, lambda line: console(shown_lines(line)), programs, debugger=True) as vm:
        debugger.debug(record.image, vm.debugger_socket, exact_steps=True, end=END_WORDS)
        vm.wait_exit(experiment.TIME_OUT_SECONDS)


def require_equal(record: Record, files: Mapping[str, str]) -> None:
    """Raises Failure that names the files that differ."""
    names = sorted(record.files.keys() | files.keys())
    different = [name for name in names if record.files.get(name) != files.get(name)]
    if different:
        raise Failure(f"the replay differs from the record in {', '.join(different)}", "with equal programs that is an error of the model")
