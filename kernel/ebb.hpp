// SPDX-License-Identifier: BSL-1.0
// One name with an object on every core.
//
// An object that all cores use at every request (a counter, a cache, a pool of connections) becomes slow if the cores share it. An elastic
// building block (Ebb) is one name for several objects, one on each core. A core's object is made when that core first uses the name.
// (Appavoo et al., "Distributed Shared Objects", 2007, and EbbRT.) An access costs a thread-local load and a test.
//
//   struct Requests { std::uint64_t served = 0; … };
//   constexpr Ebb<Requests> requests;
//   requests->served += 1;                                      // this core's object
#pragma once

#include <array>
#include <atomic>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap {

/// `Representative` is the type of the objects. A core's object is made by the default constructor, on that core, and exists until the
/// machine ends. `Name` tells two Ebbs with the same representative type apart. State that all representatives share is a static member, or
/// an object that the application makes before the first use.
template <typename Representative, typename Name = Representative>
class Ebb {
 public:
  /// The calling core's representative. The first use on a core may throw `bad_alloc`, or any exception of the constructor.
  Representative* operator->() const { return &here(); }
  Representative& operator*() const { return here(); }

  /// Another core's representative; null if that core has not used the Ebb yet. That core may write the representative meanwhile. So the
  /// caller MUST read no members except those that are safe to read from another core (a `Counter`).
  [[nodiscard]] Representative* on(unsigned core) const noexcept {
    require(core < machine::core_count(), "an Ebb on a core that does not run", core);
    return all_[core].load(std::memory_order_acquire);
  }

 private:
  static Representative& here() {
    if (Representative* const own = own_; own != nullptr) [[likely]]
      return *own;
    return make();
  }
  [[gnu::noinline, gnu::cold]] static Representative& make() {
    const unsigned core = machine::this_core();
    require(core < machine::cores_max, "an Ebb is used on a thread that is no core");
    Representative* representative = all_[core].load(std::memory_order_relaxed);
    if (representative == nullptr) {
      representative = new Representative;
      all_[core].store(representative, std::memory_order_release);
    }
    own_ = representative;
    return *representative;
  }

  static inline constinit thread_local Representative* own_ = nullptr;
  // In host tests a core is a thread. An entry outlives the thread, because the cores of the next test have the same numbers.
  static inline constinit std::array<std::atomic<Representative*>, machine::cores_max> all_{};
};

}  // namespace neap
