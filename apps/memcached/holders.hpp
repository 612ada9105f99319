// SPDX-License-Identifier: BSL-1.0
// Clients that hold large values by not reading their replies.
//
// A reply does not copy a large value, but refers to the stored item. If the value is replaced meanwhile, the old value is kept only for
// that reply, and the cache becomes smaller (`Store::held_bytes`). Every connection may have one large value in flight. Without a limit,
// stalled clients could hold all memory, and each `set` would be refused. Replies take up to half of the cache's memory (reply_memory.hpp).
// If such values take more than a quarter of the rest, connections without progress for `stall_s` are therefore reset. Above half of the
// rest, connections with progress may be reset too.
//
// Each core has a list of its connections with values in flight (`Holder`). `shed` resets examined connections or moves them to the list's
// end.
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
  /// Returns the number of bytes in flight. If the number is smaller than at the last call, the client is reading.
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
  static constexpr std::size_t stalled_divisor = 4;  ///< if values take over 1/4 of that rest, stalled connections are reset
  static constexpr std::size_t any_divisor = 2;      ///< if values take over 1/2 of that rest, any connection may be reset
  static constexpr Seconds stall_s = 2;
  static constexpr unsigned looks_max = 16;  ///< holders that one call of `shed` examines
  /// Bytes that a core parses between two calls of `shed_holders_everywhere`. A parsed piece counts as its length plus `piece_bytes`.
  static constexpr std::size_t bytes_per_check = 4096;
  static constexpr std::size_t piece_bytes = 256;

  void add(Holder& holder, Seconds now) noexcept;
  void remove(Holder& holder) noexcept;
  /// Resets connections until `excess` bytes in flight are released, and returns the number of released bytes. Never resets `self`. Resets
  /// only stalled connections, unless `any` is true.
  std::size_t shed(std::size_t excess, bool any, const Holder* self, Seconds now) noexcept;

 private:
  Holder* oldest_ = nullptr;
  Holder* newest_ = nullptr;
};

/// If replies hold too many bytes, resets connections of this core. Returns true if the released bytes are not enough.
bool shed_holders(Service& service, CoreState& core, const Holder* self) noexcept;
/// Calls `shed_holders` on this core. If the released bytes are not enough, all other cores call it too, each in an event of its own.
void shed_holders_everywhere(Service& service, CoreState& core, const Holder* self) noexcept;

}  // namespace neap::memcached
