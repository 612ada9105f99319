// SPDX-License-Identifier: BSL-1.0
// QEMU's services for the model.
#include "sim/machine/qemu.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "sim/machine/qemu_cpu.hpp"

namespace neap::model::qemu {

namespace {
constexpr std::uint64_t budget_max = 0x7fffffff, budget_low_max = 0xffff;
std::uint64_t executed_before = 0;
}  // namespace

std::int64_t take_executed() {
  if (current != nullptr && *current != nullptr) q.icount_update(*current);
  const auto now = field<std::uint64_t>(q.timers_state, offset::executed) - ahead;
  const auto difference = static_cast<std::int64_t>(now - executed_before);
  executed_before = now;
  return difference;
}
std::uint64_t skipped_ns() { return static_cast<std::uint64_t>(field<std::int64_t>(q.timers_state, offset::skipped)); }
std::int64_t next_timer_ns() { return q.qemu_clock_deadline_ns_all(clock_virtual, -1); }

bool in_cpu_thread() { return q.qemu_in_vcpu_thread(); }
unsigned current_cpu() { return number_of(*current); }
bool current_cpu_runs() { return field<bool>(*current, offset::running); }
bool global_lock_held() { return q.bql_locked(); }

bool is_awake(unsigned cpu) {
  Cpu* const one = cpus[cpu];
  return one != nullptr && (field<std::uint32_t>(one, offset::halted) == 0 || q.cpu_has_work(one));
}
bool is_at_user_level(unsigned cpu) { return cpus[cpu] != nullptr && level_of(registers_of(cpus[cpu])) == hidden_level; }
void end_halt(unsigned cpu) { field<std::uint32_t>(cpus[cpu], offset::halted) = 0; }
void end_current_run() { q.cpu_exit(*current); }

void set_budget(unsigned cpu, std::uint64_t instructions) {
  Cpu* const one = cpus[cpu];
  // The instructions in `ahead` were already subtracted from the budget.
  const std::uint64_t budget = std::min(instructions - std::min(instructions, ahead), budget_max), low = std::min(budget, budget_low_max);
  q.icount_update(one);
  field<std::int64_t>(one, offset::budget) = static_cast<std::int64_t>(budget);
  field<std::uint16_t>(one, offset::budget_low) = static_cast<std::uint16_t>(low);
  field<std::int64_t>(one, offset::budget_rest) = static_cast<std::int64_t>(budget - low);
}

void set_timer(std::uint64_t at_ns) { q.timer_mod_ns(timer.data(), static_cast<std::int64_t>(at_ns)); }
void clear_timer() { q.timer_del(timer.data()); }

void notify_card_vector(unsigned number) {
  static void* card = nullptr;
  if (card == nullptr) card = q.object_resolve_path_type("", "vfio-user-pci", nullptr);
  if (card != nullptr) q.msix_notify(card, number);
}

void interrupt_runs(unsigned mean_us) {
  std::thread([mean_us] {
    std::mt19937 random(std::random_device{}());
    std::uniform_int_distribution<unsigned> wait_us(1, 2 * mean_us);
    for (;;) {  // until the process ends
      std::this_thread::sleep_for(std::chrono::microseconds(wait_us(random)));
      for (Cpu* const one : cpus) {
        if (one != nullptr) q.cpu_exit(one);
      }
    }
  }).detach();
}

void end_process(int status) {
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace neap::model::qemu
