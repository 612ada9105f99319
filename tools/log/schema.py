# SPDX-License-Identifier: BSL-1.0
"""The types that a log's header states: kinds of entries, the fields of each kind, and the settings with their names.

A log may be read by a later version of Neap than the version that wrote it. So the JSON in its header contains `lines`, `fields`,
`settings`, `idle_states` and `flags` (docs/log-format.md), and every reader here builds its types from these members. A member that an
older log lacks is taken from format.json.

The JSON may be hostile, so names, counts and sizes are bounded here. This module needs only the standard library, because the collector
runs without numpy.
"""

import dataclasses
import functools
import json
import re
from pathlib import Path

ENTRY_BYTES = 64
KINDS_MAX = 256
FORMS_MAX = 32
FIELDS_MAX = 64
SETTINGS_MAX = 256
CHOICES_MAX = 64
FORM_CHARACTERS_MAX = 2000
NAMES = ("idle_states", "flags", "lines", "fields", "settings")
# The types of entries for older headers, which state none, and for synthetic logs.
DEFAULTS: dict = json.loads(Path(__file__).with_name("format.json").read_text())
# The value of `changed` in the entry that has the settings at the start of a run.
CHANGED_AT_START = 255
# The kind of a run's first record.
START = 4
# The members of a settings entry that are values of settings, and the field of each.
POLICY_FIELDS = {
    **{"idle": "idle_state", "itr_us": "itr_us", "poll_budget_us": "poll_budget_us", "pstate": "performance"},
    **{"power_limit_mw": "power_limit_mw", "turbo": "turbo"},
}
# Kinds of entries whose form does not say what they are. A `configured` entry has the form of a change, and states one setting's value.
CONFIGURED, MARK = 20, 33

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_CHOICE = re.compile(r"[a-z0-9][a-z0-9_]{0,31}")
_NUMBERED_CHOICE = re.compile(r"(?:([0-9]{1,10})=)?([a-z0-9][a-z0-9_]{0,31})")
_NUMBER = re.compile(r"[0-9]{1,3}")
_TYPE = re.compile(r"u(8|16|32|64)(?:x([1-9][0-9]?))?")
_UNIT = re.compile(r"[A-Za-z_]{0,20}")
# The fields that the tools compute with, and the maximum width of each in bytes.
_NEEDED = {
    "record": {
        **{"idle_state": 1, "flags": 2, "generation": 4, "idle_entries": 4, "idle_ticks": 8},
        **{f"{direction}_{unit}": 4 for direction in ("rx", "tx") for unit in ("descriptors", "frames", "bytes")},
        **{"control_rx_frames": 2, "control_tx_frames": 2, "control_rx_bytes": 4, "control_tx_bytes": 4},
    },
    "sample": {"flags": 2},
    "residency": {"flags": 2},
    "settings": {
        **{"idle_state": 1, "changed": 1, "turbo": 1, "generation": 4, "itr_us": 4, "poll_budget_us": 4},
        **{"performance": 8, "power_limit_mw": 4, "card_value": 4},
    },
    "anchor": {"requests": 8},
    "idle": {"idle_state": 1, "cause": 1, "vector": 1, "tsc_asleep": 8},
    "mark": {"what": 1, "generation": 4},
    "collection": {"tsc_begin": 8, "bytes_before": 8, "bytes_after": 8},
    "transactions": {
        **{"type": 1, "tsc_begin": 8, "committed": 4, "rolled_back": 4, "failed": 4, "retries": 4},
        **{"ticks": 8, "ticks_max": 8},
    },
}
# Logs of older builds have no such forms.
_OPTIONAL = ("mark", "collection", "transactions")
# Names of the values of fields. They are used for older headers, which do not state such names.
_DEFAULT_CHOICES = {
    (form, parts[0]): tuple(parts[3].split("|"))
    for form, text in DEFAULTS["fields"].items()
    for word in text.split(" ")
    if len(parts := word.split(":")) == 4
}
SETTING_KINDS = ("number", "switch", "choice", "raw", "port")


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of an entry. If `count` is 0, the field is one number, otherwise `count` reserved numbers."""

    name: str
    offset: int
    width: int
    count: int
    unit: str
    choices: tuple[str, ...]

    def read(self, entry: bytes) -> int:
        return int.from_bytes(entry[self.offset : self.offset + self.width], "little")


@dataclasses.dataclass(frozen=True)
class Form:
    """The layout of an entry of 64 bytes."""

    name: str
    fields: tuple[Field, ...]

    @functools.cached_property
    def by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting: the field of a settings entry that holds its value, and how the value is written."""

    name: str
    field: str
    kind: str
    unit: str
    choices: tuple[tuple[int, str], ...]

    def text(self, value: int) -> str:
        """Returns the value as the control server accepts it."""
        for number, name in self.choices:
            if number == value:
                return name
        if self.kind == "raw":
            return f"0x{value:x}"
        if self.kind == "port":
            return f"{'udp' if value >> 16 else 'tcp'}:{value & 0xFFFF}"
        if self.unit == "mW":
            return f"{value / 1000:g}W"
        return f"{value}us" if self.unit == "us" else str(value)


