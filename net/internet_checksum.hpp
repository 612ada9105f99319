// SPDX-License-Identifier: BSL-1.0
// The Internet checksum (RFC 1071) over bytes that are in several pieces of memory.
//
// A card checks and fills in checksums, so this code runs only for cards that do not, and for reassembled datagrams. Internal to net/.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernel/net_device.hpp"

namespace neap::net {

class InternetSum {
 public:
  /// Adds bytes. They follow those of the last call, also if these were an odd number.
  void add(std::span<const std::byte> bytes) noexcept {
    std::uint64_t sum = 0;
    const std::byte* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 4; left -= 4, at += 4) {
      std::uint32_t word;
      std::memcpy(&word, at, sizeof word);
      sum += word;
    }
    if (left > 0) {
      std::uint32_t word = 0;
      std::memcpy(&word, at, left);
      sum += word;
    }
    std::uint32_t folded = fold(sum);
    if (odd_) folded = std::byteswap(static_cast<std::uint16_t>(folded));
    sum_ += folded;
    odd_ = odd_ != (bytes.size() % 2 != 0);
  }
  /// Adds a sum in the order of the bytes in memory.
  void add_folded(std::uint32_t sum) noexcept { sum_ += sum; }
  /// The sum, in the order of the bytes in memory, not inverted. Over a packet with a right checksum it is 0xFFFF.
  [[nodiscard]] std::uint16_t folded() const noexcept { return static_cast<std::uint16_t>(fold(sum_)); }

 private:
  static std::uint32_t fold(std::uint64_t sum) noexcept {
    while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
    return static_cast<std::uint32_t>(sum);
  }

  std::uint64_t sum_ = 0;
  bool odd_ = false;
};

/// The sum over `bytes` bytes of a received frame, from the byte at `at` on, and `more`: the folded sum of a pseudo-header.
[[nodiscard]] inline std::uint16_t sum_of(const ReceiveBuffer* frame, std::size_t at, std::size_t bytes, std::uint32_t more) noexcept {
  InternetSum sum;
  sum.add_folded(more);
  for (; frame != nullptr && bytes > 0; frame = frame->next) {
    if (at >= frame->bytes) {
      at -= frame->bytes;
      continue;
    }
    const std::size_t part = std::min(bytes, frame->bytes - at);
    sum.add({frame->data + at, part});
    bytes -= part;
    at = 0;
  }
  return sum.folded();
}

}  // namespace neap::net
