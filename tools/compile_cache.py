# SPDX-License-Identifier: BSL-1.0
"""Runs the compilers through ccache, with its store in the user's cache, so that checkouts share compiled objects.

ccache identifies a source by its content and the content of all included files. ccache replaces the checkout's own path by a relative path,
so clones share entries. cmake/neap_options.cmake makes the compiler produce the same object in each clone (-ffile-prefix-map).
CCACHE_DISABLE=1 switches ccache off. A user's compiler launcher or ccache settings (CMAKE_CXX_COMPILER_LAUNCHER, CCACHE_DIR) have priority.
"""

import os
from pathlib import Path

from tools import cache

SIZE_MAX = "2G"  # objects of about thirty full builds; the least recently used objects are removed first


def launchers() -> list[str]:
    """Returns CMake's arguments for running the compilers through ccache."""
    languages = [name for name in ("C", "CXX") if f"CMAKE_{name}_COMPILER_LAUNCHER" not in os.environ]
    return [f"-DCMAKE_{name}_COMPILER_LAUNCHER=ccache" for name in languages]


def environment(checkout: Path) -> dict[str, str]:
    """Returns this process's environment with ccache's settings for a build of `checkout`. Settings of the user have priority."""
    own = {
        "CCACHE_DIR": str(cache.root() / "ccache"),
        "CCACHE_MAXSIZE": SIZE_MAX,
        "CCACHE_BASEDIR": str(checkout),
        "CCACHE_NOHASHDIR": "1",
        # By default, ccache ignores -ffile-prefix-map when it identifies an object. So the file that sets this option is an extra input.
        "CCACHE_EXTRAFILES": str(checkout / "cmake/neap_options.cmake"),
    }
    return {**own, **os.environ}
