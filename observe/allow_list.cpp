// SPDX-License-Identifier: BSL-1.0
#include "observe/allow_list.hpp"

#include <algorithm>
#include <bit>

#include "kernel/numbers.hpp"

namespace neap::observe {
namespace {

constexpr std::size_t networks_max = 64;
constexpr const char* form = "not any and not a list of A.B.C.D or A.B.C.D/LEN, separated by commas";

constexpr std::uint32_t mask_of(unsigned bits) { return bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits); }

/// Returns the mask that the default allow list applies to the machine's network.
constexpr std::uint32_t strict_mask(net::Ipv4Address netmask) {
  const std::uint32_t hosts = ~netmask.value;
  const bool has_gaps = (hosts & (hosts + 1)) != 0;
  return has_gaps || std::popcount(netmask.value) < 16 ? mask_of(24) : netmask.value;
}

std::string text_of(std::uint32_t address, std::uint32_t mask) {
  return net::Ipv4Address{address}.to_string() + '/' + std::to_string(std::popcount(mask));
}

}  // namespace

std::expected<AllowList, const char*> AllowList::parse(std::string_view text) {
  AllowList list;
  if (text == "any") {
    list.networks_.push_back({.address = 0, .mask = 0});
    return list;
  }
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t slash = item.find('/');
    const auto address = net::Ipv4Address::parse(item.substr(0, slash));
    const auto bits = slash == std::string_view::npos ? std::uint64_t{32} : parse_digits(item.substr(slash + 1), 32);
    if (!address || !bits) return std::unexpected(form);
    const std::uint32_t mask = mask_of(static_cast<unsigned>(*bits));
    if ((address->value & ~mask) != 0)
      return std::unexpected("a network's address has bits beyond its length (10.1.0.0/16, not 10.1.2.3/16)");
    if (list.networks_.size() == networks_max) return std::unexpected("too many networks (64 at most)");
    list.networks_.push_back({.address = address->value, .mask = mask});
    if (comma == std::string_view::npos) return list;
    text.remove_prefix(comma + 1);
  }
}

bool AllowList::allows(net::Ipv4Address peer, net::Ipv4Address own, net::Ipv4Address netmask) const noexcept {
  if (networks_.empty()) return own.value != 0 && ((peer.value ^ own.value) & strict_mask(netmask)) == 0;
  return std::any_of(networks_.begin(), networks_.end(),
                     [&](const Network& network) { return (peer.value & network.mask) == network.address; });
}

bool AllowList::narrowed(net::Ipv4Address netmask) const noexcept { return networks_.empty() && strict_mask(netmask) != netmask.value; }

std::string AllowList::to_string(net::Ipv4Address own, net::Ipv4Address netmask) const {
  if (networks_.empty()) return text_of(own.value & strict_mask(netmask), strict_mask(netmask));
  std::string text;
  for (const Network& network : networks_) {
    if (!text.empty()) text += ',';
    text += network.mask == 0 ? "any" : text_of(network.address, network.mask);
  }
  return text;
}

}  // namespace neap::observe
