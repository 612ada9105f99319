// SPDX-License-Identifier: BSL-1.0
// A machine of one core without a thread, in virtual time.
//
// HostMachine's core is a thread, so a test waits for it after each step, and the order of two steps needs care. A simulation with exact
// times cannot afford that. The core of a SteppedMachine is a coroutine on the caller's thread: it runs only inside `call`, `settle` and
// `advance_to`, and each of them returns when the core sleeps. So a run depends only on its inputs, and costs no switch of threads.
//
// A process has one SteppedMachine at a time, and no HostMachine beside it. The first one's time begins at one second, and a later one's at
// the next whole second after the end of the one before it, because the kernel's per-core state of times remains.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernel/task.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::host {

class SteppedMachine {
 public:
  /// `seed` determines all numbers that the machine takes from its random source.
  explicit SteppedMachine(std::uint64_t seed);
  SteppedMachine& operator=(SteppedMachine&&) = delete;
  ~SteppedMachine();

  /// Runs `work` as an event of the core, and all events that follow from it, until the core sleeps. `work` MUST NOT throw.
  void call(std::function<void()> work);
  /// Starts the task that `make` returns, and runs events until the core sleeps. Returns true if the task has ended.
  [[nodiscard]] bool run(std::function<task<void>()> make);
  /// Runs events until the core sleeps.
  void settle();
  /// Sets the clock to the time of each alarm in turn and runs its events, then to `time_ns`. A time in the past is ignored.
  void advance_to(std::uint64_t time_ns);
  /// As `advance_to(time_ns)`, but ends after the events of the first alarm. Returns false if there was no alarm until `time_ns`; the time
  /// is `time_ns` then.
  bool advance_to_alarm(std::uint64_t time_ns);
  [[nodiscard]] std::uint64_t now_ns() const noexcept { return now_ns_; }

 private:
  /// The place at which a stack has left off, as the compiler's `__builtin_setjmp` stores it.
  using Place = std::array<void*, 5>;
  static void run_core(unsigned high, unsigned low);
  static void leave(Place& from, const Place& to);
  [[noreturn]] static void jump(const Place& to);
  void begin();
  void resume();
  void begin_switch(bool to_core, bool for_good);
  void end_switch(bool to_core);

  static constexpr std::size_t stack_bytes = 256 << 10;
  std::uint64_t now_ns_;
  ManualClock clock_;
  std::unique_ptr<std::byte[]> stack_ = std::make_unique<std::byte[]>(stack_bytes);
  Place caller_{}, core_{};
  bool begun_ = false, ended_ = false;
  void *caller_frames_ = nullptr, *core_frames_ = nullptr;  // the address sanitizer's data of a stack that has left off
  const void* caller_stack_ = nullptr;
  std::size_t caller_stack_bytes_ = 0;
};

}  // namespace neap::host
