// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/text_protocol_meta_line.hpp"

#include "apps/memcached/base64.hpp"
#include "apps/memcached/numbers.hpp"
#include "apps/memcached/text_protocol_answers.hpp"

namespace neap::memcached::text {

MetaLine::MetaLine(std::string_view text) noexcept {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  for (const char* at = begin; at < end;) {
    if (*at == ' ') {
      ++at;
      continue;
    }
    const char* const word = at;
    for (;;) {  // any other control character is part of the word
      at = detail::find_break(begin, at, end);
      if (at == end || *at == ' ') break;
      ++at;
    }
    if (count < words_max) words[count] = {word, static_cast<std::size_t>(at - word)};
    ++count;
  }
}

/// After some errors the further flags are still read, and the last error is answered, as by memcached.
std::string_view MetaFlags::read(const MetaLine& line, std::size_t first, const Context& context) noexcept {
  constexpr std::string_view duplicate = "CLIENT_ERROR duplicate flag\r\n", unknown = "CLIENT_ERROR invalid flag\r\n";
  constexpr std::string_view flags = "bcfhklOqstuvENRTCFIMJDxPL";
  key = line.words[1];
  std::string_view error;
  std::uint64_t seen = 0;  // bits for the letters from 'A' on
  for (std::size_t at = first; at < line.count; ++at) {
    const std::string_view flag = line.words[at];
    const auto letter = static_cast<unsigned char>(flag.front());
    if (letter >= 127) return duplicate;
    if (letter < 'A' || letter > 'z' || flags.find(flag.front()) == std::string_view::npos) return unknown;
    const std::uint64_t bit = std::uint64_t{1} << (letter - 'A');
    if ((seen & bit) != 0) return duplicate;
    seen |= bit;
    const std::string_view wrong = read_flag(flag, context);
    if (!wrong.empty() && (letter != 'F' || error.empty())) error = wrong;  // wrong client flags do not replace another error
  }
  return error;
}

std::string_view MetaFlags::read_flag(std::string_view flag, const Context& context) noexcept {
  constexpr std::string_view bad_token = "CLIENT_ERROR bad token in command line format\r\n";
  const std::string_view token = flag.substr(1);
  switch (flag.front()) {
    case 'b': {
      const std::size_t bytes = base64::decode(key, decoded_key_);
      key = {decoded_key_, bytes};
      binary_key = true;
      return bytes == 0 ? "CLIENT_ERROR error decoding key\r\n" : std::string_view{};
    }
    case 'v':
      value = true;
      return {};
    case 'q':
      quiet = true;
      return {};
    case 'u':
      leaves_use = true;
      return {};
    case 'I':
      invalidates = true;
      return {};
    case 'x':
      drops_value = true;
      return {};
    case 'O':
      opaque_too_long = flag.size() > opaque_bytes_max;
      return {};
    case 'N':
    case 'T':
    case 'R': {
      const auto seconds = read_expiry(token, context);
      if (!seconds) return bad_token;
      if (flag.front() == 'R') {
        recache_below = *seconds;
      } else {
        (flag.front() == 'N' ? vivify : expires) = seconds;
        vivified_expires = *seconds;
      }
      return {};
    }
    case 'C':
      return (expected_cas = read_unsigned(token)) ? std::string_view{} : bad_token;
    case 'E':
      return (own_cas = read_unsigned(token)) ? std::string_view{} : bad_token;
    case 'F': {
      const auto number = read_unsigned(token);
      client_flags = static_cast<std::uint32_t>(number.value_or(0));
      return number ? std::string_view{} : error_format;
    }
    case 'M':
      mode = token.size() == 1 ? token.front() : '\0';
      return token.size() == 1 ? std::string_view{} : "CLIENT_ERROR incorrect length for M token\r\n";
    case 'J': {
      const auto number = read_unsigned(token);
      initial = number.value_or(0);
      return number ? std::string_view{} : "CLIENT_ERROR invalid numeric initial value\r\n";
    }
    case 'D': {
      const auto number = read_unsigned(token);
      delta = number.value_or(0);
      return number ? std::string_view{} : "CLIENT_ERROR invalid numeric delta value\r\n";
    }
    default:  // the flag only asks for a field of the answer, or has no effect
      return {};
  }
}

}  // namespace neap::memcached::text
