#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Turns registers.toml into C++ for the driver and Rust for the software card.

Driver and card use the names of registers and fields, and contain no hand-written offsets or shifts. register_table.py checks the table
first. If it refuses the table, nothing is written.

    generate_registers.py --cpp OUT.hpp
    generate_registers.py --rust OUT.rs
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from register_table import Descriptor, Field, Range, Register, Table, TableError, parse, pascal, snake

# --- C++ ---

CPP_HEAD = """\
// SPDX-License-Identifier: BSL-1.0
// Generated from drivers/ixgbe/registers.toml by generate_registers.py; do not edit.
//
// The 82599's registers and descriptors by name. reg::RXDCTL(3) is a location (an offset with the type of its value). reg::Rxdctl is the
// value with a member for each field, for designated initialisers in bit order. Bits that no field names are kept in `reserved`, so that
// reading, changing a field and writing back keeps them. An index or a field's value that is out of range panics; for descriptors, whose
// values are built for each frame, only in debug builds (assert).
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <string_view>

#include "kernel/panic.hpp"

namespace neap::ixgbe::reg {

/// One register: its byte offset in BAR 0, and the type of its value.
template <class ValueType>
struct Location {
  using Value = ValueType;
  std::uint32_t offset;
};
"""


def cpp_type(f: Field) -> str:
    if f.width == 1:
        return "bool"
    return "std::uint32_t" if f.width <= 32 else "std::uint64_t"


def cpp_member(f: Field) -> str:
    bits = f"bit {f.low}" if f.width == 1 else f"bits {f.low} to {f.high}"
    return f"  {cpp_type(f)} {f.name} = {'false' if f.width == 1 else '0'};  ///< {bits}"


def cpp_extract(f: Field, source: str, bits: int) -> str:
    low = f.low % 64
    shifted = f"{source} >> {low}" if low else source
    if f.width == bits:
        return source
    suffix = "U" if bits == 32 else "ULL"
    value = f"({shifted}) & {(1 << f.width) - 1:#x}{suffix}" if low else f"{source} & {(1 << f.width) - 1:#x}{suffix}"
    if f.width == 1:
        return f"({value}) != 0"
    return value if bits == 32 or f.width > 32 else f"static_cast<std::uint32_t>({value})"


def cpp_insert(f: Field, bits: int) -> str:
    word = f"std::uint{bits}_t"
    low = f.low % 64
    value = f"{word}{{{f.name}}}" if f.width != bits else f.name
    return f"({value} << {low})" if low else value


def cpp_fit_checks(fields: list[Field], check: str) -> list[str]:
    lines = []
    for f in fields:
        if 1 < f.width < 32 or 32 < f.width < 64:
            suffix = "U" if f.width < 32 else "ULL"
            lines.append("    " + check.format(f"{f.name} <= {(1 << f.width) - 1:#x}{suffix}"))
    return lines


def cpp_register(register: Register) -> list[str]:
    name = pascal(register.name)
    spare = ~register.mask & 0xFFFFFFFF
    out = ["", f"/// {register.name}: {register.text} ({register.access}; {register.section})", f"struct {name} {{"]
    out += [cpp_member(f) for f in register.fields]
    if spare:
        out.append("  std::uint32_t reserved = 0;  ///< bits that no field names, at their positions")
    out.append("")
    out.append(f'  static constexpr std::string_view name = "{register.name}";')
    out.append(f"  static constexpr std::uint32_t reset_raw = {register.reset:#010x}U;")
    out += [f"  static constexpr std::uint32_t {f.name}_mask = {f.mask:#010x}U;" for f in register.fields]
    out.append(f"  static constexpr std::uint32_t reserved_mask = {spare:#010x}U;")
    out.append("")
    out.append("  [[nodiscard]] constexpr std::uint32_t raw() const {")
    out += cpp_fit_checks(register.fields, f'require({{}}, "ixgbe: a value does not fit its field of {register.name}");')
    terms = [cpp_insert(f, 32) for f in register.fields]
    if spare:
        terms.append("(reserved & reserved_mask)")
    out.append("    return " + "\n           | ".join(terms) + ";")
    out += ["  }", f"  [[nodiscard]] static constexpr {name} from_raw(std::uint32_t raw_value) {{", "    return {"]
    out += [f"        .{f.name} = {cpp_extract(f, 'raw_value', 32)}," for f in register.fields]
    if spare:
        out.append("        .reserved = raw_value & reserved_mask,")
    out += ["    };", "  }", f"  friend constexpr bool operator==(const {name}&, const {name}&) = default;", "};"]
    if not register.array:
        out.append(f"inline constexpr Location<{name}> {register.name}{{{register.ranges[0].offset:#07x}U}};")
        return out
    out.append(f"struct {name}Array {{")
    out.append(f"  static constexpr std::uint32_t count = {register.count};")
    out.append(f"  [[nodiscard]] constexpr Location<{name}> operator()(std::uint32_t index) const {{")
    out.append(f'    require(index < count, "ixgbe: no such {register.name}", index);')
    for r in register.ranges[:-1]:
        out.append(f"    if (index < {r.first + r.count}) return {{{r.offset:#07x}U + {cpp_index(r)} * {r.stride:#x}U}};")
    last = register.ranges[-1]
    out.append(f"    return {{{last.offset:#07x}U + {cpp_index(last)} * {last.stride:#x}U}};")
    out.append("  }")
    out.append("};")
    out.append(f"inline constexpr {name}Array {register.name}{{}};")
    return out


