// SPDX-License-Identifier: BSL-1.0
#include "net/ipv6/neighbours.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/panic.hpp"

namespace neap::net::ipv6 {

namespace {

/// An entry that a packet of this machine has used is kept for this time at least.
constexpr std::uint64_t in_use_ms = 600'000;
constexpr std::uint64_t mac_set = std::uint64_t{1} << 48;  // distinguishes an entry with MAC address 0 from an unused one

std::uint64_t number_of(const MacAddress& mac) noexcept {
  std::uint64_t number = 0;
  for (const std::uint8_t byte : mac) number = number << 8 | byte;
  return number | mac_set;
}
MacAddress mac_of(std::uint64_t number) noexcept {
  MacAddress mac;
  for (std::size_t i = 0; i < mac.size(); ++i) mac[i] = static_cast<std::uint8_t>(number >> (40 - 8 * i));
  return mac;
}

/// A neighbour's MAC address is that of one machine.
bool valid_mac(const MacAddress& mac) noexcept { return (mac[0] & 1) == 0 && mac != MacAddress{}; }

}  // namespace

// --- For all cores -----------------------------------------------------------------------------------------------------------------------
unsigned PublishedNeighbours::set_of(const Address& address) const noexcept {
  std::array<std::byte, 16> bytes;
  address.write(bytes.data());
  return static_cast<unsigned>(siphash(key_, std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size())) % sets);
}

std::optional<PublishedNeighbours::Found> PublishedNeighbours::find(const Address& address, std::uint64_t now_ms) const noexcept {
  const unsigned first = set_of(address) * set_entries;
  for (unsigned i = first; i < first + set_entries; ++i) {
    const Entry entry = entries_[i].load();
    if (entry.mac != 0 && entry.address == address) return Found{.mac = mac_of(entry.mac), .fresh = now_ms < entry.fresh_ms};
  }
  return std::nullopt;
}

// --- Entries -----------------------------------------------------------------------------------------------------------------------------
Neighbours::Neighbours(Link& link, User& user, PublishedNeighbours& published) noexcept : link_(link), user_(user), published_(published) {
  published_.key_ = {.low = link.random_bits(), .high = link.random_bits()};
}

Neighbours::~Neighbours() { clear(); }

void Neighbours::clear() noexcept {
  for (Entry& entry : entries_) {
    if (entry.state != State::unused) release(entry);
  }
  due_ms_ = never;
}

void Neighbours::set_reachable_ms(std::uint32_t base_ms) noexcept {
  // RFC 4861, 6.3.2: a random factor between 0.5 and 1.5.
  reachable_ms_ = static_cast<std::uint32_t>(base_ms / 2 + link_.random_bits() % (std::uint64_t{base_ms} + 1));
}

Neighbours::Entry* Neighbours::find(const Address& address) noexcept {
  const unsigned first = published_.set_of(address) * PublishedNeighbours::set_entries;
  for (unsigned i = first; i < first + PublishedNeighbours::set_entries; ++i) {
    if (entries_[i].state != State::unused && entries_[i].address == address) return &entries_[i];
  }
  if (incomplete_ == 0) return nullptr;
  for (Entry& entry : open_requests()) {
    if (entry.state != State::unused && entry.address == address) return &entry;
  }
  return nullptr;
}

Neighbours::State Neighbours::state_of(const Address& address) const noexcept {
  const Entry* const entry = const_cast<Neighbours*>(this)->find(address);
  if (entry == nullptr) return State::unused;
  return entry->state == State::reachable && link_.now_ms() >= entry->due_ms ? State::stale : entry->state;
}

void Neighbours::publish(const Entry& entry) noexcept {
  const auto number = static_cast<std::size_t>(&entry - entries_.data());
  if (number >= entries_max) return;  // an open request
  PublishedNeighbours::Entry seen;
  if (entry.state != State::unused) {
    seen = {.address = entry.address, .mac = number_of(entry.mac), .fresh_ms = 0};
    if (entry.state == State::reachable) seen.fresh_ms = entry.due_ms;
    if (timed(entry)) seen.fresh_ms = never;  // the check is under way
  }
  published_.entries_[number].store(seen);
}

void Neighbours::set_state(Entry& entry, State state) noexcept {
  if (entry.state == State::unused) ++used_;
  if (entry.state == State::incomplete) --incomplete_;
  if (timed(entry)) --timed_;
  entry.state = state;
  if (state == State::unused) --used_;
  if (state == State::incomplete) ++incomplete_;
  const std::uint64_t now = link_.now_ms();
  switch (state) {
    case State::reachable:
      entry.due_ms = now + reachable_ms_;
      break;
    case State::delay:
      entry.due_ms = now + delay_ms;
      break;
    case State::incomplete:
    case State::probe:
      entry.due_ms = now + retransmit_ms_;
      break;
    default:
      entry.due_ms = never;
      break;
  }
  if (timed(entry)) {
    ++timed_;
    due_ms_ = std::min(due_ms_, entry.due_ms);
  } else if (timed_ == 0) {
    due_ms_ = never;
  }
  publish(entry);
}

