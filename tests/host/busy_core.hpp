// SPDX-License-Identifier: BSL-1.0
// For tests in which a core is in one long event.
#pragma once

#include <atomic>
#include <thread>

#include "kernel/events.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::host {

/// Keeps a core inside one event from construction until `release`.
class BusyCore {
 public:
  BusyCore(HostMachine& machine, unsigned core) {
    machine.on(core, [this] {
      spawn([this] {
        entered_ = true;
        while (!released_) std::this_thread::yield();
        left_ = true;
      });
    });
    while (!entered_) std::this_thread::yield();
  }
  ~BusyCore() { release(); }
  void release() {
    released_ = true;
    while (!left_) std::this_thread::yield();
  }

 private:
  std::atomic<bool> entered_{false}, released_{false}, left_{false};
};

}  // namespace neap::host
