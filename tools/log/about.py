# SPDX-License-Identifier: BSL-1.0
"""The JSON in a log's header (docs/log-format.md), checked field by field.

A machine writes it, so any value may stand in it. Names that this version does not know are left out, as later machines may add some.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tools.foreign import U64_MOST, is_whole, is_word, parse_json

MAX_CORES = 256
MAX_WORD = 256
MAX_NAMES = 64
U32_MOST = (1 << 32) - 1
_BOOT_ID = re.compile(r"[0-9a-f]{16}")

Check = Callable[[object], bool]


def _word(value: object) -> bool:
    return is_word(value, MAX_WORD)


def _names(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MAX_NAMES and all(map(_word, value))


def _up_to(most: int, least: int = 0) -> Check:
    return lambda value: is_whole(value, most, least)


def _null_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


REQUIRED = ("boot_id", "run", "cores")
FIELDS: dict[str, Check] = {
    "format": _word,
    "version": _up_to(U32_MOST),
    "boot_id": lambda value: isinstance(value, str) and bool(_BOOT_ID.fullmatch(value)),
    "run": _up_to(U32_MOST),
    "application": _word,
    "neap": _word,
    "core": _up_to(MAX_CORES - 1),
    "cores": _up_to(MAX_CORES, 1),
    "package": _up_to(MAX_CORES - 1),
    "packages": _up_to(MAX_CORES, 1),
    "cpu": _word,
    "tsc_hz": _up_to(U64_MOST),
    "wall_clock_at_boot_ns": _up_to(U64_MOST),
    "tsc_at_boot": _up_to(U64_MOST),
    "energy_unit_exponent": _null_or(_up_to(63)),
    "dram_energy_unit_exponent": _null_or(_up_to(63)),
    "counters": _names,
    "idle_states": _names,
    "sample_period_us": _up_to(U32_MOST),
    "when_full": _word,
    "control_core": _null_or(_up_to(MAX_CORES - 1)),
}


def parse(text: bytes) -> dict:
    """The fields that this version knows. Raises ValueError, which says what was wrong."""
    if not text.isascii():
        raise ValueError("it is not ASCII")
    found = parse_json(text)
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    known = {name: found[name] for name in FIELDS if name in found}
    for name in REQUIRED:
        if name not in known:
            raise ValueError(f"it has no {name}")
    for name, value in known.items():
        if not FIELDS[name](value):
            raise ValueError(f"its {name} cannot be")
    return known
