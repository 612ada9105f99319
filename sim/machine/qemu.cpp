// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/qemu.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "sim/machine/qemu_layout.hpp"
#include "sim/machine/qemu_symbols.hpp"

namespace neap::model::qemu {

namespace {

constexpr int clock_virtual = 1, hard_interrupt = 0x2, nonmaskable_interrupt = 0x200, unused_interrupt = 0x10;
constexpr std::uint64_t flag_interrupts = 1 << 9, flag_resume = 1 << 16;
constexpr std::uint32_t hidden_interrupt_shadow = 1 << 3;
constexpr std::uint64_t budget_max = 0x7fffffff, budget_low_max = 0xffff;
constexpr std::uint64_t line_bytes = 64;
constexpr std::uint64_t no_attributes = 1;  // MEMTXATTRS_UNSPECIFIED
constexpr unsigned skips_max = 1'000'000;

template <typename T>
T& field(void* structure, std::size_t at) {
  return *reinterpret_cast<T*>(static_cast<char*>(structure) + at);
}

enum Register : std::size_t { rax = 0, rcx = 8, rdx = 16, rbx = 24 };
std::uint32_t low_word(void* registers, Register which) { return static_cast<std::uint32_t>(field<std::uint64_t>(registers, which)); }
void set_pair(void* registers, std::uint64_t value) {
  field<std::uint64_t>(registers, rax) = static_cast<std::uint32_t>(value);
  field<std::uint64_t>(registers, rdx) = value >> 32;
}

Hooks hooks;
std::array<Cpu*, cores_max> cpus{};
unsigned cpu_count = 0;
Cpu** current = nullptr;  // of the CPUs' one thread
std::uint64_t executed_before = 0;
std::uint64_t ahead = 0;  // instructions of the current translation block that are counted and not executed yet
alignas(16) std::array<char, timer_bytes> timer{};
bool layout_checked = false;

unsigned number_of(Cpu* cpu) { return static_cast<unsigned>(field<std::int32_t>(cpu, offset::index)); }
Cpu* cpu_of(void* registers) { return reinterpret_cast<Cpu*>(static_cast<char*>(registers) - offset::registers); }
void* registers_of(Cpu* cpu) { return reinterpret_cast<char*>(cpu) + offset::registers; }

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

bool any_awake() {
  return std::any_of(cpus.begin(), cpus.begin() + cpu_count, [](Cpu* cpu) { return is_awake(number_of(cpu)); });
}

// All CPUs sleep: time goes to the next timer here and now, until one has work. QEMU would leave that to its main thread, and pay for two
// changes of threads each time. Returns true if the CPU's halt was ended meanwhile.
bool skip_idle_time(Cpu* cpu) {
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
  q.bql_unlock();
  return ended;
}

// --- Replaced instructions. Functions that do not return end by longjmp: no destructors in them ------------------------------------------

[[noreturn]] void end_run_after(void* registers, int bytes) {
  field<std::uint64_t>(registers, offset::rip) += static_cast<unsigned>(bytes);
  q.helper_pause(registers);
}

[[noreturn]] void sleep_now(void* registers) {
  clear_interrupt_shadow(registers);
  if (skip_idle_time(cpu_of(registers))) q.helper_pause(registers);
  q.helper_hlt(registers);
}

using PlainHelper = void(void*);
PlainHelper *next_rdmsr, *next_wrmsr, *next_cpuid, *next_rdtsc;
void (*next_rdpmc)(void*);
void (*next_monitor)(void*, std::uint64_t);
void (*next_port_write[3])(void*, std::uint32_t, std::uint32_t);

void helper_rdmsr(void* registers) {
  Cpu* const cpu = cpu_of(registers);
  std::uint64_t value = 0;
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

// Its length is two bytes (SDM 2B, RDPMC); translated code does not expect it to return.
[[noreturn]] void helper_rdpmc(void* registers) {
  constexpr int rdpmc_bytes = 2;
  Cpu* const cpu = cpu_of(registers);
  std::uint64_t value = 0;
  ahead = instructions_left_in_block(cpu, __builtin_return_address(0));
  const bool exists = hooks.read_counter(number_of(cpu), low_word(registers, rcx), value);
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
  if (hooks.pause(number_of(cpu_of(registers))) == AfterInstruction::end_run) q.helper_pause(registers);
  field<std::uint64_t>(registers, offset::flags) &= ~flag_resume;
  clear_interrupt_shadow(registers);
  q.cpu_loop_exit_noexc(cpu_of(registers));
}

void helper_rdtsc(void* registers) {
  Cpu* const cpu = cpu_of(registers);
  if (!hooks.may_read_tsc(number_of(cpu))) {
    q.cpu_exit(cpu);
    q.cpu_loop_exit_restore(cpu, reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)));
  }
  next_rdtsc(registers);
}

template <int Size>
void helper_port_write(void* registers, std::uint32_t port, std::uint32_t value) {
  hooks.port_write(number_of(cpu_of(registers)), port, value);
  next_port_write[Size](registers, port, value);
}

// --- Replaced functions of QEMU's tables -------------------------------------------------------------------------------------------------

void (*next_enter)(Cpu*);
bool (*next_interrupt)(Cpu*, int);
void (*next_raise)(Cpu*, int);
using RegionRead = int(void*, std::uint8_t, long, std::uint32_t, void*);
using RegionWrite = int(void*, std::uint8_t, long, std::uint32_t, void*, bool);
RegionRead* next_region_read;
RegionWrite* next_region_write;

void enter(Cpu* cpu) {
  next_enter(cpu);
  if (!layout_checked) {
    const auto budget = field<std::int64_t>(cpu, offset::budget), rest = field<std::int64_t>(cpu, offset::budget_rest);
    if (budget <= 0 || budget != rest + field<std::uint16_t>(cpu, offset::budget_low) || !field<bool>(cpu, offset::running) ||
        field<std::int32_t>(registers_of(cpu), offset::direction) != 1) {
      std::fputs("neap-machine: a CPU's instruction budget or direction flag is not where QEMU 11.1.3 has it\n", stderr);
      end_process(2);
    }
    layout_checked = true;
  }
  const unsigned number = number_of(cpu);
  set_budget(number, hooks.enter(number));
}

bool exec_interrupt(Cpu* cpu, int request) {
  const bool taken = next_interrupt(cpu, request);
  if (taken) hooks.interrupt_taken(number_of(cpu));
  return taken;
}

void raise_interrupt(Cpu* cpu, int mask) {
  hooks.interrupt_raised(number_of(cpu));
  next_raise(cpu, mask);
  // QEMU does not wake a CPU whose interrupts are masked.
  if ((mask & (hard_interrupt | nonmaskable_interrupt)) != 0 && hooks.masked_interrupt_wakes(number_of(cpu))) end_halt(number_of(cpu));
}

int region_read(void* device, std::uint8_t region, long at, std::uint32_t bytes, void* data) {
  const bool by_cpu = in_cpu_thread();
  if (by_cpu) hooks.before_card_access(false, region, static_cast<std::uint64_t>(at), data, bytes);
  const int done = next_region_read(device, region, at, bytes, data);
  if (by_cpu) hooks.after_card_access();
  return done;
}

// Never posted: the card has seen the write before the CPU goes on.
int region_write(void* device, std::uint8_t region, long at, std::uint32_t bytes, void* data, bool) {
  const bool by_cpu = in_cpu_thread();
  if (by_cpu) hooks.before_card_access(true, region, static_cast<std::uint64_t>(at), data, bytes);
  const int done = next_region_write(device, region, at, bytes, data, false);
  if (by_cpu) hooks.after_card_access();
  return done;
}

// --- Attaching ---------------------------------------------------------------------------------------------------------------------------

char sentence[200];
const char* refuse(const char* what, const char* name) {
  std::snprintf(sentence, sizeof sentence, "%s%s", what, name);
  return sentence;
}

bool make_writable(void* table) {
  constexpr std::uintptr_t page = 4096;
  const auto start = reinterpret_cast<std::uintptr_t>(table) & ~(page - 1);
  return mprotect(reinterpret_cast<void*>(start), 2 * page, PROT_READ | PROT_WRITE) == 0;
}

/// Replaces a table's entry. False: it does not hold `from`.
bool replace(void* table, std::size_t at, void* from, void* to) {
  if (field<void*>(table, at) != from) return false;
  field<void*>(table, at) = to;
  return true;
}

struct Replacement {
  const char* helper;
  void* ours;
  void** next;
};
template <typename F>
void* as_pointer(F* function) {
  return reinterpret_cast<void*>(function);
}

const char* replace_helpers() {
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
  };
  for (const Replacement& one : replacements) {
    char name[40];
    std::snprintf(name, sizeof name, "helper_info_%s", one.helper);
    void* const info = dlsym(RTLD_DEFAULT, name);
    if (info == nullptr) return refuse("QEMU has no symbol ", name);
    // TCGHelperInfo: the function, then its name.
    if (const char* const text = field<const char*>(info, 8); text == nullptr || std::strcmp(text, one.helper) != 0) {
      return refuse("QEMU's table of instructions differs at ", one.helper);
    }
    if (one.next != nullptr) *one.next = field<void*>(info, 0);
    field<void*>(info, 0) = one.ours;
  }
  return nullptr;
}

