// SPDX-License-Identifier: BSL-1.0
// The answers and the fields of words that several commands of the text protocol share. Internal to the text protocol.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "apps/memcached/numbers.hpp"
#include "apps/memcached/protocol.hpp"
#include "kernel/short_copy.hpp"

namespace neap::memcached::text {

constexpr std::string_view error_unknown = "ERROR\r\n";
constexpr std::string_view error_format = "CLIENT_ERROR bad command line format\r\n";
constexpr std::string_view error_expiry = "CLIENT_ERROR invalid exptime argument\r\n";

inline void say(Context& context, bool quiet, std::string_view text) noexcept {
  if (!quiet) context.reply.put(text);
}

inline void refuse(Context& context, bool quiet, std::string_view error) noexcept {
  context.statistics.add(Count::protocol_errors);
  say(context, quiet, error);
}

/// Reads a number of 64 bits and keeps its low 32 bits, as memcached does. So a date beyond 32 bits has the same effect as in memcached.
inline std::optional<Seconds> read_expiry(std::string_view word, const Context& context) noexcept {
  const auto number = read_signed(word);
  if (!number) return std::nullopt;
  return context.service.clock.expiry(static_cast<std::int32_t>(*number), context.now);
}

inline char* put_text(char* to, std::string_view text) noexcept {
  std::memcpy(to, text.data(), text.size());
  return to + text.size();
}

inline char* put_key(char* to, std::string_view key) noexcept {
  copy_short(to, key.data(), key.size());
  return to + key.size();
}

inline char* put_value(char* to, std::string_view value) noexcept {
  copy_medium(to, value.data(), value.size());
  return to + value.size();
}

inline bool has_key(std::string_view word) noexcept { return word.size() <= key_bytes_max; }

}  // namespace neap::memcached::text
