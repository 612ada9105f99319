// SPDX-License-Identifier: BSL-1.0
// Characters to bytes and back, for Buffer, TextEncoder and TextDecoder.
//
// A string of QuickJS has one-byte characters (Latin-1) or UTF-16 units, and most are ASCII. So each function has a fast path for ASCII,
// and none goes through UTF-8 if the encoding is another one. Invalid UTF-8 is decoded as the WHATWG Encoding Standard demands: one U+FFFD
// for the longest beginning of a valid sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace neap::webserver {

enum class Encoding : std::uint8_t { utf8, utf16le, latin1, ascii, base64, base64url, hex };
/// By the library's name of it: `utf8`, `utf16le`, `latin1`, `ascii`, `base64`, `base64url`, `hex`.
[[nodiscard]] std::optional<Encoding> encoding_of(std::string_view name) noexcept;

/// The characters of a string in place.
struct Characters {
  const std::uint8_t* narrow = nullptr;  // Latin-1
  const char16_t* wide = nullptr;        // UTF-16, if not `narrow`
  std::size_t count = 0;
  [[nodiscard]] std::uint32_t at(std::size_t index) const noexcept { return narrow != nullptr ? narrow[index] : wide[index]; }
};

[[nodiscard]] std::size_t utf8_bytes(const Characters& characters) noexcept;
/// An upper bound of the bytes of a string in an encoding; exact for all but base64.
[[nodiscard]] std::size_t encoded_bytes_max(const Characters& characters, Encoding encoding) noexcept;
/// Writes whole characters only, as many as fit. Returns the bytes written. Stops at the first invalid digit of `hex`; ignores foreign
/// characters of `base64`, and stops at its `=`.
std::size_t encode(const Characters& characters, Encoding encoding, std::span<std::uint8_t> to) noexcept;

struct Utf8Facts {
  std::size_t units = 0;  ///< of UTF-16, replacement characters included
  bool narrow = true;     ///< all characters are below 256
  bool valid = true;
  std::size_t partial = 0;  ///< bytes at the end that may begin a valid sequence
};
[[nodiscard]] Utf8Facts inspect_utf8(std::span<const std::uint8_t> bytes) noexcept;
/// `to` MUST have `units` elements. For `narrow` text there is a form with bytes.
void decode_utf8(std::span<const std::uint8_t> bytes, char16_t* to) noexcept;
void decode_utf8(std::span<const std::uint8_t> bytes, std::uint8_t* to) noexcept;

/// Characters of `hex`, `base64` and `base64url` for a number of bytes.
[[nodiscard]] std::size_t digits_of(std::size_t bytes, Encoding encoding) noexcept;
void write_digits(std::span<const std::uint8_t> bytes, Encoding encoding, std::uint8_t* to) noexcept;

}  // namespace neap::webserver
