// SPDX-License-Identifier: BSL-1.0
#include "net/address.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernel/numbers.hpp"

namespace neap::net {

std::optional<Ipv4Address> Ipv4Address::parse(std::string_view text) {
  std::uint32_t value = 0;
  for (int part = 0; part < 4; ++part) {
    const std::size_t dot = text.find('.');
    if ((dot == std::string_view::npos) != (part == 3)) return std::nullopt;
    const auto byte = parse_digits(text.substr(0, dot), 255);
    if (!byte) return std::nullopt;
    value = value << 8 | static_cast<std::uint32_t>(*byte);
    if (part < 3) text.remove_prefix(dot + 1);
  }
  return Ipv4Address{value};
}

namespace {

/// Parses the groups of an IPv6 address that stand on one side of "::". Returns their number; nothing if the text is no list of groups. An
/// empty text has no group. `last`: a dotted IPv4 address may be the end, and counts as two groups.
std::optional<unsigned> parse_groups(std::string_view text, bool last, std::span<std::uint16_t, 8> groups) {
  unsigned count = 0;
  while (!text.empty() || count > 0) {
    const std::size_t colon = text.find(':');
    const std::string_view group = text.substr(0, colon);
    if (last && colon == std::string_view::npos && group.contains('.')) {
      const auto v4 = Ipv4Address::parse(group);
      if (!v4 || count > 6) return std::nullopt;
      groups[count++] = static_cast<std::uint16_t>(v4->value >> 16);
      groups[count++] = static_cast<std::uint16_t>(v4->value);
      return count;
    }
    std::string_view rest = group;
    const auto value = take_digits(rest, 16);
    if (!value || !rest.empty() || group.size() > 4 || count == 8) return std::nullopt;
    groups[count++] = static_cast<std::uint16_t>(*value);
    if (colon == std::string_view::npos) return count;
    text.remove_prefix(colon + 1);
    if (text.empty()) return std::nullopt;
  }
  return 0;
}

}  // namespace

std::optional<Address> Address::parse(std::string_view text) {
  if (!text.contains(':')) {
    const auto v4 = Ipv4Address::parse(text);
    return v4 ? std::optional<Address>(*v4) : std::nullopt;
  }
  std::array<std::uint16_t, 8> front{}, back{};
  const std::size_t gap = text.find("::");
  const auto front_count = parse_groups(text.substr(0, gap), gap == std::string_view::npos, front);
  if (!front_count) return std::nullopt;
  if (gap == std::string_view::npos) {
    if (*front_count != 8) return std::nullopt;
  } else {
    const auto back_count = parse_groups(text.substr(gap + 2), true, back);
    if (!back_count || *front_count + *back_count > 7) return std::nullopt;
    for (unsigned i = 0; i < *back_count; ++i) front[8 - *back_count + i] = back[i];
  }
  Address address;
  for (unsigned i = 0; i < 4; ++i) address.high_ = address.high_ << 16 | front[i];
  for (unsigned i = 4; i < 8; ++i) address.low_ = address.low_ << 16 | front[i];
  return address;
}

std::string_view Address::put_text(std::span<char, text_bytes_max> text) const noexcept {
  char* out = text.data();
  char* const end = out + text.size();
  if (is_v4()) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      out = std::to_chars(out, end, low_ >> shift & 0xFF).ptr;
      if (shift > 0) *out++ = '.';
    }
    return {text.data(), out};
  }
  const auto group = [this](unsigned i) { return static_cast<unsigned>((i < 4 ? high_ : low_) >> (48 - 16 * (i % 4)) & 0xFFFF); };
  // RFC 5952, 4.2: "::" replaces the longest run of at least two zero groups, the first one of equal runs.
  unsigned gap = 8, gap_groups = 1;
  for (unsigned i = 0; i < 8; ++i) {
    unsigned zeros = 0;
    while (i + zeros < 8 && group(i + zeros) == 0) ++zeros;
    if (zeros > gap_groups) gap = i, gap_groups = zeros;
  }
  for (unsigned i = 0; i < 8; ++i) {
    if (i == gap) {
      *out++ = ':';
      *out++ = ':';
      i += gap_groups - 1;
      continue;
    }
    if (i > 0 && out[-1] != ':') *out++ = ':';
    out = std::to_chars(out, end, group(i), 16).ptr;
  }
  return {text.data(), out};
}

std::string Address::to_string() const {
  std::array<char, text_bytes_max> text;
  return std::string(put_text(text));
}

std::optional<Endpoint> Endpoint::parse(std::string_view text) {
  const bool brackets = text.starts_with('[');
  const std::size_t colon = brackets ? text.find("]:") : text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto address = Address::parse(brackets ? text.substr(1, colon - 1) : text.substr(0, colon));
  const auto port = parse_digits(text.substr(colon + (brackets ? 2 : 1)), 65535);
  if (!address || !port || address->is_v4() == brackets || address->is_unspecified() || *port == 0) return std::nullopt;
  return Endpoint{.address = *address, .port = static_cast<std::uint16_t>(*port)};
}

std::string Endpoint::to_string() const {
  const std::string text = address.to_string();
  return (address.is_v4() ? text : '[' + text + ']') + ':' + std::to_string(port);
}

std::string Ipv4Address::to_string() const { return Address(*this).to_string(); }

}  // namespace neap::net
