# SPDX-License-Identifier: BSL-1.0
"""What one checkout has compiled, no other compiles again: ccache before the compilers, its store in the user's cache.

ccache knows a source by what it and all it includes hold, and replaces the checkout's own path by a relative one, so that clones share.
That both give the same object is cmake/neap_options.cmake's doing (-ffile-prefix-map). CCACHE_DISABLE=1 switches it off; whoever has
launchers or a ccache of their own (CMAKE_CXX_COMPILER_LAUNCHER, CCACHE_DIR) keeps those.
"""

from __future__ import annotations

import os
from pathlib import Path

from tools import cache

SIZE_MAX = "2G"  # objects of some thirty whole builds; what was used longest ago goes first


def launchers() -> list[str]:
    """CMake's words that put ccache before the compilers."""
    languages = [name for name in ("C", "CXX") if f"CMAKE_{name}_COMPILER_LAUNCHER" not in os.environ]
    return [f"-DCMAKE_{name}_COMPILER_LAUNCHER=ccache" for name in languages]


def environment(checkout: Path) -> dict[str, str]:
    """This process's environment with ccache's settings for a build of `checkout`; what the user set there stays."""
    own = {
        "CCACHE_DIR": str(cache.root() / "ccache"),
        "CCACHE_MAXSIZE": SIZE_MAX,
        "CCACHE_BASEDIR": str(checkout),
        "CCACHE_NOHASHDIR": "1",
        # ccache leaves -ffile-prefix-map out of what it knows an object by.
        "CCACHE_EXTRAFILES": str(checkout / "cmake/neap_options.cmake"),
    }
    return {**own, **os.environ}
