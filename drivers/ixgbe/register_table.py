# SPDX-License-Identifier: BSL-1.0
"""Reads and checks registers.toml.

The driver, the software card and the comparison with Linux use the table, so contradictions are refused: overlapping registers, fields that
overlap or are too wide, duplicate or unusable names. The message names the row.
"""

import re
import tomllib
from dataclasses import dataclass, field

BAR_BYTES = 128 * 1024
ACCESS = ("rw", "ro", "wo", "rc", "w1c", "rc+w1c")
# The models of the card, in the order of their bits in the software card's table.
MODELS = ("82599", "x540", "x550")
REGISTER_KEYS = set(
    "offset stride count ranges aliases access reset reset_first like self_clearing linux models section text fields".split()
)
BLOCK_KEYS = {"section", "text"}
DESCRIPTOR_KEYS = {"section", "text", "fields"}
# C++ keywords that would otherwise be accepted as field names, and the names that the generated types use themselves. Rust uses field names
# in capitals only, so its keywords do not conflict.
RESERVED_NAMES = set(
    (
        "alignas and asm auto bool break case catch char class const continue default delete do double else enum explicit export "
        "extern false float for friend goto if inline int long mutable namespace new not operator or private protected public register "
        "return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual "
        "void volatile while xor raw from_raw reserved reserved_mask name reset_raw"
    ).split()
)


class TableError(Exception):
    """The table is wrong; the message names the row."""


@dataclass(frozen=True)
class Field:
    name: str
    low: int
    high: int

    @property
    def width(self) -> int:
        return self.high - self.low + 1

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.low


@dataclass(frozen=True)
class Range:
    """Describes `count` entries from number `first` on. Entry `first + i` is at `offset + i * stride`."""

    offset: int
    stride: int
    count: int
    first: int


@dataclass
class Register:
    name: str
    block: str
    section: str
    text: str
    access: str
    reset: int
    reset_first: int | None
    ranges: list[Range]
    aliases: list[Range]
    fields: list[Field]
    array: bool
    linux: str
    self_clearing: list[str]
    models: list[str]

    @property
    def mask(self) -> int:
        """Returns a mask of the bits that belong to a field."""
        return sum(f.mask for f in self.fields)

    @property
    def self_clearing_mask(self) -> int:
        return sum(f.mask for f in self.fields if f.name in self.self_clearing)

    @property
    def model_bits(self) -> int:
        """Returns a bit for each model that has the register, in the order of MODELS."""
        return sum(1 << MODELS.index(model) for model in self.models)

    @property
    def count(self) -> int:
        return sum(r.count for r in self.ranges)

    def offset_of(self, index: int) -> int:
        for r in self.ranges:
            if r.first <= index < r.first + r.count:
                return r.offset + (index - r.first) * r.stride
        raise IndexError(f"{self.name}[{index}]")


@dataclass
class Descriptor:
    name: str
    section: str
    text: str
    fields: list[Field]


@dataclass
class Table:
    registers: list[Register] = field(default_factory=list)
    descriptors: list[Descriptor] = field(default_factory=list)


