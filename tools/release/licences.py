# SPDX-License-Identifier: BSL-1.0
"""Writes THIRD-PARTY-LICENCES.txt: the full licence texts of all components, each text once."""

from tools.release.inventory import Inventory
from tools.release.stage import Stage

NAME = "THIRD-PARTY-LICENCES.txt"
RULE = "=" * 100
HEAD = """\
Neap {version} is under the Boost Software License 1.0 (LICENSE). Its images, programs and boot parts also contain the works of others,
which are listed here with their licences. Below the list are the texts, each with the names of the works that it belongs to.

The sources of all components are in the archives that the list names, or were built from them: toolchain/sources.toml and the files
Cargo.lock in Neap's sources have their versions and hashes. Debian keeps the source of each version of its packages. Neap's own patches
are in its sources. The recipes toolchain/recipe.toml, CMakeLists.txt and Cargo.toml build and link everything again, also with changed
versions of these works.
"""


def text(stage: Stage, inventory: Inventory) -> bytes:
    """Returns the content of the file."""
    rows = [f"{component.name} {component.version}: {component.licence}" for component in inventory.components.values()]
    owners: dict[str, list[str]] = {}
    for component in inventory.components.values():
        for title, content in component.texts:
            owners.setdefault(_lines(content), []).append(f"{component.name} {component.version} ({title})")
    parts = [HEAD.format(version=stage.wheel_version), *sorted(rows)]
    for content, names in owners.items():
        parts += ["", RULE, *dict.fromkeys(names), RULE, "", content]
    return ("\n".join(parts) + "\n").encode()


def _lines(content: str) -> str:
    """Returns a text without spaces at the ends of lines, so that copies of one text are found."""
    return "\n".join(line.rstrip() for line in content.replace("\r\n", "\n").strip("\n").split("\n"))
