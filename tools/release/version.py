# SPDX-License-Identifier: BSL-1.0
"""The version has one place: `project(neap VERSION ...)` in CMakeLists.txt. Other files that must repeat it are compared with it."""

import re
import tomllib
from pathlib import Path

from tools.errors import Failure

_PROJECT = re.compile(r"^project\(neap VERSION (\d+\.\d+\.\d+)[ )]", re.MULTILINE)


def of_tree(tree: Path) -> str:
    """Returns the version of the sources in `tree`. Raises Failure if CMakeLists.txt has none."""
    try:
        found = _PROJECT.search((tree / "CMakeLists.txt").read_text())
    except OSError as error:
        raise Failure(f"cannot read {tree}/CMakeLists.txt: {error.strerror}") from None
    if not found:
        raise Failure(f"{tree}/CMakeLists.txt has no line 'project(neap VERSION X.Y.Z ...'")
    return found[1]


def repeated(tree: Path) -> dict[str, str]:
    """Returns the version in each file that repeats it, by the file's name: CITATION.cff and the packages of the Cargo workspaces."""
    found = {}
    citation = re.search(r"^version: (\S+)$", (tree / "CITATION.cff").read_text(), re.MULTILINE)
    found["CITATION.cff"] = citation[1] if citation else "none"
    for name in ("sim/soft82599/Cargo.toml", "sim/soft82599/card/Cargo.toml", "sim/world/Cargo.toml", "bench/load/Cargo.toml"):
        table = tomllib.loads((tree / name).read_text())
        if "workspace" in table:
            found[f"{name} [workspace.package]"] = table["workspace"]["package"]["version"]
        own = table["package"]["version"]
        if isinstance(own, str):  # otherwise it is that of the workspace
            found[name] = own
    return found


def require_equal(tree: Path) -> str:
    """Returns the version. Raises Failure with the names of the files that have another one."""
    wanted = of_tree(tree)
    other = [f"{name} has {found}" for name, found in repeated(tree).items() if found != wanted]
    if other:
        raise Failure(f"CMakeLists.txt has the version {wanted}, but {', '.join(other)}", "write the same version in each file")
    return wanted
