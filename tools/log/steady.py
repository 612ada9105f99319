# SPDX-License-Identifier: BSL-1.0
"""Finds the window of a run in which its load was steady, from the frames that all cores received.

The log does not mark a load generator's preload, warm-up and pauses. In the window found here, equal parts of time have received equal
numbers of frames, within a tolerance. So its requests and latencies stay unknown.
"""

import numpy as np

from tools.errors import UsageError
from tools.log.decode import RunLog
from tools.log.load_results import LoadWindow
from tools.log.trim import ticks_since, trim

PARTS_MAX = 200
# A part with fewer frames on average varies by chance: 400 frames by 5 %.
FRAMES_PER_PART_MIN = 400
PARTS_MIN = 5


def windows(run: RunLog, percent: float) -> list[LoadWindow]:
    """Returns the longest time in which each part's frames differ from the median by at most `percent`. Returns an empty list if the run
    has too few frames, or no such time of PARTS_MIN parts."""
    if not 0 < percent <= 100:
        raise UsageError(f"--steady takes a percentage above 0, up to 100, not {percent:g}")
    cores = [core for core in map(trim, run.cores) if len(core.records)]
    if not cores:
        return []
    begin, end = min(core.begin_tsc for core in cores), max(core.end_tsc for core in cores)
    total = sum(core.sum("rx_frames") for core in cores)
    parts = min(PARTS_MAX, total // FRAMES_PER_PART_MIN)
    if parts < PARTS_MIN or end <= begin:
        return []
    edges = np.linspace(0, end - begin, parts + 1)
    frames = sum(np.histogram(ticks_since(core.inside["tsc"], begin), edges, weights=core.inside["rx_frames"])[0] for core in cores)
    typical = float(np.median(frames[frames > 0]))
    steady = np.abs(frames - typical) <= typical * percent / 100
    # Positions at which a stretch of steady parts begins, and at which it ends.
    changes = np.flatnonzero(np.diff(np.concatenate([[False], steady, [False]]).astype(int)))
    stretches = changes.reshape(-1, 2)
    if not len(stretches):
        return []
    first, last = max(stretches.tolist(), key=lambda stretch: stretch[1] - stretch[0])
    if last - first < PARTS_MIN:
        return []
    return [LoadWindow(begin + int(edges[first]), begin + int(edges[last]), None, {}, found=True)]
