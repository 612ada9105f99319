// SPDX-License-Identifier: BSL-1.0
// The values that the stacks of one device share.
//
// The stacks run on `cores` cores from core `first` on, and act as one machine. Core `first` handles DHCP, ARP and reassembly for all these
// cores. Internal to net/.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/net_device.hpp"
#include "kernel/panic.hpp"
#include "net/groups.hpp"
#include "net/ipv6/engine.hpp"
#include "net/network.hpp"

namespace neap::net {

class Stack;

/// An application has one such object, with `first` 0. A test may have two machines in one process.
struct StackGroup {
  NetDevice& device;
  unsigned first = 0, cores = 0;
  Ipv6Setting ipv6_setting{};
  std::uint16_t mtu = AddressSetting::mtu_usual;
  std::unique_ptr<ipv6::Shared> ipv6_shared{};
  std::atomic<std::uint32_t> address{0};          ///< host byte order; 0: no address
  std::atomic<std::uint32_t> netmask{0};          ///< host byte order
  std::unique_ptr<std::atomic<Stack*>[]> stacks;  ///< index: core - first
  Groups groups;

  [[nodiscard]] Stack* stack(unsigned core) const noexcept {
    require(core - first < cores, "a core of the group", core);
    return stacks[core - first].load(std::memory_order_acquire);
  }
};

/// Appends the MAC addresses of all groups that the card has to receive.
void put_filter_addresses(const StackGroup& group, const ipv6::Engine& engine, std::vector<MacAddress>& addresses);

struct Addresses {
  Ipv4Address address, netmask, gateway;
  friend bool operator==(const Addresses&, const Addresses&) = default;
};

}  // namespace neap::net
