// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/engine/text_codecs.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace neap::webserver {

namespace {

constexpr std::string_view standard_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view url_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::string_view hex_digits = "0123456789abcdef";
constexpr std::uint32_t replacement = 0xFFFD;
constexpr std::uint8_t no_digit = 0xFF;

constexpr std::array<std::uint8_t, 256> base64_values = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(no_digit);
  for (std::uint8_t value = 0; value < 64; ++value) {
    values[static_cast<std::uint8_t>(standard_digits[value])] = value;
    values[static_cast<std::uint8_t>(url_digits[value])] = value;
  }
  return values;
}();

constexpr bool is_high(std::uint32_t unit) noexcept { return (unit & 0xFC00) == 0xD800; }
constexpr bool is_low(std::uint32_t unit) noexcept { return (unit & 0xFC00) == 0xDC00; }

/// The code point at `at`, which moves behind it. A lone surrogate is U+FFFD.
std::uint32_t next_code_point(const Characters& characters, std::size_t& at) noexcept {
  const std::uint32_t unit = characters.at(at++);
  if (is_high(unit) && at < characters.count && is_low(characters.at(at))) {
    return 0x10000 + ((unit & 0x3FF) << 10) + (characters.at(at++) & 0x3FF);
  }
  return (unit & 0xF800) == 0xD800 ? replacement : unit;
}

constexpr std::size_t utf8_bytes_of(std::uint32_t code) noexcept { return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4; }

std::size_t encode_utf8(const Characters& characters, std::span<std::uint8_t> to) noexcept {
  std::size_t at = 0, used = 0;
  while (at < characters.count) {
    const std::uint32_t code = next_code_point(characters, at);
    const std::size_t bytes = utf8_bytes_of(code);
    if (bytes > to.size() - used) break;
    std::uint8_t* const out = to.data() + used;
    if (bytes == 1) {
      out[0] = static_cast<std::uint8_t>(code);
    } else {
      for (std::size_t index = bytes - 1; index > 0; --index) {
        out[index] = static_cast<std::uint8_t>(0x80 | ((code >> (6 * (bytes - 1 - index))) & 0x3F));
      }
      constexpr std::uint8_t marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
      out[0] = static_cast<std::uint8_t>(marks[bytes] | (code >> (6 * (bytes - 1))));
    }
    used += bytes;
  }
  return used;
}

int hex_value(std::uint32_t letter) noexcept {
  if (letter >= '0' && letter <= '9') return static_cast<int>(letter - '0');
  if (letter >= 'a' && letter <= 'f') return static_cast<int>(letter - 'a') + 10;
  if (letter >= 'A' && letter <= 'F') return static_cast<int>(letter - 'A') + 10;
  return -1;
}

