// SPDX-License-Identifier: BSL-1.0
// The instructions that the model replaces: those that sleep, that read time or counters, and that change the privilege level.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "sim/machine/qemu_cpu.hpp"

namespace neap::model::qemu {

namespace {

constexpr std::uint64_t flag_interrupts = 1 << 9, flag_resume = 1 << 16;
constexpr std::uint32_t hidden_interrupt_shadow = 1 << 3;
constexpr std::uint64_t line_bytes = 64;
constexpr std::uint64_t no_attributes = 1;  // MEMTXATTRS_UNSPECIFIED
constexpr unsigned skips_max = 1'000'000;

enum Register : std::size_t { rax = 0, rcx = 8, rdx = 16, rbx = 24 };
std::uint32_t low_word(void* registers, Register which) { return static_cast<std::uint32_t>(field<std::uint64_t>(registers, which)); }
void set_pair(void* registers, std::uint64_t value) {
  field<std::uint64_t>(registers, rax) = static_cast<std::uint32_t>(value);
  field<std::uint64_t>(registers, rdx) = value >> 32;
}
void clear_interrupt_shadow(void* registers) { field<std::uint32_t>(registers, offset::hidden_flags) &= ~hidden_interrupt_shadow; }

// Translated code counts a block's instructions when it enters the block. An instruction in the middle therefore sees too many. QEMU's way
// to restore a CPU's state at a host address knows how many are left; the count that it gives back is taken away again.
std::uint64_t instructions_left_in_block(Cpu* cpu, const void* caller) {
  auto& low = field<std::uint16_t>(cpu, offset::budget_low);
  const std::uint16_t before = low;
  q.cpu_restore_state(cpu, reinterpret_cast<std::uintptr_t>(caller));
  const auto left = static_cast<std::uint16_t>(low - before);
  low = before;
  return left;
}

// --- Sleep: everybody's time is skipped --------------------------------------------------------------------------------------------------

bool skips_idle_time = true;

bool any_awake() {
  return std::any_of(cpus.begin(), cpus.begin() + cpu_count, [](Cpu* cpu) { return is_awake(number_of(cpu)); });
}

// All CPUs sleep: time goes to the next timer here and now, until one has work. QEMU would leave that to its main thread, and pay for two
// changes of threads each time. Returns true if the CPU's halt was ended meanwhile.
bool skip_idle_time(Cpu* cpu) {
  if (!skips_idle_time) return false;
  q.bql_lock_impl(__FILE__, __LINE__);
  field<bool>(cpu, offset::running) = false;
  field<std::uint32_t>(cpu, offset::halted) = 1;
  for (unsigned i = 0; i < skips_max; ++i) {
    hooks.look_at_memory();
    if (any_awake()) break;
    const std::int64_t left = q.qemu_clock_deadline_ns_all(clock_virtual, -1);
    if (left < 0) break;
    field<std::int64_t>(q.timers_state, offset::skipped) += left;
    q.qemu_clock_run_timers(clock_virtual);
  }
  field<bool>(cpu, offset::running) = true;
  const bool ended = field<std::uint32_t>(cpu, offset::halted) == 0;
  if (is_stepped(cpu)) field<std::uint32_t>(cpu, offset::halted) = 0;  // see request_stop
  q.bql_unlock();
  return ended;
}

}  // namespace

void leave_idle_time_to_qemu() { skips_idle_time = false; }

namespace {

// --- Instructions. Functions that do not return end by longjmp: no destructors in them ---------------------------------------------------

// A step of gdb's ends after these instructions, too. QEMU would go on with the next one, or sleep.
void end_step(void* registers, bool sleeps = false) {
  Cpu* const cpu = cpu_of(registers);
  if (!is_stepped(cpu)) return;
  clear_interrupt_shadow(registers);
  field<std::uint64_t>(registers, offset::flags) &= ~flag_resume;
  request_stop(cpu, sleeps);
  q.cpu_loop_exit(cpu);
}

[[noreturn]] void end_run_after(void* registers, int bytes) {
  field<std::uint64_t>(registers, offset::rip) += static_cast<unsigned>(bytes);
  end_step(registers);
  q.helper_pause(registers);
}

[[noreturn]] void sleep_now(void* registers) {
  clear_interrupt_shadow(registers);
  const bool ended = skip_idle_time(cpu_of(registers));
  end_step(registers, !ended);
  if (ended) q.helper_pause(registers);
  q.helper_hlt(registers);
}

using PlainHelper = void(void*);
PlainHelper *next_rdmsr, *next_wrmsr, *next_cpuid, *next_rdtsc;
void (*next_rdpmc)(void*);
void (*next_monitor)(void*, std::uint64_t);
void (*next_port_write[3])(void*, std::uint32_t, std::uint32_t);

void wait_for_tsc(Cpu* cpu, const void* caller) {
  if (hooks.may_read_tsc(number_of(cpu))) return;
  if (step_cannot_go_on(cpu)) {
    request_stop(cpu);
  } else {
    q.cpu_exit(cpu);
  }
  q.cpu_loop_exit_restore(cpu, reinterpret_cast<std::uintptr_t>(caller));
}

void helper_rdtsc(void* registers) {
  wait_for_tsc(cpu_of(registers), __builtin_return_address(0));
  next_rdtsc(registers);
}

void helper_rdmsr(void* registers) {
  Cpu* const cpu = cpu_of(registers);
  std::uint64_t value = 0;
  if (low_word(registers, rcx) == time_stamp_counter_msr) wait_for_tsc(cpu, __builtin_return_address(0));
  ahead = instructions_left_in_block(cpu, __builtin_return_address(0));
  const bool ours = hooks.read_msr(number_of(cpu), low_word(registers, rcx), value);
  ahead = 0;
  if (!ours) return next_rdmsr(registers);
  set_pair(registers, value);
}

void helper_wrmsr(void* registers) {
  Cpu* const cpu = cpu_of(registers);
  const std::uint64_t value = low_word(registers, rax) | std::uint64_t{low_word(registers, rdx)} << 32;
  ahead = instructions_left_in_block(cpu, __builtin_return_address(0));
  const bool ours = hooks.write_msr(number_of(cpu), low_word(registers, rcx), value);
  ahead = 0;
  if (!ours) next_wrmsr(registers);
}

// Its length is two bytes (SDM 2B, RDPMC); translated code does not expect it to return. Without CR4.PCE it is for level 0, and QEMU's own
// function raises the exception.
[[noreturn]] void helper_rdpmc(void* registers) {
  constexpr int rdpmc_bytes = 2, cr4 = 4;
  constexpr std::uint64_t counters_for_users = 1 << 8;
  const bool allowed = level_of(registers) == 0 || (control_register(registers, cr4) & counters_for_users) != 0;
  Cpu* const cpu = cpu_of(registers);
  std::uint64_t value = 0;
  ahead = instructions_left_in_block(cpu, __builtin_return_address(0));
  const bool exists = allowed && hooks.read_counter(number_of(cpu), low_word(registers, rcx), value);
  ahead = 0;
  if (!exists) next_rdpmc(registers);
  set_pair(registers, value);
  end_run_after(registers, rdpmc_bytes);
}

void helper_cpuid(void* registers) {
  const std::uint32_t leaf = low_word(registers, rax), subleaf = low_word(registers, rcx);
  next_cpuid(registers);
  CpuidWords words{low_word(registers, rax), low_word(registers, rbx), low_word(registers, rcx), low_word(registers, rdx)};
  Cpu* const cpu = cpu_of(registers);
  ahead = instructions_left_in_block(cpu, __builtin_return_address(0));
  hooks.cpuid(number_of(cpu), leaf, subleaf, words);
  ahead = 0;
  field<std::uint64_t>(registers, rax) = words.eax;
  field<std::uint64_t>(registers, rbx) = words.ebx;
  field<std::uint64_t>(registers, rcx) = words.ecx;
  field<std::uint64_t>(registers, rdx) = words.edx;
}

// The line that a CPU watches, where the host has it. Mapped once for each address.
struct Watched {
  std::uint64_t physical = ~std::uint64_t{0};
  void* line = nullptr;
  std::uint64_t bytes = 0;
};
std::array<Watched, cores_max> watched;

void helper_monitor(void* registers, std::uint64_t address) {
  const unsigned cpu = number_of(cpu_of(registers));
  Watched& own = watched[cpu];
  std::uint64_t physical = 0;
  next_monitor(registers, address);  // faults if ECX is not zero
  if (!q.qemu_plugin_translate_vaddr(address & ~(line_bytes - 1), &physical)) return hooks.monitor(cpu, nullptr);
  if (physical != own.physical || own.line == nullptr) {
    if (own.line != nullptr) q.address_space_unmap(q.address_space_memory, own.line, own.bytes, false, 0);
    own.physical = physical;
    own.bytes = line_bytes;
    own.line = q.address_space_map(q.address_space_memory, physical, &own.bytes, false, no_attributes);
    if (own.line != nullptr && own.bytes < line_bytes) own.line = nullptr;
  }
  hooks.monitor(cpu, static_cast<const std::uint8_t*>(own.line));
}

[[noreturn]] void helper_mwait(void* registers, int bytes) {
  Cpu* const cpu = cpu_of(registers);
  const bool masked = (field<std::uint64_t>(registers, offset::flags) & flag_interrupts) == 0;
  const bool pending = (field<std::uint32_t>(cpu, offset::interrupt_request) & (hard_interrupt | nonmaskable_interrupt)) != 0;
  const bool breaks = masked && (low_word(registers, rcx) & 1) != 0;
  const MwaitRequest request{.hint = static_cast<std::uint8_t>(low_word(registers, rax)),
                             .breaks_by_masked_interrupt = breaks,
                             .interrupt_pending = breaks && pending};
  if (hooks.mwait(number_of(cpu), request) != AfterInstruction::sleep) end_run_after(registers, bytes);
  field<std::uint64_t>(registers, offset::rip) += static_cast<unsigned>(bytes);
  sleep_now(registers);
}

[[noreturn]] void helper_hlt(void* registers) {
  hooks.halt(number_of(cpu_of(registers)));
  sleep_now(registers);
}

// QEMU leaves the CPU's run at each PAUSE, which costs the host a microsecond. Here a CPU that spins uses up its turn like any other.
[[noreturn]] void helper_pause(void* registers) {
  const bool ends = hooks.pause(number_of(cpu_of(registers))) == AfterInstruction::end_run;
  end_step(registers);
  if (ends) q.helper_pause(registers);
  field<std::uint64_t>(registers, offset::flags) &= ~flag_resume;
  clear_interrupt_shadow(registers);
  q.cpu_loop_exit_noexc(cpu_of(registers));
}

template <int Size>
void helper_port_write(void* registers, std::uint32_t port, std::uint32_t value) {
  hooks.port_write(number_of(cpu_of(registers)), port, value);
  next_port_write[Size](registers, port, value);
}

// Instructions that may change the privilege level. Each is the last of its block, so the count of instructions is right. They are counted
// at the level at which they begin.
enum LevelChange : std::uint8_t {
  call,
  far_return,
  interrupt_return,
  system_call,
  system_return,
  system_enter,
  system_exit,
  level_changes
};
void* next_level_change[level_changes];
template <LevelChange Which, typename... Words>
void helper_level_change(void* registers, Words... words) {
  reinterpret_cast<void (*)(void*, Words...)>(next_level_change[Which])(registers, words...);
  hooks.level_changed(number_of(cpu_of(registers)), level_of(registers) == hidden_level);
}

struct Replacement {
  const char* helper;
  void* ours;
  void** next;
};

}  // namespace

const char* replace_instructions() {
  const Replacement replacements[] = {
      {"rdmsr", as_pointer(helper_rdmsr), reinterpret_cast<void**>(&next_rdmsr)},
      {"wrmsr", as_pointer(helper_wrmsr), reinterpret_cast<void**>(&next_wrmsr)},
      {"rdpmc", as_pointer(helper_rdpmc), reinterpret_cast<void**>(&next_rdpmc)},
      {"cpuid", as_pointer(helper_cpuid), reinterpret_cast<void**>(&next_cpuid)},
      {"monitor", as_pointer(helper_monitor), reinterpret_cast<void**>(&next_monitor)},
      {"mwait", as_pointer(helper_mwait), nullptr},
      {"hlt", as_pointer(helper_hlt), nullptr},
      {"pause", as_pointer(helper_pause), nullptr},
      {"rdtsc", as_pointer(helper_rdtsc), reinterpret_cast<void**>(&next_rdtsc)},
      {"outb", as_pointer(helper_port_write<0>), reinterpret_cast<void**>(&next_port_write[0])},
      {"outw", as_pointer(helper_port_write<1>), reinterpret_cast<void**>(&next_port_write[1])},
      {"outl", as_pointer(helper_port_write<2>), reinterpret_cast<void**>(&next_port_write[2])},
      {"lcall_protected", as_pointer(helper_level_change<call, int, std::uint64_t, int, std::uint64_t>), &next_level_change[call]},
      {"lret_protected", as_pointer(helper_level_change<far_return, int, int>), &next_level_change[far_return]},
      {"iret_protected", as_pointer(helper_level_change<interrupt_return, int, int>), &next_level_change[interrupt_return]},
      {"syscall", as_pointer(helper_level_change<system_call, int>), &next_level_change[system_call]},
      {"sysret", as_pointer(helper_level_change<system_return, int>), &next_level_change[system_return]},
      {"sysenter", as_pointer(helper_level_change<system_enter>), &next_level_change[system_enter]},
      {"sysexit", as_pointer(helper_level_change<system_exit, int>), &next_level_change[system_exit]},
  };
  for (const Replacement& one : replacements) {
    char name[40];
    std::snprintf(name, sizeof name, "helper_info_%s", one.helper);
    void* const info = dlsym(RTLD_DEFAULT, name);
    if (info == nullptr) return sentence("QEMU has no symbol ", name);
    // TCGHelperInfo: the function, then its name.
    if (const char* const text = field<const char*>(info, 8); text == nullptr || std::strcmp(text, one.helper) != 0) {
      return sentence("QEMU's table of instructions differs at ", one.helper);
    }
    if (one.next != nullptr) *one.next = field<void*>(info, 0);
    field<void*>(info, 0) = one.ours;
  }
  return nullptr;
}

}  // namespace neap::model::qemu
