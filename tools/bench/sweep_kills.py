# SPDX-License-Identifier: BSL-1.0
"""`./neap bench sweep-kills`: kill -9 at 50 random moments of a sweep of 40 short runs on the model machine.

After each kill the same command goes on. When all runs are there, most of them are removed, so that further kills hit runs, too. At the end
the table must have each run once and whole, and equal that of a sweep that nothing interrupted.
"""

from __future__ import annotations

import json
import random
import signal
import tempfile
import time
from pathlib import Path

from tools import cache, progress
from tools.bench import sweeps
from tools.bench.rows import Row

KILLS, KEPT = 50, 10
# A kill after the sweep's end does not count.
MOMENTS_MAX = 3 * KILLS
SECONDS_MAX = 8.0


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="neap-kills-") as scratch:
        folder = Path(scratch)
        (folder / "study.toml").write_text(sweeps.STUDY)
        with progress.step("a sweep without a kill"):
            sweeps.run(folder, "whole")
        with progress.step(f"{KILLS} kills"):
            found = _kill(folder)
        begin = time.monotonic()
        sweeps.run(folder, "killed")
        whole, killed = (sweeps.table(folder, name) for name in ("whole", "killed"))
        names = [row["run"] for row in killed]
        different = sum(a != b for a, b in zip(whole, killed, strict=True))
        return [
            Row("kills_missed", f"of {KILLS} kills that should hit a running sweep", KILLS - found["hit"], target=1),
            Row("runs", "runs in the table", len(killed)),
            Row("missing", "runs", sweeps.RUNS_OF_STUDY - len(set(names)), target=1),
            Row("doubled", "runs", len(names) - len(set(names)), target=1),
            Row("half", "runs without a whole result after a kill", found["half"], target=1),
            Row("measured_again", "runs that were whole before", found["changed"], target=1),
            Row("different", "runs with other figures than without kills", different, target=1),
            Row("last_sweep", "s", time.monotonic() - begin),
        ]


def _kill(folder: Path) -> dict[str, int]:
    """Kills the sweep again and again. Returns what was wrong after the kills."""
    chance = random.Random(1)
    seen: dict[str, int] = {}
    found = {"hit": 0, "half": 0, "changed": 0}
    for _ in range(MOMENTS_MAX):
        if found["hit"] == KILLS:
            break
        if len(seen) >= sweeps.RUNS_OF_STUDY:
            for name in chance.sample(sorted(seen), sweeps.RUNS_OF_STUDY - KEPT):
                cache.remove(folder / "killed" / sweeps.RUNS / name)
                del seen[name]
        child = sweeps.start(folder, "killed")
        time.sleep(chance.uniform(0, SECONDS_MAX))
        found["hit"] += child.poll() is None
        child.send_signal(signal.SIGKILL)
        child.wait()
        for path in sweeps.whole_runs(folder, "killed"):
            try:
                found["half"] += json.loads((path / sweeps.RUN).read_text())["run"] != path.name
            except (OSError, ValueError, KeyError):
                found["half"] += 1
            written = (path / sweeps.RUN).stat().st_mtime_ns
            found["changed"] += seen.setdefault(path.name, written) != written
    return found