@dataclasses.dataclass(frozen=True)
class Schema:
    """The types that a header states for the entries after it. All headers of a run state the same types."""

    idle_states: tuple[str, ...]
    flags: tuple[str, ...]  # for each bit of a record's flags: the name of the bit's counter
    kinds: tuple[tuple[int, str], ...]  # number and form
    forms: tuple[Form, ...]
    settings: tuple[tuple[int, Setting], ...]

    @functools.cached_property
    def form(self) -> dict[str, Form]:
        return {form.name: form for form in self.forms}

    @functools.cached_property
    def setting(self) -> dict[int, Setting]:
        return dict(self.settings)

    def kinds_of(self, form: str) -> list[int]:
        return [number for number, name in self.kinds if name == form]

    @functools.cached_property
    def change_kinds(self) -> list[int]:
        """The kinds of entries with the policy at the start, and with changes."""
        return [number for number in self.kinds_of("settings") if number != CONFIGURED]

    @functools.cached_property
    def configured_kinds(self) -> list[int]:
        """The kinds of entries that state one setting's value each."""
        return [number for number in self.kinds_of("settings") if number == CONFIGURED]

    def idle_name(self, state: int) -> str:
        return name_of(self.idle_states, state)

    @functools.cached_property
    def idle_poll(self) -> int:
        """The number of the idle state that never sleeps; -1 if there is none."""
        return self.idle_states.index("poll") if "poll" in self.idle_states else -1

    @functools.cached_property
    def policy(self) -> dict[str, Setting]:
        """The settings with a field of their own, by the member of a settings entry. A log of another system has only some of them."""
        by_field = {setting.field: setting for _, setting in self.settings}
        return {name: by_field[field] for name, field in POLICY_FIELDS.items() if field in by_field}

    def describe_settings(self, entry: bytes) -> dict:
        """Returns a settings entry's members: raw TSC, the policy after the change, the changed setting's name, and its new value as
        text. Of a `configured` entry, the setting that it states and that setting's value. A member without a setting is None."""
        fields = self.form["settings"].by_name
        found = {name: field.read(entry) for name, field in fields.items() if not field.count}
        changed, card_value = found["changed"], found["card_value"]
        described = {
            "tsc": found["tsc"],
            "generation": found["generation"],
            "changed": "start",
            "idle": self.idle_name(found["idle_state"]),
            "itr_us": found["itr_us"],
            "poll_budget_us": found["poll_budget_us"],
            "pstate": f"0x{found['performance']:x}",
            "power_limit_mw": found["power_limit_mw"],
            "turbo": name_of(fields["turbo"].choices, found["turbo"]),
            "card_value": card_value,
        }
        described |= {name: None for name in POLICY_FIELDS if name not in self.policy}
        if changed == CHANGED_AT_START and found["kind"] != CONFIGURED:
            return described
        setting = self.setting.get(changed)
        if setting is None:
            return {**described, "changed": str(changed), "value": str(card_value)}
        value = setting.text(found[setting.field])
        if setting.kind == "raw" and card_value and found["kind"] != CONFIGURED:
            value += f" granted {card_value}"
        return {**described, "changed": setting.name, "value": value}

    def describe_mark(self, entry: bytes) -> dict:
        """Returns a mark's raw TSC, its generation, and the name of the part of the load that begins with it."""
        fields = self.form["mark"].by_name
        what = name_of(fields["what"].choices, fields["what"].read(entry))
        return {"tsc": fields["tsc"].read(entry), "generation": fields["generation"].read(entry), "what": what}


def name_of(names: tuple[str, ...], number: int) -> str:
    """Returns the name of a number, or the number itself if it has no name."""
    return names[number] if number < len(names) else str(number)


def check(name: str, value: object) -> bool:
    """True if a member of the header's JSON has a type and a size that `parse` accepts."""
    if name in ("idle_states", "flags"):
        bits = 16 if name == "flags" else CHOICES_MAX
        return isinstance(value, list) and len(value) <= bits and all(isinstance(each, str) and _CHOICE.fullmatch(each) for each in value)
    return (
        isinstance(value, dict)
        and len(value) <= KINDS_MAX
        and all(isinstance(text, str) and len(text) <= FORM_CHARACTERS_MAX for text in value.values())
    )


def parse(about: dict) -> Schema:
    """Returns the types that a header's checked JSON states. Raises ValueError with a text that says what is wrong."""
    texts = [about.get(name, DEFAULTS[name]) for name in NAMES]
    return _parse(*[tuple(text.items()) if isinstance(text, dict) else tuple(text) for text in texts])


