// SPDX-License-Identifier: BSL-1.0
#include "observe/admission.hpp"

#include <algorithm>

namespace neap::observe {
namespace {

unsigned unproven_of(std::span<const Occupant> occupants, const net::Address& address) noexcept {
  return static_cast<unsigned>(
      std::count_if(occupants.begin(), occupants.end(), [&](const Occupant& one) { return !one.proven && one.address == address; }));
}

/// Returns the occupant with the lowest rank, if any. `rank` returns no value for an occupant that must not be displaced.
template <typename Rank>
std::optional<std::size_t> lowest_ranked(std::span<const Occupant> occupants, Rank rank) noexcept {
  std::optional<std::size_t> found;
  decltype(rank(occupants[0])) best;
  for (std::size_t i = 0; i < occupants.size(); ++i) {
    const auto own = rank(occupants[i]);
    if (!own || (found && !(*own < *best))) continue;
    found = i;
    best = own;
  }
  return found;
}

struct Rank {
  unsigned kind;  ///< the lowest kind is displaced first
  std::uint64_t then;
  friend auto operator<=>(const Rank&, const Rank&) = default;
};

}  // namespace

Victim victim_for_newcomer(std::span<const Occupant> occupants, const net::Address& address, std::uint64_t now_ns) noexcept {
  const auto had_its_time = [now_ns](const Occupant& one) {
    return one.answered || now_ns - std::min(now_ns, one.arrived_ns) >= protected_ns;
  };
  // The delay for a wrong token limits how fast an address can guess, so another connection of that address must not end the delay.
  if (unproven_of(occupants, address) >= unproven_per_address_max) {
    const auto victim = lowest_ranked(occupants, [&](const Occupant& one) -> std::optional<Rank> {
      if (one.proven || one.address != address || one.activity == Activity::delayed) return std::nullopt;
      return Rank{one.activity == Activity::closing ? 0U : had_its_time(one) ? 1U : 2U, one.id};
    });
    if (!victim) return std::unexpected(Refusal::delayed);
    return victim;
  }
  const auto unproven = std::count_if(occupants.begin(), occupants.end(), [](const Occupant& one) { return !one.proven; });
  if (unproven < static_cast<std::ptrdiff_t>(unproven_max)) return std::nullopt;
  return lowest_ranked(occupants, [&](const Occupant& one) -> std::optional<Rank> {
    if (one.proven) return std::nullopt;
    if (one.activity == Activity::closing) return Rank{0, one.id};
    const unsigned fewer = unproven_per_address_max - std::min(unproven_of(occupants, one.address), unproven_per_address_max);
    return Rank{(had_its_time(one) ? 1 : 2 + unproven_per_address_max) + fewer, one.id};
  });
}

Victim victim_for_proven(std::span<const Occupant> occupants, std::uint64_t now_ns) noexcept {
  const auto proven = std::count_if(occupants.begin(), occupants.end(), [](const Occupant& one) { return one.proven; });
  if (proven < static_cast<std::ptrdiff_t>(clients_max)) return std::nullopt;
  const auto victim = lowest_ranked(occupants, [&](const Occupant& one) -> std::optional<Rank> {
    if (!one.proven) return std::nullopt;
    if (one.activity == Activity::closing) return Rank{0, one.progress_ns};
    if (one.activity == Activity::idle) return Rank{1, one.progress_ns};
    if (now_ns - std::min(now_ns, one.progress_ns) < stalled_ns) return std::nullopt;
    return Rank{2, one.progress_ns};
  });
  if (!victim) return std::unexpected(Refusal::full);
  return victim;
}

}  // namespace neap::observe
