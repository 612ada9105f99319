// SPDX-License-Identifier: BSL-1.0
// What the two protocols share: where they read, where they answer, and what follows a command in the stream.
//
// A parser is shown contiguous bytes and takes a whole command from their front, or, of a command that has no bounded length, a whole part.
// Only a value may be longer than a buffer: the parser leaves a `Transfer` behind, and the bytes then go straight to their place as they
// arrive.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "apps/memcached/service.hpp"

namespace neap::memcached {

/// Bytes that follow a command: a value on its way into its item, or something to be thrown away.
struct Transfer {
  std::uint64_t bytes_left = 0;
  char* to = nullptr;  ///< null: thrown away
  ItemPointer item;    ///< what is being filled
  Mode mode = Mode::set;
  std::uint64_t expected_cas = 0;
  bool quiet = false;

  void swallow(std::uint64_t bytes) noexcept {
    bytes_left = bytes;
    to = nullptr;
  }
  /// Takes `bytes` of what follows. False: they do not fit where they should go; then nothing was written.
  [[nodiscard]] bool take(std::string_view bytes) noexcept {
    if (bytes.size() > bytes_left) return false;
    if (to != nullptr) {
      if (!item) return false;
      const char* const end = item->value_line().data() + item->value_line().size();
      if (to > end || bytes.size() > static_cast<std::size_t>(end - to)) return false;
      std::memcpy(to, bytes.data(), bytes.size());
      to += bytes.size();
    }
    bytes_left -= bytes.size();
    return true;
  }
};

/// One connection's surroundings while some of its bytes are worked on.
struct Context {
  Service& service;
  Statistics& statistics;
  Reply& reply;
  Transfer& transfer;
  Seconds now;
  bool closing = false;  ///< set by a parser: nothing more is read, and the connection ends once the reply is out

  [[nodiscard]] Store& store() const noexcept { return service.store; }
};

namespace detail {
/// First byte at or behind `from` that is not above a blank (blank, line end, any other control character), else `end`. Eight bytes a step.
inline const char* find_break(const char* from, const char* end) noexcept {
  constexpr std::uint64_t ones = 0x0101010101010101, highs = 0x8080808080808080;
  while (end - from >= 8) {
    std::uint64_t word;
    std::memcpy(&word, from, 8);
    const std::uint64_t below = (word - ones * 0x21) & ~word & highs;  // exact up to and including the first hit, which is all that is used
    if (below != 0) return from + (__builtin_ctzll(below) >> 3);
    from += 8;
  }
  while (from < end && static_cast<unsigned char>(*from) > ' ') ++from;
  return from;
}
}  // namespace detail

}  // namespace neap::memcached
