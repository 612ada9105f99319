# SPDX-License-Identifier: BSL-1.0
"""Reads text and numbers from a peer or a file with limits, and prints them without effect on the terminal.

Logs, machines' answers and BMCs' answers come from other programs, which may be hostile. So all code that reads them uses the functions
here for JSON, numbers and files, and every message of the launcher passes through `shown`.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

TEXT_CHARACTERS_MAX = 2000
PIECE_BYTES = 1 << 20
U64_DIGITS = 20
U64_MAX = (1 << 64) - 1
_DECIMAL = re.compile(r"[0-9]{1,20}")


def shown(text: object, maximum: int = TEXT_CHARACTERS_MAX) -> str:
    """Returns `text` as one line for a terminal, with escapes for control characters, and with at most about `maximum` characters.
    Characters count as printable if `str.isprintable` says so. So direction marks and lone surrogates are escaped, too."""
    plain = str(text)
    cut = plain[:maximum]
    if not cut.isprintable():
        cut = "".join(letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode() for letter in cut)
    return cut if len(plain) <= maximum else f"{cut}..."


def shown_lines(text: str) -> str:
    """Like shown(), for text of several lines, without a limit."""
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
    """Parses JSON in UTF-8 whose numbers are finite and have at most 20 digits. Raises ValueError with a text that names the error."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        return json.loads(text, parse_int=_number, parse_float=_fraction, parse_constant=_constant)
    except UnicodeDecodeError:
        raise ValueError("text that is not UTF-8") from None
    except RecursionError:
        raise ValueError("values nested too deeply") from None


def decimal(text: str, maximum: int = U64_MAX) -> int:
    """Returns a number in ASCII digits, at most `maximum`. Raises ValueError."""
    if not _DECIMAL.fullmatch(text) or int(text) > maximum:
        raise ValueError(f"'{shown(text, 40)}' is no number from 0 to {maximum}")
    return int(text)


def is_whole(value: object, maximum: int = U64_MAX, minimum: int = 0) -> bool:
    """True for an integer from `minimum` to `maximum`. A bool is no integer here."""
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def is_word(value: object, maximum: int) -> bool:
    """True for printable ASCII of at most `maximum` characters."""
    return isinstance(value, str) and len(value) <= maximum and value.isascii() and value.isprintable()


def read_bounded(path: Path, maximum: int) -> bytes:
    """Returns a file's bytes. Raises OSError, and ValueError for a file of more than `maximum` bytes."""
    # The file is read in pieces, because one read would allocate `maximum` bytes for a file of any size.
    pieces, length = [], 0
    with open(path, "rb") as data:
        while piece := data.read(PIECE_BYTES):
            length += len(piece)
            if length > maximum:
                raise ValueError(f"more than {maximum} bytes")
            pieces.append(piece)
    return b"".join(pieces)