// VersionInfo: a pointer to three numbers of 64 bits.
bool is_pinned_version() {
  void* const info = q.qmp_query_version(nullptr);
  const auto* const numbers = info == nullptr ? nullptr : field<std::int64_t*>(info, 0);
  if (numbers == nullptr) return false;
  char text[64];
  std::snprintf(text, sizeof text, "%lld.%lld.%lld", static_cast<long long>(numbers[0]), static_cast<long long>(numbers[1]),
                static_cast<long long>(numbers[2]));
  return std::strcmp(text, pinned_version) == 0;
}

// MUST be called after the first CPU was made, because the accelerator's table does not exist before.
const char* replace_clock() {
  void* const table = q.cpus_get_accel();
  if (!replace(table, offset::clock, as_pointer(q.icount_get), as_pointer(hooks.clock_ns)) ||
      !replace(table, offset::ticks, as_pointer(q.icount_get), as_pointer(hooks.tsc))) {
    return "QEMU does not count instructions as the clock: -icount shift=0,sleep=off is needed";
  }
  next_raise = q.icount_handle_interrupt;
  if (!replace(table, offset::handle_interrupt, as_pointer(q.icount_handle_interrupt), as_pointer(raise_interrupt))) {
    return "QEMU's accelerator has no place for interrupts where 11.1.3 has it";
  }
  return nullptr;
}

