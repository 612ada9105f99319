// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/firmware/memory_types.hpp"

#include <algorithm>
#include <bit>

namespace neap::x86::mtrr {

namespace {

// SDM 4, table 2-2.
constexpr std::uint32_t capabilities_msr = 0xfe, base_msr = 0x200, mask_msr = 0x201, default_type_msr = 0x2ff;
constexpr std::uint64_t on_bit = 1 << 11, valid_bit = 1 << 11, type_mask = 0xff, count_mask = 0xff, page_mask = 0xfff;
constexpr std::uint32_t mtrr_feature = 1 << 12;  // CPUID leaf 1, EDX

std::uint64_t mixed(std::uint64_t sum, std::uint64_t value) { return (std::rotl(sum, 7) ^ value) * 0x9e3779b97f4a7c15; }

}  // namespace

Ranges read(power::CpuAccess& cpu) noexcept {
  Ranges found;
  if (!(cpu.cpuid(1, 0).edx & mtrr_feature)) return found;
  const auto capabilities = cpu.read_msr(capabilities_msr);
  const auto otherwise = cpu.read_msr(default_type_msr);
  if (!capabilities || !otherwise) return found;
  found.there = true;
  found.on = *otherwise & on_bit;
  found.otherwise = static_cast<Type>(*otherwise & type_mask);
  found.fingerprint = mixed(found.fingerprint, *otherwise);
  const auto listed = static_cast<unsigned>(*capabilities & count_mask);
  for (unsigned i = 0; i < std::min(listed, variable_max); ++i) {
    const auto base = cpu.read_msr(base_msr + 2 * i);
    const auto mask = cpu.read_msr(mask_msr + 2 * i);
    if (!base || !mask) break;
    found.fingerprint = mixed(mixed(found.fingerprint, *base), *mask);
    if (!(*mask & valid_bit)) continue;
    const auto address_mask = *mask & ~page_mask;
    if (address_mask == 0) continue;
    // 12.11.3: a mask without gaps describes one piece, whose length is the mask's lowest bit. A mask with gaps describes several pieces;
    // no firmware sets such a mask.
    const auto first = *base & address_mask;
    found.ranges[found.count++] = {
        .first = first, .end = first + (address_mask & ~(address_mask - 1)), .type = static_cast<Type>(*base & type_mask)};
  }
  return found;
}

Type type_at(const Ranges& ranges, std::uint64_t physical) noexcept {
  if (!ranges.on) return Type::uncached;
  bool any = false;
  Type type = ranges.otherwise;
  for (unsigned i = 0; i < ranges.count; ++i) {
    const auto& range = ranges.ranges[i];
    if (physical < range.first || physical >= range.end) continue;
    if (!any) {
      type = range.type;
    } else if (type != range.type) {
      // Uncached overrides every type, and write-through overrides write-back. Other combinations are undefined and treated as uncached.
      const bool through = (type == Type::write_through || type == Type::write_back) &&
                           (range.type == Type::write_through || range.type == Type::write_back);
      type = through ? Type::write_through : Type::uncached;
    }
    any = true;
  }
  return type;
}

Piece first_slow(const Ranges& ranges, std::uint64_t first, std::uint64_t end) noexcept {
  // The type changes only at the start or end of a range.
  const auto next_change = [&](std::uint64_t at) {
    auto next = end;
    for (unsigned i = 0; i < ranges.count; ++i) {
      for (const auto edge : {ranges.ranges[i].first, ranges.ranges[i].end}) {
        if (edge > at) next = std::min(next, edge);
      }
    }
    return next;
  };
  for (auto at = first; at < end;) {
    const auto type = type_at(ranges, at);
    auto until = next_change(at);
    if (type != Type::write_back) {
      while (until < end && type_at(ranges, until) == type) until = next_change(until);
      return {.first = at, .end = until, .type = type};
    }
    at = until;
  }
  return {.first = end, .end = end, .type = Type::write_back};
}

const char* name_of(Type type) noexcept {
  switch (type) {
    case Type::uncached:
      return "uncached";
    case Type::write_combining:
      return "write-combining";
    case Type::write_through:
      return "write-through";
    case Type::write_protected:
      return "write-protected";
    case Type::write_back:
      return "write-back";
  }
  return "of an unknown type";
}

}  // namespace neap::x86::mtrr
