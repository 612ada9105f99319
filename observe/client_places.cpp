// SPDX-License-Identifier: BSL-1.0
#include "observe/client_places.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <span>

#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap::observe {

ClientPlaces::Present ClientPlaces::present() noexcept {
  Present present;
  for (Place& place : places_) {
    if (place.client == nullptr || place.leaving) continue;
    present.places[present.count] = &place;
    present.occupants[present.count++] = {.address = place.client->address(),
                                          .id = place.id,
                                          .arrived_ns = place.arrived_ns,
                                          .progress_ns = place.client->progress_ns(),
                                          .activity = place.client->activity(),
                                          .answered = place.client->answered(),
                                          .proven = place.proven};
  }
  return present;
}

ClientPlaces::Displaced ClientPlaces::begin_displacing(Place& place) noexcept {
  require(place.client != nullptr && !place.leaving, "a client is displaced once", place.id);
  place.leaving = true;
  return {.place = &place, .id = place.id, .core = place.client->core()};
}

std::expected<bool, Refusal> ClientPlaces::admit(Client& client) {
  require(this_core() == client.core(), "a client is admitted on its own core", client.core());
  Displaced displaced;
  {
    const std::lock_guard lock(lock_);
    const auto free = std::find_if(places_.begin(), places_.end(), [](const Place& place) { return place.client == nullptr; });
    if (free == places_.end()) return std::unexpected(Refusal::full);
    Present others = present();
    const Victim victim = victim_for_newcomer(std::span(others.occupants).first(others.count), client.address(), machine::now_ns());
    if (!victim) return std::unexpected(victim.error());
    require(!*victim || **victim < others.count, "the displaced client is one of those present", others.count);
    if (*victim) displaced = begin_displacing(*others.places[**victim]);
    *free = {.client = &client, .id = ++last_id_, .arrived_ns = machine::now_ns()};
  }
  if (displaced.place == nullptr) return false;
  if (displace(displaced)) return true;
  leave(client);
  return std::unexpected(Refusal::full);
}

std::expected<bool, Refusal> ClientPlaces::prove(Client& client) {
  Displaced displaced;
  {
    const std::lock_guard lock(lock_);
    const auto own =
        std::find_if(places_.begin(), places_.end(), [&](const Place& place) { return place.client == &client && !place.leaving; });
    if (own == places_.end()) return std::unexpected(Refusal::full);  // the client has just been displaced
    Present others = present();
    const Victim victim = victim_for_proven(std::span(others.occupants).first(others.count), machine::now_ns());
    if (!victim) return std::unexpected(victim.error());
    require(!*victim || **victim < others.count, "the displaced client is one of those present", others.count);
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

bool ClientPlaces::displace(const Displaced& displaced) noexcept {
  // A client on this core is ended at once, not in a later event: newcomers of one event may displace more clients than there are places.
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

void ClientPlaces::end_client(std::uint64_t id) noexcept {
  Client* client = nullptr;
  {
    const std::lock_guard lock(lock_);
    for (const Place& place : places_) {
      if (place.id == id && place.client != nullptr) client = place.client;
    }
  }
  if (client == nullptr) return;
  // The client still exists, because a client leaves only on its own core, which is this one.
  require(client->core() == this_core(), "a client is ended on its own core", client->core());
  if (client->displace()) leave(*client);
}

void ClientPlaces::leave(Client& client) noexcept {
  require(this_core() == client.core(), "a client leaves on its own core", client.core());
  const std::lock_guard lock(lock_);
  for (Place& place : places_) {
    if (place.client == &client) place = {};
  }
}

unsigned ClientPlaces::count(bool proven) const noexcept {
  const std::lock_guard lock(lock_);
  return static_cast<unsigned>(std::count_if(places_.begin(), places_.end(), [&](const Place& place) {
    return place.client != nullptr && !place.leaving && place.proven == proven;
  }));
}

std::uint64_t ClientPlaces::held_bytes() const noexcept {
  const std::lock_guard lock(lock_);
  std::uint64_t bytes = 0;
  for (const Place& place : places_) {
    if (place.client != nullptr) bytes += place.client->held_bytes();
  }
  return bytes;
}

}  // namespace neap::observe
