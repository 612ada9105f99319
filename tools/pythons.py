# SPDX-License-Identifier: BSL-1.0
"""Virtual environments with Python packages, in the cache. They are made on first use from requirements files, whose hashes pip checks.

The launcher itself needs only the standard library. The log's decoder and plots run in an environment of their own
(tools/log/requirements.txt). The study's commands run in one that also has the packages for fits, tuning and queries
(tools/study/requirements.txt). Tests run in an environment with all of these and the packages for tests (tools/requirements.txt).
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tools import cache, process, progress
from tools.process import run_logged

TESTS = Path(__file__).with_name("requirements.txt")
LOG = Path(__file__).with_name("log") / "requirements.txt"
STUDY = Path(__file__).with_name("study") / "requirements.txt"

# The program that starts over. An installed Neap was started by a script of its own environment, which another Python cannot run.
LAUNCHER = Path(__file__).resolve().parent.parent / "neap"

FOR_LOGS = (LOG,)
FOR_STUDIES = (LOG, STUDY)
FOR_TESTS = (LOG, STUDY, TESTS)


def environment() -> Path:
    """Returns the `bin` directory of the environment for tests, which is made if it does not exist."""
    return _environment(FOR_TESTS, "fetching the Python packages that tests need")


def log_environment() -> Path:
    """Returns the `bin` directory of the environment for decoding logs, which is made if it does not exist."""
    return _environment(FOR_LOGS, "fetching the Python packages that ./neap log needs (once)")


def study_environment() -> Path:
    """Returns the `bin` directory of the environment for the study's commands, which is made if it does not exist."""
    return _environment(FOR_STUDIES, "fetching the Python packages that studies need (once)")


def pip() -> list[str]:
    """Returns the start of a command line of pip, in an environment without other packages. The system's Python may lack pip."""
    entry = cache.Entry("python", cache.digest("pip", sys.version, sys.base_prefix))
    if entry.ready and not (entry.path / "bin/python").exists():
        cache.remove(entry.path)
    with entry.making(work="sets Python up") as mine:
        if mine:
            log = cache.root() / "python.log"
            log.unlink(missing_ok=True)
            run_logged([sys.executable, "-m", "venv", str(entry.path)], log, "python -m venv", timeout_seconds=300)
    return [str(entry.path / "bin/python"), "-m", "pip"]


def has_log_packages() -> bool:
    """True if this Python runs in an environment with the log's packages."""
    return _runs_in(FOR_LOGS, FOR_STUDIES, FOR_TESTS)


def has_study_packages() -> bool:
    """True if this Python runs in an environment with the study's packages. It then has the log's packages, too."""
    return _runs_in(FOR_STUDIES, FOR_TESTS)


def require(packages: str) -> None:
    """Restarts this program in an environment with the packages, unless it runs in one. `packages`: "log" or "study"."""
    if packages == "log" and not has_log_packages():
        start_over(log_environment(), [str(LAUNCHER), *sys.argv[1:]])
    if packages == "study" and not has_study_packages():
        start_over(study_environment(), [str(LAUNCHER), *sys.argv[1:]])


def start_over(directory: Path, words: Sequence[str]) -> NoReturn:
    """Replaces this process by another Python that runs the same program with the same words."""
    sys.stdout.flush()
    sys.stderr.flush()
    process.hold_signals()
    os.execv(directory / "python", [str(directory / "python"), str(Path(words[0]).resolve()), *words[1:]])


def _runs_in(*environments: Sequence[Path]) -> bool:
    return any(Path(sys.prefix).resolve() == _entry(files).path.resolve() for files in environments)


def _entry(requirements: Sequence[Path]) -> cache.Entry:
    return cache.Entry("python", cache.digest(*(path.read_bytes() for path in requirements), sys.version, sys.base_prefix))


def _environment(requirements: Sequence[Path], what: str) -> Path:
    entry = _entry(requirements)
    # A virtual environment is unusable without the Python that made it.
    if entry.ready and not (entry.path / "bin/python").exists():
        cache.remove(entry.path)
    if not entry.ready:
        with entry.making(work="sets Python up") as mine:
            if mine:
                log = cache.root() / "python.log"
                log.unlink(missing_ok=True)
                with progress.step(what):
                    run_logged([sys.executable, "-m", "venv", str(entry.path)], log, "python -m venv", timeout_seconds=300)
                    pip = [str(entry.path / "bin/python"), "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary=:all:"]
                    pip += [word for path in requirements for word in ("-r", str(path))]
                    run_logged(pip, log, "pip install", timeout_seconds=900)
    return entry.path / "bin"
