// SPDX-License-Identifier: BSL-1.0
// gdb on the modelled machine: a stop takes no virtual time, and the run goes on as it would without the stop.
//
// QEMU counts instructions exactly under gdb, too, but three of its habits would change a run:
//
//   - A CPU at a breakpoint only asks the main thread for the stop. Until the machine has stopped, QEMU takes that CPU for one that sleeps.
//     If no other CPU has work, it skips time to the next timer. So the CPUs' thread waits here until the stop has begun.
//   - A stop ends QEMU's kick timer, which ends runs of several CPUs every 100 ms. After the stop the timer begins anew. Here it keeps its
//     time.
//   - gdb steps over a breakpoint with one CPU and holds the others. A step that has to wait for them would never end. Here it ends without
//     an instruction, and gdb reports the breakpoint again.
//
// By default a step of QEMU's takes no interrupt and stops the timers. The launcher turns that off (tools/debugger).
#include <array>
#include <chrono>
#include <cstdio>
#include <thread>

#include "sim/machine/qemu_cpu.hpp"

namespace neap::model::qemu {

namespace {

constexpr std::int32_t debug_exception = 0x10002;       // EXCP_DEBUG
constexpr std::int64_t kick_period_ns = 100'000'000;    // TCG_KICK_PERIOD
constexpr std::int64_t far_ns = std::int64_t{1} << 60;  // no other timer is there
constexpr unsigned timers_max = 1000;
constexpr std::chrono::seconds stop_limit{10};
constexpr std::chrono::microseconds stop_look{20};

using Timer = std::array<char, timer_bytes>;

void (*next_debug_exception)(Cpu*);
void* kick_timer = nullptr;  // of a machine with several CPUs
std::int64_t kick_at_ns = 0;
bool sleeps_after_stop = false;

bool is_stop_requested(Cpu* cpu) { return __atomic_load_n(&field<std::uint8_t>(cpu, offset::stop), __ATOMIC_SEQ_CST) != 0; }
bool& is_stopped(Cpu* cpu) { return field<bool>(cpu, offset::stop + 1); }

// Breakpoint, watchpoint or the end of a step. The caller requests the stop once more, and QEMU ignores that in a stopped machine.
// The stop ends the steps of all CPUs. QEMU ends only this CPU's, and gdb would report the others' later, as signals.
void handle_debug_exception(Cpu* cpu) {
  next_debug_exception(cpu);
  for (unsigned i = 0; i < cpu_count; ++i) q.cpu_single_step(cpus[i], 0);
  q.qemu_system_debug_request();
  const auto end = std::chrono::steady_clock::now() + stop_limit;
  while (!is_stop_requested(cpu)) {
    if (std::chrono::steady_clock::now() > end) {
      std::fputs("neap-machine: QEMU has not stopped for the debugger within 10 s: virtual time may go on\n", stderr);
      break;
    }
    std::this_thread::sleep_for(stop_look);
  }
  if (sleeps_after_stop) field<std::uint32_t>(cpu, offset::halted) = 1;
  sleeps_after_stop = false;
}

void init_timer(Timer& timer) {
  q.timer_init_full(timer.data(), nullptr, clock_virtual, 1, 0, [](void*) {}, nullptr);
}

/// The timer that expires one period after the start. A timer of our own, at the list's head, leads to it.
void* find_kick_timer() {
  alignas(16) static Timer head{};
  init_timer(head);
  q.timer_mod_ns(head.data(), 0);
  void* found = field<void*>(head.data(), offset::timer_next);
  for (unsigned i = 0; i < timers_max && found != nullptr; ++i) {
    if (field<std::int64_t>(found, offset::timer_expiry) == kick_period_ns) break;
    found = field<void*>(found, offset::timer_next);
  }
  q.timer_del(head.data());
  return found;
}

bool others_are_held(Cpu* cpu) {
  for (unsigned i = 0; i < cpu_count; ++i) {
    if (cpus[i] != cpu && is_awake(i) && is_stopped(cpus[i])) return true;
  }
  return false;
}

}  // namespace

bool is_stepped(Cpu* cpu) { return field<std::int32_t>(cpu, offset::single_step) != 0; }

bool step_cannot_go_on(Cpu* cpu) { return is_stepped(cpu) && others_are_held(cpu); }

void request_stop(Cpu* cpu, bool sleeps) {
  exception_of(cpu) = debug_exception;
  sleeps_after_stop = sleeps;
}

// A restart after a stop is less than a period after the last time that is known. If the timer has expired, it is a period or more.
const char* keep_kick_timer() {
  if (cpu_count < 2) return nullptr;
  if (kick_timer == nullptr) {
    q.bql_lock_impl(__FILE__, __LINE__);
    kick_timer = find_kick_timer();
    q.bql_unlock();
    kick_at_ns = kick_period_ns;
    return kick_timer == nullptr ? "QEMU's kick timer is not where 11.1.3 has it" : nullptr;
  }
  const std::int64_t at_ns = field<std::int64_t>(kick_timer, offset::timer_expiry);
  if (at_ns >= kick_at_ns + kick_period_ns) {
    kick_at_ns = at_ns;
  } else if (at_ns != kick_at_ns) {
    q.bql_lock_impl(__FILE__, __LINE__);
    q.timer_mod_ns(kick_timer, kick_at_ns);
    q.bql_unlock();
  }
  return nullptr;
}

const char* replace_debug_exception() {
  void*& handler = field<void*>(q.x86_tcg_ops, offset::debug_exception);
  if (handler != as_pointer(q.breakpoint_handler)) return "QEMU's function for breakpoints is not where 11.1.3 has it";
  next_debug_exception = q.breakpoint_handler;
  handler = as_pointer(handle_debug_exception);
  return nullptr;
}

const char* check_debugger(Cpu* cpu) {
  constexpr int some_flags = 0x55;
  auto& stop = field<std::uint8_t>(cpu, offset::stop);
  const std::uint8_t stop_before = stop;
  const bool stopped_before = is_stopped(cpu);
  stop = 1;
  is_stopped(cpu) = true;
  q.cpu_resume(cpu);
  const bool resumed = stop == 0 && !is_stopped(cpu);
  stop = stop_before;
  is_stopped(cpu) = stopped_before;
  if (!resumed) return "a CPU's request to stop is not where QEMU 11.1.3 has it";
  q.cpu_single_step(cpu, some_flags);
  const bool stepped = field<std::int32_t>(cpu, offset::single_step) == some_flags;
  q.cpu_single_step(cpu, 0);
  if (!stepped) return "a CPU's single step is not where QEMU 11.1.3 has it";
  alignas(16) static Timer first{}, second{};
  init_timer(first);
  init_timer(second);
  q.timer_mod_ns(first.data(), far_ns);
  q.timer_mod_ns(second.data(), far_ns + 1);
  const bool linked =
      field<std::int64_t>(first.data(), offset::timer_expiry) == far_ns && field<void*>(first.data(), offset::timer_next) == second.data();
  q.timer_del(first.data());
  q.timer_del(second.data());
  return linked ? nullptr : "QEMU's timers are not laid out as in 11.1.3";
}

}  // namespace neap::model::qemu
