// SPDX-License-Identifier: BSL-1.0
// Clients that hold large values by not reading their replies.
//
// A reply refers to a large value where the value is stored. If the value is replaced meanwhile, the old value is kept only for that reply,
// and the cache becomes smaller (`Store::held_bytes`). Every connection may have one large value in flight, so enough stalled clients could
// hold all memory, and each `set` would be refused. So if replies hold more than a quarter of the cache's memory, connections without
// progress for `stall_s` are reset. Above half of the cache's memory any connection may be reset, beginning with the one whose value has
// been in flight for longest.
//
// Each core has a list of its holders, in the order in which they began to hold a value. No other core accesses it.
#pragma once

#include <cstddef>

#include "apps/memcached/clock.hpp"
#include "kernel/events.hpp"

namespace neap::memcached {

class Service;
struct CoreState;

/// A session with values in flight.
class Holder {
 public:
  virtual ~Holder() = default;
  [[nodiscard]] bool listed() const noexcept { return listed_; }

 private:
  friend class Holders;
  /// Returns the number of bytes of values in flight. If it is smaller than at the last call, the client is reading.
  [[nodiscard]] virtual std::size_t held_in_flight() noexcept = 0;
  virtual void reset_connection() noexcept = 0;

  Holder* newer_ = nullptr;
  Holder* older_ = nullptr;
  std::size_t seen_bytes_ = 0;
  Seconds seen_at_ = 0;
  bool listed_ = false;
};

class Holders {
 public:
  static constexpr std::size_t stalled_divisor = 4;  ///< above 1/4 of the cache's memory, stalled connections are reset
  static constexpr std::size_t any_divisor = 2;      ///< above 1/2 of the cache's memory, any connection may be reset
  static constexpr Seconds stall_s = 2;
  static constexpr unsigned looks_max = 16;  ///< holders that one call of `shed` examines
  /// Bytes that a core parses between two checks of the held bytes. Each received piece counts as its length plus `piece_bytes`.
  static constexpr std::size_t bytes_per_check = 4096;
  static constexpr std::size_t piece_bytes = 256;

  void add(Holder& holder, Seconds now) noexcept;
  void remove(Holder& holder) noexcept;
  /// Resets connections (never `self`; only stalled ones unless `any`) to release `excess` bytes in flight. Returns the bytes released.
  std::size_t shed(std::size_t excess, bool any, const Holder* self, Seconds now) noexcept;

 private:
  Holder* oldest_ = nullptr;
  Holder* newest_ = nullptr;
};

/// Checks the bytes held by replies. If they are too many, resets holders of this core. Returns true if they are still too many.
bool shed_holders(Service& service, CoreState& core, const Holder* self) noexcept;
/// Calls `shed_holders` on this core. If that is not enough, asks all other cores to do it, each in a separate event.
void shed_holders_everywhere(Service& service, CoreState& core, const Holder* self) noexcept;

}  // namespace neap::memcached
