// SPDX-License-Identifier: BSL-1.0
// Watchers: connections that get a line for each request, eviction or connection of any core (protocol.txt, "Watchers").
//
// Nearly always there is no watcher, and a request must not pay for the possibility. `Service::observed` is one word that the core tests before
// it takes the short way of whole requests. While there is a watcher, requests take the ordinary way, which reports them.
//
// A watcher may read slowly, or not at all. Each one has a buffer of fixed size for lines that are not sent yet. A line without room is
// dropped and counted; the next line with room follows a line "skipped=N". Lines are written by all cores under one lock, which is taken
// only while there is a watcher.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "apps/memcached/long_answer.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::memcached {

class Service;
struct CoreState;
class Watcher;

/// The kinds of lines that a watcher gets: a sum of these bits.
namespace watched {
constexpr std::uint32_t fetchers = 1, mutations = 2, evictions = 4, connections = 8, deletions = 16;
}

class Watchers {
 public:
  static constexpr unsigned watchers_max = 20;

  /// Returns the bit of the word of the command `watch`, 0 for an unknown word.
  [[nodiscard]] static std::uint32_t kind_of(std::string_view word) noexcept;
  [[nodiscard]] bool wants(std::uint32_t kind) const noexcept { return (kinds_.load(std::memory_order_relaxed) & kind) != 0; }
  /// The kinds that any watcher wants.
  [[nodiscard]] std::uint32_t kinds() const noexcept { return kinds_.load(std::memory_order_relaxed); }
  /// Returns false if there are too many.
  [[nodiscard]] bool add(Watcher& watcher) noexcept;
  void remove(Watcher& watcher) noexcept;
  /// Passes "<stamp> <text>" to all watchers of this kind. `unix_us`: the time of the event.
  void write(std::uint32_t kind, std::uint64_t unix_us, std::string_view text) noexcept;
  /// Wakes the watchers of this core.
  void wake(unsigned core);

  [[nodiscard]] unsigned count() const noexcept { return count_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t skipped() const noexcept { return skipped_.load(std::memory_order_relaxed); }

 private:
  friend class Watcher;
  void settle() noexcept;

  SpinLock lock_;  // of the watchers' buffers, too
  std::array<Watcher*, watchers_max> list_{};
  std::uint64_t lines_ = 0;
  std::atomic<std::uint32_t> kinds_{0};
  std::atomic<unsigned> count_{0};
  std::atomic<std::uint64_t> sent_{0}, skipped_{0};
};

class Watcher final : public LongAnswer {
 public:
  /// Throws `bad_alloc`.
  Watcher(Service& service, CoreState& core, std::uint32_t kinds);
  ~Watcher() override;
  Watcher& operator=(Watcher&&) = delete;
  /// Returns false if there are too many watchers.
  [[nodiscard]] bool begin() noexcept;
  [[nodiscard]] Step write(Reply& reply, Seconds now) override;
  [[nodiscard]] bool is_endless() const noexcept override { return true; }

 private:
  friend class Watchers;
  /// Under the lock of `Watchers`. Returns false if there is no room.
  [[nodiscard]] bool append(std::string_view line) noexcept;

  Service& service_;
  CoreState& core_;
  const std::uint32_t kinds_;
  const std::size_t room_;
  std::unique_ptr<char[]> bytes_;  // a ring of `room_` bytes
  std::size_t first_ = 0, used_ = 0;
  std::uint64_t skipped_ = 0;  // lines since the last one that had room
  bool listed_ = false;
};

}  // namespace neap::memcached
