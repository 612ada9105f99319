# SPDX-License-Identifier: BSL-1.0
"""Where a key of a TOML file is: tomllib reports a line for errors of syntax only, and a wrong value needs one, too.

`lines` scans a text that tomllib has accepted. A path is a tuple of keys and indexes, such as ("arms", 1, "words", 0). Members of inline
tables have the line of the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Path = tuple[str | int, ...]

HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?")
KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
STRINGS = ('"""', "'''", '"', "'")


def lines(text: str) -> dict[Path, int]:
    """Returns the line of each key, table and element of a list. Lines count from 1."""
    found: dict[Path, int] = {(): 1}
    table: Path = ()
    tables: dict[Path, int] = {}  # the number of tables of an array so far
    at = 0
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if header := HEADER.match(text, at, end):
            table = _table(header, tables)
            found.setdefault(table, line)
            at = end + 1
        elif key := KEY.match(text, at, end):
            path = (*table, *_parts(key[1]))
            found.setdefault(path, line)
            at = _skip_value(text, key.end(), path, found)
        else:
            at = end + 1
    return found


def line_of(path: Path, found: Mapping[Path, int]) -> int:
    """Returns the line of a path, or of the nearest table around it."""
    return next(found[path[:length]] for length in range(len(path), -1, -1) if path[:length] in found)


def _parts(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in PART.findall(dotted))


def _table(header: re.Match[str], tables: dict[Path, int]) -> Path:
    """Returns the path of a [table] or of the next table of an [[array]]."""
    path: Path = ()
    parts = _parts(header[2])
    for number, part in enumerate(parts):
        path = (*path, part)
        if number == len(parts) - 1 and header[1] == "[[":
            tables[path] = tables.get(path, -1) + 1
        if path in tables:
            path = (*path, tables[path])
    return path


def _skip_value(text: str, at: int, path: Path, found: dict[Path, int]) -> int:
    """Returns the position behind the value at `at`. Records the lines of a list's elements."""
    depth, number, begun = 0, 0, False
    while at < len(text):
        letter = text[at]
        if letter == "\n" and depth == 0:
            return at + 1
        if letter == "#":
            at = text.find("\n", at)
            if at < 0:
                return len(text)
            continue
        if depth == 1 and not begun and letter not in " \t\r\n,]":
            found.setdefault((*path, number), text.count("\n", 0, at) + 1)
            begun = True
        if quote := next((quote for quote in STRINGS if text.startswith(quote, at)), None):
            at = _skip_string(text, at + len(quote), quote)
            continue
        if letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif letter == "," and depth == 1:
            number, begun = number + 1, False
        at += 1
    return at


def _skip_string(text: str, at: int, quote: str) -> int:
    while at < len(text) and not text.startswith(quote, at):
        at += 2 if text[at] == "\\" and quote[0] == '"' else 1
    # A text of several lines may end with up to two quotes of its own.
    while len(quote) == 3 and text.startswith(quote[0], at + 3):
        at += 1
    return at + len(quote)
