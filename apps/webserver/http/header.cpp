// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/http/header.hpp"

#include <algorithm>

#include "llhttp.h"

namespace neap::webserver::http {

namespace {
constexpr bool is_alphanumeric(unsigned letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z');
}

consteval std::array<std::uint8_t, 256> make_characters() {
  constexpr std::string_view token_marks = "!#$%&'*+-.^_`|~";  // RFC 9110, 5.6.2
  constexpr std::string_view host_marks = "-._~%!$&'()*+;=";   // RFC 3986, 3.2.2; a comma would be a list of hosts
  std::array<std::uint8_t, 256> table{};
  for (unsigned letter = 0; letter < table.size(); ++letter) {
    const char mark = static_cast<char>(letter);
    std::uint8_t bits = 0;
    if (is_alphanumeric(letter) || token_marks.find(mark) != std::string_view::npos) bits |= detail::token;
    if (letter == '\t' || (letter >= ' ' && letter != 0x7F)) bits |= detail::value;
    if (letter > ' ' && letter < 0x7F && letter != '#') bits |= detail::target;
    if (is_alphanumeric(letter) || host_marks.find(mark) != std::string_view::npos) bits |= detail::host;
    if (letter >= '0' && letter <= '9') bits |= detail::digit;
    table[letter] = bits;
  }
  return table;
}

constexpr char lower(char letter) noexcept { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + ('a' - 'A')) : letter; }
}  // namespace

constinit const std::array<std::uint8_t, 256> detail::characters = make_characters();

std::string_view method_name(Method method) noexcept {
  switch (static_cast<int>(method)) {
#define NEAP_METHOD(number, name, text) \
  case number:                          \
    return #text;
    HTTP_ALL_METHOD_MAP(NEAP_METHOD)
#undef NEAP_METHOD
    default:
      return "";
  }
}

bool equal_ignoring_case(std::string_view one, std::string_view other) noexcept {
  return one.size() == other.size() &&
         std::equal(one.begin(), one.end(), other.begin(), [](char left, char right) { return lower(left) == lower(right); });
}

const HeaderField* find_field(const HeaderField* first, const HeaderField* last, std::string_view name) noexcept {
  const HeaderField* const found =
      std::find_if(first, last, [&](const HeaderField& field) { return equal_ignoring_case(field.name, name); });
  return found == last ? nullptr : found;
}

}  // namespace neap::webserver::http
