# SPDX-License-Identifier: BSL-1.0
"""`./neap clean`: removes everything that can be made again, except things in use."""

import os
from pathlib import Path

from tools import build, cache, progress
from tools.errors import Failure


def clean(with_cache: bool) -> int:
    """Removes build/, and with `with_cache` the user's cache. If it is in use, raises Failure before anything there is removed."""
    places = [build.BUILD]
    if with_cache:
        places.append(cache.root())
    held = [descriptor for place in places for descriptor in _hold_all_locks(place)]
    try:
        for place in places:
            if place.exists():
                cache.remove(place)
                progress.say(f"neap: removed {place}")
    finally:
        for descriptor in held:
            os.close(descriptor)
    return 0


def _hold_all_locks(place: Path) -> list[int]:
    held = []
    for path in sorted(place.rglob("*.lock")) if place.is_dir() else []:
        if "target" in path.parts or not path.is_file() or path.stat().st_size:
            continue  # a lock of ours is an empty file; Cargo.lock and its like are not ours
        descriptor = cache.try_lock(path)
        if descriptor is None:
            raise Failure(f"{place} is in use by another neap", f"held: {path.name}; end that one first")
        held.append(descriptor)
    return held
