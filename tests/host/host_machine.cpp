// SPDX-License-Identifier: BSL-1.0
#include "tests/host/host_machine.hpp"

#include <execinfo.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "kernel/boot_log.hpp"
#include "kernel/core.hpp"
#include "kernel/events.hpp"
#include "kernel/exception_text.hpp"
#include "kernel/interrupts.hpp"
#include "kernel/panic.hpp"
#include "kernel/wake_word.hpp"
#include "kernel/watched_line.hpp"
#include "tests/host/progress_watchdog.hpp"

namespace neap {
namespace {

struct HostCore {
  std::mutex mutex;
  std::condition_variable changed;
  bool woken = false;                     // a wake-up has arrived, and has not ended a sleep yet
  std::array<std::uint64_t, 4> raised{};  // a bit for each interrupt not yet taken
  std::uint64_t alarm_ns = machine::alarm_none, alarms_set = 0;
  std::atomic<bool> any_raised{false};  // true if `raised` has a bit; an interrupt window reads this without the lock
  std::optional<IdleState> asleep_in;
  std::thread thread;
};

std::array<std::unique_ptr<HostCore>, machine::cores_max> cores;
unsigned cores_made = 0;  // no core has this number or a higher one
std::mutex cores_change;  // held while cores are made, destroyed, or woken by a test that sets the clock
std::atomic<unsigned> running_cores{1};
constinit thread_local unsigned own_core = 0;
std::function<void()> leave_core;                              // not empty: core 0 has no thread, and calls this to sleep
std::optional<std::uint64_t> random_state;                     // no value: random bits come from the system
constinit thread_local host::WatchedWork* own_work = nullptr;  // not null on the thread of a core

constexpr std::uint64_t clock_runs = ~std::uint64_t{0};
std::atomic<std::uint64_t> manual_now_ns{clock_runs};
std::mutex console_mutex;
std::string console_text, command_line_text;
unsigned broken_cores = 0;
std::span<std::byte> kept_memory_area;

std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}
const std::uint64_t boot_ns = monotonic_ns();

HostCore& host_core(unsigned core) {
  if (core >= machine::cores_max || cores[core] == nullptr) {
    std::fprintf(stderr, "host machine: core %u does not exist\n", core);
    std::abort();
  }
  return *cores[core];
}

/// Takes all raised interrupts. Returns the lowest vector, or 0 if none was raised.
std::uint8_t take_interrupts(HostCore& self) noexcept {
  if (!self.any_raised.load(std::memory_order_relaxed)) return 0;
  std::array<std::uint64_t, 4> taken{};
  {
    const std::lock_guard lock(self.mutex);
    std::swap(taken, self.raised);
    self.any_raised.store(false, std::memory_order_relaxed);
  }
  std::uint8_t first = 0;
  for (unsigned vector = 0; vector < 256; ++vector) {
    if (((taken[vector / 64] >> (vector % 64)) & 1) == 0) continue;
    if (first == 0) first = static_cast<std::uint8_t>(vector);
    interrupt_arrived(static_cast<std::uint8_t>(vector));
  }
  return first;
}

void run_core(unsigned core, void (*entry)()) {
  own_core = core;
  host::WatchedWork work("an event of core " + std::to_string(core));
  own_work = &work;
  entry();
  own_work = nullptr;
}

void make_core(unsigned core) {
  if (cores[core] != nullptr) return;
  const std::lock_guard lock(cores_change);
  cores[core] = std::make_unique<HostCore>();
  cores_made = std::max(cores_made, core + 1);
}

}  // namespace

