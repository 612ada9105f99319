// SPDX-License-Identifier: BSL-1.0
#include "kernel/watchdog.hpp"

#include <algorithm>
#include <array>
#include <atomic>

#include "kernel/arguments.hpp"
#include "kernel/console.hpp"
#include "kernel/core.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap::watchdog {

constinit bool on = false;

namespace {

constinit std::uint64_t limit_ns = 0;
constinit std::atomic<std::uint64_t> named_events{0};

/// The part of a core's state that other cores read. It has a cache line of its own.
struct alignas(64) Watched {
  std::atomic<std::uint64_t> began_ns{0};     // the beginning of the present event; 0: no event
  std::atomic<std::uint64_t> reported_ns{0};  // the beginning of the last event that another core reported
};
constinit std::array<Watched, machine::cores_max> all{};
constinit thread_local std::uintptr_t present_code = 0;
constinit thread_local std::uint64_t awake_look_ns = 0;

constexpr unsigned guards = 2;  // cores 0 and 1: one checks while the other runs an event
/// The time for which the guards set their alarms, to check the other cores. A time in the past: no alarm is set.
alignas(64) constinit std::atomic<std::uint64_t> guarded_until_ns{0};
constinit thread_local std::uint64_t guard_alarm_ns = machine::alarm_none;

std::uint64_t milliseconds(std::uint64_t ns) { return ns / 1'000'000; }

void name_finished(unsigned core, std::uint64_t took_ns) noexcept {
  named_events.fetch_add(1, std::memory_order_relaxed);
  std::array<char, 200> buffer;
  print("watchdog: an event of core ", core, " took ", milliseconds(took_ns), " ms: ", machine::code_name(present_code, buffer));
}

void look_at_others(unsigned self, std::uint64_t now_ns) noexcept {
  awake_look_ns = now_ns + limit_ns / 4;
  for (unsigned core = 0; core < machine::core_count(); ++core) {
    if (core == self) continue;
    Watched& other = all[core];
    std::uint64_t reported = other.reported_ns.load(std::memory_order_relaxed);
    const std::uint64_t began_ns = other.began_ns.load(std::memory_order_acquire);
    if (began_ns == 0 || began_ns == reported || now_ns < began_ns + limit_ns) continue;
    if (!other.reported_ns.compare_exchange_strong(reported, began_ns)) continue;  // another core reports this event
    std::array<char, 200> buffer;
    const std::string_view name = machine::event_on(core, buffer);
    if (other.began_ns.load(std::memory_order_acquire) != began_ns) continue;  // the event has ended; its own core reports it
    print("watchdog: core ", core, " has been in an event for ", milliseconds(now_ns - began_ns), " ms: ", name.empty() ? "?" : name,
          " (seen by core ", self, ')');
  }
}

bool another_is_in_an_event(unsigned self) noexcept {
  for (unsigned core = 0; core < machine::core_count(); ++core) {
    if (core != self && all[core].began_ns.load(std::memory_order_acquire) != 0) return true;
  }
  return false;
}

/// Called when an event begins: makes sure that the guards will check, but not sooner than an eighth of a limit from now. An earlier check
/// might not see the event, and the guard would then set no alarm.
void wake_guards(unsigned self, std::uint64_t now_ns) noexcept {
  std::uint64_t until_ns = guarded_until_ns.load(std::memory_order_relaxed);
  if (now_ns + limit_ns / 8 < until_ns || machine::core_count() == 1) return;
  if (!guarded_until_ns.compare_exchange_strong(until_ns, now_ns + limit_ns / 2)) return;  // another core wakes the guards
  for (unsigned core = 0; core < std::min(guards, machine::core_count()); ++core) {
    if (core != self) wake(core);
  }
}

/// Called when a guard found no work: checks the other cores if its alarm fired, and sets the time of the next alarm.
void guard(unsigned self, std::uint64_t now_ns) noexcept {
  std::uint64_t until_ns = guarded_until_ns.load(std::memory_order_acquire);
  if (until_ns != 0 && now_ns >= until_ns) {
    look_at_others(self, now_ns);
    if (another_is_in_an_event(self)) guarded_until_ns.compare_exchange_strong(until_ns, now_ns + limit_ns / 2);
    until_ns = guarded_until_ns.load(std::memory_order_acquire);
  }
  guard_alarm_ns = until_ns > now_ns ? until_ns : machine::alarm_none;
}

/// Called when the present event, if there is one, has ended.
void end(Watched& own, unsigned self, std::uint64_t now_ns) noexcept {
  const std::uint64_t began_ns = own.began_ns.load(std::memory_order_relaxed);
  if (began_ns != 0 && now_ns >= began_ns + limit_ns) name_finished(self, now_ns - began_ns);
}

}  // namespace

void configure(Arguments& arguments) {
  configure(arguments.duration("watchdog", std::chrono::nanoseconds(0), "name events that run longer than this; 0s: off"));
}

void configure(std::chrono::nanoseconds limit) noexcept {
  require(limit.count() >= 0, "a limit below zero");
  limit_ns = static_cast<std::uint64_t>(limit.count());
  on = limit_ns != 0;
  guarded_until_ns.store(0, std::memory_order_relaxed);
  for (Watched& core : all) core.reported_ns.store(0, std::memory_order_relaxed);
}

void begin(std::uintptr_t code) noexcept {
  const unsigned self = machine::this_core();
  const std::uint64_t now_ns = machine::now_ns();
  require(self < machine::core_count(), "an event on a thread that is no core", self);
  Watched& own = all[self];
  end(own, self, now_ns);
  // The clock is read again, because `end` may have printed on a slow console. The printing time is counted for no event.
  present_code = code;
  own.began_ns.store(std::max<std::uint64_t>(machine::now_ns(), 1), std::memory_order_release);
  wake_guards(self, now_ns);
  if (now_ns >= awake_look_ns) look_at_others(self, now_ns);
}

void idle() noexcept {
  const unsigned self = machine::this_core();
  const std::uint64_t now_ns = machine::now_ns();
  end(all[self], self, now_ns);
  all[self].began_ns.store(0, std::memory_order_release);
  if (self < guards) guard(self, now_ns);
  if (now_ns >= awake_look_ns) look_at_others(self, now_ns);
}

std::uint64_t next_look_ns() noexcept { return guard_alarm_ns; }
std::uint64_t named() noexcept { return named_events.load(std::memory_order_relaxed); }

}  // namespace neap::watchdog
