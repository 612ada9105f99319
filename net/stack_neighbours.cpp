// SPDX-License-Identifier: BSL-1.0
// Publishes the first core's neighbours (ARP entries) to the other cores.
//
// ARP has no ports, so the card delivers all ARP packets to the first core. Publishing an entry to another core wakes that core, and any
// machine of the network may send ARP at any rate. So an entry is published only if it is new, has changed, or was last published at least
// two minutes ago; the rate is limited too. A core without the entry sends its own ARP request; the answer is then published to it.
#include <cstring>
#include <new>

#include "kernel/events.hpp"
#include "lwip/etharp.h"
#include "lwip/prot/ethernet.h"
#include "net/lwip/lwip_hooks.h"
#include "net/stack.hpp"

namespace neap::net {

namespace {

/// An entry is published again after this time, well before the other cores' copies expire (after 300 s, lwIP's ARP_MAXAGE).
constexpr std::uint64_t renewal_ms = 120'000;
/// Limits how often ARP wakes an idle core.
constexpr unsigned published_a_second_max = 64;

}  // namespace

bool Stack::should_publish(std::uint32_t address, const MacAddress& mac) noexcept {
  const auto now = static_cast<std::uint64_t>(BootClock::now().time_since_epoch() / std::chrono::milliseconds(1));
  PublishedNeighbour& known = published_neighbours_[(address * 0x9E3779B1U) >> 24];
  if (known.address == address && known.mac == mac && now - known.at_ms < renewal_ms) return false;
  if (now / 1000 != publishing_second_) {
    publishing_second_ = now / 1000;
    published_in_second_ = 0;
  }
  if (published_in_second_ == published_a_second_max) return false;
  ++published_in_second_;
  known = {.address = address, .mac = mac, .at_ms = now};
  return true;
}

void Stack::note_asked(const pbuf& arp) noexcept {
  constexpr std::size_t target = SIZEOF_ETH_HDR + 24;
  if (primary() || arp.len < target + 4) return;
  std::uint32_t address;
  std::memcpy(&address, static_cast<const std::byte*>(arp.payload) + target, sizeof address);
  asked_neighbours_[asked_count_++ % asked_neighbours_.size()].store(address, std::memory_order_relaxed);
}

bool Stack::take_asked(std::uint32_t address) noexcept {
  for (auto& asked : asked_neighbours_) {
    std::uint32_t expected = address;
    if (asked.load(std::memory_order_relaxed) == address && asked.compare_exchange_strong(expected, 0, std::memory_order_relaxed))
      return true;
  }
  return false;
}

void Stack::neighbour_learned(std::uint32_t address, const MacAddress& mac, bool for_us, bool from_us) noexcept {
  arp_dirty_ = true;
  want_checks();
  if (from_us && std::memcmp(mac.data(), netif_.hwaddr, mac.size()) != 0) counters_.address_conflicts.add();
  if (!primary() || !for_us || from_us || group_.cores == 1) return;
  const bool publish = should_publish(address, mac);
  for (unsigned core = group_.first + 1; core < group_.first + group_.cores; ++core) {
    Stack* const other = group_.stack(core);
    if (!publish && (other == nullptr || !other->take_asked(address))) {
      counters_.neighbours_withheld.add();
      continue;
    }
    try {
      const Result<void> spawned = spawn_on(core, [address, mac] {
        Stack* const stack = Stack::here();
        if (stack == nullptr) return;
        eth_addr neighbour;
        std::memcpy(neighbour.addr, mac.data(), mac.size());
        const ip4_addr_t ip{.addr = address};
        etharp_learn(&stack->netif_, &ip, &neighbour, 1);
        stack->arp_dirty_ = true;
        stack->want_checks();
      });
      if (spawned.has_value()) {
        counters_.neighbours_published.add();
      } else {
        counters_.pass_on_refused.add();  // that core later repeats its ARP request
      }
    } catch (const std::bad_alloc&) {
      counters_.dropped_memory.add();
    }
  }
}

}  // namespace neap::net

extern "C" void neap_lwip_neighbour_learned(const ip4_addr_t* address, const eth_addr* mac, u8_t for_us, u8_t from_us) {
  neap::MacAddress copy;
  std::memcpy(copy.data(), mac->addr, copy.size());
  neap::net::Stack::here()->neighbour_learned(address->addr, copy, for_us != 0, from_us != 0);
}

extern "C" void neap_lwip_neighbour_recycled(void) { neap::net::Stack::here()->counters().neighbours_recycled.add(); }
extern "C" void neap_lwip_neighbour_refused(void) { neap::net::Stack::here()->counters().neighbours_refused.add(); }
extern "C" void neap_lwip_unresolved_dropped(void) { neap::net::Stack::here()->counters().unresolved_dropped.add(); }
