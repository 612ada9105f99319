// SPDX-License-Identifier: BSL-1.0
// A piece of work that does not return ends the test, with a backtrace of where it is.
//
// An event that loops for ever stops its core. Without this a test would hang until ctest ends it, and would say nothing of the event. So a
// thread that works in pieces (events of a stand-in core, inputs of a fuzzer) marks where each begins. One more thread looks every second:
// a piece that it has seen `progress_limit` times is reported, its thread prints where it is, and the process is aborted. Looks are counted
// and not seconds: a machine that runs no test for a minute is no fault of the test.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace neap::host {

/// Looks, a second apart. Below the shortest time-out of a test (60 s, cmake/neap_host.cmake), so that the report comes first.
constexpr unsigned progress_limit = 45;
/// Another limit for this process, for the watchdog's own tests. Before the first `WatchedWork`.
void set_progress_limit(unsigned looks);

/// The work of the thread that makes it, which is its only user. At first it rests.
class WatchedWork {
 public:
  /// `name` stands in the report: "an event of core 2".
  explicit WatchedWork(std::string name);
  WatchedWork(const WatchedWork&) = delete;
  WatchedWork& operator=(const WatchedWork&) = delete;
  ~WatchedWork();

  /// The piece before has returned, the next one begins.
  void begin_piece() noexcept { piece_.store(++pieces_, std::memory_order_relaxed); }
  /// The piece has returned. Nothing is watched until the next one.
  void rest() noexcept { piece_.store(0, std::memory_order_relaxed); }

 private:
  friend struct Watchdog;
  std::atomic<std::uint64_t> piece_{0};  // 0: rests
  std::uint64_t pieces_ = 0;
  struct Entry* entry_;
};

}  // namespace neap::host
