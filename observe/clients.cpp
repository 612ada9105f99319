// SPDX-License-Identifier: BSL-1.0
#include "observe/clients.hpp"

#include <algorithm>
#include <mutex>
#include <new>

#include "kernel/events.hpp"
#include "kernel/machine.hpp"

namespace neap::observe {

bool Clients::admit(Client& client, bool& displaced) {
  const std::uint64_t now_ns = machine::now_ns();
  Place* victim = nullptr;
  std::uint64_t victim_id = 0;
  unsigned victim_core = 0;
  {
    const std::lock_guard lock(lock_);
    Place* free = nullptr;
    unsigned staying = 0;
    for (Place& place : places_) {
      if (place.client == nullptr) {
        free = &place;
        continue;
      }
      if (place.leaving) continue;
      ++staying;
      const std::uint64_t active_ns = place.client->active_ns();
      if (active_ns == Client::busy || now_ns - std::min(now_ns, active_ns) < static_cast<std::uint64_t>(silence_.count())) continue;
      if (victim == nullptr || active_ns < victim->client->active_ns()) victim = &place;
    }
    if (free == nullptr) return false;
    if (staying < clients_max) {
      victim = nullptr;
    } else if (victim == nullptr) {
      return false;
    } else {
      victim->leaving = true;
      victim_id = victim->id;
      victim_core = victim->client->core();
    }
    *free = {.client = &client, .id = ++last_id_, .leaving = false};
  }
  if (victim == nullptr) return true;
  displaced = true;
  bool told = false;
  try {
    told = spawn_on(victim_core, [this, victim_id] { displace(victim_id); }).has_value();
  } catch (const std::bad_alloc&) {
  }
  if (!told) {  // then it stays, and the new one goes
    leave(client);
    displaced = false;
    const std::lock_guard lock(lock_);
    if (victim->id == victim_id) victim->leaving = false;
  }
  return told;
}

void Clients::leave(Client& client) noexcept {
  const std::lock_guard lock(lock_);
  for (Place& place : places_) {
    if (place.client == &client) place = {};
  }
}

void Clients::displace(std::uint64_t id) noexcept {
  Client* client = nullptr;
  {
    const std::lock_guard lock(lock_);
    for (const Place& place : places_) {
      if (place.id == id && place.client != nullptr) client = place.client;
    }
  }
  if (client != nullptr) client->displace();  // it leaves on this core alone, so it is still there
}

unsigned Clients::count() const noexcept {
  const std::lock_guard lock(lock_);
  return static_cast<unsigned>(
      std::count_if(places_.begin(), places_.end(), [](const Place& place) { return place.client != nullptr && !place.leaving; }));
}

}  // namespace neap::observe
