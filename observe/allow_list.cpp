// SPDX-License-Identifier: BSL-1.0
#include "observe/allow_list.hpp"

#include <algorithm>
#include <bit>

#include "kernel/numbers.hpp"

namespace neap::observe {
namespace {

constexpr std::size_t networks_max = 64;
constexpr const char* form = "not any and not a list of ADDRESS or ADDRESS/LEN (IPv4 or IPv6), separated by commas";

constexpr std::uint32_t mask_of(unsigned bits) { return bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits); }

/// Returns the mask that the default allow list applies to the machine's network.
constexpr std::uint32_t strict_mask(net::Ipv4Address netmask) {
  const std::uint32_t hosts = ~netmask.value;
  const bool has_gaps = (hosts & (hosts + 1)) != 0;
  return has_gaps || std::popcount(netmask.value) < 16 ? mask_of(24) : netmask.value;
}

constexpr unsigned v4_offset_bits = 96;  // of an IPv4 address in `net::Address`

std::string text_of(const net::Address& address, unsigned bits) {
  return address.to_string() + '/' + std::to_string(address.is_v4() ? bits - v4_offset_bits : bits);
}

}  // namespace

std::expected<AllowList, const char*> AllowList::parse(std::string_view text) {
  AllowList list;
  if (text == "any") {
    list.networks_.push_back({.address = {}, .bits = 0});
    return list;
  }
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t slash = item.find('/');
    const auto address = net::Address::parse(item.substr(0, slash));
    if (!address) return std::unexpected(form);
    const unsigned offset = address->is_v4() ? v4_offset_bits : 0;
    const auto bits = slash == std::string_view::npos ? std::uint64_t{128} - offset : parse_digits(item.substr(slash + 1), 128 - offset);
    if (!bits) return std::unexpected(form);
    const unsigned all_bits = offset + static_cast<unsigned>(*bits);
    if (address->network(all_bits) != *address)
      return std::unexpected("a network's address has bits beyond its length (10.1.0.0/16, not 10.1.2.3/16)");
    if (list.networks_.size() == networks_max) return std::unexpected("too many networks (64 at most)");
    list.networks_.push_back({.address = *address, .bits = all_bits});
    if (comma == std::string_view::npos) return list;
    text.remove_prefix(comma + 1);
  }
}

bool AllowList::allows(const net::Address& peer, net::Ipv4Address own, net::Ipv4Address netmask) const noexcept {
  if (networks_.empty()) {
    if (!peer.is_v4()) return peer.is_link_local();
    return own.value != 0 && ((peer.v4().value ^ own.value) & strict_mask(netmask)) == 0;
  }
  return std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) { return peer.is_in(network.address, network.bits); });
}

bool AllowList::narrowed(net::Ipv4Address netmask) const noexcept { return networks_.empty() && strict_mask(netmask) != netmask.value; }

std::string AllowList::to_string(net::Ipv4Address own, net::Ipv4Address netmask) const {
  if (networks_.empty()) {
    const std::uint32_t mask = strict_mask(netmask);
    return text_of(net::Ipv4Address{own.value & mask}, v4_offset_bits + static_cast<unsigned>(std::popcount(mask)));
  }
  std::string text;
  for (const Network& network : networks_) {
    if (!text.empty()) text += ',';
    text += network.bits == 0 ? "any" : text_of(network.address, network.bits);
  }
  return text;
}

}  // namespace neap::observe