const char* check_timers() {
  auto& skipped = field<std::int64_t>(q.timers_state, offset::skipped);
  auto& executed = field<std::int64_t>(q.timers_state, offset::executed);
  constexpr std::int64_t step = 1'000'000'007;
  const std::int64_t before = q.icount_get();
  skipped += step;
  const bool skipped_counts = q.icount_get() == before + step;
  skipped -= step;
  executed += step;
  const bool executed_counts = q.icount_get() == before + step;
  executed -= step;
  return skipped_counts && executed_counts ? nullptr : "QEMU's clock is not where 11.1.3 has it, or -icount is not shift=0";
}

}  // namespace

const char* attach(const Hooks& given) {
  hooks = given;
  if (const char* const missing = find_symbols()) return refuse("QEMU has no symbol ", missing);
  if (!is_pinned_version()) return refuse("this QEMU is not the one that the model knows: expected is ", pinned_version);
  if (const char* const wrong = replace_helpers()) return wrong;

  if (!make_writable(q.x86_tcg_ops) || !make_writable(q.vfio_user_device_io_ops_sock)) return "QEMU's tables cannot be made writable";
  next_interrupt = q.x86_cpu_exec_interrupt;
  if (!replace(q.x86_tcg_ops, offset::exec_interrupt, as_pointer(q.x86_cpu_exec_interrupt), as_pointer(exec_interrupt)) ||
      field<void*>(q.x86_tcg_ops, offset::exec_enter) == nullptr || field<void*>(q.x86_tcg_ops, offset::exec_exit) == nullptr) {
    return "QEMU's functions of a CPU are not where 11.1.3 has them";
  }
  next_enter = field<void (*)(Cpu*)>(q.x86_tcg_ops, offset::exec_enter);
  field<void*>(q.x86_tcg_ops, offset::exec_enter) = as_pointer(enter);

  next_region_read = field<RegionRead*>(q.vfio_user_device_io_ops_sock, offset::region_read);
  next_region_write = field<RegionWrite*>(q.vfio_user_device_io_ops_sock, offset::region_write);
  if (next_region_read == nullptr || next_region_write == nullptr) return "QEMU's functions of the card are not where 11.1.3 has them";
  field<void*>(q.vfio_user_device_io_ops_sock, offset::region_read) = as_pointer(region_read);
  field<void*>(q.vfio_user_device_io_ops_sock, offset::region_write) = as_pointer(region_write);
  return nullptr;
}

