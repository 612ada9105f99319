// SPDX-License-Identifier: BSL-1.0
// The object sizes of slabs: every 16 bytes up to 128, then four sizes for each doubling. So above 128 bytes at most a fifth of an object
// is unused. Kernel-internal.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace neap::memory {

constexpr std::size_t object_bytes_max = 8192;
constexpr unsigned class_count = 8 + 6 * 4;

constexpr std::array<std::uint16_t, class_count> class_bytes = [] {
  std::array<std::uint16_t, class_count> table{};
  unsigned index = 0;
  for (unsigned bytes = 16; bytes <= 128; bytes += 16) table[index++] = static_cast<std::uint16_t>(bytes);
  for (unsigned from = 128; from < object_bytes_max; from *= 2) {
    for (unsigned step = 1; step <= 4; ++step) table[index++] = static_cast<std::uint16_t>(from + from / 4 * step);
  }
  return table;
}();

/// Smallest class that holds `bytes`, 1 to `object_bytes_max`.
constexpr unsigned class_of(std::size_t bytes) noexcept {
  if (bytes <= 128) return static_cast<unsigned>((bytes + 15) / 16 - 1);
  const std::size_t last = bytes - 1;
  const auto exponent = static_cast<unsigned>(std::bit_width(last)) - 1;
  return 8 + (exponent - 7) * 4 + static_cast<unsigned>((last >> (exponent - 2)) & 3);
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
