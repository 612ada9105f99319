# SPDX-License-Identifier: BSL-1.0
"""The JSON in a log's header (docs/log-format.md), checked member by member.

The JSON comes from a machine, so it may hold any value. Members that this version does not know are left out, because the images of later
versions may add members.
"""

import re
from collections.abc import Callable

from tools.foreign import U64_MAX, is_whole, is_word, parse_json
from tools.log import schema

CORES_MAX = 256
WORD_MAX = 256
NAMES_MAX = 64
U32_MAX = (1 << 32) - 1
EVENTS_MAX = 3
_EVENT = re.compile(r"[a-z][A-Za-z0-9_.,=]{0,63}")
_BOOT_ID = re.compile(r"[0-9a-f]{16}")

Check = Callable[[object], bool]


def _word(value: object) -> bool:
    return is_word(value, WORD_MAX)


def _names(value: object) -> bool:
    return isinstance(value, list) and len(value) <= NAMES_MAX and all(map(_word, value))


def _events(value: object) -> bool:
    """True for names of events. A name begins with a letter, so that no spreadsheet takes it for a formula."""
    return isinstance(value, list) and len(value) <= EVENTS_MAX and all(isinstance(one, str) and _EVENT.fullmatch(one) for one in value)


def _up_to(maximum: int, minimum: int = 0) -> Check:
    return lambda value: is_whole(value, maximum, minimum)


def _null_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _schema(name: str) -> Check:
    return lambda value: schema.check(name, value)


REQUIRED = ("boot_id", "run", "cores")
FIELDS: dict[str, Check] = {
    "format": _word,
    "version": _up_to(U32_MAX),
    "boot_id": lambda value: isinstance(value, str) and bool(_BOOT_ID.fullmatch(value)),
    "run": _up_to(U32_MAX),
    "application": _word,
    "neap": _word,
    "core": _up_to(CORES_MAX - 1),
    "cores": _up_to(CORES_MAX, 1),
    "package": _up_to(CORES_MAX - 1),
    "packages": _up_to(CORES_MAX, 1),
    "cpu": _word,
    "tsc_hz": _up_to(U64_MAX),
    "wall_clock_at_boot_ns": _up_to(U64_MAX),
    "tsc_at_boot": _up_to(U64_MAX),
    "energy_unit_exponent": _null_or(_up_to(63)),
    "dram_energy_unit_exponent": _null_or(_up_to(63)),
    "counters": _names,
    "events": _events,
    "sample_period_us": _up_to(U32_MAX),
    "sample_records": _up_to(U32_MAX),
    "when_full": _word,
    "control_core": _null_or(_up_to(CORES_MAX - 1)),
    **{name: _schema(name) for name in schema.NAMES},
}


def parse(text: bytes) -> dict:
    """Returns the members of `text` that this version knows. Raises ValueError with a text that says what is wrong."""
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