const char* check_cpu(unsigned number) {
  if (number >= cores_max) return "the model has at most 16 CPUs";
  Cpu* const cpu = q.qemu_get_cpu(static_cast<int>(number));
  constexpr std::uint64_t rip_at_reset = 0xfff0, flags_at_reset = 2;  // SDM 3A, table 10-1
  constexpr std::uint32_t hidden_flags_at_reset = 0x40;               // QEMU's: segments have bases (real mode)
  if (cpu == nullptr || number_of(cpu) != number || field<std::uint32_t>(cpu, offset::halted) != (number == 0 ? 0U : 1U) ||
      field<bool>(cpu, offset::running)) {
    return "a CPU's state is not where QEMU 11.1.3 has it";
  }
  void* const registers = registers_of(cpu);
  if (field<std::uint64_t>(registers, offset::rip) != rip_at_reset || field<std::uint64_t>(registers, offset::flags) != flags_at_reset ||
      field<std::uint32_t>(registers, offset::hidden_flags) != hidden_flags_at_reset) {
    return "a CPU's registers are not where QEMU 11.1.3 has them";
  }
  auto& requested = field<std::uint32_t>(cpu, offset::interrupt_request);
  const std::uint32_t before = requested;
  q.cpu_set_interrupt(cpu, unused_interrupt);
  const bool requests_there = requested == (before | unused_interrupt);
  q.cpu_reset_interrupt(cpu, unused_interrupt);
  if (!requests_there) return "a CPU's interrupt requests are not where QEMU 11.1.3 has them";
  cpus[number] = cpu;
  if (number >= cpu_count) cpu_count = number + 1;
  if (current != nullptr) return nullptr;
  // All CPUs have one thread, and this is it.
  current = static_cast<Cpu**>(dlsym(RTLD_DEFAULT, "current_cpu"));
  if (current == nullptr) return "QEMU has no symbol current_cpu";
  if (const char* const wrong = check_timers()) return wrong;
  if (const char* const wrong = replace_clock()) return wrong;
  q.timer_init_full(timer.data(), nullptr, clock_virtual, 1, 0, [](void*) { hooks.timer(); }, nullptr);
  return nullptr;
}

// --- Services ----------------------------------------------------------------------------------------------------------------------------

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
void end_halt(unsigned cpu) { field<std::uint32_t>(cpus[cpu], offset::halted) = 0; }
void end_current_run() { q.cpu_exit(*current); }

void set_budget(unsigned cpu, std::uint64_t instructions) {
  Cpu* const one = cpus[cpu];
  const std::uint64_t budget = std::min(instructions, budget_max), low = std::min(budget, budget_low_max);
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

void end_process(int status) {
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace neap::model::qemu
