// SPDX-License-Identifier: BSL-1.0
// The places (slots) of connected clients. admission.hpp selects the client that loses its place when another client needs one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>

#include "kernel/spin_lock.hpp"
#include "observe/admission.hpp"
#include "observe/client.hpp"

namespace neap::observe {

class ClientPlaces {
 public:
  /// The maximum number of clients, including displaced clients that are not closed yet.
  static constexpr unsigned places_max = 4 * (clients_max + unproven_max);

  /// Gives an unproven client a place. MUST be called on the client's core. Returns true if another client was displaced.
  [[nodiscard]] std::expected<bool, Refusal> admit(Client& client);
  /// Gives an admitted client a place among the proven clients. MUST be called on its core. Returns true if another client was displaced.
  [[nodiscard]] std::expected<bool, Refusal> prove(Client& client);
  /// Frees the client's place, if it has one. MUST be called on the client's core.
  void leave(Client& client) noexcept;

  [[nodiscard]] unsigned proven() const noexcept { return count(true); }
  [[nodiscard]] unsigned unproven() const noexcept { return count(false); }
  [[nodiscard]] unsigned count() const noexcept { return proven() + unproven(); }
  /// Returns the bytes held for all clients: unread input and unacknowledged output. Each client updates its number of held bytes in its
  /// events.
  [[nodiscard]] std::uint64_t held_bytes() const noexcept;

 private:
  struct Place {
    Client* client = nullptr;
    std::uint64_t id = 0;
    std::uint64_t arrived_ns = 0;
    bool proven = false;
    bool leaving = false;  ///< the client is displaced and not counted
  };
  /// The clients that are not displaced.
  struct Present {
    std::array<Occupant, places_max> occupants;
    std::array<Place*, places_max> places;
    std::size_t count = 0;
  };
  struct Displaced {
    Place* place = nullptr;
    std::uint64_t id = 0;
    unsigned core = 0;
  };
  /// The caller MUST hold the lock.
  [[nodiscard]] Present present() noexcept;
  [[nodiscard]] static Displaced begin_displacing(Place& place) noexcept;
  /// Closes the displaced client on its core. The caller MUST NOT hold the lock. Returns false if that core's queue is full; the client
  /// then stays.
  [[nodiscard]] bool displace(const Displaced& displaced) noexcept;
  void end_client(std::uint64_t id) noexcept;
  [[nodiscard]] unsigned count(bool proven) const noexcept;

  mutable SpinLock lock_;
  std::uint64_t last_id_ = 0;
  std::array<Place, places_max> places_;
};

}  // namespace neap::observe
