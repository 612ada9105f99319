# SPDX-License-Identifier: BSL-1.0
"""Reads a TOML file into dataclasses, with a check of each member (tools/compare, tools/study).

Errors are `Mistake`s, which have the path of the wrong member. tools/toml_lines.py has its line.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from tools.foreign import shown

FILE_BYTES_MAX = 1 << 20
TEXT_CHARACTERS_MAX = 120
Made = TypeVar("Made")


class Mistake(ValueError):
    """A wrong member. `path`: keys and indexes, such as ("arms", 1, "words")."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()):
        super().__init__(message)
        self.path = path


def read_text(path: Path) -> str:
    """Raises OSError, and ValueError for a file that is too large or not UTF-8."""
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"a file of more than {FILE_BYTES_MAX >> 20} MiB")
    return data.decode()


def parse(text: str) -> dict[str, Any]:
    """Raises ValueError (tomllib.TOMLDecodeError is one)."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("values nested too deeply") from None


def list_of(table: Mapping[str, Any], name: str, most: int) -> list[Any]:
    value = table.get(name, [])
    require(isinstance(value, list) and len(value) <= most, f"{name} is a list of at most {most} tables, written [[{name}]]", name)
    return value


def made(kind: type[Made], table: Any, *path: str | int) -> Made:
    """Returns an instance of the dataclass, from a table with its fields. A list becomes a tuple. Raises Mistake."""
    where = text_of(path)
    require(isinstance(table, dict), f"{where} is a table", *path)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(table) - set(fields)):
        raise Mistake(f"{where} has no member '{shown(unknown[0], 40)}'; its members are {', '.join(fields)}", (*path, unknown[0]))
    given: dict[str, Any] = {}
    for name, value in table.items():
        if expected := _expected(fields[name].type, value):
            raise Mistake(f"{where}.{name} is {expected}", (*path, name))
        given[name] = tuple(value) if isinstance(value, list) else value
    missing = [
        name
        for name, field in fields.items()
        if name not in given and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise Mistake(f"{where} lacks the member '{missing[0]}'", path)
    return kind(**given)


def _expected(wanted: Any, value: Any) -> str:
    """Returns what a field takes; empty if the value is that."""
    if wanted == "int":
        return "" if is_number(value, 0, 1 << 40) else "a whole number"
    if wanted in ("float", "float | None"):
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1e9
        return "" if good else "a number from 0 to 1e9"
    if wanted == "bool":
        return "" if isinstance(value, bool) else "true or false"
    if wanted == "str":
        good = isinstance(value, str) and len(value) <= TEXT_CHARACTERS_MAX and value.isprintable()
        return "" if good else "a short text"
    if wanted == "tuple[str, ...]":
        return "" if isinstance(value, list) and all(isinstance(each, str) for each in value) else "a list of texts"
    return "" if isinstance(value, list) and value and all(is_number(n, 1, 1 << 24) for n in value) else "a list of numbers"


def text_of(path: tuple[str | int, ...]) -> str:
    """Returns a path as text, such as `arms[1].words`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def is_number(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def require(condition: bool, message: str, *path: str | int) -> None:
    if not condition:
        raise Mistake(message, path)
