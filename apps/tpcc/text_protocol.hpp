// SPDX-License-Identifier: BSL-1.0
// The parser of memcached's text protocol, as far as a server of transactions has it (memcached's protocol.txt).
//
// Load generators and clients of memcached are everywhere, and the published studies drive their databases by them. So a `get` runs a
// transaction, and its answer is the value. A command is one line of up to `line_bytes_max` bytes. The parser looks at a whole line, never
// writes, and never allocates. It checks all keys before the first transaction runs, so a refused line has no effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace neap::tpcc {

constexpr std::size_t line_bytes_max = 2048;  ///< memcached's limit for the line of most commands; without the line end
constexpr std::size_t key_bytes_max = 250;    ///< protocol.txt, "Keys"
constexpr std::uint64_t value_bytes_max = 1 << 20;

struct Command {
  enum class Kind : std::uint8_t {
    get,         ///< one transaction for each of `keys`
    set,         ///< `value_bytes` bytes and a line end follow; they are ignored
    statistics,  ///< the counters
    quit,
    answer,   ///< nothing but `answer`
    refused,  ///< an error, which is `answer`
  };
  Kind kind = Kind::refused;
  bool with_unique = false;       ///< `gets`: each value has a further number
  bool no_reply = false;          ///< the answer is not sent
  std::string_view keys;          ///< part of the line: keys and blanks
  std::uint32_t value_bytes = 0;  ///< of `set`
  std::string_view answer;        ///< with its line end
};

/// Parses a line without its line end.
[[nodiscard]] Command parse_line(std::string_view line) noexcept;

/// Removes the next word from the front of `line`, with the blanks before it; empty if there is none.
[[nodiscard]] std::string_view take_word(std::string_view& line) noexcept;

}  // namespace neap::tpcc
