// SPDX-License-Identifier: BSL-1.0
// Multicast groups: the cores that joined each group.
//
// To the network, all cores are one machine, which either is a member of a group or is not. RSS may deliver a group's datagrams to a core
// that has not joined. So all stacks of a device share one table. The first core changes the table, sends and receives IGMP (RFC 2236) for
// all cores and sets the card's filter. Any core looks up the members of a group when it receives a datagram. A lookup during a change
// returns the old members, the new members, or one core too many. A core that has not joined drops the datagram. Internal to net/.
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

  /// True for 224.0.0.0/4, except for 224.0.0.1, of which every machine is a member (RFC 1112).
  [[nodiscard]] static bool can_be_joined(Ipv4Address group) noexcept;

  // MAY be called on any core.
  [[nodiscard]] machine::CoreSet cores_of(Ipv4Address group) const noexcept;
  [[nodiscard]] bool wants(Ipv4Address group, unsigned core) const noexcept;

  // MUST be called on the first core. The result is true if `core` is the first of the machine's cores to join the group, or the last one
  // to leave it. Errors: `invalid` (already joined, not joined), `full`.
  [[nodiscard]] Result<bool> add(Ipv4Address group, unsigned core) noexcept;
  [[nodiscard]] Result<bool> remove(Ipv4Address group, unsigned core) noexcept;
  /// Appends the MAC addresses that the card has to receive: the address of each group and, if there is a group, the address to which
  /// queries are sent (RFC 1112, 6.4). These are at most `groups_max` + 1.
  void put_addresses(std::vector<MacAddress>& addresses) const;

 private:
  using Cores = std::array<std::atomic<std::uint64_t>, machine::cores_max / 64>;
  struct Group {
    std::atomic<std::uint32_t> address{0};  // 0: unused
    Cores cores{};
  };
  [[nodiscard]] const Group* find(Ipv4Address group) const noexcept;

  std::array<Group, groups_max> groups_{};
  std::atomic<unsigned> places_{0};  // elements of `groups_` from this index on were never used
};

}  // namespace neap::net
