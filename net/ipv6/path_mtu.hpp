// SPDX-License-Identifier: BSL-1.0
// The path MTU of destinations (RFC 8201).
//
// A packet too big message of a router tells the MTU of a path. Such a message can be forged, so its sender's claim is checked before it
// comes here (icmp.cpp), the table is fixed, and an entry ends after ten minutes. A newcomer with the same place in the table replaces an
// entry; then the destination's next large packet brings the message again. Any core reads the table; the first core writes it. Internal
// to net/.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "kernel/siphash.hpp"
#include "net/ipv6/packet.hpp"
#include "net/ipv6/published.hpp"

namespace neap::net::ipv6 {

class PathMtus {
 public:
  static constexpr unsigned entries_max = 256;
  static constexpr std::uint64_t age_ms = 600'000;  ///< RFC 8201, 4

  /// `interface_mtu`: the largest packet that the interface sends and receives, at least `mtu_min` bytes.
  PathMtus(SipKey key, std::uint16_t interface_mtu) noexcept : key_(key), interface_mtu_(interface_mtu), link_mtu_(interface_mtu) {}
  /// Returns the MTU of the path to `destination`, at most that of the link, in bytes. MAY be called on any core.
  [[nodiscard]] std::uint16_t of(const Address& destination, std::uint64_t now_ms) const noexcept {
    const Entry entry = entries_[place_of(destination)].load();
    const std::uint16_t of_link = link_mtu();
    const bool known = entry.mtu != 0 && entry.destination == destination && now_ms < entry.until_ms;
    return known && entry.mtu < of_link ? static_cast<std::uint16_t>(entry.mtu) : of_link;
  }
  /// A router reported `mtu`. Values below the minimum count as the minimum (RFC 8201, 4). Returns true if the path's MTU became smaller.
  bool reduce(const Address& destination, std::uint32_t mtu, std::uint64_t now_ms) noexcept {
    const auto bounded = static_cast<std::uint16_t>(mtu < mtu_min ? mtu_min : mtu > link_mtu() ? link_mtu() : mtu);
    if (bounded >= of(destination, now_ms)) return false;
    entries_[place_of(destination)].store({.destination = destination, .mtu = bounded, .until_ms = now_ms + age_ms});
    return true;
  }
  /// A router announced `mtu` for the link (RFC 4861, 4.6.4). Values that the link or the interface cannot have are ignored.
  void set_link_mtu(std::uint32_t mtu) noexcept {
    if (mtu >= mtu_min && mtu <= interface_mtu_) link_mtu_.store(static_cast<std::uint16_t>(mtu), std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint16_t link_mtu() const noexcept { return link_mtu_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    Address destination{};
    std::uint64_t mtu = 0;
    std::uint64_t until_ms = 0;
  };
  [[nodiscard]] unsigned place_of(const Address& destination) const noexcept {
    std::array<std::byte, 16> bytes;
    destination.write(bytes.data());
    return static_cast<unsigned>(siphash(key_, std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size())) % entries_max);
  }

  const SipKey key_;
  const std::uint16_t interface_mtu_;
  std::atomic<std::uint16_t> link_mtu_;
  std::array<Published<Entry>, entries_max> entries_;
};

}  // namespace neap::net::ipv6