def cpp_index(r: Range) -> str:
    return f"(index - {r.first}U)" if r.first else "index"


def cpp_descriptor(descriptor: Descriptor) -> list[str]:
    out = ["", f"/// {descriptor.text} ({descriptor.section})", f"struct {descriptor.name} {{"]
    out += [cpp_member(f) for f in descriptor.fields]
    out.append("")
    for f in descriptor.fields:
        mask = f.mask >> (64 * (f.low // 64))
        out.append(f"  static constexpr std::uint64_t {f.name}_mask = {mask:#018x}ULL;  ///< in word {f.low // 64}")
    out.append("")
    out += [
        "  // A single field, from the two words or as bits of its word. Per-frame code uses these, because a compiler does not",
        "  // reliably remove the work for the other fields. The value of `put` MUST fit.",
    ]
    for f in descriptor.fields:
        word = f.low // 64
        words = ", ".join(f"std::uint64_t word{w}" if w == word else "std::uint64_t" for w in (0, 1))
        get = cpp_extract(f, f"word{word}", 64)
        out.append(f"  [[nodiscard]] static constexpr {cpp_type(f)} get_{f.name}({words}) {{ return {get}; }}")
        out.append(
            f"  [[nodiscard]] static constexpr std::uint64_t put_{f.name}({cpp_type(f)} value) "
            f"{{ return std::uint64_t{{value}} << {f.low % 64}; }}"
        )
    out.append("")
    out.append("  /// The two 64-bit words in memory order (little endian).")
    out.append("  [[nodiscard]] constexpr std::array<std::uint64_t, 2> raw() const {")
    out += cpp_fit_checks(descriptor.fields, "assert({});")
    words = []
    for word in (0, 1):
        terms = [cpp_insert(f, 64) for f in descriptor.fields if f.low // 64 == word]
        words.append("\n             | ".join(terms) if terms else "0")
    out.append(f"    return {{{words[0]},")
    out.append(f"            {words[1]}}};")
    out.append("  }")
    used = [any(f.low // 64 == word for f in descriptor.fields) for word in (0, 1)]
    parameters = ", ".join(f"{'' if used[w] else '[[maybe_unused]] '}std::uint64_t word{w}" for w in (0, 1))
    out.append(f"  [[nodiscard]] static constexpr {descriptor.name} from_raw({parameters}) {{")
    out.append("    return {")
    out += [f"        .{f.name} = {cpp_extract(f, f'word{f.low // 64}', 64)}," for f in descriptor.fields]
    out.append("    };")
    out.append("  }")
    out.append(f"  friend constexpr bool operator==(const {descriptor.name}&, const {descriptor.name}&) = default;")
    out.append("};")
    return out


def generate_cpp(table: Table) -> str:
    out = [CPP_HEAD]
    for register in table.registers:
        out += cpp_register(register)
    out += ["", "}  // namespace neap::ixgbe::reg", "", "namespace neap::ixgbe::descriptor {"]
    for descriptor in table.descriptors:
        out += cpp_descriptor(descriptor)
    out += ["", "}  // namespace neap::ixgbe::descriptor", ""]
    return "\n".join(out)


# --- Rust ---

RUST_HEAD = """\
// SPDX-License-Identifier: BSL-1.0
// Generated from drivers/ixgbe/registers.toml by generate_registers.py; do not edit.
"""


def rust_ranges(ranges: list[Range]) -> str:
    inner = ", ".join(f"Range {{ offset: {r.offset:#07x}, stride: {r.stride:#x}, count: {r.count}, first: {r.first} }}" for r in ranges)
    return f"&[{inner}]"


def rust_access(access: str) -> str:
    parts = {
        "rw": "ReadWrite",
        "ro": "ReadOnly",
        "wo": "WriteOnly",
        "rc": "ReadClears",
        "w1c": "WriteOneClears",
        "rc+w1c": "ReadAndWriteOneClear",
    }
    return f"Access::{parts[access]}"


def generate_rust(table: Table) -> str:
    out = [RUST_HEAD, "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]", "#[repr(u16)]", "pub enum Register {"]
    for register in table.registers:
        out += [f"    /// {register.text} ({register.section})", f"    {pascal(register.name)},"]
    out += ["}", "", f"pub static REGISTERS: [RegisterInfo; {len(table.registers)}] = ["]
    slot, slots = 0, []
    for register in table.registers:
        first = register.reset if register.reset_first is None else register.reset_first
        array = str(register.array).lower()
        out.append(
            f'    RegisterInfo {{ register: Register::{pascal(register.name)}, name: "{register.name}", array: {array}, '
            f'section: "{register.section}", '
            f"access: {rust_access(register.access)}, reset: {register.reset:#010x}, reset_first: {first:#010x}, "
            f"mask: {register.mask:#010x}, self_clearing: {register.self_clearing_mask:#010x}, "
            f"models: {register.model_bits:#05b}, count: {register.count}, "
            f"ranges: {rust_ranges(register.ranges)}, aliases: {rust_ranges(register.aliases)} }},"
        )
        slots.append(slot)
        slot += register.count
    out += ["];", ""]
    out.append("/// The index of each register's first entry among all entries.")
    out.append(f"pub const FIRST_SLOT: [u16; {len(slots)}] = [{', '.join(map(str, slots))}];")
    out.append("")
    out.append("/// One slot for each entry of each register.")
    out.append(f"pub const SLOTS: usize = {slot};")
    out.append("")
    out += ["pub mod field {", "    use super::Field;"]
    for register in table.registers:
        out += [f"    pub mod {register.name.lower()} {{", "        use super::Field;"]
        out += [f"        pub const {f.name.upper()}: Field = Field {{ shift: {f.low}, width: {f.width} }};" for f in register.fields]
        out.append("    }")
    out += ["}", "", "pub mod descriptor {", "    use super::WideField;"]
    for descriptor in table.descriptors:
        out.append(f"    /// {descriptor.text} ({descriptor.section})")
        out += [f"    pub mod {snake(descriptor.name)} {{", "        use super::WideField;"]
        for f in descriptor.fields:
            place = f"word: {f.low // 64}, shift: {f.low % 64}, width: {f.width}"
            out.append(f"        pub const {f.name.upper()}: WideField = WideField {{ {place} }};")
        out.append("    }")
    return "\n".join([*out, "}", ""])


def write_if_changed(path: Path, text: str) -> None:
    """Replaces the file atomically, so that readers see a whole file. An unchanged file is not written, so nothing is rebuilt."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, default=Path(__file__).with_name("registers.toml"), help="default: beside this file")
    parser.add_argument("--cpp", type=Path, metavar="OUT.hpp")
    parser.add_argument("--rust", type=Path, metavar="OUT.rs")
    options = parser.parse_args(arguments)
    if not options.cpp and not options.rust:
        parser.error("nothing to do: give --cpp or --rust")
    try:
        table = parse(options.table.read_text(encoding="utf-8"))
        if options.cpp:
            write_if_changed(options.cpp, generate_cpp(table))
        if options.rust:
            write_if_changed(options.rust, generate_rust(table))
    except (TableError, OSError) as error:
        print(f"generate_registers: {options.table.name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
