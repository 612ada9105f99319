# SPDX-License-Identifier: BSL-1.0
"""`./neap packetdrill`: runs scripts in child processes, some at a time, and compares the failures with the list of known deviations.

A child per script: the object has one machine in a process, and a panic ends only its script.
"""

import dataclasses
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tools import build, packages
from tools.errors import EXIT_FAILURE, UsageError
from tools.packetdrill.judge import compare
from tools.packetdrill.machine import Machine
from tools.packetdrill.runner import Failed, Runner
from tools.packetdrill.script import ScriptError, read

SCRIPTS = build.REPOSITORY / "tests/packetdrill"
DEVIATIONS = SCRIPTS / "deviations.txt"
LIBRARY = build.BUILD / "host-shared/net/object/libneap_network.so"
SCRIPT_SECONDS = 20
STDERR_BYTES_MAX = 2000


@dataclasses.dataclass
class Result:
    script: Path
    failure: str | None  # None: the script passed


def build_library() -> Path:
    packages.require("host-tests", "sources")
    build.build("host-shared", ["neap_network"])
    return LIBRARY


def all_scripts() -> list[Path]:
    return sorted(SCRIPTS.glob("*/*.pkt"))


def short(script: Path) -> str:
    """The name of a script in messages and in the list of deviations."""
    return str(script.resolve().relative_to(SCRIPTS)) if script.resolve().is_relative_to(SCRIPTS) else str(script)


def deviations(path: Path) -> dict[str, str]:
    """Reads `SCRIPT: REASON` lines. Raises UsageError for a line that is none, or lacks its script."""
    known = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, reason = line.partition(": ")
        if not colon or not reason.strip() or name in known or not (path.parent / name).is_file():
            raise UsageError(f"{path.name}:{number}: not a line 'SCRIPT: REASON' of an existing script, or a second one")
        known[name] = reason.strip()
    return known


def run_scripts(scripts: Sequence[Path], library: Path, jobs: int | None = None) -> list[Result]:
    """Runs scripts, `jobs` at a time. Returns the results in the order of the scripts."""
    machine = Machine(library)  # loaded once, before the children are made
    results: dict[int, Result] = {}
    running: dict[int, tuple[int, int, Path]] = {}  # process: index, output, file of stderr
    waiting = list(enumerate(scripts))
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < (jobs or os.cpu_count() or 1):
                index, script = waiting.pop(0)
                reader, writer = os.pipe()
                stderr = Path(folder) / str(index)
                sys.stdout.flush()
                child = os.fork()
                if child == 0:
                    os.close(reader)
                    _child(script, machine, writer, stderr)
                os.close(writer)
                running[child] = (index, reader, stderr)
            child, status = os.wait()
            index, reader, stderr = running.pop(child)
            with os.fdopen(reader, "rb") as pipe:
                text = pipe.read().decode(errors="replace")
            failure = text or None
            if status != 0 and not text:
                last = stderr.read_text(errors="replace")[-STDERR_BYTES_MAX:]
                how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit status {os.waitstatus_to_exitcode(status)}"
                failure = f"{scripts[index]}: the machine ended by {how}\n{last}"
            results[index] = Result(scripts[index], failure)
    return [results[index] for index in range(len(scripts))]


def _child(script: Path, machine: Machine, output: int, stderr: Path) -> None:
    """Runs one script. Writes the failure to `output`; does not return."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SCRIPT_SECONDS)
        os.dup2(os.open(stderr, os.O_CREAT | os.O_WRONLY), 2)
        failure = run_here(script, machine)
        os.write(output, (failure or "").encode()[:60000])
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def run_here(script: Path, machine: Machine) -> str | None:
    """Runs one script in this process, whose object MUST have no machine. Returns the failure, or None. The machine stays."""
    try:
        Runner(read(script), machine).run()
    except (Failed, ScriptError) as failure:
        return str(failure)
    except OSError as error:
        return f"{script}: {error}"
    return None


def packetdrill(names: Sequence[str], library: str | None = None, all_failures: bool = False, judge: str | None = None) -> int:
    """Runs scripts (default: all of tests/packetdrill). A known deviation counts as passed, unless `all_failures`. With `judge`, the path
    of Google's packetdrill, only compares the two interpreters."""
    scripts = [Path(name) for name in names] or all_scripts()
    scripts = [path for script in scripts for path in (sorted(script.rglob("*.pkt")) if script.is_dir() else [script])]
    scripts = [Path(os.path.relpath(script)) for script in scripts]
    for script in scripts:
        if not script.is_file():
            raise UsageError(f"there is no script {script}")
    object_path = Path(library) if library else build_library()
    if judge:
        own = [(result.script, result.failure) for result in run_scripts(scripts, object_path)]
        return EXIT_FAILURE if compare(Path(judge), object_path, own) else 0
    known = {} if all_failures else deviations(DEVIATIONS)
    start = time.monotonic()
    failed = deviating = 0
    for result in run_scripts(scripts, object_path):
        name = short(result.script)
        if result.failure and name in known:
            deviating += 1
        elif result.failure:
            failed += 1
            print(result.failure, flush=True)
        elif name in known:
            failed += 1
            print(f"{result.script}: passes, but deviations.txt has it: {known[name]}", flush=True)
    passed = len(scripts) - failed - deviating
    print(f"{passed} passed, {failed} failed, {deviating} known deviations, in {time.monotonic() - start:.1f} s")
    return EXIT_FAILURE if failed else 0
