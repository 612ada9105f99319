// SPDX-License-Identifier: BSL-1.0
// Ends a test that hangs, and prints a backtrace.
//
// An event that loops for ever stops its core. Without this watchdog, ctest ends the test at its time-out and does not name the event. With
// it, each thread that works in pieces (events of a host thread's core, inputs of a fuzzer) marks the beginning of each piece. The
// watchdog's thread checks every second which piece is running. If `progress_limit` consecutive checks find the same piece, the thread of
// that piece prints a backtrace, and the process is aborted. The limit is a number of checks, not a time, because a busy machine may stop
// the whole test for a minute.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace neap::host {

/// The number of checks, one a second, that may find the same piece. It is below the shortest time-out of a test (60 s,
/// cmake/neap_host.cmake), so that the report is printed before ctest ends the test.
constexpr unsigned progress_limit = 45;
/// Sets another limit for this process, for the watchdog's own tests. MUST be called before the first `WatchedWork` is made.
void set_progress_limit(unsigned looks);

/// The work of one thread. Only the thread that makes the object MAY use it. No piece is in progress at first.
class WatchedWork {
 public:
  /// `name` is part of the report: "an event of core 2".
  explicit WatchedWork(std::string name);
  WatchedWork& operator=(WatchedWork&&) = delete;
  ~WatchedWork();

  /// MUST be called at the beginning of each piece, after the previous piece has returned.
  void begin_piece() noexcept { piece_.store(++pieces_, std::memory_order_relaxed); }
  /// MUST be called after a piece has returned, unless the next piece begins at once.
  void end_piece() noexcept { piece_.store(0, std::memory_order_relaxed); }

 private:
  friend struct Watchdog;
  std::atomic<std::uint64_t> piece_{0};  // the number of the piece in progress; 0: none
  std::uint64_t pieces_ = 0;
  struct Entry* entry_;
};

}  // namespace neap::host
