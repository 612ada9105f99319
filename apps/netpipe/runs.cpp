// SPDX-License-Identifier: BSL-1.0
#include "apps/netpipe/runs.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace neap::netpipe {

unsigned Runs::begin(Role role, std::string peer) {
  Run run;
  run.role = role;
  run.peer = std::move(peer);
  const std::lock_guard guard(lock_);
  if (runs_.size() == runs_max) runs_.pop_front();
  run.number = ++last_;
  runs_.push_back(std::move(run));
  return last_;
}

Run* Runs::find(unsigned number) noexcept {
  const auto found = std::ranges::find(runs_, number, &Run::number);
  return found == runs_.end() ? nullptr : &*found;
}

void Runs::add(unsigned number, const Measurement& point) {
  const std::lock_guard guard(lock_);
  if (Run* const run = find(number)) run->points.push_back(point);
}

void Runs::end(unsigned number, Session::State state, const std::string& reason) {
  const std::lock_guard guard(lock_);
  if (Run* const run = find(number)) {
    run->state = state;
    run->reason = reason;
  }
}

Run Runs::copy(unsigned number) const {
  const std::lock_guard guard(lock_);
  for (const Run& run : runs_) {
    if (run.number == (number == 0 ? last_ : number)) return run;
  }
  return {};
}

}  // namespace neap::netpipe
