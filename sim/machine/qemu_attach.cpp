// SPDX-License-Identifier: BSL-1.0
// The functions of QEMU's tables that the model replaces, and the checks that this QEMU is the expected one.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "sim/machine/qemu_cpu.hpp"

namespace neap::model::qemu {

namespace {

constexpr int unused_interrupt = 0x10;
bool layout_checked = false;

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
    // No instruction has run yet. After a run, this would be the wrong function of the table.
    if (field<std::int64_t>(q.timers_state, offset::executed) != 0 || budget <= 0 ||
        budget != rest + field<std::uint16_t>(cpu, offset::budget_low) || !field<bool>(cpu, offset::running) ||
        field<std::int32_t>(registers_of(cpu), offset::direction) != 1) {
      std::fputs("neap-machine: a CPU's instruction budget or direction flag is not where QEMU 11.1.3 has it\n", stderr);
      end_process(2);
    }
    layout_checked = true;
  }
  if (const char* const why = keep_kick_timer()) {
    std::fprintf(stderr, "neap-machine: %s\n", why);
    end_process(2);
  }
  const unsigned number = number_of(cpu);
  const std::uint64_t budget = hooks.enter(number);
  set_budget(number, budget);
  if (budget == 0 && step_cannot_go_on(cpu)) request_stop(cpu);
}

// QEMU also enters a CPU whose turn it is not. It would take an interrupt there, at a moment that depends on the host, although one of a
// higher priority may still come before its turn.
bool exec_interrupt(Cpu* cpu, int request) {
  if (field<std::uint16_t>(cpu, offset::budget_low) == 0 && field<std::int64_t>(cpu, offset::budget_rest) == 0) return false;
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

bool make_writable(void* table) {
  constexpr std::uintptr_t page = 4096;
  const auto start = reinterpret_cast<std::uintptr_t>(table) & ~(page - 1);
  return mprotect(reinterpret_cast<void*>(start), 2 * page, PROT_READ | PROT_WRITE) == 0;
}

/// The size of a table, from QEMU's symbols; 0 if they do not have it.
std::size_t bytes_of(void* table) {
  Dl_info unused;
  const ElfW(Sym)* symbol = nullptr;
  const int found = dladdr1(table, &unused, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)), RTLD_DL_SYMENT);
  return found == 0 || symbol == nullptr ? 0 : symbol->st_size;
}

/// Replaces a table's entry. False: it does not hold `from`.
bool replace(void* table, std::size_t at, void* from, void* to) {
  if (field<void*>(table, at) != from) return false;
  field<void*>(table, at) = to;
  return true;
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

const char* sentence(const char* what, const char* name) {
  static char text[200];
  std::snprintf(text, sizeof text, "%s%s", what, name);
  return text;
}

const char* attach(const Hooks& given) {
  hooks = given;
  if (const char* const missing = find_symbols()) return sentence("QEMU has no symbol ", missing);
  if (!is_pinned_version()) return sentence("this QEMU is not the one that the model knows: expected is ", pinned_version);
  if (const char* const wrong = replace_instructions()) return wrong;

  if (!make_writable(q.x86_tcg_ops) || !make_writable(q.vfio_user_device_io_ops_sock)) return "QEMU's tables cannot be made writable";
  next_interrupt = q.x86_cpu_exec_interrupt;
  if (!replace(q.x86_tcg_ops, offset::exec_interrupt, as_pointer(q.x86_cpu_exec_interrupt), as_pointer(exec_interrupt)) ||
      field<void*>(q.x86_tcg_ops, offset::exec_enter) == nullptr) {
    return "QEMU's functions of a CPU are not where 11.1.3 has them";
  }
  if (const char* const wrong = replace_debug_exception()) return wrong;
  next_enter = field<void (*)(Cpu*)>(q.x86_tcg_ops, offset::exec_enter);
  field<void*>(q.x86_tcg_ops, offset::exec_enter) = as_pointer(enter);

  // They are the table's last two.
  if (offset::region_write != offset::region_read + 8 || bytes_of(q.vfio_user_device_io_ops_sock) != offset::region_write + 8) {
    return "QEMU's functions of the card are not where 11.1.3 has them";
  }
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
  constexpr std::uint64_t cr0_at_reset = 0x6000'0010;
  constexpr std::uint32_t hidden_flags_at_reset = 0x40;  // QEMU's: segments have bases (real mode)
  constexpr std::int32_t no_exception = -1;
  if (cpu == nullptr || number_of(cpu) != number || exception_of(cpu) != no_exception ||
      field<std::uint32_t>(cpu, offset::halted) != (number == 0 ? 0U : 1U) || field<bool>(cpu, offset::running)) {
    return "a CPU's state is not where QEMU 11.1.3 has it";
  }
  void* const registers = registers_of(cpu);
  if (field<std::uint64_t>(registers, offset::rip) != rip_at_reset || field<std::uint64_t>(registers, offset::flags) != flags_at_reset ||
      field<std::uint32_t>(registers, offset::hidden_flags) != hidden_flags_at_reset || control_register(registers, 0) != cr0_at_reset) {
    return "a CPU's registers are not where QEMU 11.1.3 has them";
  }
  auto& requested = field<std::uint32_t>(cpu, offset::interrupt_request);
  const std::uint32_t before = requested;
  q.cpu_set_interrupt(cpu, unused_interrupt);
  const bool requests_there = requested == (before | unused_interrupt);
  q.cpu_reset_interrupt(cpu, unused_interrupt);
  if (!requests_there) return "a CPU's interrupt requests are not where QEMU 11.1.3 has them";
  if (const char* const wrong = check_debugger(cpu)) return wrong;
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

}  // namespace neap::model::qemu
