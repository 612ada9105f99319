// SPDX-License-Identifier: BSL-1.0
// Ways to end: leave the emulator, switch off, restart.
#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/x86/acpi.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/console.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/paging.hpp"

namespace neap::x86 {

namespace {

// QEMU's isa-debug-exit, at the port that tools/machine.py chooses. A real chipset may have another device there, so the port is for
// hypervisors and the model machine only.
constexpr std::uint16_t debug_exit_port = 0xf4;
constexpr std::uint64_t debug_exit_limit_ns = 2'000'000'000, acpi_on_limit_ns = 300'000'000;
constexpr std::uint64_t power_off_limit_ns = 1'000'000'000;

std::uint16_t read_control(const acpi::Register& where) {
  if (where.space == acpi::Register::Space::port) return in16(static_cast<std::uint16_t>(where.address));
  const auto mapped = paging::map(where.address, 2, paging::Access::read_write, paging::Cache::uncached);
  return mapped ? *reinterpret_cast<volatile std::uint16_t*>(*mapped) : std::uint16_t{0};
}

void write_control(const acpi::Register& where, std::uint16_t value) {
  if (where.space == acpi::Register::Space::port) {
    out16(static_cast<std::uint16_t>(where.address), value);
  } else if (const auto mapped = paging::map(where.address, 2, paging::Access::read_write, paging::Cache::uncached)) {
    *reinterpret_cast<volatile std::uint16_t*>(*mapped) = value;
  }
}

// Powers off by ACPI's state S5 (ACPI 6.5, 4.8.3.2.1 for the PM1 control register, 7.4.2.6 for S5).
void soft_off() {
  constexpr std::uint16_t acpi_on = 1 << 0, sleep_enable = 1 << 13;
  constexpr unsigned sleep_type_shift = 10;
  const auto& tables = acpi::tables();
  if (!tables.soft_off_known || tables.power_control_a.address == 0) return;
  if (tables.smi_command_port != 0 && !(read_control(tables.power_control_a) & acpi_on)) {
    out8(tables.smi_command_port, tables.acpi_enable_value);
    const WaitLimit limit(acpi_on_limit_ns);
    while (!(read_control(tables.power_control_a) & acpi_on) && !limit.passed()) pause();
  }
  write_control(tables.power_control_a, static_cast<std::uint16_t>(tables.soft_off_type_a << sleep_type_shift | sleep_enable));
  if (tables.power_control_b.address != 0) {
    write_control(tables.power_control_b, static_cast<std::uint16_t>(tables.soft_off_type_b << sleep_type_shift | sleep_enable));
  }
  wait_ns(power_off_limit_ns);
}

}  // namespace

}  // namespace neap::x86

namespace neap::machine {

using namespace x86;

void exit(ExitStatus status) noexcept {
  stop_other_cores();
  console::drain();
  if (status == ExitStatus::panic && console::options().reboot_after_panic) reboot();
  if (features().hypervisor || features().modelled) {
    out8(debug_exit_port, static_cast<std::uint8_t>(status));
    wait_ns(debug_exit_limit_ns);  // QEMU ends shortly after the write; a power-off before its end would hide the exit status
  }
  if (status == ExitStatus::success) power_off();
  halt_for_ever();
}

void power_off() noexcept {
  stop_other_cores();
  console::drain();
  soft_off();
  print("neap: this machine cannot be switched off by ACPI; it is halted");
  halt_for_ever();
}

void reboot() noexcept {
  constexpr std::uint64_t patience_ns = 100'000'000;
  stop_other_cores();
  console::drain();
  const auto& tables = acpi::tables();
  if (const auto where = tables.reset; where.address != 0) {
    if (where.space == acpi::Register::Space::port) {
      out8(static_cast<std::uint16_t>(where.address), tables.reset_value);
    } else if (const auto mapped = paging::map(where.address, 1, paging::Access::read_write, paging::Cache::uncached)) {
      *reinterpret_cast<volatile std::uint8_t*>(*mapped) = tables.reset_value;
    }
    wait_ns(patience_ns);
  }
  // Chipset reset control (Intel PCH datasheets, register CF9h): select a hard reset, then trigger it.
  constexpr std::uint16_t reset_control = 0xcf9;
  constexpr std::uint8_t hard_reset = 0x02, hard_reset_now = 0x06;
  out8(reset_control, hard_reset);
  out8(reset_control, hard_reset_now);
  wait_ns(patience_ns);
  // Keyboard controller: pulses the reset line (Intel 8042).
  constexpr std::uint16_t keyboard_command = 0x64;
  constexpr std::uint8_t pulse_reset = 0xfe;
  out8(keyboard_command, pulse_reset);
  wait_ns(patience_ns);
  // A fault without an interrupt table is a shutdown, which every board turns into a reset.
  struct [[gnu::packed]] {
    std::uint16_t limit;
    std::uint64_t base;
  } const nothing{.limit = 0, .base = 0};
  asm volatile("lidt %0; ud2" ::"m"(nothing));
  halt_for_ever();
}

}  // namespace neap::machine
