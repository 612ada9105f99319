// SPDX-License-Identifier: BSL-1.0
#include <optional>
#include <string_view>

#include "kernel/numbers.hpp"
#include "net/network.hpp"

namespace neap::net {

namespace {

constexpr std::string_view form = "not dhcp and not A.B.C.D/LEN[,GATEWAY]";

}  // namespace

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

std::optional<Endpoint> Endpoint::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto address = Ipv4Address::parse(text.substr(0, colon));
  const auto port = parse_digits(text.substr(colon + 1), 65535);
  if (!address || !port || address->value == 0 || *port == 0) return std::nullopt;
  return Endpoint{.address = *address, .port = static_cast<std::uint16_t>(*port)};
}

std::string Ipv4Address::to_string() const {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) {
    text += std::to_string(value >> shift & 0xFF);
    if (shift > 0) text += '.';
  }
  return text;
}

AddressSetting AddressSetting::from(Arguments& arguments) {
  const std::string text = arguments.text("ip", "dhcp", "address of the machine: dhcp, or A.B.C.D/LEN[,GATEWAY]");
  AddressSetting setting;
  if (text == "dhcp") return setting;
  setting.dhcp = false;

  std::string_view rest = text;
  const std::size_t comma = rest.find(',');
  if (comma != std::string_view::npos) {
    const auto gateway = Ipv4Address::parse(rest.substr(comma + 1));
    if (!gateway) {
      arguments.reject("ip", form);
      return setting;
    }
    setting.gateway = *gateway;
    rest = rest.substr(0, comma);
  }
  const std::size_t slash = rest.find('/');
  const auto address = Ipv4Address::parse(rest.substr(0, slash));
  const auto bits = slash == std::string_view::npos ? std::nullopt : parse_digits(rest.substr(slash + 1), 32);
  if (!address || !bits) {
    arguments.reject("ip", form);
    return setting;
  }
  if (*bits < 1 || *bits > 30 || address->value >> 28 >= 0xE || address->value >> 24 == 0 || address->value >> 24 == 127) {
    arguments.reject("ip", "not an address that a machine can have (length 1 to 30, no 0, 127, multicast or broadcast address)");
    return setting;
  }
  setting.address = *address;
  setting.netmask = {~std::uint32_t{0} << (32 - *bits)};
  if (setting.gateway.value != 0 && ((setting.gateway.value ^ address->value) & setting.netmask.value) != 0) {
    arguments.reject("ip", "the gateway is not in the address's network");
  }
  return setting;
}

}  // namespace neap::net
