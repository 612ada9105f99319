// SPDX-License-Identifier: BSL-1.0
// Multicast groups: which of the machine's cores want what is sent to one.
//
// To the network all cores are one machine, which is in a group or not; and RSS brings a group's datagrams to some core, not to the one
// that joined. So there is one table for all stacks of a device. The first core changes it, speaks IGMP (RFC 2236) for all and tells the
// card; any core looks up who gets a datagram that came to it. A look that meets a change sees one of the two states, or a group too many,
// which the stack that gets the datagram then drops. Internal to net/.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "kernel/error.hpp"
#include "kernel/machine.hpp"
#include "kernel/net_device.hpp"
#include "net/network.hpp"

namespace neap::net {

class Groups {
 public:
  static constexpr unsigned groups_max = 256;

  /// An address that can be joined: 224.0.0.0/4 without 224.0.0.1, in which every machine is (RFC 1112).
  [[nodiscard]] static bool can_be_joined(Ipv4Address group) noexcept;

  // Any core.
  [[nodiscard]] machine::CoreSet cores_of(Ipv4Address group) const noexcept;
  [[nodiscard]] bool wants(Ipv4Address group, unsigned core) const noexcept;

  // The first core alone. True: the machine joins, or leaves, by this. Errors: `invalid` (it has, it has not), `full`.
  [[nodiscard]] Result<bool> add(Ipv4Address group, unsigned core) noexcept;
  [[nodiscard]] Result<bool> remove(Ipv4Address group, unsigned core) noexcept;
  /// What the card has to take in: all groups' addresses, each once, and that of queries if there is any (RFC 1112, 6.4). No more than
  /// `groups_max` + 1.
  void put_addresses(std::vector<MacAddress>& addresses) const;

 private:
  using Cores = std::array<std::atomic<std::uint64_t>, machine::cores_max / 64>;
  struct Group {
    std::atomic<std::uint32_t> address{0};  // 0: the place is free
    Cores cores{};
  };
  [[nodiscard]] const Group* find(Ipv4Address group) const noexcept;

  std::array<Group, groups_max> groups_{};
  std::atomic<unsigned> places_{0};  // none beyond has ever been used
};

}  // namespace neap::net
