// SPDX-License-Identifier: BSL-1.0
// The host's stand-in for kernel/x86: one thread a core.
//
// A unit test wants the kernel's own sources, several cores and the sanitizers, and no emulator. Each core is a host thread in
// `run_event_loop`; interrupts are injected by the test and taken where the real machine takes them; sleep is a condition variable; memory
// is one mapping.
//
//   HostMachine machine{4};
//   machine.on(2, [] { … });                 // as an event on core 2; returns when it has run
//   machine.interrupt(2, vector);
//
// Without a HostMachine a test's own thread counts as core 0 of 1 (for code that is not about cores); while one exists it is no core at
// all.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernel/machine.hpp"
#include "kernel/task.hpp"

namespace neap::host {

/// What the test's own thread is while a HostMachine exists.
constexpr unsigned no_core = machine::cores_max;

/// Starts cores on construction, each in its event loop; stops and joins them on destruction. What is still queued then is destroyed, not
/// run.
class HostMachine {
 public:
  explicit HostMachine(unsigned cores);
  HostMachine(const HostMachine&) = delete;
  HostMachine& operator=(const HostMachine&) = delete;
  ~HostMachine();

  /// Runs `call` as an event on `core`; returns when it has run, with its exception if it threw one. Never called from a core.
  void on(unsigned core, std::function<void()> call);
  /// Runs the task that `make` returns, on `core`, to its end. Fails the process after `limit`.
  void run(unsigned core, std::function<task<void>()> make, std::chrono::seconds limit = std::chrono::seconds(50));
  /// Raises `vector` on `core`, as a device would. Any thread.
  void interrupt(unsigned core, std::uint8_t vector);
  /// Waits until `condition` holds, asking on the test's thread every millisecond; false after `limit`.
  [[nodiscard]] static bool wait_until(const std::function<bool()>& condition, std::chrono::seconds limit = std::chrono::seconds(20));
};

/// While it exists, `now_ns` is what the test says; sleeping cores wake when their alarm comes. Before the HostMachine is made.
class ManualClock {
 public:
  explicit ManualClock(std::uint64_t now_ns);
  ManualClock(const ManualClock&) = delete;
  ManualClock& operator=(const ManualClock&) = delete;
  ~ManualClock();
  void set(std::uint64_t now_ns);
  void advance(std::chrono::nanoseconds by);
};

/// The alarm that `core` last asked for (`machine::alarm_none`: none), and how often it asked.
[[nodiscard]] std::uint64_t alarm_of(unsigned core);
[[nodiscard]] std::uint64_t alarms_set(unsigned core);

/// The state that `core` sleeps in at this moment; nothing while it is awake.
[[nodiscard]] std::optional<IdleState> asleep_in(unsigned core);

// --- Power: a machine as the test wants it, that remembers what it was told (host_power.cpp) --------------------------------------------

/// What the CPU can do from now on. Before the HostMachine is made. Without a call: halt and poll, nothing else.
void set_power_abilities(const PowerAbilities& abilities);
/// How many cores a package has; 0: all of them.
void set_cores_per_package(unsigned cores);
/// Counters that `machine::sample_counters` gives on `core`; zero what is not `present`.
void set_counters(unsigned core, const CounterSample& sample);

/// A setting that reached the machine.
struct PowerCall {
  enum class Kind : std::uint8_t { performance, energy_preference, power_limit, turbo } kind;
  unsigned core;
  std::uint64_t value;
  bool operator==(const PowerCall&) const = default;
};
/// All since the last call, in order.
[[nodiscard]] std::vector<PowerCall> take_power_calls();
/// From now on such calls fail on `core`, with `unsupported`; `no_core`: nowhere.
void fail_power_calls(unsigned core);

/// The ratio that `core` is granted, whatever it asks for; 0: the machine does not tell.
void set_granted_ratio(unsigned core, std::uint8_t ratio);

/// How often `core` looked for errors of the hardware since the last call.
[[nodiscard]] unsigned take_error_looks(unsigned core);

/// What `machine::command_line` says from now on.
void set_command_line(std::string_view line);

/// What `machine::kept_memory` is from now on; at first nothing.
void set_kept_memory(std::span<std::byte> area);

/// What was written to the console since the last call, which is also on stderr.
[[nodiscard]] std::string take_console_text();

/// For tests of the memory allocator: makes the page allocator's arena of this many bytes, once a process.
void set_memory_bytes(std::size_t bytes);

}  // namespace neap::host