namespace machine {

unsigned core_count() noexcept { return running_cores.load(std::memory_order_relaxed); }
unsigned this_core() noexcept { return own_core; }
unsigned cores_present() noexcept { return 4; }
CorePlace present_place(unsigned present) noexcept {
  return {.package = 0, .core = present, .thread = 0, .node = node_of(present), .running = present < core_count() ? present : cores_max};
}

unsigned start_cores(const CoreSet& wanted, void (*entry)()) noexcept {
  const auto wanted_count = static_cast<unsigned>(wanted.count());
  const unsigned count = wanted_count - std::min(broken_cores, wanted_count - 1);
  make_core(0);
  for (unsigned i = 1; i < count; ++i) make_core(i);
  running_cores.store(count, std::memory_order_relaxed);
  for (unsigned i = 1; i < count; ++i) {
    cores[i]->thread = std::thread(run_core, i, entry);
  }
  return count;
}

// The event loop calls this between any two events.
void open_interrupt_window() noexcept {
  if (own_work != nullptr) own_work->begin_piece();
  HostCore* const self = cores[own_core].get();
  if (self != nullptr) take_interrupts(*self);
}

// In all states a sender calls `end_sleep`, because a thread cannot wait for a write.
Sleep sleep(IdleState state, WakeWord& word, const WatchedLine* watched) noexcept {
  constexpr std::chrono::milliseconds look_at_line{1};
  HostCore& self = host_core(own_core);
  const bool announced = word.announce_sleep(WakeWord::Sleeps::until_interrupt);
  const bool sleeps = announced && (watched == nullptr || !watched->changed());
  Sleep how;
  if (sleeps) {
    if (own_work != nullptr) own_work->end_piece();
    std::unique_lock lock(self.mutex);
    self.asleep_in = state;
    const auto over = [&] {
      return self.woken || self.any_raised.load(std::memory_order_relaxed) || now_ns() >= self.alarm_ns ||
             (watched != nullptr && watched->changed());
    };
    while (!over()) {
      if (leave_core) {
        lock.unlock();
        leave_core();
        lock.lock();
      } else if (watched != nullptr) {
        self.changed.wait_for(lock, look_at_line);
      } else if (self.alarm_ns == alarm_none || manual_now_ns.load(std::memory_order_relaxed) != clock_runs) {
        self.changed.wait(lock);
      } else {
        self.changed.wait_for(lock, std::chrono::nanoseconds(self.alarm_ns - now_ns()));
      }
    }
    // As on x86, an interrupt wakes a core that halts or watches a line; in the MWAIT states, a write to the core's wake-up word does.
    const bool by_interrupt = state == IdleState::halt || watched != nullptr;
    how.cause = now_ns() >= self.alarm_ns ? WakeCause::timer
                : !self.woken             ? WakeCause::unknown
                : by_interrupt            ? WakeCause::wake_up
                                          : WakeCause::memory;
    self.woken = false;
    self.asleep_in.reset();
    if (how.cause == WakeCause::timer) {
      self.alarm_ns = alarm_none;  // an alarm fires once
      alarm_fired();
    }
  }
  if (announced) word.mark_awake();
  const std::uint8_t vector = take_interrupts(self);
  return sleeps && vector != 0 ? Sleep{.cause = WakeCause::interrupt, .vector = vector} : how;
}

void pause() noexcept { std::this_thread::yield(); }

void end_sleep(unsigned core) noexcept {
  HostCore& target = host_core(core);
  const std::lock_guard lock(target.mutex);
  target.woken = true;
  target.changed.notify_one();
}

std::uint64_t now_ns() noexcept {
  const std::uint64_t manual = manual_now_ns.load(std::memory_order_relaxed);
  return manual != clock_runs ? manual : monotonic_ns() - boot_ns;
}
std::uint64_t timestamp() noexcept { return now_ns(); }
std::uint64_t timestamp_hz() noexcept { return 1'000'000'000; }
std::uint64_t timestamp_before(std::uint64_t ns) noexcept { return ns; }
std::uint64_t wall_clock_at_boot_ns() noexcept { return 1'700'000'000'000'000'000; }

void set_alarm(std::uint64_t deadline_ns) noexcept {
  make_core(own_core);
  HostCore& self = host_core(own_core);
  const std::lock_guard lock(self.mutex);
  self.alarm_ns = deadline_ns;
  ++self.alarms_set;
}

void* direct_map(std::uint64_t physical) noexcept { return reinterpret_cast<void*>(physical); }
bool in_direct_map(const void*) noexcept { return true; }
std::uint64_t physical_address(const void* pointer) noexcept { return reinterpret_cast<std::uint64_t>(pointer); }

std::uint64_t random_bits() noexcept {
  std::uint64_t bits = 0;
  if (random_state) {  // SplitMix64
    bits = *random_state += 0x9E3779B97F4A7C15;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB;
    return bits ^ bits >> 31;
  }
  if (getentropy(&bits, sizeof bits) != 0) std::abort();
  return bits;
}

void console_write(std::string_view text) noexcept {
  boot_log::append(text);
  const std::lock_guard lock(console_mutex);
  console_text += text;
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::span<std::byte> kept_memory() noexcept { return kept_memory_area; }
void write_back_caches() noexcept {}
void exit(ExitStatus status) noexcept { std::_Exit(static_cast<int>(status)); }
void power_off() noexcept { std::_Exit(static_cast<int>(ExitStatus::success)); }
void reboot() noexcept { std::_Exit(static_cast<int>(ExitStatus::failure)); }
void print_other_cores() noexcept {}

void print_backtrace(unsigned) noexcept {
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
}

std::string_view code_name(std::uintptr_t code, std::span<char> buffer) noexcept {
  const int length = std::snprintf(buffer.data(), buffer.size(), "code at %#zx", code);
  return {buffer.data(), std::min(static_cast<std::size_t>(length), buffer.size() - 1)};
}
std::string_view event_on(unsigned core, std::span<char> buffer) noexcept {
  const int length = std::snprintf(buffer.data(), buffer.size(), "event of core %u", core);
  return {buffer.data(), std::min(static_cast<std::size_t>(length), buffer.size() - 1)};
}

void stop_other_cores() noexcept {}  // the other threads end with the process

std::string_view command_line() noexcept { return command_line_text; }
std::span<const BootModule> boot_modules() noexcept { return {}; }

}  // namespace machine

namespace host {

HostMachine::HostMachine(unsigned count) {
  install_terminate_handler();
  prepare_cores(count);
  machine::CoreSet wanted;
  for (unsigned i = 0; i < count; ++i) wanted.set(i);
  machine::start_cores(wanted, [] { run_event_loop(); });
  cores[0]->thread = std::thread(run_core, 0, +[] { run_event_loop(); });
  own_core = no_core;
}

HostMachine::~HostMachine() {
  for (unsigned i = 0; i < machine::core_count(); ++i) on(i, [] { stop_event_loop(); });
  for (unsigned i = 0; i < machine::core_count(); ++i) cores[i]->thread.join();
  release_cores();
  {
    const std::lock_guard lock(cores_change);
    for (auto& core : cores) core.reset();
    cores_made = 0;
  }
  running_cores.store(1, std::memory_order_relaxed);
  own_core = 0;
}

void begin_core_without_thread(std::function<void()> leave) {
  install_terminate_handler();
  prepare_cores(1);
  machine::start_cores(machine::CoreSet(1), [] {});
  leave_core = std::move(leave);
  own_core = no_core;
}

void end_core_without_thread() {
  leave_core = nullptr;
  release_cores();
  own_core = 0;
  // The core's alarm stays. The kernel's state of the core is the thread's, so the next machine still relies on an alarm that this one set.
}

void set_this_core(unsigned core) { own_core = core; }
void seed_random_bits(std::uint64_t seed) { random_state = seed; }

void HostMachine::on(unsigned core, std::function<void()> call) {
  require(own_core == no_core, "HostMachine::on waits, so no core may call it");
  struct Request : RemoteNode {
    std::function<void()> call;
    std::exception_ptr exception;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  } request;
  request.call = std::move(call);
  request.run = [](RemoteNode* node) noexcept {
    auto& self = *static_cast<Request*>(node);
    try {
      self.call();
    } catch (...) {
      self.exception = std::current_exception();
    }
    const std::lock_guard lock(self.mutex);
    self.done = true;
    self.changed.notify_one();
  };
  hand_over(core, request);
  std::unique_lock lock(request.mutex);
  request.changed.wait(lock, [&] { return request.done; });
  if (request.exception) std::rethrow_exception(request.exception);
}

namespace {

struct Outcome {
  std::atomic<bool> done{false};
  std::exception_ptr exception;
};

task<void> run_to_end(std::function<task<void>()> make, std::shared_ptr<Outcome> outcome) {
  try {
    co_await make();
  } catch (...) {
    outcome->exception = std::current_exception();
  }
  outcome->done.store(true, std::memory_order_release);
}

}  // namespace

void HostMachine::run(unsigned core, std::function<task<void>()> make, std::chrono::seconds limit) {
  const auto outcome = std::make_shared<Outcome>();
  on(core, [&] { start(run_to_end(std::move(make), outcome)); });
  if (!wait_until([&] { return outcome->done.load(std::memory_order_acquire); }, limit)) {
    std::fprintf(stderr, "host machine: a task on core %u did not end in %lld s\n", core, static_cast<long long>(limit.count()));
    std::abort();
  }
  on(core, [] {});  // when this event has run, the task's coroutine frame is freed
  if (outcome->exception) std::rethrow_exception(outcome->exception);
}

void HostMachine::interrupt(unsigned core, std::uint8_t vector) {
  HostCore& target = host_core(core);
  const std::lock_guard lock(target.mutex);
  target.raised[vector / 64] |= std::uint64_t{1} << (vector % 64);
  target.any_raised.store(true, std::memory_order_relaxed);
  target.changed.notify_one();
}

std::optional<std::uint64_t> HostMachine::settled(const std::function<std::uint64_t()>& count, std::chrono::milliseconds apart) {
  std::uint64_t value = count();
  const bool is_settled = wait_until([&] {
    std::this_thread::sleep_for(apart);
    return std::exchange(value, count()) == value;
  });
  return is_settled ? std::optional(value) : std::nullopt;
}

bool HostMachine::wait_until(const std::function<bool()>& condition, std::chrono::seconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

namespace {

void set_manual(std::uint64_t now_ns) {
  manual_now_ns.store(now_ns, std::memory_order_relaxed);
  const std::lock_guard machine_stays(cores_change);
  for (auto& core : std::span(cores).first(cores_made)) {
    if (core == nullptr) continue;
    const std::lock_guard lock(core->mutex);
    core->changed.notify_one();
  }
}

}  // namespace

ManualClock::ManualClock(std::uint64_t now_ns) { set_manual(now_ns); }
ManualClock::~ManualClock() { set_manual(clock_runs); }
void ManualClock::set(std::uint64_t now_ns) { set_manual(now_ns); }
void ManualClock::advance(std::chrono::nanoseconds by) {
  set_manual(manual_now_ns.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(by.count()));
}

ClockRunner::ClockRunner(ManualClock& clock, std::chrono::milliseconds step)
    : thread_([this, &clock, step] {
        while (!ended_) {
          {
            const std::lock_guard lock(lock_);
            if (running_) clock.advance(step);
          }
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
      }) {}
ClockRunner::~ClockRunner() {
  ended_ = true;
  thread_.join();
}
void ClockRunner::set_running(bool running) {
  const std::lock_guard lock(lock_);
  running_ = running;
}

std::uint64_t alarm_of(unsigned core) {
  HostCore& target = host_core(core);
  const std::lock_guard lock(target.mutex);
  return target.alarm_ns;
}
std::uint64_t alarms_set(unsigned core) {
  HostCore& target = host_core(core);
  const std::lock_guard lock(target.mutex);
  return target.alarms_set;
}

std::optional<IdleState> asleep_in(unsigned core) {
  HostCore& target = host_core(core);
  const std::lock_guard lock(target.mutex);
  return target.asleep_in;
}

void set_kept_memory(std::span<std::byte> area) { kept_memory_area = area; }
void set_broken_cores(unsigned count) { broken_cores = count; }
void set_command_line(std::string_view line) { command_line_text = line; }

std::string take_console_text() {
  const std::lock_guard lock(console_mutex);
  return std::exchange(console_text, {});
}

}  // namespace host
}  // namespace neap
