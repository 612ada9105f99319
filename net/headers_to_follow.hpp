// SPDX-License-Identifier: BSL-1.0
// Recognises the next frame of a stream by one comparison of all headers. Internal to net/.
#pragma once

#include <emmintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "net/segment_headers.hpp"

namespace neap::net {

/// Part of the headers of a frame, kept as vectors, with which those of later frames are compared. `starts`: offsets of parts of 16 bytes.
/// `same` has the bits that have to be equal, of all headers.
template <std::size_t vectors>
class KeptHeaders {
 public:
  using Bits = std::array<std::byte, SegmentHeaders::bytes>;

  [[gnu::always_inline]] KeptHeaders(const std::byte* frame, const std::array<std::size_t, vectors>& starts) noexcept {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < vectors; ++i) headers_[i] = load(frame + starts[i]);
  }
  [[nodiscard, gnu::always_inline]] bool match(const std::byte* frame, const std::array<std::size_t, vectors>& starts,
                                               const Bits& same) const noexcept {
    __m128i difference = _mm_setzero_si128();
#pragma GCC unroll 4
    for (std::size_t i = 0; i < vectors; ++i) {
      difference =
          _mm_or_si128(difference, _mm_and_si128(_mm_xor_si128(load(frame + starts[i]), headers_[i]), load(same.data() + starts[i])));
    }
    return _mm_movemask_epi8(_mm_cmpeq_epi8(difference, _mm_setzero_si128())) == 0xFFFF;
  }
  /// All bits but those of these 16-bit fields.
  static constexpr Bits all_but(std::span<const std::size_t> fields) noexcept {
    Bits bits;
    bits.fill(std::byte{0xFF});
    for (const std::size_t at : fields) bits[at] = bits[at + 1] = std::byte{0};
    return bits;
  }

 private:
  static __m128i load(const std::byte* at) noexcept { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }

  __m128i headers_[vectors];
};

/// The headers of a frame that carries the next bytes of the same connection as an ordinary frame, and nothing else that is new: they
/// differ at most in length, identification, checksums, sequence number and PSH. All headers are compared by four vectors, and the
/// timestamps option, which is the only one, apart.
class HeadersToFollow {
 public:
  /// `frame` MUST hold `SegmentHeaders::bytes` and `options_bytes` bytes, as in `match`. `options_bytes`: 0 or those of timestamps.
  HeadersToFollow(const std::byte* frame, std::size_t options_bytes) noexcept
      : headers_(frame, starts), frame_(frame), options_bytes_(options_bytes) {}
  [[nodiscard, gnu::always_inline]] bool match(const std::byte* frame) const noexcept {
    return headers_.match(frame, starts, same) &&
           std::memcmp(frame + SegmentHeaders::bytes, frame_ + SegmentHeaders::bytes, options_bytes_) == 0;
  }

 private:
  static constexpr std::array<std::size_t, 4> starts{0, 16, 32, SegmentHeaders::bytes - 16};
  static constexpr KeptHeaders<4>::Bits same = [] {
    constexpr std::size_t ip = SegmentHeaders::ethernet_bytes, tcp = ip + SegmentHeaders::ip_header_bytes;
    constexpr std::array fields{ip + 2, ip + 4, ip + 10, tcp + 4, tcp + 6, tcp + 16};
    auto bits = KeptHeaders<4>::all_but(fields);
    constexpr std::byte push_flag{0x08};
    bits[tcp + 13] = ~push_flag;
    return bits;
  }();

  KeptHeaders<4> headers_;
  const std::byte* frame_;
  std::size_t options_bytes_;
};

/// The headers of an acknowledgement that repeats another one with a greater number: they differ at most in identification, checksums, the
/// acknowledgement number and the window. The options are not compared.
class HeadersOfAcknowledgement {
 public:
  /// `frame` MUST hold `SegmentHeaders::bytes`, as in `match`.
  explicit HeadersOfAcknowledgement(const std::byte* frame) noexcept : headers_(frame, starts) {}
  [[nodiscard, gnu::always_inline]] bool match(const std::byte* frame) const noexcept { return headers_.match(frame, starts, same); }

 private:
  static constexpr std::array<std::size_t, 3> starts{0, 16, 32};  // behind them are the window, the checksum and the urgent pointer
  static constexpr KeptHeaders<3>::Bits same = [] {
    constexpr std::size_t ip = SegmentHeaders::ethernet_bytes, tcp = ip + SegmentHeaders::ip_header_bytes;
    constexpr std::array fields{ip + 4, ip + 10, tcp + 8, tcp + 10};
    return KeptHeaders<3>::all_but(fields);
  }();

  KeptHeaders<3> headers_;
};

}  // namespace neap::net
