# SPDX-License-Identifier: BSL-1.0
"""Filters of runs: arms, loads, and ranges of settings and figures, as the page and `--where` give them.

A filter names a quantity, and either values or a range. In a command it is `arm=Neap,Linux` or `rate_wanted=200000..400000`. Either end of
a range may be missing.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

from tools.errors import UsageError
from tools.foreign import shown
from tools.study.view_source import Source

FILTERS_MAX = 40
VALUES_MAX = 1000
# In pages and names, the value of a run in which a setting is not set, such as the ITR of adaptive moderation.
NOT_SET = "not set"


@dataclasses.dataclass(frozen=True)
class Filter:
    """`values`: the allowed ones, None among them for unknown. Without values, `low` and `high` bound the quantity."""

    name: str
    values: tuple[Any, ...] | None = None
    low: float | None = None
    high: float | None = None

    def sql(self, source: Source) -> tuple[str, list[Any]]:
        """Returns a condition and its parameters. Raises UsageError for a quantity that the table lacks, or a value of another type."""
        what = f"({source.quantity(self.name).expression})"
        if self.values is None:
            parts = [(f"{what} >= ?", self.low), (f"{what} <= ?", self.high)]
            given = [(text, bound) for text, bound in parts if bound is not None]
            if given and not source.kind(self.name).is_number:
                raise UsageError(f"{self.name} is a text, so a range does not apply", f"--where {self.name}=VALUE,VALUE")
            return " AND ".join(text for text, _ in given) or "true", [bound for _, bound in given]
        known = [value for value in self.values if value is not None]
        if source.kind(self.name).is_number:
            known = [_number(value, self.name) for value in known]
            # A frequency from a file may have been rounded.
            parts = [f"abs({what} - ?) <= 1e-9 * greatest(1, abs(?))" for _ in known]
            found = [each for value in known for each in (value, value)]
        else:
            parts, found = (
                ([f"{what}::VARCHAR IN ({', '.join('?' for _ in known)})"], [str(value) for value in known]) if known else ([], [])
            )
        if None in self.values:
            parts.append(f"{what} IS NULL")
        return f"({' OR '.join(parts)})" if parts else "false", found


def _number(value: Any, name: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name} is a number, not '{shown(value, 60)}'") from None
    if not math.isfinite(found):
        raise UsageError(f"{name} is a finite number, not '{shown(value, 60)}'")
    return found


def condition(filters: Sequence[Filter], source: Source) -> tuple[str, list[Any]]:
    """Returns the conjunction of filters as SQL, and its parameters."""
    parts, values = ["true"], []
    for each in filters:
        text, found = each.sql(source)
        parts.append(text)
        values += found
    return " AND ".join(parts), values


def parse_words(words: Sequence[str]) -> list[Filter]:
    """Returns the filters that `--where` gives."""
    found = []
    for word in words:
        name, sign, text = word.partition("=")
        if not name or not sign or not text:
            raise UsageError(f"--where takes NAME=VALUE,VALUE or NAME=LOW..HIGH, not '{shown(word, 100)}'")
        if ".." in text:
            low, _, high = text.partition("..")
            found.append(Filter(name, None, *(None if not end else _number(end, name) for end in (low, high))))
        else:
            found.append(Filter(name, tuple(None if each == NOT_SET else each for each in text.split(","))))
    return found


def parse_json(text: str) -> list[Filter]:
    """Returns the filters that the page sends. Raises UsageError for anything else."""
    try:
        given = json.loads(text)
        if not isinstance(given, list) or len(given) > FILTERS_MAX:
            raise ValueError
        return [_from_json(each) for each in given]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError("the filters cannot be understood") from None


def _from_json(given: dict) -> Filter:
    name, values = given["name"], given.get("values")
    if not isinstance(name, str):
        raise ValueError
    if values is None:
        return Filter(name, None, *(None if given.get(end) is None else _number(given[end], name) for end in ("low", "high")))
    if not isinstance(values, list) or len(values) > VALUES_MAX or not all(isinstance(each, str | int | float | None) for each in values):
        raise ValueError
    return Filter(name, tuple(values))
