# SPDX-License-Identifier: BSL-1.0
"""The Python that runs tests: a virtual environment in the cache with the packages of tools/requirements.txt, by hash."""

from __future__ import annotations

import sys
from pathlib import Path

from tools import cache, progress
from tools.process import run_logged

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def environment() -> Path:
    """The environment's `bin` directory; made if it is not there."""
    key = cache.digest(REQUIREMENTS.read_bytes(), sys.version, sys.base_prefix)
    entry = cache.Entry("python", key)
    # A virtual environment dies with the Python it was made from.
    if entry.ready and not (entry.path / "bin/python").exists():
        cache.remove(entry.path)
    if not entry.ready:
        with entry.making(on_wait=lambda: progress.say("neap: waiting for another neap that sets Python up")) as mine:
            if mine:
                log = cache.root() / "python.log"
                log.unlink(missing_ok=True)
                with progress.step("fetching the Python packages that tests need"):
                    run_logged([sys.executable, "-m", "venv", str(entry.path)], log, "python -m venv", timeout_seconds=300)
                    pip = [str(entry.path / "bin/python"), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(REQUIREMENTS)]
                    run_logged(pip, log, "pip install", timeout_seconds=900)
    return entry.path / "bin"
