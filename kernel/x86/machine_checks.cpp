// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/machine_checks.hpp"

#include <atomic>
#include <bit>
#include <cstdint>
#include <utility>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/firmware/machine_check.hpp"
#include "kernel/x86/power/this_cpu.hpp"

namespace neap::x86::machine_checks {

namespace {

using machine_check::Error;
constinit machine_check::Banks banks{};
constinit std::atomic<std::uint64_t> corrected{0}, uncorrected{0};

void print_error(unsigned core, const char* when, const Error& error) {
  Line line;
  line << "neap: machine check" << when << ", core " << core << ", ";
  error.describe(line);
  line.print();
}

}  // namespace

void find() {
  require(banks.count == 0, "machine_checks::find called twice");
  banks = machine_check::find_banks(power::cpu_access());
}

void start_this_core(unsigned core) {
  auto& cpu = power::cpu_access();
  for (unsigned bank = 0; bank < banks.count; ++bank) {
    if (const auto error = machine_check::read_bank(cpu, bank)) {
      print_error(core, " from before this start", *error);
      machine_check::clear_bank(cpu, bank);
    }
  }
  machine_check::turn_on(cpu, banks);
}

bool any_here() {
  for (unsigned bank = 0; bank < banks.count; ++bank) {
    if (machine_check::read_bank(power::cpu_access(), bank)) return true;
  }
  return false;
}

void leave_exception() { (void)power::cpu_access().write_msr(machine_check::msr::global_status, 0); }

// The banks keep their errors. After a warm restart these errors are reported again, even if the panic's text has reported them.
void report_here(unsigned core, Line& text) {
  bool first = true;
  for (unsigned bank = 0; bank < banks.count; ++bank) {
    const auto error = machine_check::read_bank(power::cpu_access(), bank);
    if (!error) continue;
    print_error(core, "", *error);
    if (std::exchange(first, false)) error->describe(text << ": ");
  }
  if (first) text << ": no bank that core " << core << " sees holds an error";
}

}  // namespace neap::x86::machine_checks

namespace neap::machine {

using namespace x86::machine_checks;

void check_hardware_errors() noexcept {
  x86::machine_check::take_silent_errors(x86::power::cpu_access(), banks, [](const x86::machine_check::Error& error) {
    auto& counter = error.uncorrected() ? uncorrected : corrected;
    const std::uint64_t before = counter.fetch_add(error.times(banks), std::memory_order_relaxed);
    const std::uint64_t after = before + error.times(banks);
    // Prints at each doubling of the count, so that a failing memory module does not flood the console.
    if (std::bit_width(before) != std::bit_width(after)) print_error(this_core(), "", error);
  });
}

HardwareErrors hardware_errors() noexcept {
  return {.corrected = corrected.load(std::memory_order_relaxed), .uncorrected = uncorrected.load(std::memory_order_relaxed)};
}

}  // namespace neap::machine
