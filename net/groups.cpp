// SPDX-License-Identifier: BSL-1.0
#include "net/groups.hpp"

#include <algorithm>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "lwip/igmp.h"
#include "lwip/ip.h"
#include "net/lwip/lwip_hooks.h"
#include "net/stack.hpp"

namespace neap::net {

namespace {

constexpr Ipv4Address all_systems{0xE0000001};
constexpr unsigned word_bits = 64;

bool is_multicast(std::uint32_t address) noexcept { return address >> 28 == 0xE; }

/// RFC 1112, 6.4: 01-00-5E, then the low 23 bits of the group's address.
MacAddress mac_of(std::uint32_t group) noexcept {
  return {0x01,
          0x00,
          0x5E,
          static_cast<std::uint8_t>(group >> 16 & 0x7F),
          static_cast<std::uint8_t>(group >> 8),
          static_cast<std::uint8_t>(group)};
}

ip4_addr_t to_lwip(Ipv4Address address) noexcept { return {.addr = lwip_htonl(address.value)}; }

}  // namespace

bool Groups::can_be_joined(Ipv4Address group) noexcept { return is_multicast(group.value) && group != all_systems; }

const Groups::Group* Groups::find(Ipv4Address group) const noexcept {
  const unsigned places = places_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < places; ++i) {
    if (groups_[i].address.load(std::memory_order_acquire) == group.value) return &groups_[i];
  }
  return nullptr;
}

machine::CoreSet Groups::cores_of(Ipv4Address group) const noexcept {
  machine::CoreSet cores;
  const Group* const found = find(group);
  for (unsigned i = 0; found != nullptr && i < found->cores.size(); ++i) {
    cores |= machine::CoreSet(found->cores[i].load(std::memory_order_relaxed)) << i * word_bits;
  }
  return cores;
}

bool Groups::wants(Ipv4Address group, unsigned core) const noexcept {
  const Group* const found = find(group);
  return found != nullptr && (found->cores[core / word_bits].load(std::memory_order_relaxed) >> core % word_bits & 1) != 0;
}

Result<bool> Groups::add(Ipv4Address group, unsigned core) noexcept {
  require(core < machine::cores_max, "a group's member is a core of the machine", core);
  if (wants(group, core)) return failure(ErrorCode::invalid, "this core has joined the group already", group.value);
  auto* place = const_cast<Group*>(find(group));
  const bool first = place == nullptr;
  if (first) {
    place = std::ranges::find_if(groups_, [](const Group& one) { return one.address.load(std::memory_order_relaxed) == 0; });
    if (place == groups_.end()) return failure(ErrorCode::full, "the machine is in as many groups as it can", groups_max);
  }
  place->cores[core / word_bits].fetch_or(std::uint64_t{1} << core % word_bits, std::memory_order_relaxed);
  if (first) {
    place->address.store(group.value, std::memory_order_release);
    const auto places = static_cast<unsigned>(place - groups_.begin()) + 1;
    if (places > places_.load(std::memory_order_relaxed)) places_.store(places, std::memory_order_release);
  }
  return first;
}

Result<bool> Groups::remove(Ipv4Address group, unsigned core) noexcept {
  require(core < machine::cores_max, "a group's member is a core of the machine", core);
  if (!wants(group, core)) return failure(ErrorCode::invalid, "this core has not joined the group", group.value);
  auto* const place = const_cast<Group*>(find(group));
  place->cores[core / word_bits].fetch_and(~(std::uint64_t{1} << core % word_bits), std::memory_order_relaxed);
  if (cores_of(group).any()) return false;
  place->address.store(0, std::memory_order_release);
  return true;
}

void Groups::put_addresses(std::vector<MacAddress>& addresses) const {
  for (const Group& group : groups_) {
    if (const std::uint32_t address = group.address.load(std::memory_order_relaxed); address != 0) addresses.push_back(mac_of(address));
  }
  if (!addresses.empty()) addresses.push_back(mac_of(all_systems.value));
  std::ranges::sort(addresses);
  const auto repeated = std::ranges::unique(addresses);
  addresses.erase(repeated.begin(), repeated.end());
}

void put_filter_addresses(const StackGroup& group, const ipv6::Engine& engine, std::vector<MacAddress>& addresses) {
  addresses.reserve(Groups::groups_max + ipv6::Listener::groups_max + 2);
  group.groups.put_addresses(addresses);
  if (group.ipv6_setting.mode != Ipv6Setting::Mode::off) engine.listener().put_addresses(addresses);
}

// --- Use by the stacks -------------------------------------------------------------------------------------------------------------------
Result<void> Stack::join(Ipv4Address group, unsigned core) noexcept {
  require(primary() && this_core() == core_, "groups change on the first core", this_core());
  const auto first = group_.groups.add(group, core);
  if (!first) return std::unexpected(first.error());
  if (!*first) return {};
  const ip4_addr_t address = to_lwip(group);
  if (igmp_joingroup_netif(&netif_, &address) != ERR_OK) {
    static_cast<void>(group_.groups.remove(group, core));
    return failure(ErrorCode::out_of_memory, "no memory for a multicast group", group.value);
  }
  groups_dirty_ = true;
  want_checks();
  return {};
}

Result<void> Stack::leave(Ipv4Address group, unsigned core) noexcept {
  require(primary() && this_core() == core_, "groups change on the first core", this_core());
  const auto last = group_.groups.remove(group, core);
  if (!last) return std::unexpected(last.error());
  if (!*last) return {};
  const ip4_addr_t address = to_lwip(group);
  static_cast<void>(igmp_leavegroup_netif(&netif_, &address));
  groups_dirty_ = true;
  want_checks();
  return {};
}

bool Stack::reports_wait() noexcept {
  for (const igmp_group* group = netif_igmp_data(&netif_); group != nullptr; group = group->next) {
    if (group->timer > 0) return true;
  }
  return false;
}

bool Stack::wants_group(std::uint32_t group) const noexcept { return group_.groups.wants({group}, core_); }

bool Stack::sort_multicast(ReceiveBuffer* frame, std::size_t bytes, std::uint32_t destination, ReceiveInfo info) noexcept {
  const machine::CoreSet cores = group_.groups.cores_of({destination});
  for (unsigned core = group_.first; core < group_.first + group_.cores; ++core) {
    if (core != core_ && cores[core]) pass_on(core, copy_to_heap(frame, bytes), info);
  }
  if (cores[core_]) return true;
  if (cores.none()) counters_.dropped_protocol.add();
  release_chain(frame);
  return false;
}

}  // namespace neap::net

extern "C" int neap_lwip_wants_group(const ip4_addr_t* group) {
  return neap::net::Stack::here()->wants_group(lwip_ntohl(group->addr)) ? 1 : 0;
}
