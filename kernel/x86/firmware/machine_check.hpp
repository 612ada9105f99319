// SPDX-License-Identifier: BSL-1.0
// Machine checks: errors that the hardware finds in itself, in its caches, its links and its memory.
//
// A core has banks of registers, each of which holds one error; threads of a core or cores of a package share some of them (SDM 3B, chapter
// 16; AMD64 manual 2, chapter 9). A bank whose control register is zero signals nothing, and a CPU comes out of reset with whatever
// firmware wrote there. So each core turns all banks on as it starts, after it has reported what they still hold from before.
//
// An error that the hardware could not correct raises an exception, which names the bank and ends in a panic. One that it corrected raises
// nothing here: the banks are read now and then, and it is counted.
#pragma once

#include <cstdint>
#include <optional>

#include "kernel/console.hpp"
#include "kernel/x86/power/cpu_access.hpp"

namespace neap::x86::machine_check {

namespace msr {
constexpr std::uint32_t global_capabilities = 0x179, global_status = 0x17a, global_control = 0x17b;
/// Of bank 0; the next bank's are four further on (SDM 3B, 16.3.2).
constexpr std::uint32_t control = 0x400, status = 0x401, address = 0x402, misc = 0x403;
}  // namespace msr

/// The MSRs of the banks end where those of virtualisation begin (480h).
constexpr unsigned banks_max = 32;

struct Banks {
  unsigned count = 0;              ///< 0: there are none, and nothing below is done
  bool global_control = false;     ///< IA32_MCG_CTL is there
  bool counts_corrected = false;   ///< a status says how many errors the hardware corrected
  bool software_recovery = false;  ///< an uncorrected error may come without an exception
  unsigned first_controlled = 0;   ///< banks before it are firmware's to control
  bool old_opteron = false;        ///< whose bank 4 reports walks of the GART's table that are no errors
};
[[nodiscard]] Banks find_banks(power::CpuAccess& cpu) noexcept;

struct Error {
  unsigned bank = 0;
  std::uint64_t status = 0;
  std::uint64_t address = 0, misc = 0;  ///< 0 where `status` says that there is none

  [[nodiscard]] bool uncorrected() const noexcept;
  /// Of an uncorrected error: an exception reports it.
  [[nodiscard]] bool belongs_to_exception(const Banks& banks) const noexcept;
  /// How many corrected errors this is, at least 1.
  [[nodiscard]] std::uint64_t times(const Banks& banks) const noexcept;
  /// "bank 7: memory error, uncorrected, status 0x…, address 0x…".
  void describe(Line& line) const noexcept;
};
/// The error that the bank holds, if there is one.
[[nodiscard]] std::optional<Error> read_bank(power::CpuAccess& cpu, unsigned bank) noexcept;
/// Makes room for the next error.
void clear_bank(power::CpuAccess& cpu, unsigned bank) noexcept;

/// Turns all banks on. Before it each bank that holds an error is to be read and cleared.
void turn_on(power::CpuAccess& cpu, const Banks& banks) noexcept;

/// Takes the errors that no exception reports out of this core's banks and calls `found(error)` for each.
template <typename Found>
void take_silent_errors(power::CpuAccess& cpu, const Banks& banks, Found found) noexcept {
  for (unsigned bank = 0; bank < banks.count; ++bank) {
    const std::optional<Error> error = read_bank(cpu, bank);
    if (!error || error->belongs_to_exception(banks)) continue;
    clear_bank(cpu, bank);
    found(*error);
  }
}

/// The part of the hardware that an error code names: bits 15:0 of a status (SDM 3B, 16.9).
[[nodiscard]] const char* kind_of(std::uint16_t code) noexcept;

}  // namespace neap::x86::machine_check
