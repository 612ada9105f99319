// SPDX-License-Identifier: BSL-1.0
// Clients that keep large values by not reading them.
//
// A reply refers to a large value where it is stored. If the value is replaced meanwhile, the old one stays for that reply alone: the cache
// becomes smaller (`Store::held_bytes`). Every connection may have one large value in flight, so enough stalled clients could hold all
// memory, and each `set` would be refused. So once values of replies hold a quarter of the cache's memory, connections that made no
// progress for `stall_s` are reset; at half of it, those whose oldest value left first.
//
// A list for each core, in the order in which sessions began to refer to values; no other core touches it.
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
  /// Bytes in flight; fewer than before means that the client reads.
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
  static constexpr std::size_t stalled_divisor = 4;  ///< of the cache's memory, held by replies: stalled connections are reset
  static constexpr std::size_t any_divisor = 2;      ///< connections are reset, stalled or not
  static constexpr Seconds stall_s = 2;
  static constexpr unsigned looks_max = 16;  ///< holders that one call looks at
  /// Parsed on a core between two looks at the held bytes; each piece parsed counts as `piece_bytes` more.
  static constexpr std::size_t bytes_per_check = 4096;
  static constexpr std::size_t piece_bytes = 256;

  void add(Holder& holder, Seconds now) noexcept;
  void remove(Holder& holder) noexcept;
  /// Resets connections until `excess` bytes in flight are given up. Never `self`. Returns the bytes that were in flight on them.
  std::size_t shed(std::size_t excess, bool any, const Holder* self, Seconds now) noexcept;

 private:
  Holder* oldest_ = nullptr;
  Holder* newest_ = nullptr;
};

/// Looks at the bytes held by replies, and sheds holders of this core if they are too many. Returns whether they still are.
bool shed_holders(Service& service, CoreState& core, const Holder* self) noexcept;
/// The same; if this core's are not enough, other cores shed theirs in events of their own.
void shed_holders_everywhere(Service& service, CoreState& core, const Holder* self) noexcept;

}  // namespace neap::memcached
