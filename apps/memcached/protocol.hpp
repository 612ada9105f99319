// SPDX-License-Identifier: BSL-1.0
// The interface between a conversation and the two protocols: input, reply, and the value that follows a command in the stream.
//
// A parser gets contiguous bytes and consumes a whole command from the front. A get's line, whose length has no bound, is consumed word by
// word. A value need not be contiguous: the parser sets up a `Transfer`, which copies the value's bytes into the item as they arrive.
#pragma once

#include <emmintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "apps/memcached/long_answer.hpp"
#include "apps/memcached/service.hpp"

namespace neap::memcached {

/// Bytes that follow a command: a value that is copied into its item, or data to be discarded.
struct Transfer {
  std::uint64_t bytes_left = 0;
  std::size_t filled = 0;  ///< bytes of the item's value and line end
  bool fills = false;      ///< false: the bytes are discarded
  ItemPointer item;        ///< the item that is being filled
  Mode mode = Mode::set;
  std::uint64_t expected_cas = 0;
  bool quiet = false;
  bool meta = false;  ///< of an ms

  void discard(std::uint64_t bytes) noexcept {
    bytes_left = bytes;
    fills = false;
  }
  /// The next `bytes` are the beginning of the item's value, or all of it, perhaps with its line end.
  void fill(ItemPointer fresh, std::uint64_t bytes) noexcept {
    bytes_left = bytes;
    filled = 0;
    fills = true;
    item = std::move(fresh);
  }
  /// Consumes `bytes` of the transfer. Returns false and writes no byte if they do not fit into the item.
  [[nodiscard]] bool take(std::string_view bytes) noexcept {
    if (bytes.size() > bytes_left) return false;
    if (fills) {
      if (!item || bytes.size() > item->value_line_bytes() - filled) return false;
      item->fill(filled, bytes);
      filled += bytes.size();
    }
    bytes_left -= bytes.size();
    return true;
  }
};

/// The environment of a parser while it handles bytes of one connection.
struct Context {
  Service& service;
  Statistics& statistics;
  Reply& reply;
  Transfer& transfer;
  Seconds now;
  std::size_t copied_bytes = 0;                        ///< bytes that commands of this core copied from old items into new ones
  std::uint32_t connection_id = 0;                     ///< as in `stats conns`
  std::unique_ptr<LongAnswer>* long_answer = nullptr;  ///< a parser MAY set an answer that takes many events; null: it MUST NOT (UDP)
  bool closing = false;  ///< set by a parser: no more input is read, and the connection ends once the reply is sent

  bool quit = false;  ///< set with `closing`, if the client asked for the end

  [[nodiscard]] Store& store() const noexcept { return service.store; }
};

/// What a pass over whole requests has handled (text_protocol_whole.hpp, binary_protocol_whole.hpp).
struct Handled {
  std::size_t bytes = 0;
  std::uint32_t requests = 0;
};

namespace detail {
/// A bit for each of the 16 bytes at `at`: 1 where the byte is a blank or a control character (below 0x21).
inline unsigned breaks_of_16(const char* at) noexcept {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const __m128i above = _mm_subs_epu8(bytes, _mm_set1_epi8(' '));  // 0 for a break
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(above, _mm_setzero_si128())));
}

/// Finds the first byte at or behind `from` that is a blank or a control character (such as a line end). Returns `end` if there is none.
/// `begin`: the bytes from here to `end` may be read. Checks 32 bytes in each step. The vectors of the last step overlap, and cover bytes
/// before `from` if fewer than 16 are left.
[[gnu::always_inline]] inline const char* find_break(const char* begin, const char* from, const char* end) noexcept {
  for (;;) {
    const auto left = static_cast<std::size_t>(end - from);
    if (left < 16) break;
    if (left <= 32) {
      const unsigned breaks = breaks_of_16(from) | breaks_of_16(end - 16) << (left - 16);
      return breaks != 0 ? from + std::countr_zero(breaks) : end;
    }
    const unsigned breaks = breaks_of_16(from) | breaks_of_16(from + 16) << 16;
    if (breaks != 0) return from + std::countr_zero(breaks);
    from += 32;
  }
  if (from == end) return end;
  if (end - begin >= 16) {
    const unsigned known = 16 - static_cast<unsigned>(end - from);  // 1 to 15 bytes before `from`
    const unsigned breaks = breaks_of_16(end - 16) >> known;
    return breaks != 0 ? from + std::countr_zero(breaks) : end;
  }
  while (from < end && static_cast<unsigned char>(*from) > ' ') ++from;
  return from;
}
}  // namespace detail

}  // namespace neap::memcached
