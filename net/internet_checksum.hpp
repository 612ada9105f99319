// SPDX-License-Identifier: BSL-1.0
// The Internet checksum (RFC 1071) over bytes that are in several pieces of memory.
//
// A card checks and fills in checksums, so this code runs only for cards that do not, and for reassembled datagrams. virtio-net leaves the
// header of IPv4 to the stack. That header has a fixed length in nearly all packets, so there is a short form for it. Internal to net/.
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

/// The sum over an IPv4 header without options, which begins at `ip`: a number that is 2^16 - 1 times some number if the header's checksum
/// is right. It is not folded, and never 0 in a header of version 4.
[[nodiscard, gnu::always_inline]] inline std::uint64_t ipv4_header_sum(const std::byte* ip) noexcept {
  std::uint64_t first = 0, second = 0;
  std::uint32_t third = 0;
  std::memcpy(&first, ip, sizeof first);
  std::memcpy(&second, ip + 8, sizeof second);
  std::memcpy(&third, ip + 16, sizeof third);
  // Additions with end-around carry: 2^64 is 1 modulo 2^16 - 1.
  unsigned long long two = 0, all = 0;
  const unsigned char carry = __builtin_ia32_addcarryx_u64(0, first, second, &two);
  const unsigned char last = __builtin_ia32_addcarryx_u64(carry, two, third, &all);
  return all + last;
}

/// True if the frame has an IPv4 header without options, whose checksum is right. The frame MUST have at least 34 bytes.
[[nodiscard, gnu::always_inline]] inline bool has_good_ipv4_header(const std::byte* frame) noexcept {
  constexpr std::size_t ethernet_bytes = 14;
  constexpr std::uint32_t type_mask = 0x00FF'FFFF, type = 0x0045'0008;  // EtherType IPv4, version 4, 20 bytes
  std::uint32_t word = 0;
  std::memcpy(&word, frame + ethernet_bytes - 2, sizeof word);
  // A number is a multiple of an odd divisor if its product with the divisor's inverse is at most the largest number divided by the divisor
  // (Granlund and Montgomery, 1994).
  constexpr std::uint64_t divisor = 0xFFFF, inverse = 0xFFFE'FFFE'FFFE'FFFF;
  static_assert(inverse * divisor == 1);
  return (word & type_mask) == type && ipv4_header_sum(frame + ethernet_bytes) * inverse <= ~std::uint64_t{0} / divisor;
}

/// Writes the checksum of an IPv4 header without options. The field MUST be zero.
inline void write_ipv4_checksum(std::byte* ip) noexcept {
  std::uint64_t sum = ipv4_header_sum(ip);
  sum = (sum & 0xFFFF'FFFF) + (sum >> 32);
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  const auto checksum = static_cast<std::uint16_t>(~(sum + (sum >> 16)));
  std::memcpy(ip + 10, &checksum, sizeof checksum);
}

}  // namespace neap::net
