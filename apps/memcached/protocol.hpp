// SPDX-License-Identifier: BSL-1.0
// The interface between a conversation and the two protocols: input, reply, and the value that follows a command in the stream.
//
// A parser gets contiguous bytes and consumes a whole command from the front. A get's line, whose length has no bound, is consumed word by
// word. A value need not be contiguous: the parser sets up a `Transfer`, which copies the value's bytes into the item as they arrive.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "apps/memcached/service.hpp"

namespace neap::memcached {

/// Bytes that follow a command: a value that is copied into its item, or data to be discarded.
struct Transfer {
  std::uint64_t bytes_left = 0;
  char* to = nullptr;  ///< null: the bytes are discarded
  ItemPointer item;    ///< the item that is being filled
  Mode mode = Mode::set;
  std::uint64_t expected_cas = 0;
  bool quiet = false;

  void discard(std::uint64_t bytes) noexcept {
    bytes_left = bytes;
    to = nullptr;
  }
  /// Consumes `bytes` of the transfer. Returns false and writes no byte if they do not fit into the item.
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

/// The environment of a parser while it handles bytes of one connection.
struct Context {
  Service& service;
  Statistics& statistics;
  Reply& reply;
  Transfer& transfer;
  Seconds now;
  std::size_t copied_bytes = 0;  ///< bytes that commands of this core copied from old items into new ones
  bool closing = false;          ///< set by a parser: no more input is read, and the connection ends once the reply is sent

  [[nodiscard]] Store& store() const noexcept { return service.store; }
};

namespace detail {
/// Finds the first byte at or behind `from` that is a blank or a control character (such as a line end). Returns `end` if there is none.
/// Checks eight bytes in each step.
inline const char* find_break(const char* from, const char* end) noexcept {
  constexpr std::uint64_t ones = 0x0101010101010101, highs = 0x8080808080808080;
  while (end - from >= 8) {
    std::uint64_t word;
    std::memcpy(&word, from, 8);
    const std::uint64_t below = (word - ones * 0x21) & ~word & highs;  // exact up to the first byte below 0x21, and only that byte is used
    if (below != 0) return from + (__builtin_ctzll(below) >> 3);
    from += 8;
  }
  while (from < end && static_cast<unsigned char>(*from) > ' ') ++from;
  return from;
}
}  // namespace detail

}  // namespace neap::memcached
