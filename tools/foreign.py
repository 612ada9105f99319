# SPDX-License-Identifier: BSL-1.0
"""Text and numbers that come from a peer or a file: read with bounds, and printed without effect on the terminal.

A log, a machine's answer or a BMC's answer is written by another program, which may be hostile. So every reader takes its JSON, its
numbers and its files from here, and every message of the launcher passes through `shown`.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

TEXT_MOST = 2000
U64_DIGITS = 20
U64_MOST = (1 << 64) - 1
_DECIMAL = re.compile(r"[0-9]{1,20}")


def shown(text: object, most: int = TEXT_MOST) -> str:
    """One line for a terminal: control characters as escapes, and at most about `most` characters.

    Printable are the letters that `str.isprintable` names. So direction marks and lone surrogates are escaped, too.
    """
    plain = str(text)
    cut = plain[:most]
    if not cut.isprintable():
        cut = "".join(letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode() for letter in cut)
    return cut if len(plain) <= most else f"{cut}..."


def shown_lines(text: str) -> str:
    """As shown() for text of several lines, without a bound."""
    return text if text.isprintable() else "\n".join(shown(line.replace("\t", "    "), len(line) * 4) for line in text.split("\n"))


def _number(text: str) -> int:
    if len(text) > U64_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _fraction(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]}, which is not finite")
    return value


def _constant(text: str) -> float:
    raise ValueError(f"the number {text}, which is not finite")


def parse_json(data: bytes | str) -> object:
    """JSON in UTF-8 whose numbers are finite and have at most 20 digits. Raises ValueError, which says what was wrong."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        return json.loads(text, parse_int=_number, parse_float=_fraction, parse_constant=_constant)
    except UnicodeDecodeError:
        raise ValueError("text that is not UTF-8") from None
    except RecursionError:
        raise ValueError("values nested too deeply") from None


def decimal(text: str, most: int = U64_MOST) -> int:
    """A number in ASCII digits, at most `most`. Raises ValueError."""
    if not _DECIMAL.fullmatch(text) or int(text) > most:
        raise ValueError(f"'{shown(text, 40)}' is no number from 0 to {most}")
    return int(text)


def is_whole(value: object, most: int = U64_MOST, least: int = 0) -> bool:
    """True for an integer from `least` to `most`. A bool is no integer here."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_word(value: object, most: int) -> bool:
    """True for printable ASCII of at most so many letters."""
    return isinstance(value, str) and len(value) <= most and value.isascii() and value.isprintable()


def read_bounded(path: Path, most: int) -> bytes:
    """A file's bytes. Raises OSError, and ValueError for a file of more than `most` bytes."""
    with open(path, "rb") as data:
        found = data.read(most + 1)
    if len(found) > most:
        raise ValueError(f"more than {most} bytes")
    return found
