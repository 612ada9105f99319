// SPDX-License-Identifier: BSL-1.0
// Counts by the first part of keys: the command `stats detail`.
//
// While the counts are on, all requests take the ordinary way (`Service::observed`), and each one takes a lock that all cores share. So
// this is for finding out which part of an application uses the cache, not for every day, as in memcached.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "apps/memcached/reply.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::memcached {

class Details {
 public:
  static constexpr std::size_t prefixes_max = 1024;  ///< clients choose keys, so further prefixes are not counted

  Details(bool on, char prefix_end) noexcept : prefix_end_(prefix_end), on_(on) {}
  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
  void turn(bool on) noexcept { on_.store(on, std::memory_order_relaxed); }
  /// Keys without the end of a prefix are not counted.
  void note_get(std::string_view key, bool hit) noexcept;
  void note_set(std::string_view key) noexcept;
  void note_delete(std::string_view key) noexcept;
  void clear() noexcept;
  /// Writes a line for each prefix.
  void show(Reply& reply);

 private:
  struct Counts {
    std::uint64_t gets = 0, hits = 0, sets = 0, deletes = 0;
  };
  template <typename Change>
  void change(std::string_view key, Change change) noexcept;

  const char prefix_end_;
  std::atomic<bool> on_;
  SpinLock lock_;
  std::unordered_map<std::string, Counts> counts_;
};

}  // namespace neap::memcached
