# SPDX-License-Identifier: BSL-1.0
"""The differences of two machine lists, and which of them forbid a comparison of the two runs.

Two lists of one system are compared member by member. Between Neap and Linux some members differ by nature, such as the kernel's version,
and some are known on one side only. These differences say nothing about the comparison, so they are kept apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.foreign import shown
from tools.machine_list.schema import MEMBERS, Member, Weight

ABSENT = "not known"
ONE_SIDE = "known on one side only"
UNKNOWN_MEMBER = "this version does not know the member"


@dataclass(frozen=True)
class Difference:
    """One member that differs. `first` and `second` are its values; None means that a list does not have the member. `by_nature`: the two
    systems differ, and with them this member, so the difference does not concern the comparison."""

    name: str
    first: object
    second: object
    weight: Weight
    why: str
    by_nature: bool = False

    @property
    def forbids(self) -> bool:
        return self.weight is Weight.FORBIDS and not self.by_nature


def differences(first: Mapping[str, object], second: Mapping[str, object]) -> list[Difference]:
    """Returns the members that differ, in the order of the schema. A null member counts as absent."""
    same_system = first.get("system") == second.get("system")
    found = []
    for name in [*MEMBERS, *sorted((set(first) | set(second)) - set(MEMBERS))]:
        values = first.get(name), second.get(name)
        if not _differ(MEMBERS.get(name), *values):
            continue
        member = MEMBERS.get(name)
        weight, why = (member.weight, member.why) if member else (Weight.SETTING, UNKNOWN_MEMBER)
        if None in values:
            # A value that is not known cannot forbid anything. A setting that only one of two equal systems has is still a difference.
            weight, why = (Weight.SETTING if weight is Weight.FORBIDS else weight), f"{ONE_SIDE}; {why}"
        by_nature = not same_system and (weight is Weight.SYSTEM or None in values)
        found.append(Difference(name, *values, weight, why, by_nature))
    return found


def forbids(found: Sequence[Difference], *, strict: bool = False) -> bool:
    """True if one of the differences forbids a comparison. `strict`: a setting that differs forbids it, too."""
    return any(one.forbids or (strict and one.weight is Weight.SETTING and not one.by_nature) for one in found)


def lines(found: Sequence[Difference], *, all_members: bool = False) -> list[str]:
    """Returns a line for each difference; without those that differ by nature unless `all_members`."""
    return [f"{one.name}: {value(one.first)} | {value(one.second)} ({one.why})" for one in found if all_members or not one.by_nature]


def value(value: object) -> str:
    """Returns a member's value as text for a terminal."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return shown(", ".join(str(one) for one in value))
    return shown(value if isinstance(value, str) else json.dumps(value))


def _differ(member: Member | None, first: object, second: object) -> bool:
    if isinstance(first, bool) is not isinstance(second, bool):
        return True  # in Python, 1 == True
    if member and member.tolerance and isinstance(first, int | float) and isinstance(second, int | float):
        return abs(first - second) > member.tolerance * max(abs(first), abs(second))
    return first != second
