// SPDX-License-Identifier: BSL-1.0
#include <optional>
#include <string>
#include <string_view>

#include "kernel/numbers.hpp"
#include "net/ipv6/packet.hpp"
#include "net/network.hpp"

namespace neap::net {

namespace {

constexpr std::string_view form = "not dhcp, not off and not A.B.C.D/LEN[,GATEWAY]";

}  // namespace

namespace {

/// The part of an address setting in front of a comma, and the gateway behind it.
struct Parts {
  std::string_view address, bits;
  std::optional<std::string_view> gateway;
};
Parts parts_of(std::string_view text) {
  Parts parts;
  if (const std::size_t comma = text.find(','); comma != std::string_view::npos) {
    parts.gateway = text.substr(comma + 1);
    text = text.substr(0, comma);
  }
  const std::size_t slash = text.find('/');
  parts.address = text.substr(0, slash);
  if (slash != std::string_view::npos) parts.bits = text.substr(slash + 1);
  return parts;
}

Ipv6Setting ipv6_setting(Arguments& arguments) {
  const std::string text = arguments.text("ip6", "auto", "IPv6 addresses of the machine: auto, off, or ADDRESS/LEN[,GATEWAY]");
  Ipv6Setting setting{.mode = Ipv6Setting::Mode::automatic};
  if (text == "auto") return setting;
  if (text == "off") return {};
  setting.mode = Ipv6Setting::Mode::fixed;
  const Parts parts = parts_of(text);
  const auto address = Address::parse(parts.address);
  const auto bits = parse_digits(parts.bits, 128);
  const auto gateway = Address::parse(parts.gateway.value_or("::"));
  if (!address || !bits || !gateway || address->is_v4() || gateway->is_v4()) {
    arguments.reject("ip6", "not auto, not off and not ADDRESS/LEN[,GATEWAY] with IPv6 addresses");
    return setting;
  }
  const auto of_machine = [](const Address& one) { return !one.is_multicast() && !one.is_loopback(); };
  if (*bits == 0 || address->is_unspecified() || !of_machine(*address) || !of_machine(*gateway)) {
    arguments.reject("ip6", "not an address that a machine can have (length 1 to 128, no ::, ::1 or multicast address)");
    return setting;
  }
  setting.address = *address;
  setting.prefix_bits = static_cast<unsigned>(*bits);
  setting.gateway = *gateway;
  if (!gateway->is_unspecified() && !gateway->is_link_local() && !gateway->is_in(*address, setting.prefix_bits)) {
    arguments.reject("ip6", "the gateway is not in the address's network");
  }
  return setting;
}

}  // namespace

std::uint32_t AddressSetting::frame_bytes_max() const noexcept { return mtu + std::uint32_t{ipv6::ethernet_bytes}; }

AddressSetting AddressSetting::from(Arguments& arguments) {
  const std::string text = arguments.text("ip", "dhcp", "IPv4 address of the machine: dhcp, off, or A.B.C.D/LEN[,GATEWAY]");
  AddressSetting setting;
  setting.ipv6 = ipv6_setting(arguments);
  setting.mtu = static_cast<std::uint16_t>(
      arguments.number("mtu", mtu_usual, {.min = mtu_least, .max = mtu_most}, "largest IP packet in bytes; above 1500: jumbo frames"));
  if (setting.mtu < ipv6::mtu_min && setting.ipv6.mode != Ipv6Setting::Mode::off) {
    if (arguments.has("ip6")) arguments.reject("mtu", "IPv6 needs 1280 or more, or ip6=off");
    setting.ipv6 = {};
  }
  if (text == "dhcp") return setting;
  setting.dhcp = false;
  if (text == "off") {
    setting.ipv4 = false;
    if (setting.ipv6.mode == Ipv6Setting::Mode::off) {
      arguments.reject("ip", setting.mtu < ipv6::mtu_min ? "off, and IPv6 needs an mtu of 1280 or more" : "off, and ip6 is off too");
    }
    return setting;
  }
  const Parts parts = parts_of(text);
  const auto address = Ipv4Address::parse(parts.address);
  const auto bits = parse_digits(parts.bits, 32);
  const auto gateway = Ipv4Address::parse(parts.gateway.value_or("0.0.0.0"));
  if (!address || !bits || !gateway) {
    arguments.reject("ip", form);
    return setting;
  }
  setting.gateway = *gateway;
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
