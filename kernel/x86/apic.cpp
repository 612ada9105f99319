// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/apic.hpp"

#include <atomic>

#include "kernel/console.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/acpi.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/paging.hpp"

namespace neap::x86::apic {

namespace {

// Offsets of the registers in memory; the x2APIC's MSR is 0x800 + offset / 16 (SDM 3A, table 11-6).
enum class Register : std::uint16_t {
  id = 0x20,
  task_priority = 0x80,
  end_of_interrupt = 0xb0,
  spurious = 0xf0,
  error_status = 0x280,
  command_low = 0x300,
  command_high = 0x310,
  local_timer = 0x320,
  local_thermal = 0x330,
  local_counters = 0x340,
  local_lint0 = 0x350,
  local_lint1 = 0x360,
  local_error = 0x370,
  timer_initial = 0x380,
  timer_current = 0x390,
  timer_divide = 0x3e0,
};

constexpr std::uint64_t base_enable = 1 << 11, base_x2apic = 1 << 10;
constexpr std::uint64_t base_address_mask = 0x000ffffffffff000;
constexpr std::uint32_t spurious_enable = 1 << 8;
constexpr std::uint32_t masked = 1 << 16;
constexpr std::uint32_t timer_tsc_deadline = 2 << 17;
constexpr std::uint32_t divide_by_16 = 0b0011;
constexpr std::uint32_t delivery_nmi = 4 << 8, delivery_init = 5 << 8, delivery_startup = 6 << 8;
constexpr std::uint32_t level_assert = 1 << 14;
constexpr std::uint32_t delivery_pending = 1 << 12;
constexpr unsigned xapic_bytes = 4096;
constexpr std::uint64_t delivery_wait_ns = 1'000'000;
constinit bool x2apic = false;
constinit volatile std::byte* registers = nullptr;
constinit std::atomic<bool> error_reported{false};

std::uint32_t msr_of(Register which) { return msr_x2apic_first + static_cast<std::uint32_t>(which) / 16; }

volatile std::uint32_t& cell(Register which) {
  return *reinterpret_cast<volatile std::uint32_t*>(registers + static_cast<std::uint16_t>(which));
}

std::uint32_t read(Register which) { return x2apic ? static_cast<std::uint32_t>(read_msr_known(msr_of(which))) : cell(which); }

void write(Register which, std::uint32_t value) {
  if (x2apic) {
    write_msr_known(msr_of(which), value);
  } else {
    cell(which) = value;
  }
}

void command(std::uint32_t apic_id, std::uint32_t bits) {
  if (x2apic) {
    // An x2APIC command does not wait for earlier stores, but the woken core must see them (SDM 3A, 11.12.3).
    asm volatile("mfence; lfence" ::: "memory");
    write_msr_known(msr_of(Register::command_low), std::uint64_t{apic_id} << 32 | bits);
    return;
  }
  require(registers != nullptr && apic_id <= 0xff, "apic: no registers, or an id of more than the xAPIC's eight bits", apic_id);
  cell(Register::command_high) = apic_id << 24;
  cell(Register::command_low) = bits;
  const WaitLimit limit(delivery_wait_ns);
  while ((cell(Register::command_low) & delivery_pending) && !limit.passed()) pause();
}

// The 8259s raise spurious interrupts even if nothing is connected. A remapped, fully masked pair stays quiet (Intel 8259A data sheet).
void silence_8259() {
  constexpr std::uint16_t first_command = 0x20, first_data = 0x21, second_command = 0xa0, second_data = 0xa1;
  constexpr std::uint8_t initialise_with_icw4 = 0x11, first_vector = 0x20, second_vector = 0x28, cascade_mask = 0x04, cascade_id = 0x02;
  constexpr std::uint8_t mode_8086 = 0x01, all = 0xff;
  out8(first_command, initialise_with_icw4);
  out8(second_command, initialise_with_icw4);
  out8(first_data, first_vector);
  out8(second_data, second_vector);
  out8(first_data, cascade_mask);
  out8(second_data, cascade_id);
  out8(first_data, mode_8086);
  out8(second_data, mode_8086);
  out8(first_data, all);
  out8(second_data, all);
}

}  // namespace

bool initialise() {
  silence_8259();
  x2apic = features().x2apic;
  if (x2apic) return true;
  const auto base = read_msr_known(msr_apic_base) & base_address_mask;
  const auto mapped = paging::map(base, xapic_bytes, paging::Access::read_write, paging::Cache::uncached);
  if (!mapped) return false;
  registers = *mapped;
  return true;
}

void enable_this_core(bool first) {
  require(x2apic || registers != nullptr, "apic::enable_this_core before apic::initialise");
  auto base = read_msr_known(msr_apic_base) | base_enable;
  write_msr_known(msr_apic_base, base);  // x2APIC can only be entered from the enabled state
  if (x2apic) write_msr_known(msr_apic_base, base | base_x2apic);
  for (const auto which : {Register::local_timer, Register::local_lint0}) write(which, masked);
  // Watchdogs, memory errors and a manual "inject NMI" use this line. Each of them justifies a panic that reports the NMI.
  write(Register::local_lint1, first ? delivery_nmi : masked);
  write(Register::local_error, vector_error);
  write(Register::task_priority, 0);
  write(Register::timer_divide, divide_by_16);
  write(Register::spurious, spurious_enable | vector_spurious);
}

std::uint32_t this_id() { return x2apic ? read(Register::id) : read(Register::id) >> 24; }
bool is_x2apic() { return x2apic; }
const volatile std::byte* registers_in_memory() { return registers; }
void end_of_interrupt() { write(Register::end_of_interrupt, 0); }
void send(std::uint32_t apic_id, std::uint8_t vector) {
  require(vector >= 32, "apic::send: a vector of the CPU's exceptions", vector);
  command(apic_id, level_assert | vector);
}
void send_init(std::uint32_t apic_id) { command(apic_id, level_assert | delivery_init); }
void send_startup(std::uint32_t apic_id, std::uint8_t page) {
  require(page != 0, "apic::send_startup: page 0 holds the BIOS's data");
  command(apic_id, level_assert | delivery_startup | page);
}
void send_nmi(std::uint32_t apic_id) { command(apic_id, level_assert | delivery_nmi); }

void set_timer(TimerMode mode, std::uint8_t vector, bool is_masked) {
  require(vector >= 32, "apic::set_timer: a vector of the CPU's exceptions", vector);
  write(Register::local_timer, (mode == TimerMode::tsc_deadline ? timer_tsc_deadline : 0) | (is_masked ? masked : 0) | vector);
  // If the APIC's registers are in memory, the fence orders the write of the mode before the write of the deadline MSR (SDM 3A, 11.5.4.1).
  asm volatile("mfence" ::: "memory");
}
void start_timer(std::uint32_t ticks) { write(Register::timer_initial, ticks); }
std::uint32_t timer_left() { return read(Register::timer_current); }

void error_arrived() {
  write(Register::error_status, 0);  // a write latches the collected errors into the register
  const std::uint32_t status = read(Register::error_status);
  if (!error_reported.exchange(true)) print("neap: a local APIC reported an error, status ", hex(status));
}

}  // namespace neap::x86::apic
