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
  unsigned number = 0;  ///< runs are numbered from 1
  Role role = Role::receiver;
  std::string peer;
  Session::State state = Session::State::running;  ///< `between` counts as `running`
  std::string reason;                              ///< why the run failed
  std::vector<Measurement> points;
};

/// The last `runs_max` measurements. All functions MAY be called on any core; results are copies.
class Runs {
 public:
  static constexpr std::size_t runs_max = 8;

  /// Adds a run and returns its number; drops the oldest run if there are too many. Throws `bad_alloc`.
  unsigned begin(Role role, std::string peer);
  /// Adds a result. Does nothing if the run was dropped.
  void add(unsigned number, const Measurement& point);
  void end(unsigned number, Session::State state, const std::string& reason);
  /// Returns the run with that number, or the last run for 0. If there is no such run, the result's number is 0.
  [[nodiscard]] Run copy(unsigned number) const;

 private:
  [[nodiscard]] Run* find(unsigned number) noexcept;

  mutable SpinLock lock_;
  std::deque<Run> runs_;
  unsigned last_ = 0;
};

}  // namespace neap::netpipe
