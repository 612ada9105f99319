# SPDX-License-Identifier: BSL-1.0
"""`./neap clean`: removes build output, and with --cache also the user's cache."""

import os
from pathlib import Path

from tools import build, cache, installed, progress
from tools.errors import Failure


def clean(with_cache: bool) -> int:
    """Removes build/, or an installed Neap's build output, and with `with_cache` the user's cache. If anything in them is in use, raises
    Failure and removes nothing."""
    places = _places()
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


def _places() -> list[Path]:
    """Returns the directories with build output. An installed Neap has them in the cache, in copies of its sources of each version."""
    if not installed.release():
        return [build.BUILD]
    return [*sorted((cache.root() / "source").glob("*/build")), *sorted((cache.root() / "installed").glob("*"))]


def _hold_all_locks(place: Path) -> list[int]:
    held = []
    for path in sorted(place.rglob("*.lock")) if place.is_dir() else []:
        if "target" in path.parts or not path.is_file() or path.stat().st_size:
            continue  # our lock files are empty; files like Cargo.lock are no locks
        descriptor = cache.try_lock(path)
        if descriptor is None:
            raise Failure(f"{place} is in use by another neap", f"held: {path.name}; end that one first")
        held.append(descriptor)
    return held
