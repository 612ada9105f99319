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

constexpr std::uint16_t ephemeral_ports_first = 49152;  // RFC 6335

/// The cores that are asked in turn whether they have a connection: `cores` cores from `core` on; after the group's last core, the first.
struct OwnerSearch {
  unsigned core = 0, cores = 0;
};

/// An application has one such object, with `first` 0. A test may have two machines in one process.
struct StackGroup {
  NetDevice& device;
  unsigned first = 0, cores = 0;
  Ipv6Setting ipv6_setting{};
  std::uint16_t mtu = AddressSetting::mtu_usual;
  std::unique_ptr<ipv6::Shared> ipv6_shared{};
  /// `receiving_core` names no core.
  bool device_decides = device.receiving_core(0, 0, 0, 0) == NetDevice::device_decides;
  std::atomic<std::uint32_t> address{0};          ///< host byte order; 0: no address
  std::atomic<std::uint32_t> netmask{0};          ///< host byte order
  std::unique_ptr<std::atomic<Stack*>[]> stacks;  ///< index: core - first
  Groups groups;

  /// If the device decides which core receives a flow, the local port names the core of each connection that this machine began. So a core
  /// that receives a segment of such a connection can pass it on. Returns `core` for other ports, because a connection that a peer began
  /// belongs to the core that received the SYN: no port says which.
  [[nodiscard]] unsigned core_of_port(std::uint16_t local_port, unsigned core) const noexcept {
    return local_port >= ephemeral_ports_first ? first + local_port % cores : core;
  }
  /// Of a device that decides: the cores that may have a connection with this local port. `core` begins if all of them may.
  [[nodiscard]] OwnerSearch owners_of_port(std::uint16_t local_port, unsigned core) const noexcept {
    return {.core = core_of_port(local_port, core), .cores = local_port >= ephemeral_ports_first ? 1 : cores};
  }
  /// `search` without its first core.
  [[nodiscard]] OwnerSearch after(OwnerSearch search) const noexcept {
    return {.core = search.core + 1 == first + cores ? first : search.core + 1, .cores = search.cores - 1};
  }

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
