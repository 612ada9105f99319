// SPDX-License-Identifier: BSL-1.0
// One name, a representative on every core.
//
// What all cores use at every request (a counter, a cache, a pool of connections) becomes slow where they share it. An elastic building
// block has one name for everybody and behind it an object of the calling core's own, made when that core first uses it. (Appavoo et al.,
// "Distributed Shared Objects", 2007, and EbbRT.) To call it costs a thread-local load and a test.
//
//   struct Requests { std::uint64_t served = 0; … };
//   constexpr Ebb<Requests> requests;
//   requests->served += 1;                                      // this core's
#pragma once

#include <array>
#include <atomic>
#include <type_traits>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap {

/// `Representative` is made by its default constructor on the core that it is for, and stays as long as the machine. Two Ebbs of one kind
/// of representative differ by `Name`. What all representatives share is theirs to find (a static member, a root object that an application
/// makes before the first use).
template <typename Representative, typename Name = Representative>
class Ebb {
 public:
  /// The calling core's representative. The first use on a core may throw what its constructor throws, or `bad_alloc`.
  Representative* operator->() const { return &here(); }
  Representative& operator*() const { return here(); }

  /// Another core's: null if that core has not used it yet. The caller minds that its own core goes on using it: only for what the
  /// representative lets others read (a `Counter`).
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
    require(core < machine::cores_max, "an Ebb is used by cores alone");
    Representative* representative = all_[core].load(std::memory_order_relaxed);
    if (representative == nullptr) {
      representative = new Representative;
      all_[core].store(representative, std::memory_order_release);
    }
    own_ = representative;
    return *representative;
  }

  static inline constinit thread_local Representative* own_ = nullptr;
  // Outlives a core's thread on the host, where a test's next machine has the same cores again.
  static inline constinit std::array<std::atomic<Representative*>, machine::cores_max> all_{};
};

}  // namespace neap
