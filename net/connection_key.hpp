// SPDX-License-Identifier: BSL-1.0
// The addresses and ports of a connection, for either version of IP.
//
// The short paths know the version of a segment, and use `SegmentAddresses` or `SegmentAddresses6` as they are in the frame. All other code
// (listeners, cookies, resets, ports of new connections) is the same for both versions, and uses this type. Internal to net/.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <variant>

#include "net/address.hpp"
#include "net/arrived_segment.hpp"
#include "net/tcp/connection_table.hpp"

namespace neap::net {

using tcp::SegmentAddresses6;

/// As in a segment; `source_of` sent it.
using ConnectionKey = std::variant<SegmentAddresses, SegmentAddresses6>;

[[nodiscard]] inline bool is_ipv6(const ConnectionKey& key) noexcept { return std::holds_alternative<SegmentAddresses6>(key); }
[[nodiscard]] inline ConnectionKey reversed(const ConnectionKey& key) noexcept {
  return std::visit([](const auto& own) -> ConnectionKey { return own.reversed(); }, key);
}
[[nodiscard]] inline std::uint32_t ports_of(const ConnectionKey& key) noexcept {
  return std::visit([](const auto& own) { return own.ports; }, key);
}

[[nodiscard]] inline Address source_address(const SegmentAddresses& key) noexcept {
  return Ipv4Address{std::byteswap(static_cast<std::uint32_t>(key.addresses))};
}
[[nodiscard]] inline Address source_address(const SegmentAddresses6& key) noexcept {
  return {std::byteswap(key.addresses[0]), std::byteswap(key.addresses[1])};
}
template <class Key>
[[nodiscard]] Endpoint source_of(const Key& key) noexcept {
  return {.address = source_address(key), .port = std::byteswap(static_cast<std::uint16_t>(key.ports))};
}
[[nodiscard]] inline Endpoint source_of(const ConnectionKey& key) noexcept {
  return std::visit([](const auto& own) { return source_of(own); }, key);
}
[[nodiscard]] inline Endpoint destination_of(const ConnectionKey& key) noexcept { return source_of(reversed(key)); }

/// The key of segments from `from` to `to`, whose addresses MUST be of the same version.
[[nodiscard]] inline ConnectionKey key_of(const Endpoint& from, const Endpoint& to) noexcept {
  const std::uint32_t ports = std::uint32_t{std::byteswap(to.port)} << 16 | std::byteswap(from.port);
  if (from.address.is_v4()) {
    return SegmentAddresses{.addresses = std::uint64_t{std::byteswap(to.address.v4().value)} << 32 | std::byteswap(from.address.v4().value),
                            .ports = ports};
  }
  return SegmentAddresses6{.addresses = {std::byteswap(from.address.high()), std::byteswap(from.address.low()),
                                         std::byteswap(to.address.high()), std::byteswap(to.address.low())},
                           .ports = ports};
}

}  // namespace neap::net
