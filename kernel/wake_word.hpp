// SPDX-License-Identifier: BSL-1.0
// One word for each core: whether the core sleeps, and what other cores have queued for it.
//
// A core that has nothing to do sleeps. Another core may queue work after the last check of the sleeping core and before the instruction
// that sleeps. If "the core sleeps" and "work is queued" were two variables, each side would have to write one and then read the other, in
// sequentially consistent order. Here both are bits of one word, and all changes of a word have one order:
//
// - A core announces its sleep by a compare-and-swap that succeeds only if no work is announced.
// - A sender queues its work, then sets the work's bit. The change also returns whether the core had announced its sleep.
//
// So either the core sees the bit and does not sleep, or the sender sees that the core sleeps and ends the sleep. The sleeping core may
// monitor the word itself (MWAIT): the sender's change is then the wake-up. In other ways of sleeping the sender sends an interrupt.
//
// A core that runs takes all bits and then looks at the queues that they stand for. A sender that finds its bit set need not set it again:
// the core has yet to take the bit, and looks at the queue afterwards. This needs sequentially consistent order of the sender's store in
// the queue, its load of the word, the core's taking of the bits and its load of the queue (RemoteQueue and RemoteList provide theirs).
//
// The word also tells RCU that a core sleeps, and so has no pointer to a retired node (rcu.cpp). kernel/wakeup.pml is a model of this
// protocol. Kernel-internal.
#pragma once

#include <atomic>
#include <cstdint>

namespace neap {

/// It has a cache line of its own, because a write to other data on the line would end the sleep of a core that monitors it.
class alignas(64) WakeWord {
 public:
  /// How a core sleeps.
  enum class Sleeps : std::uint32_t {
    until_interrupt = 1,  ///< a sender MUST send an interrupt
    until_write = 2,      ///< the sender's change of the word ends the sleep
  };
  /// The reasons for which a sender disturbs the core.
  enum Request : std::uint32_t {
    call = 4,             ///< nothing: the core shall look around
    handed_over = 8,      ///< a node in `Core::handed_over`
    remote_event = 0x10,  ///< an event in `Core::remote`
  };

  // Functions for any core.

  /// Called after the work was queued. True: the caller MUST now call `machine::end_sleep`.
  [[nodiscard]] bool request(Request what) noexcept {
    std::uint32_t seen = word_.load(std::memory_order_seq_cst);
    do {
      if ((seen & what) != 0) return false;
    } while (!word_.compare_exchange_weak(seen, seen | what, std::memory_order_seq_cst));
    return seen == static_cast<std::uint32_t>(Sleeps::until_interrupt);  // a request that was there has sent the interrupt
  }
  [[nodiscard]] bool asleep() const noexcept { return (word_.load(std::memory_order_seq_cst) & sleeps) != 0; }
  [[nodiscard]] const volatile void* line() const noexcept { return this; }

  // Functions for the core itself.

  /// True if there are requests. The core MUST be awake.
  [[nodiscard]] bool any() const noexcept { return word_.load(std::memory_order_relaxed) != 0; }
  /// Returns all requests and removes them. The core MUST be awake.
  [[nodiscard]] std::uint32_t take() noexcept { return word_.exchange(0, std::memory_order_seq_cst); }
  /// False: there are requests, and the core MUST NOT sleep.
  [[nodiscard]] bool announce_sleep(Sleeps how) noexcept {
    std::uint32_t nothing = 0;
    return word_.compare_exchange_strong(nothing, static_cast<std::uint32_t>(how), std::memory_order_seq_cst);
  }
  /// True if no request has arrived since `announce_sleep(how)`.
  [[nodiscard]] bool undisturbed(Sleeps how) const noexcept {
    return word_.load(std::memory_order_seq_cst) == static_cast<std::uint32_t>(how);
  }
  /// Ends the announced sleep. Requests stay.
  void mark_awake() noexcept { word_.fetch_and(~sleeps, std::memory_order_seq_cst); }

 private:
  static constexpr std::uint32_t sleeps =
      static_cast<std::uint32_t>(Sleeps::until_interrupt) | static_cast<std::uint32_t>(Sleeps::until_write);

  std::atomic<std::uint32_t> word_{0};
};
static_assert(sizeof(WakeWord) == 64);

}  // namespace neap
