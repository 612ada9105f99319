// SPDX-License-Identifier: BSL-1.0
#include "net/ipv6/routes.hpp"

#include <algorithm>

namespace neap::net::ipv6 {

namespace {

/// Finds the entry for which `same` holds, otherwise one that has expired.
template <typename List, typename Same>
auto find_or_expired(List& list, std::uint64_t now_ms, Same same) noexcept {
  const auto found = std::ranges::find_if(list, [&](const auto& entry) { return entry.until_ms > now_ms && same(entry); });
  if (found != list.end()) return found;
  return std::ranges::find_if(list, [&](const auto& entry) { return entry.until_ms <= now_ms; });
}

}  // namespace

bool Routes::set_prefix(const Address& prefix, unsigned bits, std::uint64_t until_ms, std::uint64_t now_ms) noexcept {
  const auto entry = find_or_expired(prefixes_, now_ms, [&](const Prefix& one) { return one.address == prefix && one.bits == bits; });
  if (entry == prefixes_.end()) return until_ms <= now_ms;
  *entry = {.address = prefix, .bits = bits, .until_ms = until_ms};
  return true;
}

bool Routes::set_router(const Address& router, int preference, std::uint64_t until_ms, std::uint64_t now_ms) noexcept {
  const auto entry = find_or_expired(routers_, now_ms, [&](const Router& one) { return one.address == router; });
  if (entry == routers_.end()) return until_ms <= now_ms;
  const bool known = entry->until_ms > now_ms;
  *entry = {.address = router, .until_ms = until_ms, .preference = preference, .unreachable = known ? entry->unreachable : 0};
  return true;
}

void Routes::set_reachable(const Address& router, bool reachable) noexcept {
  for (Router& entry : routers_) {
    if (entry.address == router) entry.unreachable = reachable ? 0 : 1;
  }
}

bool Routes::has_router(const Address& router, std::uint64_t now_ms) const noexcept {
  return std::ranges::any_of(routers_, [&](const Router& entry) { return entry.until_ms > now_ms && entry.address == router; });
}

bool Routes::on_link(const Address& destination, std::uint64_t now_ms) const noexcept {
  if (destination.is_link_local()) return true;
  return std::ranges::any_of(prefixes_, [&](const Prefix& entry) {
    return entry.until_ms > now_ms && destination.is_in(entry.address, static_cast<unsigned>(entry.bits));
  });
}

std::optional<Address> Routes::default_router(std::uint64_t now_ms) const noexcept {
  const Router* best = nullptr;
  const auto rank = [](const Router& router) { return router.preference - (router.unreachable != 0 ? 10 : 0); };
  for (const Router& entry : routers_) {
    if (entry.until_ms > now_ms && (best == nullptr || rank(entry) > rank(*best))) best = &entry;
  }
  return best == nullptr ? std::nullopt : std::optional(best->address);
}

std::optional<Address> Routes::next_hop(const Address& destination, std::uint64_t now_ms) const noexcept {
  if (on_link(destination, now_ms)) return destination;
  return default_router(now_ms);
}

unsigned Routes::prefixes(std::uint64_t now_ms) const noexcept {
  return static_cast<unsigned>(std::ranges::count_if(prefixes_, [&](const Prefix& entry) { return entry.until_ms > now_ms; }));
}

unsigned Routes::routers(std::uint64_t now_ms) const noexcept {
  return static_cast<unsigned>(std::ranges::count_if(routers_, [&](const Router& entry) { return entry.until_ms > now_ms; }));
}

}  // namespace neap::net::ipv6
