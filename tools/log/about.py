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
COMMAND_LINE_MAX = 16384
NAMES_MAX = 64
C_STATES_MAX = 32
COUNTERS_MAX = 1024
U32_MAX = (1 << 32) - 1
EVENTS_MAX = 3
# The system of a log whose header names none.
NEAP = "neap"
SYSTEMS = {NEAP: "Neap", "linux": "Linux", "ebbrt": "EbbRT"}
_EVENT = re.compile(r"[a-z][A-Za-z0-9_.,=]{0,63}")
_BOOT_ID = re.compile(r"[0-9a-f]{16}")
_COMMIT = re.compile(r"(?:[0-9a-f]{12}|[0-9a-f]{40})\+?")
_HEX = re.compile(r"0x[0-9a-f]{1,16}")
_SIGNATURE = re.compile(r"[0-9a-f]{1,4}-[0-9a-f]{1,4}-[0-9a-f]{1,4}")
_SYSTEM = re.compile(r"[a-z][a-z0-9_]{0,31}")
_FIGURE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

Check = Callable[[object], bool]


def _word(value: object) -> bool:
    return is_word(value, WORD_MAX)


def _names(value: object) -> bool:
    return isinstance(value, list) and len(value) <= NAMES_MAX and all(map(_word, value))


def _figures(value: object) -> bool:
    return isinstance(value, list) and len(value) <= NAMES_MAX and all(isinstance(one, str) and _FIGURE.fullmatch(one) for one in value)


def _events(value: object) -> bool:
    """True for names of events. A name begins with a letter, so that no spreadsheet takes it for a formula."""
    return isinstance(value, list) and len(value) <= EVENTS_MAX and all(isinstance(one, str) and _EVENT.fullmatch(one) for one in value)


def _up_to(maximum: int, minimum: int = 0) -> Check:
    return lambda value: is_whole(value, maximum, minimum)


def _null_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _like(pattern: re.Pattern) -> Check:
    return lambda value: isinstance(value, str) and bool(pattern.fullmatch(value))


def _boolean(value: object) -> bool:
    return isinstance(value, bool)


def _whole(value: object) -> bool:
    return is_whole(value, U64_MAX)


def _amount(value: object) -> bool:
    """True for a number that may have a fraction. parse_json refuses infinite ones."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= U64_MAX


def _scalar(value: object) -> bool:
    return value is None or isinstance(value, bool) or _amount(value) or _word(value)


def _object(members: dict[str, Check]) -> Check:
    """Accepts an object with any of these members. Members of later versions may be numbers, words, true, false and null."""

    def check(value: object) -> bool:
        return (
            isinstance(value, dict)
            and len(value) <= NAMES_MAX
            and all(_MEMBER.fullmatch(name) and members.get(name, _scalar)(each) for name, each in value.items())
        )

    return check


def _list_of(check: Check, maximum: int) -> Check:
    return lambda value: isinstance(value, list) and len(value) <= maximum and all(map(check, value))


def _counters(value: object) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= COUNTERS_MAX
        and all(_MEMBER.fullmatch(name) and _whole(count) for name, count in value.items())
    )


def _schema(name: str) -> Check:
    return lambda value: schema.check(name, value)


REQUIRED = ("boot_id", "run", "cores")
FIELDS: dict[str, Check] = {
    "format": _word,
    "version": _up_to(U32_MAX),
    "boot_id": _like(_BOOT_ID),
    "run": _up_to(U32_MAX),
    "application": _word,
    "neap": _word,
    "system": _like(_SYSTEM),
    "kernel": _word,
    "driver": _word,
    "interface": _word,
    "tracer": _word,
    "unknown": _figures,
    "raw_tsc": lambda value: isinstance(value, dict) and _up_to(U64_MAX, 1)(value.get("hz")) and _up_to(U64_MAX)(value.get("at_tick_0")),
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
    "commit": _like(_COMMIT),
    "build": _word,
    "compiler": _word,
    "command_line": lambda value: is_word(value, COMMAND_LINE_MAX),
    "microcode": _like(_HEX),
    "cpu_signature": _like(_SIGNATURE),
    "limits": _object({"c_state": _word, "c_state_locked": _boolean, "turbo_off_by_firmware": _boolean, "power_limit_mw": _whole}),
    "frequencies_mhz": _object(dict.fromkeys(("minimum", "base", "maximum"), _amount)),
    "c_states": _list_of(
        _object({"name": _word, "hint": _like(_HEX), "wake_up_us": _amount, "target_us": _amount, "source": _word}), C_STATES_MAX
    ),
    "card": _object({"name": _word, "id": _like(_HEX), "revision": _whole, "queues": _whole}),
    "link": _object({"up": _boolean, "mbps": _whole}),
    "slow": _up_to(U32_MAX, 1),
    "card_counters_start": _counters,
    "card_counters_stop": _counters,
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


def system_text(about: dict) -> str:
    """Returns the system that wrote a log, like "Neap 0.1.0", or "Linux 6.1.0-56-amd64 ixgbe". The text MAY have control characters."""
    system = about.get("system", NEAP)
    if system == NEAP:
        return " ".join(["Neap", *([about["neap"]] if about.get("neap") else [])])
    return " ".join([SYSTEMS.get(system, system), *(about[name] for name in ("kernel", "driver") if about.get(name))])
