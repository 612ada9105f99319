// SPDX-License-Identifier: BSL-1.0
// The places that clients take. Which client gives way for another is in admission.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>

#include "kernel/spin_lock.hpp"
#include "observe/admission.hpp"
#include "observe/client.hpp"

namespace neap::observe {

class Clients {
 public:
  /// Clients at most, displaced ones included whose core has not been told yet.
  static constexpr unsigned places_max = 4 * (clients_max + unproven_max);

  /// A place for an unproven client, on its core. True: another one was displaced for it.
  [[nodiscard]] std::expected<bool, Refusal> admit(Client& client);
  /// A place among the proven ones for an admitted client, on its core. True: another one was displaced for it.
  [[nodiscard]] std::expected<bool, Refusal> prove(Client& client);
  /// On the client's core. A client that was never admitted may leave, too.
  void leave(Client& client) noexcept;

  [[nodiscard]] unsigned proven() const noexcept { return count(true); }
  [[nodiscard]] unsigned unproven() const noexcept { return count(false); }
  [[nodiscard]] unsigned count() const noexcept { return proven() + unproven(); }
  /// Bytes that are held for all clients: unread input, and output that is not acknowledged. As each client's last event left it.
  [[nodiscard]] std::uint64_t held_bytes() const noexcept;

 private:
  struct Place {
    Client* client = nullptr;
    std::uint64_t id = 0;
    bool proven = false;
    bool leaving = false;  ///< displaced, and no longer counted
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
  /// With the lock.
  [[nodiscard]] Present present() noexcept;
  [[nodiscard]] static Displaced begin_displacing(Place& place) noexcept;
  /// Without the lock: the displaced client's core is told. False: it could not be, and the client stays.
  [[nodiscard]] bool displace(const Displaced& displaced) noexcept;
  void end_client(std::uint64_t id) noexcept;
  [[nodiscard]] unsigned count(bool proven) const noexcept;

  mutable SpinLock lock_;
  std::uint64_t last_id_ = 0;
  std::array<Place, places_max> places_;
};

}  // namespace neap::observe
