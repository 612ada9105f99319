// SPDX-License-Identifier: BSL-1.0
// Machine checks: hardware errors in caches, links and memory, found by the hardware itself.
//
// A core has banks of registers, each of which holds one error. Threads of a core or cores of a package share some banks (SDM 3B, chapter
// 16; AMD64 manual 2, chapter 9). A bank whose control register is zero signals nothing. After a reset, a bank's registers hold values that
// firmware left there. So each starting core reports the errors that its banks hold, and then turns all banks on.
//
// An uncorrected error raises an exception, which names the bank and ends in a panic. A corrected error raises no exception here: the banks
// are polled from time to time, and the errors are counted.
#pragma once

#include <cstdint>
#include <optional>

#include "kernel/console.hpp"
#include "kernel/x86/power/cpu_access.hpp"

namespace neap::x86::machine_check {

namespace msr {
constexpr std::uint32_t global_capabilities = 0x179, global_status = 0x17a, global_control = 0x17b;
/// Registers of bank 0; each further bank adds four (SDM 3B, 16.3.2).
constexpr std::uint32_t control = 0x400, status = 0x401, address = 0x402, misc = 0x403;
}  // namespace msr

/// More banks cannot exist, because the MSRs of virtualisation begin at 480h.
constexpr unsigned banks_max = 32;

struct Banks {
  unsigned count = 0;              ///< 0: no banks, and the functions below do nothing
  bool global_control = false;     ///< IA32_MCG_CTL exists
  bool counts_corrected = false;   ///< a bank's status contains the number of corrected errors
  bool software_recovery = false;  ///< an uncorrected error may occur without an exception
  unsigned first_controlled = 0;   ///< firmware controls the banks with lower numbers
  bool old_opteron = false;        ///< bank 4 reports harmless walks of the GART's table
};
[[nodiscard]] Banks find_banks(power::CpuAccess& cpu) noexcept;

struct Error {
  unsigned bank = 0;
  std::uint64_t status = 0;
  std::uint64_t address = 0, misc = 0;  ///< 0 if `status` marks them as absent

  [[nodiscard]] bool uncorrected() const noexcept;
  /// True for an uncorrected error that an exception reports.
  [[nodiscard]] bool belongs_to_exception(const Banks& banks) const noexcept;
  /// How often this error occurred, as counted by the bank; 1 if the error is uncorrected or the bank does not count.
  [[nodiscard]] std::uint64_t times(const Banks& banks) const noexcept;
  /// Appends a text such as "bank 7: memory error, uncorrected, status 0x…, address 0x…".
  void describe(Line& line) const noexcept;
};
[[nodiscard]] std::optional<Error> read_bank(power::CpuAccess& cpu, unsigned bank) noexcept;
void clear_bank(power::CpuAccess& cpu, unsigned bank) noexcept;

/// Turns all banks on. The caller MUST have read and cleared each bank that holds an error.
void turn_on(power::CpuAccess& cpu, const Banks& banks) noexcept;

/// Reads and clears this core's errors that no exception reports, and calls `found(error)` for each.
template <typename Found>
void take_silent_errors(power::CpuAccess& cpu, const Banks& banks, Found found) noexcept {
  for (unsigned bank = 0; bank < banks.count; ++bank) {
    const std::optional<Error> error = read_bank(cpu, bank);
    if (!error || error->belongs_to_exception(banks)) continue;
    clear_bank(cpu, bank);
    found(*error);
  }
}

/// The part of the hardware that `code`, bits 15:0 of a status, names (SDM 3B, 16.9).
[[nodiscard]] const char* kind_of(std::uint16_t code) noexcept;

}  // namespace neap::x86::machine_check