void Neighbours::drop_waiting(Entry& entry) noexcept {
  for (Waiting& packet : entry.waiting) {
    if (packet.bytes == nullptr) continue;
    packet.bytes.reset();
    --waiting_;
    counters_.waiting_dropped.add();
  }
}

void Neighbours::release(Entry& entry) noexcept {
  drop_waiting(entry);
  set_state(entry, State::unused);
  entry.router = entry.own_use = false;
  entry.sent = 0;
}

Neighbours::Entry* Neighbours::place_for(const Address& address, bool own_use) noexcept {
  // Of a set's entries, one is replaced that no packet of this machine uses; otherwise, for a packet of this machine, an unchecked one.
  const std::uint64_t now = link_.now_ms();
  const auto rank = [&](const Entry& entry) -> unsigned {
    if (entry.state == State::unused) return 0;
    if (!timed(entry) && (!entry.own_use || now - entry.used_ms > in_use_ms)) return 1;
    if (own_use && !entry.router && entry.state == State::stale) return 2;
    if (own_use && !entry.router && entry.state == State::reachable) return 3;
    return 4;
  };
  Entry* best = nullptr;
  const unsigned first = published_.set_of(address) * PublishedNeighbours::set_entries;
  for (unsigned i = first; i < first + PublishedNeighbours::set_entries; ++i) {
    Entry& entry = entries_[i];
    if (rank(entry) == 4) continue;
    if (best == nullptr || rank(entry) < rank(*best) || (rank(entry) == rank(*best) && entry.used_ms < best->used_ms)) best = &entry;
  }
  if (best == nullptr) {
    counters_.refused.add();
    return nullptr;
  }
  if (best->state != State::unused) {
    counters_.recycled.add();
    release(*best);
  }
  best->address = address;
  best->own_use = own_use;
  best->used_ms = now;
  return best;
}

Neighbours::Entry* Neighbours::make_by_message(const Address& address, const MacAddress& mac) noexcept {
  const auto of_mac = [&] {
    return std::ranges::count_if(
        entries_, [&](const Entry& entry) { return entry.state != State::unused && entry.state != State::incomplete && entry.mac == mac; });
  };
  if (!new_entries_.take(link_.now_ms()) || of_mac() >= entries_of_mac_max) {
    counters_.refused.add();
    return nullptr;
  }
  Entry* const entry = place_for(address, false);
  if (entry != nullptr) entry->mac = mac;
  return entry;
}

Neighbours::Entry* Neighbours::request(const Address& address) noexcept {
  const auto entry = std::ranges::find(open_requests(), State::unused, &Entry::state);
  const std::uint64_t now = link_.now_ms();
  if (entry == open_requests().end() || !new_requests_.take(now)) {
    counters_.refused.add();
    return nullptr;
  }
  entry->address = address;
  entry->own_use = true;
  entry->used_ms = now;
  entry->sent = 1;
  set_state(*entry, State::incomplete);
  counters_.solicitations_sent.add();
  user_.solicit(address, nullptr);
  return &*entry;
}

Neighbours::Entry* Neighbours::answered(Entry& request, const MacAddress& mac) noexcept {
  Entry* const entry = place_for(request.address, true);
  if (entry != nullptr) {
    entry->mac = mac;
    entry->used_ms = request.used_ms;
    entry->waiting = std::exchange(request.waiting, {});
    counters_.learned.add();
  }
  release(request);
  return entry;
}

// --- Use ---------------------------------------------------------------------------------------------------------------------------------
Neighbours::Entry* Neighbours::use(const Address& address) noexcept {
  Entry* const entry = find(address);
  const std::uint64_t now = link_.now_ms();
  if (entry == nullptr) return request(address);
  entry->own_use = true;
  entry->used_ms = now;
  if (entry->state == State::reachable && now >= entry->due_ms) set_state(*entry, State::stale);
  if (entry->state == State::stale) set_state(*entry, State::delay);
  return entry;
}

std::optional<MacAddress> Neighbours::resolve(const Address& address) noexcept {
  const Entry* const entry = use(address);
  if (entry == nullptr || entry->state == State::incomplete) return std::nullopt;
  return entry->mac;
}

