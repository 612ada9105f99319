# SPDX-License-Identifier: BSL-1.0
"""A machine list, or the differences of two, as text for a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence

from tools.machine_list.compare import Difference, value
from tools.machine_list.schema import GROUPS, MEMBERS, Weight

WIDTH_MIN = 80
WIDTH_UNKNOWN = 140
SHOWN_CHARACTERS_MAX = 48
HEADINGS = {
    Weight.FORBIDS: "These differences forbid a comparison:",
    Weight.SETTING: "Settings that differ; figures may be compared only as their effect:",
    Weight.SYSTEM: "The systems differ:",
}
BY_NATURE = "Different by nature, or known on one side only:"


def text(machine: Mapping[str, object], width: int | None = None) -> str:
    """Returns the members by groups, aligned. Members that are not known have no line."""
    width = width or max(WIDTH_MIN, shutil.get_terminal_size((WIDTH_UNKNOWN, 24)).columns)
    names = max(len(name) for name in MEMBERS)
    groups = {group: [member.name for member in members] for group, members in GROUPS.items()}
    groups["other"] = sorted(set(machine) - set(MEMBERS))
    blocks = []
    for group, members in groups.items():
        rows = [_row(name, machine[name], names, width) for name in members if machine.get(name) is not None]
        if rows:
            blocks.append("\n".join([f"{group}:", *rows]))
    return "\n".join(blocks)


def _row(name: str, content: object, names: int, width: int) -> str:
    indent = " " * (names + 4)
    parts = content if isinstance(content, list) and sum(len(str(one)) + 2 for one in content) > width - len(indent) else [content]
    wrapped = [line for part in parts for line in textwrap.wrap(value(part), width - len(indent)) or [""]]
    return f"  {value(name):{names}}  " + f"\n{indent}".join(wrapped)


def difference_text(found: Sequence[Difference], names: tuple[str, str], all_members: bool) -> str:
    """Returns the differences as tables: those that forbid a comparison first. An empty text means that there is none."""
    blocks = []
    for weight, heading in HEADINGS.items():
        rows = [one for one in found if one.weight is weight and not one.by_nature]
        if rows:
            blocks.append(_table(heading, rows, names))
    if all_members and (rows := [one for one in found if one.by_nature]):
        blocks.append(_table(BY_NATURE, rows, names))
    return "\n\n".join(blocks)


def _table(heading: str, found: Sequence[Difference], names: tuple[str, str]) -> str:
    rows = [("name", *(value(name) for name in names), "why it matters")]
    rows += [(value(one.name), value(one.first), value(one.second), one.why) for one in found]
    rows = [(row[0], _cut(row[1]), _cut(row[2]), row[3]) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join([heading, *("  " + "  ".join([*(f"{cell:{width}}" for cell, width in zip(row, widths)), row[3]]) for row in rows)])


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."
