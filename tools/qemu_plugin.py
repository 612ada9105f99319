# SPDX-License-Identifier: BSL-1.0
"""Neap's plugins for QEMU's emulated CPU, compiled once for the QEMU that runs machines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tools import build, cache, installed, packages, progress, qemu
from tools.errors import Failure
from tools.process import run_logged

# Each pair has a version of the plugin interface (the second member) and the first version of QEMU with that interface.
PLUGIN_API = (((11, 1), 7), ((0,), 5))


def library(source: Path) -> Path:
    """Returns the plugin that is compiled from a C file. It is compiled again if the source is newer than the plugin."""
    return compiled(source.stem, [source], [source], ["gcc", "-std=gnu17"])


def compiled(name: str, sources: Sequence[Path], depends_on: Sequence[Path], compiler: Sequence[str]) -> Path:
    """Returns the plugin that is compiled from `sources`. It is compiled again if a file of `depends_on` is newer. `compiler`: the first
    words of the compiler's command line."""
    version = qemu.version_of(qemu.command())
    if version is None:
        raise Failure("QEMU does not say its version")
    api = plugin_api(version)
    directory = build.BUILD / name
    made = directory / f"{name}-{api}.so"
    if installed.release() and made.is_file():
        return made
    if installed.taken_over(made, [str(path.relative_to(build.REPOSITORY)) for path in depends_on]):
        return made
    if made.is_file() and all(made.stat().st_mtime > path.stat().st_mtime for path in depends_on):
        return made
    packages.require("card")
    fresh = made.with_suffix(".new")
    argv = [*compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden", f"-DPLUGIN_API={api}"]
    with cache.lock(directory / "lock"), progress.step(f"building QEMU's plugin {name}"):
        run_logged([*argv, "-o", str(fresh), *map(str, sources)], build.log_path(name), f"building {name}")
        fresh.replace(made)
    return made


def plugin_api(version: str) -> int:
    """Returns the version of the plugin interface of a QEMU version like '11.1.3'."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version))
    return next(api for since, api in PLUGIN_API if numbers >= since)


def option(plugin: Path, *words: str) -> list[str]:
    """Returns QEMU's arguments for a plugin. Raises Failure for file names that QEMU does not accept."""
    if bad := next((word for word in (str(plugin), *words) if "," in word), None):
        raise Failure(f"a comma in {bad}: QEMU does not accept such a file name")
    return ["-plugin", ",".join([str(plugin), *words])]
