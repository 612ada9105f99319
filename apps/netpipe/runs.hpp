// SPDX-License-Identifier: BSL-1.0
// The results of recent measurements, for readers on any core.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "apps/netpipe/session.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::netpipe {

struct Run {
  unsigned number = 0;  ///< from 1
  Role role = Role::receiver;
  std::string peer;
  Session::State state = Session::State::running;  ///< never `between`
  std::string reason;                              ///< why it failed
  std::vector<Measurement> points;
};

/// The last `runs_max` measurements. Any core may call any function; results are copies.
class Runs {
 public:
  static constexpr std::size_t runs_max = 8;

  /// Adds a run and returns its number; drops the oldest if there are too many. Throws `bad_alloc`.
  unsigned begin(Role role, std::string peer);
  /// Adds a result. Does nothing for a run that is not kept any more.
  void add(unsigned number, const Measurement& point);
  void end(unsigned number, Session::State state, const std::string& reason);
  /// The run with that number, or the last one for 0. Its number is 0 if there is none.
  [[nodiscard]] Run copy(unsigned number) const;

 private:
  [[nodiscard]] Run* find(unsigned number) noexcept;

  mutable SpinLock lock_;
  std::deque<Run> runs_;
  unsigned last_ = 0;
};

}  // namespace neap::netpipe
