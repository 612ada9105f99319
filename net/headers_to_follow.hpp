// SPDX-License-Identifier: BSL-1.0
// Recognises the next frame of a stream by one comparison of all headers. Internal to net/.
#pragma once

#include <emmintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "net/segment_headers.hpp"
#include "net/tcp/options.hpp"

namespace neap::net {

/// The headers of a frame that carries the next bytes of the same connection as an ordinary frame, and nothing else that is new: they
/// differ at most in length, identification, checksums, sequence number and PSH. All headers are compared by four vectors, and the
/// timestamps option, which is the only one, by three words.
class HeadersToFollow {
 public:
  /// `frame` MUST hold `SegmentHeaders::bytes` and `options_bytes` bytes, as in `match`. `options_bytes`: 0 or those of timestamps.
  HeadersToFollow(const std::byte* frame, std::size_t options_bytes) noexcept : frame_(frame), options_bytes_(options_bytes) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < starts.size(); ++i) headers_[i] = load(frame + starts[i]);
  }
  [[nodiscard]] [[gnu::always_inline]] bool match(const std::byte* frame) const noexcept {
    __m128i difference = _mm_setzero_si128();
#pragma GCC unroll 4
    for (std::size_t i = 0; i < starts.size(); ++i) {
      difference =
          _mm_or_si128(difference, _mm_and_si128(_mm_xor_si128(load(frame + starts[i]), headers_[i]), load(same.data() + starts[i])));
    }
    if (_mm_movemask_epi8(_mm_cmpeq_epi8(difference, _mm_setzero_si128())) != 0xFFFF) return false;
    return std::memcmp(frame + SegmentHeaders::bytes, frame_ + SegmentHeaders::bytes, options_bytes_) == 0;
  }

 private:
  static constexpr std::array<std::size_t, 4> starts{0, 16, 32, SegmentHeaders::bytes - 16};
  static constexpr unsigned push_flag = 0x08;
  /// The bits that are the same.
  static constexpr std::array<std::byte, SegmentHeaders::bytes> same = [] {
    std::array<std::byte, SegmentHeaders::bytes> bits;
    bits.fill(std::byte{0xFF});
    constexpr std::size_t ip = SegmentHeaders::ethernet_bytes, tcp = ip + SegmentHeaders::ip_header_bytes;
    for (const std::size_t at : {ip + 2, ip + 4, ip + 10, tcp + 4, tcp + 6, tcp + 16}) bits[at] = bits[at + 1] = std::byte{0};
    bits[tcp + 13] = ~std::byte{push_flag};
    return bits;
  }();
  static __m128i load(const std::byte* at) noexcept { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }

  __m128i headers_[4];
  const std::byte* frame_;
  std::size_t options_bytes_;
};

}  // namespace neap::net
