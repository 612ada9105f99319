// SPDX-License-Identifier: BSL-1.0
// Replaces kernel/x86 on the host: each core is a thread.
//
// A unit test needs the kernel's own sources, several cores and the sanitizers, without an emulator. Each core is a host thread in
// `run_event_loop`. Tests raise interrupts, and cores take them at the same points as on x86, between two events. A sleeping core waits for
// a condition variable. The machine's memory is one mapping.
//
//   HostMachine machine{4};
//   machine.on(2, [] { … });                 // runs as an event on core 2; returns when it has run
//   machine.interrupt(2, vector);
//
// Without a HostMachine the test's own thread counts as core 0 of a machine with one core. With a HostMachine, that thread is no core.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernel/machine.hpp"
#include "kernel/task.hpp"

namespace neap::host {

/// The core number of the test's own thread while a HostMachine exists.
constexpr unsigned no_core = machine::cores_max;

/// The constructor starts the cores, each in its event loop. The destructor stops and joins them, and destroys queued events.
class HostMachine {
 public:
  explicit HostMachine(unsigned cores);
  HostMachine& operator=(HostMachine&&) = delete;
  ~HostMachine();

  /// Runs `call` as an event on `core`, returns when it has run, and rethrows its exception. MUST NOT be called on a core.
  void on(unsigned core, std::function<void()> call);
  template <class Call>
  [[nodiscard]] auto value_on(unsigned core, Call call) {
    std::optional<std::invoke_result_t<Call&>> value;
    on(core, [&] { value.emplace(call()); });
    return *std::move(value);
  }
  /// Runs on `core` the task that `make` returns, until it ends. Aborts the process after `limit`.
  void run(unsigned core, std::function<task<void>()> make, std::chrono::seconds limit = std::chrono::seconds(50));
  /// Raises `vector` on `core`, like a device. MAY be called on any thread.
  void interrupt(unsigned core, std::uint8_t vector);
  /// Waits until `condition` holds; checks it on the test's thread every millisecond. Returns false after `limit`.
  [[nodiscard]] static bool wait_until(const std::function<bool()>& condition, std::chrono::seconds limit = std::chrono::seconds(20));
  /// Calls `count` at intervals of `apart` until two consecutive calls return the same value; returns that value. Returns no value after 20
  /// s.
  [[nodiscard]] static std::optional<std::uint64_t> settled(const std::function<std::uint64_t()>& count, std::chrono::milliseconds apart);
};

/// While an object of this class exists, `now_ns` changes only when the test sets it. A sleeping core wakes when its alarm is due. The
/// object MUST be made before the HostMachine.
class ManualClock {
 public:
  explicit ManualClock(std::uint64_t now_ns);
  ManualClock& operator=(ManualClock&&) = delete;
  ~ManualClock();
  void set(std::uint64_t now_ns);
  void advance(std::chrono::nanoseconds by);
};

// --- A core without a thread (stepped_machine.hpp) ---------------------------------------------------------------------------------------
/// Makes core 0, whose `sleep` calls `leave`. The calling thread is no core then, until `set_this_core`.
void begin_core_without_thread(std::function<void()> leave);
void end_core_without_thread();
/// The calling thread runs code of `core` from now on.
void set_this_core(unsigned core);
/// From now on, `machine::random_bits` returns a sequence that depends only on `seed`.
void seed_random_bits(std::uint64_t seed);

/// Advances a manual clock by `step` every 100 us while an object of this class exists and is not paused.
class ClockRunner {
 public:
  explicit ClockRunner(ManualClock& clock, std::chrono::milliseconds step = std::chrono::milliseconds(5));
  ClockRunner& operator=(ClockRunner&&) = delete;
  ~ClockRunner();
  /// The clock does not advance after this call.
  void pause() { set_running(false); }
  void resume() { set_running(true); }

 private:
  void set_running(bool running);

  std::mutex lock_;
  bool running_ = true;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

/// Return the alarm that `core` last set (`machine::alarm_none`: none), and the number of alarms that it has set.
[[nodiscard]] std::uint64_t alarm_of(unsigned core);
[[nodiscard]] std::uint64_t alarms_set(unsigned core);

/// Returns the state in which `core` sleeps now; no value while the core is awake.
[[nodiscard]] std::optional<IdleState> asleep_in(unsigned core);

// --- Power: abilities that the test sets, and a record of the calls (host_power.cpp) -----------------------------------------------------
/// Sets the abilities of the CPU. MUST be called before the HostMachine is made. Without a call the CPU has only halt and poll.
void set_power_abilities(const PowerAbilities& abilities);
/// Sets the facts about CPU and firmware. MUST be called before the HostMachine is made. Without a call all of them are absent.
void set_machine_facts(const MachineFacts& facts);
/// Sets the number of cores of a package. 0: one package has all cores.
void set_cores_per_package(unsigned cores);
/// Sets the counters that `machine::sample_counters` returns on `core`. Counters that are not `present` MUST be zero.
void set_counters(unsigned core, const CounterSample& sample);

/// A call that changed a setting of the machine.
struct PowerCall {
  enum class Kind : std::uint8_t { pstate, energy_preference, power_limit, turbo } kind;
  unsigned core;
  std::uint64_t value;
  bool operator==(const PowerCall&) const = default;
};
/// Returns all calls since the last `take_power_calls`, in order.
[[nodiscard]] std::vector<PowerCall> take_power_calls();
/// From now on, calls that change a setting fail on `core` with `unsupported`. With `no_core` they fail on no core.
void fail_power_calls(unsigned core);

/// Sets the frequency ratio that `core` is granted, independent of its request; 0: the machine does not report the ratio.
void set_granted_ratio(unsigned core, std::uint8_t ratio);

/// Returns how often `core` has checked for hardware errors since the last call.
[[nodiscard]] unsigned take_error_looks(unsigned core);

/// From now on, the last `count` of the cores that `machine::start_cores` is to start do not start.
void set_broken_cores(unsigned count);

void set_command_line(std::string_view line);

/// Sets the memory that `machine::kept_memory` returns, which survives a restart. It is empty at first.
void set_kept_memory(std::span<std::byte> area);

/// Returns the text written to the console since the last call. The text is also written to stderr.
[[nodiscard]] std::string take_console_text();

/// Sets the size of the page allocator's arena, for tests of the memory allocator. MUST NOT be called more than once in a process.
void set_memory_bytes(std::size_t bytes);
/// The first call in a process gives the arena to the page allocator. `arena_bytes`: 0 for the usual size.
void prepare_pages(std::size_t arena_bytes = 0);

}  // namespace neap::host