std::optional<MacAddress> Neighbours::resolve_or_wait(const Address& address, Octets head, Octets body) noexcept {
  Entry* const entry = use(address);
  if (entry != nullptr && entry->state != State::incomplete) return entry->mac;
  if (entry == nullptr || waiting_ == waiting_max) {
    counters_.waiting_dropped.add();
    return std::nullopt;
  }
  auto* const bytes = new (std::nothrow) std::byte[head.size() + body.size()];
  if (bytes == nullptr) {
    counters_.waiting_dropped.add();
    return std::nullopt;
  }
  std::ranges::copy(body, std::ranges::copy(head, bytes).out);
  Waiting packet{.bytes = std::unique_ptr<std::byte[]>(bytes), .size = static_cast<std::uint32_t>(head.size() + body.size())};
  auto place = std::ranges::find_if(entry->waiting, [](const Waiting& one) { return one.bytes == nullptr; });
  if (place == entry->waiting.end()) {  // the newest packets are kept (RFC 4861, 7.2.2)
    std::ranges::rotate(entry->waiting, entry->waiting.begin() + 1);
    place = entry->waiting.end() - 1;
    counters_.waiting_dropped.add();
  } else {
    ++waiting_;
  }
  *place = std::move(packet);
  return std::nullopt;
}

void Neighbours::give_waiting(Entry& entry) noexcept {
  const MacAddress mac = entry.mac;
  std::array<Waiting, waiting_of_entry_max> packets = std::exchange(entry.waiting, {});
  for (const Waiting& packet : packets) {
    if (packet.bytes == nullptr) continue;
    --waiting_;
    link_.transmit(mac, {packet.bytes.get(), packet.size}, {});
  }
}

void Neighbours::confirm(const Address& address) noexcept {
  Entry* const entry = find(address);
  if (entry == nullptr || entry->state == State::incomplete) return;
  entry->sent = 0;
  set_state(*entry, State::reachable);
}

// --- Messages ----------------------------------------------------------------------------------------------------------------------------
void Neighbours::learn(const Address& address, const MacAddress& mac, bool router) noexcept {
  if (!valid_mac(mac)) return;
  Entry* entry = find(address);
  if (entry == nullptr) {
    entry = make_by_message(address, mac);
    if (entry == nullptr) return;
    counters_.learned.add();
    set_state(*entry, State::stale);
  } else if (entry->state == State::incomplete) {
    entry = answered(*entry, mac);
    if (entry == nullptr) return;
    set_state(*entry, State::stale);
    user_.resolved(address);
    give_waiting(*entry);
    set_state(*entry, State::delay);  // the packets have used the entry
  } else if (entry->mac != mac) {
    entry->mac = mac;
    entry->sent = 0;
    counters_.changed.add();
    set_state(*entry, State::stale);
    user_.resolved(address);
  }
  if (router) entry->router = true;
}

bool Neighbours::advertised(const Address& target, const MacAddress* mac, bool router, bool solicited, bool override) noexcept {
  Entry* entry = find(target);
  if (entry == nullptr) return false;  // an advertisement makes no entry
  if (mac != nullptr && !valid_mac(*mac)) return false;
  if (entry->state == State::incomplete) {
    if (mac == nullptr) return false;
    entry = answered(*entry, *mac);
    if (entry == nullptr) return false;
    entry->router = router;
    set_state(*entry, solicited ? State::reachable : State::stale);
    user_.resolved(target);
    give_waiting(*entry);
    return false;
  }
  const bool differs = mac != nullptr && *mac != entry->mac;
  if (differs && !override) {
    if (entry->state == State::reachable) set_state(*entry, State::stale);
    return false;
  }
  if (differs) {
    entry->mac = *mac;
    counters_.changed.add();
  }
  if (solicited) {
    entry->sent = 0;
    set_state(*entry, State::reachable);
  } else if (differs) {
    set_state(*entry, State::stale);
  }
  if (differs) user_.resolved(target);
  return std::exchange(entry->router, router) && !router;
}

// --- Time --------------------------------------------------------------------------------------------------------------------------------
void Neighbours::give_up(Entry& entry) noexcept {
  counters_.unresolved.add();
  const Address address = entry.address;
  std::array<Waiting, waiting_of_entry_max> packets = std::exchange(entry.waiting, {});
  release(entry);
  bool told = false;
  for (const Waiting& packet : packets) {
    if (packet.bytes == nullptr) continue;
    --waiting_;
    counters_.waiting_dropped.add();
    user_.unreachable(address, {packet.bytes.get(), packet.size});
    told = true;
  }
  if (!told) user_.unreachable(address, {});
}

void Neighbours::run_timers() noexcept {
  const std::uint64_t now = link_.now_ms();
  if (now < due_ms_) return;
  for (Entry& entry : entries_) {
    if (!timed(entry) || now < entry.due_ms) continue;
    if (entry.state == State::delay) {
      entry.sent = 0;
      set_state(entry, State::probe);
    } else if (entry.sent >= solicitations_max) {
      give_up(entry);
      continue;
    }
    ++entry.sent;
    entry.due_ms = now + retransmit_ms_;
    counters_.solicitations_sent.add();
    user_.solicit(entry.address, entry.state == State::probe ? &entry.mac : nullptr);
  }
  due_ms_ = never;
  for (const Entry& entry : entries_) {
    if (timed(entry)) due_ms_ = std::min(due_ms_, entry.due_ms);
  }
}

}  // namespace neap::net::ipv6
