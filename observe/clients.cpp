// SPDX-License-Identifier: BSL-1.0
#include "observe/clients.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <span>

#include "kernel/events.hpp"
#include "kernel/machine.hpp"

namespace neap::observe {

Clients::Present Clients::present() noexcept {
  Present present;
  for (Place& place : places_) {
    if (place.client == nullptr || place.leaving) continue;
    present.places[present.count] = &place;
    present.occupants[present.count++] = {.address = place.client->address(),
                                          .id = place.id,
                                          .progress_ns = place.client->progress_ns(),
                                          .activity = place.client->activity(),
                                          .proven = place.proven};
  }
  return present;
}

Clients::Displaced Clients::begin_displacing(Place& place) noexcept {
  place.leaving = true;
  return {.place = &place, .id = place.id, .core = place.client->core()};
}

std::expected<bool, Refusal> Clients::admit(Client& client) {
  Displaced displaced;
  {
    const std::lock_guard lock(lock_);
    const auto free = std::find_if(places_.begin(), places_.end(), [](const Place& place) { return place.client == nullptr; });
    if (free == places_.end()) return std::unexpected(Refusal::full);
    Present others = present();
    const Victim victim = victim_for_newcomer(std::span(others.occupants).first(others.count), client.address());
    if (!victim) return std::unexpected(victim.error());
    if (*victim) displaced = begin_displacing(*others.places[**victim]);
    *free = {.client = &client, .id = ++last_id_};
  }
  if (displaced.place == nullptr) return false;
  if (displace(displaced)) return true;
  leave(client);
  return std::unexpected(Refusal::full);
}

std::expected<bool, Refusal> Clients::prove(Client& client) {
  Displaced displaced;
  {
    const std::lock_guard lock(lock_);
    const auto own =
        std::find_if(places_.begin(), places_.end(), [&](const Place& place) { return place.client == &client && !place.leaving; });
    if (own == places_.end()) return std::unexpected(Refusal::full);  // displaced a moment ago
    Present others = present();
    const Victim victim = victim_for_proven(std::span(others.occupants).first(others.count), machine::now_ns());
    if (!victim) return std::unexpected(victim.error());
    if (*victim) displaced = begin_displacing(*others.places[**victim]);
    own->proven = true;
  }
  if (displaced.place == nullptr) return false;
  if (displace(displaced)) return true;
  const std::lock_guard lock(lock_);
  for (Place& place : places_) {
    if (place.client == &client) place.proven = false;
  }
  return std::unexpected(Refusal::full);
}

bool Clients::displace(const Displaced& displaced) noexcept {
  // At once where that is possible: a flood of newcomers in one event displaces more clients than there are places to remember.
  if (displaced.core == this_core()) {
    end_client(displaced.id);
    return true;
  }
  try {
    if (spawn_on(displaced.core, [this, id = displaced.id] { end_client(id); }).has_value()) return true;
  } catch (const std::bad_alloc&) {
  }
  const std::lock_guard lock(lock_);
  if (displaced.place->id == displaced.id) displaced.place->leaving = false;
  return false;
}

void Clients::end_client(std::uint64_t id) noexcept {
  Client* client = nullptr;
  {
    const std::lock_guard lock(lock_);
    for (const Place& place : places_) {
      if (place.id == id && place.client != nullptr) client = place.client;
    }
  }
  if (client == nullptr) return;
  // A client leaves on its own core alone, so it is still there.
  if (client->displace()) leave(*client);
}

void Clients::leave(Client& client) noexcept {
  const std::lock_guard lock(lock_);
  for (Place& place : places_) {
    if (place.client == &client) place = {};
  }
}

unsigned Clients::count(bool proven) const noexcept {
  const std::lock_guard lock(lock_);
  return static_cast<unsigned>(std::count_if(places_.begin(), places_.end(), [&](const Place& place) {
    return place.client != nullptr && !place.leaving && place.proven == proven;
  }));
}

std::uint64_t Clients::held_bytes() const noexcept {
  const std::lock_guard lock(lock_);
  std::uint64_t bytes = 0;
  for (const Place& place : places_) {
    if (place.client != nullptr) bytes += place.client->held_bytes();
  }
  return bytes;
}

}  // namespace neap::observe
