// SPDX-License-Identifier: BSL-1.0
// The sizes of the heap's objects: every 16 bytes up to 256, then eight sizes for each doubling up to 8 KiB, then whole pages. So at most
// 15 bytes or a ninth of an object in a slab are unused.
//
// A caller that accounts for memory by object uses `heap_bytes`. All else is kernel-internal.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernel/memory/page_allocator.hpp"

namespace neap::memory {

constexpr std::size_t object_bytes_max = 8192;

namespace detail {
constexpr std::size_t step_bytes_min = 16;
constexpr std::size_t heap_bytes_by_step(std::size_t bytes) noexcept {
  bytes = std::max<std::size_t>(bytes, 1);
  const std::size_t step = bytes > object_bytes_max ? page_bytes : std::max(std::bit_floor(bytes - 1) / 8, step_bytes_min);
  return (bytes + step - 1) & ~(step - 1);  // a step is a power of two
}
}  // namespace detail

/// The bytes that the heap uses for an object of `bytes` bytes without a larger alignment. `heap=checked` adds its redzones.
[[gnu::always_inline]] constexpr std::size_t heap_bytes(std::size_t bytes) noexcept {
  if (bytes - 1 < 16 * detail::step_bytes_min) [[likely]]
    return (bytes + detail::step_bytes_min - 1) & ~(detail::step_bytes_min - 1);
  return detail::heap_bytes_by_step(bytes);
}

constexpr unsigned class_count = 16 + 5 * 8;

constexpr std::array<std::uint16_t, class_count> class_bytes = [] {
  std::array<std::uint16_t, class_count> table{};
  std::size_t bytes = 0;
  for (std::uint16_t& each : table) each = static_cast<std::uint16_t>(bytes = heap_bytes(bytes + 1));
  return table;
}();
static_assert(class_bytes[class_count - 1] == object_bytes_max);

/// Smallest class that holds `bytes`, 1 to `object_bytes_max`.
constexpr unsigned class_of(std::size_t bytes) noexcept {
  if (bytes <= 256) return static_cast<unsigned>((bytes + 15) / 16 - 1);
  const std::size_t last = bytes - 1;
  const auto exponent = static_cast<unsigned>(std::bit_width(last)) - 1;
  return 16 + (exponent - 8) * 8 + static_cast<unsigned>((last >> (exponent - 3)) & 7);
}

/// `class_of` as a table: entry i is the class of all sizes from 16 i - 15 to 16 i.
constexpr std::array<std::uint8_t, object_bytes_max / 16 + 1> class_by_granule = [] {
  std::array<std::uint8_t, object_bytes_max / 16 + 1> table{};
  for (std::size_t granules = 1; granules < table.size(); ++granules) table[granules] = static_cast<std::uint8_t>(class_of(granules * 16));
  return table;
}();

/// Every object of a class is aligned to the largest power of two that divides its size, at most to a page.
constexpr std::size_t class_alignment(unsigned size_class) noexcept {
  const std::size_t bytes = class_bytes[size_class];
  const std::size_t power = bytes & (~bytes + 1);
  return power < 4096 ? power : 4096;
}

}  // namespace neap::memory
