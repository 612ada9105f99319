// SPDX-License-Identifier: BSL-1.0
// What was measured, kept for whoever asks later, on whatever core.
#pragma once

#include <cstddef>
#include <cstdint>
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
  Options options;
  Session::State state = Session::State::running;  ///< `between` never
  std::string reason;                              ///< why it failed
  std::vector<Measurement> points;
};

/// The last `runs_max` measurements. Any core may call anything; what is returned is a copy.
class Runs {
 public:
  static constexpr std::size_t runs_max = 8;

  /// Returns its number. The oldest goes when there are too many. Throws `bad_alloc`.
  unsigned begin(Role role, std::string peer, const Options& options);
  /// Of a run that is not kept any more: nothing happens.
  void add(unsigned number, const Measurement& point);
  void end(unsigned number, Session::State state, const std::string& reason);
  /// That one, or the last if `number` is 0; number 0 if there is none.
  [[nodiscard]] Run copy(unsigned number) const;

 private:
  [[nodiscard]] Run* find(unsigned number) noexcept;

  mutable SpinLock lock_;
  std::deque<Run> runs_;
  unsigned last_ = 0;
};

}  // namespace neap::netpipe
