// SPDX-License-Identifier: BSL-1.0
// The pieces of a long value: blocks of memory of their own.
//
// A piece has 256 KiB, or a larger power of two if the value would have more than `count_max` pieces. So the table of pointers has at most
// 1 KiB, and a reply refers to at most `count_max` pieces. The last piece is as long as the rest of the value. The length of the value
// alone decides whether it is in pieces, and into which, so no item can contradict its length.
//
// A piece is much longer than a slab of the heap (64 KiB). Pieces of 64 KiB filled each place that a slab fits, so in a store of values of
// 100 KB the replies and control found no memory, although 10 MB were free (row 7 of docs/threat-model.md).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace neap::memcached {

/// A longer value is in pieces. An item whose value is not fits a block of 256 KiB, as a piece does, with its header and key.
constexpr std::size_t contiguous_bytes_max = (std::size_t{256} << 10) - 512;
[[nodiscard]] constexpr bool is_in_pieces(std::size_t value_bytes) noexcept { return value_bytes > contiguous_bytes_max; }

struct Pieces {
  static constexpr std::size_t bytes_min = std::size_t{256} << 10;
  static constexpr unsigned count_max = 128;

  std::size_t value_bytes;
  std::size_t bytes;  ///< of each piece except the last one: a power of two
  unsigned count;

  explicit constexpr Pieces(std::size_t value) noexcept
      : value_bytes(value),
        bytes(std::max(bytes_min, std::bit_ceil((value + count_max - 1) / count_max))),
        count(static_cast<unsigned>((value + bytes - 1) / bytes)) {}
  [[nodiscard]] constexpr unsigned index_of(std::size_t offset) const noexcept { return static_cast<unsigned>(offset / bytes); }
  [[nodiscard]] constexpr std::size_t bytes_of(unsigned index) const noexcept { return std::min(bytes, value_bytes - index * bytes); }
  [[nodiscard]] constexpr std::size_t table_bytes() const noexcept { return count * sizeof(char*); }
};
static_assert(Pieces(std::size_t{128} << 20).count == Pieces::count_max);

}  // namespace neap::memcached
