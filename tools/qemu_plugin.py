# SPDX-License-Identifier: BSL-1.0
"""Our plugins for QEMU's emulated CPU, compiled once for the QEMU that runs machines."""

import re
from pathlib import Path

from tools import build, cache, packages, qemu
from tools.errors import Failure
from tools.process import run_logged

# Pairs of a QEMU version and the version of the plugin interface that QEMU has from then on, newest first.
PLUGIN_API = (((11, 1), 7), ((0,), 5))


def library(source: Path) -> Path:
    """The compiled plugin of a C file. It is compiled again if its source is newer."""
    version = qemu.version_of(qemu.command())
    if version is None:
        raise Failure("QEMU does not say its version")
    api = plugin_api(version)
    directory = build.BUILD / source.stem
    made = directory / f"{source.stem}-{api}.so"
    if made.is_file() and made.stat().st_mtime > source.stat().st_mtime:
        return made
    packages.require("card")
    fresh = made.with_suffix(".new")
    argv = ["gcc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden", f"-DPLUGIN_API={api}"]
    with cache.lock(directory / "lock"):
        run_logged([*argv, "-o", str(fresh), str(source)], build.log_path(source.stem), f"building {source.stem}")
        fresh.replace(made)
    return made


def plugin_api(version: str) -> int:
    """The number of the plugin interface for a QEMU like '11.1.3'."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version))
    return next(api for since, api in PLUGIN_API if numbers >= since)


def option(plugin: Path, *words: str) -> list[str]:
    """QEMU's arguments for a plugin. Raises Failure for file names that QEMU does not accept."""
    if bad := next((word for word in (str(plugin), *words) if "," in word), None):
        raise Failure(f"a comma in {bad}: QEMU does not accept such a file name")
    return ["-plugin", ",".join([str(plugin), *words])]
