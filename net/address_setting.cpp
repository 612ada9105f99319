// SPDX-License-Identifier: BSL-1.0
#include <optional>
#include <string>
#include <string_view>

#include "kernel/numbers.hpp"
#include "net/network.hpp"

namespace neap::net {

namespace {

constexpr std::string_view form = "not dhcp and not A.B.C.D/LEN[,GATEWAY]";

}  // namespace

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
