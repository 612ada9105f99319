# SPDX-License-Identifier: BSL-1.0
"""Measurements by modules that need packages of their own, in a process of their own."""

import json
import os
from pathlib import Path
from typing import Any

from tools import build, progress
from tools.errors import Failure
from tools.process import finished

SECONDS_MAX = 1800


def measured(directory: Path, module: str, what: str) -> Any:
    """Returns the JSON that `python -m MODULE` prints. `directory`: the `bin` directory of the environment with its packages."""
    environment = {**os.environ, "PYTHONPATH": str(build.REPOSITORY)}
    with progress.step(what):
        done = finished([str(directory / "python"), "-m", module], SECONDS_MAX, env=environment)
    if done.returncode != 0:
        raise Failure(f"{what}: the measurement failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return json.loads(done.stdout)
