// SPDX-License-Identifier: BSL-1.0
// The vocabulary of HTTP heads: methods, fields, and the characters that they may have.
//
// A field name or value with a line break would let an application's input forge fields or whole responses (response splitting). So names,
// values and reason phrases of responses are checked by tables, 1 to 3 instructions a byte, before they are written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace neap::webserver::http {

/// One field line. In a request, the views refer to the exchange's own copy of the head: the name's case is kept, and the value has no
/// white space at its ends.
struct HeaderField {
  std::string_view name;
  std::string_view value;
};

/// The request methods that llhttp knows, with llhttp's numbers. Any other method is refused with status 501.
enum class Method : std::uint8_t {
  delete_,
  get,
  head,
  post,
  put,
  connect,
  options,
  trace,
  patch = 28,
};
/// Returns "GET" and so on, for any method of a request.
[[nodiscard]] std::string_view method_name(Method method) noexcept;

namespace detail {
// Bits of `characters`.
inline constexpr std::uint8_t token = 1, value = 2, target = 4, host = 8, digit = 16;  // `host`: of a registered name or an IPv4 address
extern const std::array<std::uint8_t, 256> characters;
[[nodiscard]] inline bool all_have(std::string_view text, std::uint8_t bit) noexcept {
  std::uint8_t common = bit;
  for (const char letter : text) common &= characters[static_cast<unsigned char>(letter)];
  return common != 0;
}
}  // namespace detail

/// True if `letter` may be in a token (RFC 9110, 5.6.2).
[[nodiscard]] inline bool is_token_character(char letter) noexcept {
  return (detail::characters[static_cast<unsigned char>(letter)] & detail::token) != 0;
}
/// True if `name` is a field name: a token, not empty (RFC 9110, 5.1).
[[nodiscard]] inline bool valid_header_name(std::string_view name) noexcept {
  return !name.empty() && detail::all_have(name, detail::token);
}
/// True if `value` may be a field value: tab, and any byte from 0x20 on except DEL (RFC 9110, 5.5; as Node's check, which calls the bytes
/// from 0x80 on Latin-1).
[[nodiscard]] inline bool valid_header_value(std::string_view value) noexcept { return detail::all_have(value, detail::value); }
/// True if `reason` may be a reason phrase (RFC 9112, 4). It may be empty.
[[nodiscard]] inline bool valid_reason(std::string_view reason) noexcept { return detail::all_have(reason, detail::value); }
/// True if both names are equal, without regard to the case of ASCII letters.
[[nodiscard]] bool equal_ignoring_case(std::string_view one, std::string_view other) noexcept;
/// As above, for a name that is a token and `lower`, a token of lower-case letters and hyphens. A few instructions.
template <std::size_t bytes_and_end>
[[nodiscard, gnu::always_inline]] inline bool is_name(std::string_view name, const char (&lower)[bytes_and_end]) noexcept {
  constexpr std::size_t bytes = bytes_and_end - 1;
  if (name.size() != bytes) return false;
  const auto equal = [&]<class Word>(Word, std::size_t at) {
    Word is, should_be;
    std::memcpy(&is, name.data() + at, sizeof(Word));
    std::memcpy(&should_be, lower + at, sizeof(Word));
    return static_cast<Word>(is | static_cast<Word>(0x2020'2020'2020'2020)) ==
           should_be;  // no other character of a token becomes one of `lower`
  };
  if constexpr (bytes >= 8) {
    for (std::size_t at = 0; at + 8 < bytes; at += 8) {
      if (!equal(std::uint64_t{}, at)) return false;
    }
    return equal(std::uint64_t{}, bytes - 8);
  } else {
    static_assert(bytes >= 4);
    return equal(std::uint32_t{}, 0) && equal(std::uint32_t{}, bytes - 4);
  }
}
/// Returns the value of the first field with this name, or null. `name` may have any case.
[[nodiscard]] const HeaderField* find_field(const HeaderField* first, const HeaderField* last, std::string_view name) noexcept;

}  // namespace neap::webserver::http
