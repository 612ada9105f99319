// SPDX-License-Identifier: BSL-1.0
// Limits that keep one client from the others' connections and memory.
//
// Connections. A connection takes memory of the stack even if its client sends nothing. `Admission` counts open connections, on all cores
// together, and those of each peer (net::Address::peer_key) if there is a limit for them. A connection over a limit gets an error and is
// closed, as in memcached's mode maxconns_fast, so that its client need not wait for a time-out.
//
// Uploads. A command announces the length of its value, and the item is allocated before the value has arrived. Clients that announce
// values and do not send them could evict all stored items. So the items of unfinished uploads have a limit. Beyond it, connections are
// reset whose upload has been without progress for longest: at once those without progress for `Uploads::stall_s`, and any others only
// above twice the limit.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "apps/memcached/clock.hpp"
#include "kernel/counter.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::memcached {

class Service;
struct CoreState;

/// The open connections of all cores. Any core MAY call it.
class Admission {
 public:
  /// `peer_max`: 0: no limit.
  Admission(unsigned connections_max, unsigned peer_max) noexcept : connections_max_(connections_max), peer_max_(peer_max) {}

  enum class Verdict : std::uint8_t { admitted, too_many, too_many_of_peer };
  /// `peer`: the `peer_key` of the address. If the connection is admitted, the caller MUST call `release` with the same key once, after its
  /// end.
  [[nodiscard]] Verdict admit(std::uint64_t peer) noexcept;
  void release(std::uint64_t peer) noexcept;
  [[nodiscard]] unsigned open() const noexcept { return open_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] bool admit_peer(std::uint64_t peer) noexcept;

  const unsigned connections_max_, peer_max_;
  std::atomic<unsigned> open_{0};
  SpinLock lock_;
  std::unordered_map<std::uint64_t, unsigned> peers_;  // open connections by peer; empty without a limit
};

/// A session whose command announced a value that has not arrived completely.
class Upload {
 public:
  virtual ~Upload() = default;
  /// The memory of the item; 0: no upload is listed.
  [[nodiscard]] std::size_t upload_bytes() const noexcept { return upload_bytes_; }

 private:
  friend class Uploads;
  virtual void reset_upload() noexcept = 0;

  Upload* newer_upload_ = nullptr;
  Upload* older_upload_ = nullptr;
  std::size_t upload_bytes_ = 0;
  Seconds progress_at_ = 0;
};

/// The uploads of one core, in the order of their last progress. Only that core MAY change them.
class Uploads {
 public:
  static constexpr std::size_t memory_divisor = 8;  ///< the limit is the store's memory divided by this
  static constexpr Seconds stall_s = 2;

  /// Bytes of `upload` have arrived; its item takes `bytes`. Adds it to the list, if it is not there.
  void note_progress(Upload& upload, std::size_t bytes, Seconds now) noexcept;
  void remove(Upload& upload) noexcept;
  /// Resets the connections of the oldest uploads until `excess` bytes are released, but only of stalled ones unless `any` is true, and
  /// never of `self`. Returns the number of released bytes.
  std::size_t shed(std::size_t excess, bool any, const Upload* self, Seconds now) noexcept;
  /// Any core MAY call it.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_.value(); }

 private:
  void unlink(Upload& upload) noexcept;
  void append(Upload& upload) noexcept;

  Upload* oldest_ = nullptr;
  Upload* newest_ = nullptr;
  Counter bytes_;
};

/// If unfinished uploads exceed their limit, resets connections of this core, and asks the other cores to do so if that is not enough.
void shed_uploads(Service& service, CoreState& core, const Upload* self) noexcept;

}  // namespace neap::memcached