std::size_t encode_hex(const Characters& characters, std::span<std::uint8_t> to) noexcept {
  std::size_t used = 0;
  for (std::size_t at = 0; at + 1 < characters.count && used < to.size(); at += 2) {
    const int high = hex_value(characters.at(at)), low = hex_value(characters.at(at + 1));
    if (high < 0 || low < 0) break;
    to[used++] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return used;
}

std::size_t encode_base64(const Characters& characters, std::span<std::uint8_t> to) noexcept {
  std::uint32_t bits = 0;
  unsigned bit_count = 0;
  std::size_t used = 0;
  for (std::size_t at = 0; at < characters.count && used < to.size(); ++at) {
    const std::uint32_t letter = characters.at(at);
    if (letter == '=') break;
    const std::uint8_t value = letter < 256 ? base64_values[letter] : no_digit;
    if (value == no_digit) continue;
    bits = (bits << 6) | value;
    bit_count += 6;
    if (bit_count >= 8) {
      bit_count -= 8;
      to[used++] = static_cast<std::uint8_t>(bits >> bit_count);
    }
  }
  return used;
}

/// One step of the decoder: the code point of the sequence at `at`, which moves behind the sequence or its valid beginning. `partial` is
/// set if the bytes end within a valid beginning.
std::uint32_t decode_one(std::span<const std::uint8_t> bytes, std::size_t& at, bool& valid, bool& partial) noexcept {
  const std::uint8_t first = bytes[at++];
  if (first < 0x80) return first;
  std::size_t needed = 0;
  std::uint8_t low = 0x80, high = 0xBF;
  std::uint32_t code = 0;
  if (first >= 0xC2 && first <= 0xDF) {
    needed = 1;
    code = first & 0x1FU;
  } else if ((first & 0xF0) == 0xE0) {
    needed = 2;
    code = first & 0x0FU;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    needed = 3;
    code = first & 0x07U;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    valid = false;
    return replacement;
  }
  for (; needed > 0; --needed) {
    if (at >= bytes.size()) {
      partial = true;
      valid = false;
      return replacement;
    }
    if (bytes[at] < low || bytes[at] > high) {
      valid = false;
      return replacement;
    }
    code = (code << 6) | (bytes[at++] & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return code;
}

/// The bytes up to the first one above 127, in steps of 8.
std::size_t ascii_prefix(std::span<const std::uint8_t> bytes, std::size_t at) noexcept {
  std::size_t end = at;
  for (; bytes.size() - end >= 8; end += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + end, 8);
    if ((word & 0x8080808080808080U) != 0) break;
  }
  return end - at;
}

template <typename Unit>
void decode_into(std::span<const std::uint8_t> bytes, Unit* to) noexcept {
  bool valid = true, partial = false;
  for (std::size_t at = 0; at < bytes.size();) {
    if (const std::size_t ascii = ascii_prefix(bytes, at); ascii != 0) {
      to = std::copy_n(bytes.data() + at, ascii, to);
      at += ascii;
      continue;
    }
    const std::uint32_t code = decode_one(bytes, at, valid, partial);
    if constexpr (sizeof(Unit) > 1) {
      if (code >= 0x10000) {
        *to++ = static_cast<Unit>(0xD7C0 + (code >> 10));
        *to++ = static_cast<Unit>(0xDC00 | (code & 0x3FF));
        continue;
      }
    }
    *to++ = static_cast<Unit>(code);
  }
}

}  // namespace

std::optional<Encoding> encoding_of(std::string_view name) noexcept {
  constexpr std::string_view names[] = {"utf8", "utf16le", "latin1", "ascii", "base64", "base64url", "hex"};
  for (std::size_t index = 0; index < std::size(names); ++index) {
    if (names[index] == name) return static_cast<Encoding>(index);
  }
  return std::nullopt;
}

std::size_t utf8_bytes(const Characters& characters) noexcept {
  std::size_t bytes = 0;
  if (characters.narrow != nullptr) {
    bytes = characters.count;
    for (std::size_t at = 0; at < characters.count; ++at) bytes += characters.narrow[at] >> 7;
    return bytes;
  }
  for (std::size_t at = 0; at < characters.count;) bytes += utf8_bytes_of(next_code_point(characters, at));
  return bytes;
}

std::size_t encoded_bytes_max(const Characters& characters, Encoding encoding) noexcept {
  switch (encoding) {
    case Encoding::utf8:
      return utf8_bytes(characters);
    case Encoding::utf16le:
      return characters.count * 2;
    case Encoding::latin1:
    case Encoding::ascii:
      return characters.count;
    case Encoding::base64:
    case Encoding::base64url:
      return characters.count / 4 * 3 + 3;
    case Encoding::hex:
      return characters.count / 2;
  }
  return 0;
}

std::size_t encode(const Characters& characters, Encoding encoding, std::span<std::uint8_t> to) noexcept {
  switch (encoding) {
    case Encoding::utf8:
      return encode_utf8(characters, to);
    case Encoding::utf16le: {
      const std::size_t count = std::min(characters.count, to.size() / 2);
      for (std::size_t at = 0; at < count; ++at) {
        to[2 * at] = static_cast<std::uint8_t>(characters.at(at));
        to[2 * at + 1] = static_cast<std::uint8_t>(characters.at(at) >> 8);
      }
      return count * 2;
    }
    case Encoding::latin1:
    case Encoding::ascii: {
      const std::size_t count = std::min(characters.count, to.size());
      if (characters.narrow != nullptr && count != 0) {
        std::memcpy(to.data(), characters.narrow, count);
      } else {
        for (std::size_t at = 0; at < count; ++at) to[at] = static_cast<std::uint8_t>(characters.at(at));
      }
      return count;
    }
    case Encoding::base64:
    case Encoding::base64url:
      return encode_base64(characters, to);
    case Encoding::hex:
      return encode_hex(characters, to);
  }
  return 0;
}

Utf8Facts inspect_utf8(std::span<const std::uint8_t> bytes) noexcept {
  Utf8Facts facts;
  for (std::size_t at = 0; at < bytes.size();) {
    if (const std::size_t ascii = ascii_prefix(bytes, at); ascii != 0) {
      facts.units += ascii;
      at += ascii;
      continue;
    }
    const std::size_t begin = at;
    bool partial = false;
    const std::uint32_t code = decode_one(bytes, at, facts.valid, partial);
    if (partial) facts.partial = bytes.size() - begin;
    facts.units += code >= 0x10000 ? 2 : 1;
    if (code > 0xFF) facts.narrow = false;
  }
  return facts;
}

void decode_utf8(std::span<const std::uint8_t> bytes, char16_t* to) noexcept { decode_into(bytes, to); }
void decode_utf8(std::span<const std::uint8_t> bytes, std::uint8_t* to) noexcept { decode_into(bytes, to); }

std::size_t digits_of(std::size_t bytes, Encoding encoding) noexcept {
  if (encoding == Encoding::hex) return bytes * 2;
  if (encoding == Encoding::base64) return (bytes + 2) / 3 * 4;
  return bytes / 3 * 4 + (bytes % 3 == 0 ? 0 : bytes % 3 + 1);
}

void write_digits(std::span<const std::uint8_t> bytes, Encoding encoding, std::uint8_t* to) noexcept {
  if (encoding == Encoding::hex) {
    for (const std::uint8_t byte : bytes) {
      *to++ = static_cast<std::uint8_t>(hex_digits[byte >> 4]);
      *to++ = static_cast<std::uint8_t>(hex_digits[byte & 15]);
    }
    return;
  }
  const std::string_view digits = encoding == Encoding::base64 ? standard_digits : url_digits;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t bits = static_cast<std::uint32_t>(bytes[at]) << 16;
    if (count > 1) bits |= static_cast<std::uint32_t>(bytes[at + 1]) << 8;
    if (count > 2) bits |= bytes[at + 2];
    for (std::size_t digit = 0; digit <= count; ++digit) *to++ = static_cast<std::uint8_t>(digits[(bits >> (18 - 6 * digit)) & 63]);
    if (encoding == Encoding::base64) {
      for (std::size_t pad = count; pad < 3; ++pad) *to++ = '=';
    }
  }
}

}  // namespace neap::webserver
