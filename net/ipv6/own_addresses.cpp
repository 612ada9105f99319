// SPDX-License-Identifier: BSL-1.0
#include "net/ipv6/own_addresses.hpp"

#include <algorithm>
#include <tuple>

namespace neap::net::ipv6 {

// --- For all cores -----------------------------------------------------------------------------------------------------------------------
bool PublishedAddresses::contains(const Address& address) const noexcept {
  return std::ranges::any_of(entries_, [&](const Published<Entry>& one) {
    const Entry entry = one.load();
    return entry.bits != 0 && entry.address == address;
  });
}

std::optional<Address> PublishedAddresses::source_for(const Address& destination, std::uint64_t now_ms) const noexcept {
  std::optional<Entry> best;
  // A higher rank is better. RFC 6724's rules 4, 5 and 7 are about mobility, several interfaces and temporary addresses.
  const auto rank = [&](const Entry& entry) {
    const unsigned scope = entry.address.scope(), wanted = destination.scope();
    return std::tuple(entry.address == destination,                                                   // rule 1
                      scope >= wanted ? 32 - static_cast<int>(scope) : static_cast<int>(scope) - 32,  // rule 2
                      now_ms < entry.preferred_ms,                                                    // rule 3
                      entry.address.is_unique_local() == destination.is_unique_local(),               // rule 6, with two labels
                      std::min<std::uint64_t>(entry.address.common_bits(destination), entry.bits));   // rule 8
  };
  for (const Published<Entry>& one : entries_) {
    const Entry entry = one.load();
    if (entry.bits != 0 && (!best || rank(entry) > rank(*best))) best = entry;
  }
  if (!best || best->address.scope() < std::min(destination.scope(), 14U)) return std::nullopt;
  return best->address;
}

// --- The list ----------------------------------------------------------------------------------------------------------------------------
OwnAddresses::Entry* OwnAddresses::find(const Address& address) noexcept {
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.value.bits != 0 && entry.value.address == address; });
  return found == entries_.end() ? nullptr : &*found;
}

void OwnAddresses::publish(const Entry& entry) noexcept {
  published_.entries_[static_cast<std::size_t>(&entry - entries_.data())].store(entry.tentative ? PublishedAddresses::Entry{}
                                                                                                : entry.value);
}

unsigned OwnAddresses::count() const noexcept {
  return static_cast<unsigned>(std::ranges::count_if(entries_, [](const Entry& entry) { return entry.value.bits != 0; }));
}

bool OwnAddresses::add(const Address& address, unsigned bits, std::uint64_t preferred_ms, std::uint64_t valid_ms, bool delay) noexcept {
  if (find(address) != nullptr) return false;
  const auto place = std::ranges::find_if(entries_, [](const Entry& entry) { return entry.value.bits == 0; });
  if (place == entries_.end()) {
    counters_.refused.add();
    return false;
  }
  const std::uint64_t now = link_.now_ms();
  *place = {.value = {.address = address, .bits = bits, .preferred_ms = preferred_ms, .valid_ms = valid_ms},
            .tentative = true,
            .due_ms = now + (delay ? link_.random_bits() % (start_delay_max_ms + 1) : 0)};
  // RFC 4862, 5.4.2: the machine listens to the group first.
  user_.use_group(address.solicited_node(), true);
  run_timers();
  return true;
}

bool OwnAddresses::renew(const Address& address, std::uint64_t preferred_ms, std::uint64_t valid_ms) noexcept {
  Entry* const entry = find(address);
  if (entry == nullptr) return false;
  entry->value.preferred_ms = preferred_ms;
  entry->value.valid_ms = valid_ms;
  publish(*entry);
  return true;
}

void OwnAddresses::remove(Entry& entry, bool duplicate) noexcept {
  const Address address = entry.value.address;
  const bool was_usable = !entry.tentative;
  entry = {};
  publish(entry);
  user_.use_group(address.solicited_node(), false);
  user_.removed(address, was_usable, duplicate);
}

bool OwnAddresses::note_duplicate(const Address& address) noexcept {
  Entry* const entry = find(address);
  if (entry == nullptr || !entry->tentative) return false;
  counters_.duplicates.add();
  remove(*entry, true);
  return true;
}

void OwnAddresses::remove_all() noexcept {
  for (Entry& entry : entries_) {
    if (entry.value.bits != 0) remove(entry, false);
  }
}

void OwnAddresses::run_timers() noexcept {
  const std::uint64_t now = link_.now_ms();
  for (Entry& entry : entries_) {
    if (entry.value.bits == 0) continue;
    if (now >= entry.value.valid_ms) {
      counters_.expired.add();
      remove(entry, false);
    } else if (entry.tentative && now >= entry.due_ms) {
      if (entry.sent < probes) {
        ++entry.sent;
        entry.due_ms = now + probe_ms;
        user_.probe(entry.value.address);
        continue;
      }
      entry.tentative = false;
      entry.due_ms = never;
      publish(entry);
      user_.confirmed(entry.value.address);
    }
  }
}

std::uint64_t OwnAddresses::due_ms() const noexcept {
  std::uint64_t due = never;
  for (const Entry& entry : entries_) {
    if (entry.value.bits != 0) due = std::min({due, entry.due_ms, entry.value.valid_ms});
  }
  return due;
}

bool OwnAddresses::is_tentative(const Address& address) const noexcept {
  return std::ranges::any_of(
      entries_, [&](const Entry& entry) { return entry.value.bits != 0 && entry.tentative && entry.value.address == address; });
}

std::optional<std::uint64_t> OwnAddresses::valid_until_ms(const Address& address) const noexcept {
  const Entry* const entry = const_cast<OwnAddresses*>(this)->find(address);
  return entry == nullptr ? std::nullopt : std::optional(entry->value.valid_ms);
}

}  // namespace neap::net::ipv6
