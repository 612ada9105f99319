// SPDX-License-Identifier: BSL-1.0
// The memory account of replies in flight, for each core and for all cores.
//
// The server has to keep its replies to a client that does not read them. Each byte of these replies counts against the cache's limit
// (`memory=`). Therefore such clients make the cache smaller, but the machine does not run out of memory. The replies of all clients
// together have a second, smaller limit, so that such clients do not empty the cache.
//
// A connection's share is an eighth of the unused part of that second limit (a dynamic threshold; Choudhury and Hahne, 1998). A single
// connection may have a whole send buffer in flight. Each of a thousand stalled connections gets little, so other connections have room.
//
// A connection without bytes in flight may always send a small reply, so that every client that reads is served. Only these replies can
// exceed the second limit. Replies make the cache smaller by at most half of `memory=`, so that a `set` has room. All limits follow the
// command cache_memlimit.
//
// Each core has its own plain counter. The counter reports to the shared sum in steps, so that a request does not write to a shared cache
// line.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>

#include "apps/memcached/store.hpp"
#include "kernel/panic.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::memcached {

/// The sum over all cores.
class ReplyMemory {
 public:
  /// The limit of replies in flight is `memory=` divided by this.
  static constexpr std::size_t memory_divisor = 8;
  /// The share of one connection is the unused part of the limit, divided by this.
  static constexpr std::size_t share_divisor = 8;
  static constexpr std::size_t share_bytes_max = 256 * 1024;  ///< TCP_SND_BUF: the maximum that lwIP queues as segments
  static constexpr std::size_t small_bytes = 4096;            ///< maximum of a small reply
  /// Replies make the cache smaller by at most `memory=` divided by this.
  static constexpr std::size_t taken_divisor = 2;

  explicit ReplyMemory(Store& store) noexcept : store_(store) { follow_limit(); }

  /// Computes the limits from the store's. MUST be called after each change of that.
  void follow_limit() noexcept {
    const std::lock_guard lock(lock_);
    limit_bytes_.store(store_.memory_bytes() / memory_divisor, std::memory_order_relaxed);
    taken_bytes_max_ = store_.memory_bytes() / taken_divisor;
    set_bytes(bytes());
    set_careful();
  }
  [[nodiscard]] std::size_t limit_bytes() const noexcept { return limit_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  /// Returns the part of `bytes()` by which the cache becomes smaller.
  [[nodiscard]] std::size_t taken_bytes() const noexcept { return taken_bytes_.load(std::memory_order_relaxed); }
  /// True if over half of the limit is used. A copy that saves memory is then worth its time.
  [[nodiscard]] bool scarce() const noexcept { return bytes() > limit_bytes() / 2; }
  /// True if whole requests may not be handled in the short way: over half of the limit is used, or `observe(true)` was called. One
  /// comparison for both, because each received segment asks.
  [[nodiscard]] bool careful() const noexcept { return bytes() >= careful_from_bytes_.load(std::memory_order_relaxed); }
  void observe(bool observed) noexcept {
    const std::lock_guard lock(lock_);
    observed_ = observed;
    set_careful();
  }
  /// Returns the share of one connection, 0 at the limit. If a connection has that many bytes in flight, its input waits.
  [[nodiscard]] std::size_t share_bytes() const noexcept {
    const std::size_t taken = bytes(), limit = limit_bytes();
    return taken >= limit ? 0 : std::clamp((limit - taken) / share_divisor, small_bytes, share_bytes_max);
  }
  void charge(std::size_t bytes) noexcept {
    const std::lock_guard lock(lock_);
    set_bytes(this->bytes() + bytes);
  }
  void discharge(std::size_t bytes) noexcept {
    const std::lock_guard lock(lock_);
    require(this->bytes() >= bytes, "memcached: replies discharge no more than was charged", bytes);
    set_bytes(this->bytes() - bytes);
  }

 private:
  /// Charges the store the part of `bytes` that it has to give up. Under the lock, so that the part and the limit fit together.
  void set_bytes(std::size_t bytes) noexcept {
    const std::size_t before = taken_bytes(), taken = std::min(bytes, taken_bytes_max_);
    bytes_.store(bytes, std::memory_order_relaxed);
    if (taken < before) store_.discharge_held(before - taken);
    taken_bytes_.store(taken, std::memory_order_relaxed);  // before a charge, so that no reader of both counts replies as values
    if (taken > before) store_.charge_held(taken - before);
  }
  void set_careful() noexcept { careful_from_bytes_.store(observed_ ? 0 : limit_bytes() / 2 + 1, std::memory_order_relaxed); }

  Store& store_;
  SpinLock lock_;  // of all changes, which are rare: accounts report in steps
  std::size_t taken_bytes_max_ = 0;
  bool observed_ = false;
  std::atomic<std::size_t> limit_bytes_{0}, bytes_{0}, taken_bytes_{0}, careful_from_bytes_{0};
};

/// The account of one core. Only that core MAY use it.
class ReplyAccount {
 public:
  /// Up to this many bytes of a core are not reported. The replies of an ordinary load stay below this number.
  static constexpr std::size_t unreported_bytes_max = 256 * 1024;
  static constexpr std::size_t step_bytes = 64 * 1024;

  ReplyAccount& operator=(ReplyAccount&&) = delete;

  /// Sets the sum to which the account reports. Unit tests MAY omit this call; then the account reports no bytes.
  void report_to(ReplyMemory& memory) noexcept { memory_ = &memory; }
  void charge(std::size_t bytes) noexcept {
    bytes_ += bytes;
    if (bytes_ > reported_ + unreported_bytes_max) [[unlikely]]
      report();
  }
  void discharge(std::size_t bytes) noexcept {
    require(bytes <= bytes_, "memcached: a core discharges no more reply bytes than it charged", bytes);
    bytes_ -= bytes;
    if (bytes_ < low_) [[unlikely]]
      report();
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  void report() noexcept {
    if (memory_ == nullptr) return;
    const std::size_t over = bytes_ - std::min(bytes_, unreported_bytes_max);
    const std::size_t wanted = (over + step_bytes - 1) / step_bytes * step_bytes;
    if (wanted > reported_) memory_->charge(wanted - reported_);
    if (wanted < reported_) memory_->discharge(reported_ - wanted);
    reported_ = wanted;
    low_ = reported_ == 0 ? 0 : unreported_bytes_max + reported_ - 2 * step_bytes;
  }

  std::size_t bytes_ = 0, reported_ = 0;
  std::size_t low_ = 0;  ///< if `bytes_` falls below this, a part of the reported bytes is withdrawn
  ReplyMemory* memory_ = nullptr;
};

}  // namespace neap::memcached