def whole(row: str, key: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise TableError(f"{row}: {key} must be a whole number from {low:#x} to {high:#x}, not {value!r}")
    return value


def parse_fields(row: str, raw: object, bits: int) -> list[Field]:
    """Returns the fields of a register (bits = 32) or a descriptor (128), in bit order."""
    if not isinstance(raw, dict):
        raise TableError(f"{row}: fields must be a table")
    fields = []
    for name, position in raw.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in RESERVED_NAMES:
            raise TableError(f"{row}: field name {name!r} is not usable in C++ and Rust (lower case, no keyword)")
        low, high = position if isinstance(position, list) and len(position) == 2 else (position, position)
        low = whole(row, f"field {name}: bit", low, 0, bits - 1)
        high = whole(row, f"field {name}: bit", high, 0, bits - 1)
        if low > high:
            raise TableError(f"{row}: field {name}: [{low}, {high}] must be [lowest, highest]")
        if low // 64 != high // 64:
            raise TableError(f"{row}: field {name} crosses bit 64")
        fields.append(Field(name, low, high))
    fields.sort(key=lambda f: f.low)
    for one, two in zip(fields, fields[1:]):
        if two.low <= one.high:
            raise TableError(f"{row}: fields {one.name} and {two.name} overlap at bit {two.low}")
    names = {f.name for f in fields}
    for f in fields:
        if f.name + "_mask" in names:
            raise TableError(f"{row}: field {f.name}_mask collides with the mask of field {f.name}")
    return fields


def parse_ranges(row: str, key: str, raw: object) -> list[Range]:
    if not isinstance(raw, list) or not raw or not all(isinstance(r, list) and len(r) == 3 for r in raw):
        raise TableError(f"{row}: {key} must be a list of [offset, stride, count]")
    ranges, first = [], 0
    for offset, stride, count in raw:
        whole(row, f"{key}: offset", offset, 0, BAR_BYTES - 4)
        whole(row, f"{key}: stride", stride, 4, BAR_BYTES)
        whole(row, f"{key}: count", count, 1, BAR_BYTES // 4)
        if offset % 4 or stride % 4:
            raise TableError(f"{row}: {key}: offset {offset:#x} and stride {stride:#x} must be multiples of 4")
        if offset + (count - 1) * stride > BAR_BYTES - 4:
            raise TableError(f"{row}: {key}: entry {count - 1} lies outside the {BAR_BYTES} bytes of BAR 0")
        # Each alias starts at entry 0. Each range of `ranges` starts with the entry that follows the previous range.
        ranges.append(Range(offset, stride, count, first))
        if key == "ranges":
            first += count
    return ranges


def parse_names(row: str, raw: object) -> list[str]:
    if not isinstance(raw, list) or not all(isinstance(name, str) for name in raw) or len(set(raw)) != len(raw):
        raise TableError(f"{row}: self_clearing must be a list of different field names")
    return raw


def parse_models(row: str, raw: object) -> list[str]:
    if not isinstance(raw, list) or not raw or len(set(raw)) != len(raw) or not set(raw) <= set(MODELS):
        raise TableError(f"{row}: models must be a list of different models; known are {', '.join(MODELS)}")
    return raw


def parse_register(name: str, block: str, default_section: str, raw: dict) -> Register:
    if not re.fullmatch(r"[A-Z][A-Za-z0-9_]*", name):
        raise TableError(f"{name}: a register's name starts with a capital and has letters, digits and _ only")
    unknown = set(raw) - REGISTER_KEYS
    if unknown:
        raise TableError(f"{name}: unknown key {sorted(unknown)[0]!r}; known are {', '.join(sorted(REGISTER_KEYS))}")
    if ("ranges" in raw) == ("offset" in raw):
        raise TableError(f"{name}: give either offset (with stride and count for an array) or ranges")
    if ("stride" in raw) != ("count" in raw) or ("ranges" in raw and "count" in raw):
        raise TableError(f"{name}: stride and count go together, and with offset only")
    if "ranges" in raw:
        ranges = parse_ranges(name, "ranges", raw["ranges"])
    else:
        ranges = parse_ranges(name, "ranges", [[raw["offset"], raw.get("stride", 4), raw.get("count", 1)]])
    aliases = parse_ranges(name, "aliases", raw["aliases"]) if "aliases" in raw else []
    count = sum(r.count for r in ranges)
    for alias in aliases:
        if alias.count > count:
            raise TableError(f"{name}: an alias has {alias.count} entries, the register only {count}")
    if raw.get("access") not in ACCESS:
        raise TableError(f"{name}: access {raw.get('access')!r} is not one of {', '.join(ACCESS)}")
    if not isinstance(raw.get("text"), str) or not raw["text"]:
        raise TableError(f"{name}: text must say what the register does")
    return Register(
        name=name,
        block=block,
        section=str(raw.get("section", default_section)),
        text=raw["text"],
        access=raw["access"],
        reset=whole(name, "reset", raw.get("reset", 0), 0, 0xFFFFFFFF),
        reset_first=whole(name, "reset_first", raw["reset_first"], 0, 0xFFFFFFFF) if "reset_first" in raw else None,
        ranges=ranges,
        aliases=aliases,
        fields=parse_fields(name, raw.get("fields", {"value": [0, 31]}), 32),
        array="count" in raw or "ranges" in raw,
        linux=str(raw.get("linux", name)),
        self_clearing=parse_names(name, raw.get("self_clearing", [])),
        models=parse_models(name, raw.get("models", list(MODELS))),
    )


def parse(text: str) -> Table:
    """Returns the checked table. Raises TableError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TableError(str(error)) from None
    unknown = set(document) - {"block", "descriptor"}
    if unknown:
        raise TableError(f"[{sorted(unknown)[0]}]: only [block.NAME...] and [descriptor.NAME] are known")
    table = Table()
    like: list[tuple[Register, str]] = []
    by_name: dict[str, Register] = {}
    for block_name, block in document.get("block", {}).items():
        for key, value in block.items():
            if key in BLOCK_KEYS:
                continue
            if not isinstance(value, dict):
                raise TableError(f"[block.{block_name}]: {key!r} is neither a register nor one of {', '.join(sorted(BLOCK_KEYS))}")
            register = parse_register(key, block_name, str(block.get("section", "")), value)
            if not register.section:
                raise TableError(f"{key}: no datasheet section, neither its own nor its block's")
            if key in by_name:
                raise TableError(f"{key}: named twice, in blocks {by_name[key].block} and {block_name}")
            by_name[key] = register
            table.registers.append(register)
            if "like" in value:
                if "fields" in value:
                    raise TableError(f"{key}: give fields or like, not both")
                like.append((register, value["like"]))
    for register, other in like:
        if other not in by_name:
            raise TableError(f"{register.name}: like names {other!r}, which is not in the table")
        register.fields = by_name[other].fields
    for register in table.registers:
        strange = set(register.self_clearing) - {f.name for f in register.fields}
        if strange or (register.self_clearing and register.access != "rw"):
            raise TableError(f"{register.name}: self_clearing names fields of an rw register, and {sorted(strange)} are not such")
    for name, raw in document.get("descriptor", {}).items():
        if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name):
            raise TableError(f"descriptor {name}: a descriptor's name is in PascalCase")
        if set(raw) - DESCRIPTOR_KEYS or "fields" not in raw or "section" not in raw or "text" not in raw:
            raise TableError(f"descriptor {name}: give section, text and fields, nothing else")
        table.descriptors.append(Descriptor(name, str(raw["section"]), raw["text"], parse_fields(f"descriptor {name}", raw["fields"], 128)))
    check_places(table)
    check_types(table)
    return table


def check_places(table: Table) -> None:
    taken: dict[int, str] = {}
    for register in table.registers:
        for kind, ranges in (("", register.ranges), (" (alias)", register.aliases)):
            for r in ranges:
                for i in range(r.count):
                    offset = r.offset + i * r.stride
                    label = f"{register.name}[{r.first + i}]{kind}" if register.array else register.name + kind
                    if offset in taken:
                        raise TableError(f"{label}: offset {offset:#07x} is already that of {taken[offset]}")
                    taken[offset] = label


def check_types(table: Table) -> None:
    types: dict[str, str] = {}
    for register in table.registers:
        name = pascal(register.name)
        if name in types:
            raise TableError(f"{register.name}: its type {name} is already that of {types[name]}")
        types[name] = register.name


def pascal(name: str) -> str:
    return "".join(part[:1].upper() + part[1:].lower() for part in name.split("_"))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
