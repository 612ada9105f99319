// SPDX-License-Identifier: BSL-1.0
// Comparing sequence numbers.
//
// TCP's sequence numbers wrap at 2^32, so `<` is wrong for them. RFC 9293, 3.4: of two numbers that are less than 2^31 apart, the earlier
// one is that from which the other is reached by adding less than 2^31. Numbers that are further apart have no order; a caller MUST have
// bounded both by windows. Times of a 32-bit clock are compared by the same rule.
#pragma once

#include <cstdint>

namespace neap::net::tcp {

/// Returns the signed distance from `from` to `to`.
[[nodiscard]] constexpr std::int32_t distance(std::uint32_t from, std::uint32_t to) noexcept {
  return static_cast<std::int32_t>(to - from);
}
[[nodiscard]] constexpr bool before(std::uint32_t a, std::uint32_t b) noexcept { return distance(a, b) > 0; }
[[nodiscard]] constexpr bool after(std::uint32_t a, std::uint32_t b) noexcept { return distance(b, a) > 0; }
[[nodiscard]] constexpr bool at_or_before(std::uint32_t a, std::uint32_t b) noexcept { return distance(a, b) >= 0; }
[[nodiscard]] constexpr bool at_or_after(std::uint32_t a, std::uint32_t b) noexcept { return distance(b, a) >= 0; }
/// True if `number` is one of the numbers from `first` up to `end`, without `end`. Exact for every distance of `first` and `end`.
[[nodiscard]] constexpr bool in_range(std::uint32_t number, std::uint32_t first, std::uint32_t end) noexcept {
  return number - first < end - first;
}
/// A range of sequence numbers, up to `end`, without `end`: a block of a SACK option (RFC 2018), for example.
struct SequenceRange {
  std::uint32_t first, end;
  friend bool operator==(const SequenceRange&, const SequenceRange&) = default;
};
[[nodiscard]] constexpr std::uint32_t earlier(std::uint32_t a, std::uint32_t b) noexcept { return before(a, b) ? a : b; }
[[nodiscard]] constexpr std::uint32_t later(std::uint32_t a, std::uint32_t b) noexcept { return after(a, b) ? a : b; }

}  // namespace neap::net::tcp