@functools.lru_cache(maxsize=16)
def _parse(idle_states: tuple, flags: tuple, lines: tuple, fields: tuple, settings: tuple) -> Schema:
    if len(fields) > FORMS_MAX:
        raise ValueError(f"it has {len(fields)} forms of entries")
    forms = tuple(_form(name, text, idle_states) for name, text in fields)
    by_name = {form.name: form for form in forms}
    for name in _NEEDED:
        if name not in by_name and name not in _OPTIONAL:
            raise ValueError(f"its fields have no {name}")
    kinds = tuple((_number(number), _known(by_name, form)) for number, form in lines)
    if len(dict(kinds)) != len(kinds):
        raise ValueError("its lines have a number twice")
    return Schema(
        idle_states=idle_states,
        flags=flags,
        kinds=kinds,
        forms=forms,
        settings=tuple((_number(number), _setting(text, by_name["settings"])) for number, text in settings),
    )


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) >= KINDS_MAX:
        raise ValueError("its lines or settings have a number that cannot be")
    return int(text)


def _known(forms: dict[str, Form], name: str) -> str:
    if name not in forms:
        raise ValueError("its lines have a form that its fields have not")
    return name


def _form(name: str, text: str, idle_states: tuple[str, ...]) -> Form:
    """Parses the fields of a form, which are separated by spaces: "name:type:unit:choices ..."."""
    words = text.split(" ")
    if not _NAME.fullmatch(name) or len(words) > FIELDS_MAX:
        raise ValueError("its fields have a form that cannot be")
    found: list[Field] = []
    offset = 0
    for word in words:
        parts = word.split(":")
        kind = _TYPE.fullmatch(parts[1]) if 3 <= len(parts) <= 4 else None
        if kind is None or not _NAME.fullmatch(parts[0]) or not _UNIT.fullmatch(parts[2]):
            raise ValueError(f"its {name} has a field that cannot be")
        choices = tuple(parts[3].split("|")) if len(parts) == 4 else _DEFAULT_CHOICES.get((name, parts[0]), ())
        if len(choices) > CHOICES_MAX or not all(_CHOICE.fullmatch(choice) for choice in choices):
            raise ValueError(f"its {name} has choices that cannot be")
        if parts[0] == "idle_state":
            choices = idle_states
        width, count = int(kind[1]) // 8, int(kind[2] or 0)
        found.append(Field(parts[0], offset, width, count, parts[2], choices))
        offset += width * (count or 1)
    if offset != ENTRY_BYTES or len({field.name for field in found}) != len(found):
        raise ValueError(f"its {name} has not {ENTRY_BYTES} bytes of different fields")
    if tuple((field.name, field.offset, field.width, field.count) for field in found[:2]) != (("tsc", 0, 8, 0), ("kind", 8, 1, 0)):
        raise ValueError(f"its {name} does not begin with tsc and kind")
    by_name = {field.name: field for field in found}
    for needed, width in _NEEDED.get(name, {}).items():
        field = by_name.get(needed)
        if field is None or field.count or field.width > width:
            raise ValueError(f"its {name} has no {needed} of at most {width} bytes")
    return Form(name, tuple(found))


def _setting(text: str, form: Form) -> Setting:
    """Parses "name:field:kind:unit:choices". Parts may be empty or missing. Default field: "card_value". Default kind: "number"."""
    parts = text.split(":")
    name, field_name, kind, unit, choices = [*parts, "", "", "", ""][:5]
    field = form.by_name.get(field_name or "card_value")
    kind = kind or "number"
    if len(parts) > 5 or not _NAME.fullmatch(name) or field is None or field.count:
        raise ValueError("its settings have one that cannot be")
    if kind not in SETTING_KINDS or not _UNIT.fullmatch(unit):
        raise ValueError(f"its setting {name} has a kind or a unit that cannot be")
    return Setting(name, field.name, kind, unit, _choices(choices, kind, field))


def _choices(text: str, kind: str, field: Field) -> tuple[tuple[int, str], ...]:
    """Returns names of values, numbered from 0 or as in "256=off". If `text` is empty, a "choice" has the names of its field, and a
    "switch" has off and on."""
    if not text:
        names = field.choices or (("off", "on") if kind == "switch" else ()) if kind in ("choice", "switch") else ()
        return tuple(enumerate(names))
    found: list[tuple[int, str]] = []
    for word in text.split("|"):
        match = _NUMBERED_CHOICE.fullmatch(word)
        if match is None or len(found) == CHOICES_MAX:
            raise ValueError("its settings have choices that cannot be")
        found.append((int(match[1]) if match[1] else len(found), match[2]))
    return tuple(found)
