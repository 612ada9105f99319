// SPDX-License-Identifier: BSL-1.0
// The answers and the fields of words that several commands of the text protocol share. Internal to the text protocol.
#pragma once

#include <emmintrin.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "apps/memcached/numbers.hpp"
#include "apps/memcached/protocol.hpp"

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

/// As `put_text`, without a call for up to 32 bytes.
inline char* put_short_text(char* to, std::string_view text) noexcept {
  const char* const from = text.data();
  const std::size_t bytes = text.size();
  if (bytes - 16 <= 16) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i last = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + bytes - 16));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), first);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + bytes - 16), last);
  } else if (bytes - 8 <= 8) {
    std::uint64_t first = 0, last = 0;
    std::memcpy(&first, from, 8);
    std::memcpy(&last, from + bytes - 8, 8);
    std::memcpy(to, &first, 8);
    std::memcpy(to + bytes - 8, &last, 8);
  } else {
    std::memcpy(to, from, bytes);
  }
  return to + bytes;
}

/// As `put_text`, without a call for 32 to 512 bytes, which saves 40 instructions for a value of 100 bytes.
inline char* put_value(char* to, std::string_view text) noexcept {
  const char* from = text.data();
  if (text.size() - 32 > 512 - 32) return put_short_text(to, text);
  const auto copy_32 = [](char* into, const char* source) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + 16));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(into), first);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(into + 16), second);
  };
  char* const end = to + text.size();
  const char* const last = from + text.size() - 32;
  for (; from < last; from += 32, to += 32) copy_32(to, from);
  copy_32(end - 32, last);
  return end;
}

inline bool has_key(std::string_view word) noexcept { return word.size() <= key_bytes_max; }

}  // namespace neap::memcached::text
