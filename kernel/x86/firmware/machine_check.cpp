// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/firmware/machine_check.hpp"

#include <algorithm>

#include "kernel/panic.hpp"
#include "kernel/x86/firmware/cpu_facts.hpp"
#include "kernel/x86/power/encodings.hpp"

namespace neap::x86::machine_check {

namespace {

using power::bit;
using power::bits;

// IA32_MCi_STATUS (SDM 3B, 16.3.2.2).
constexpr std::uint64_t status_valid = bit(63), status_overflow = bit(62), status_uncorrected = bit(61), status_has_misc = bit(59),
                        status_has_address = bit(58), status_context_corrupt = bit(57), status_signalled = bit(56);
constexpr std::uint64_t all_ones = ~std::uint64_t{0};
constexpr std::uint32_t registers_of_bank = 4;

std::uint32_t of_bank(std::uint32_t first, unsigned bank) {
  require(bank < banks_max, "machine check: no such bank", bank);
  return first + registers_of_bank * bank;
}

}  // namespace

Banks find_banks(power::CpuAccess& cpu) noexcept {
  constexpr std::uint64_t exception_bit = bit(7), architecture_bit = bit(14);  // CPUID leaf 1, EDX
  if ((~std::uint64_t{cpu.cpuid(1, 0).edx} & (exception_bit | architecture_bit)) != 0) return {};
  const auto capabilities = cpu.read_msr(msr::global_capabilities);
  if (!capabilities) return {};
  const auto identity = cpu_facts::identify(cpu);
  // 16.8: before Nehalem, bank 0's control register belongs to the platform.
  constexpr std::uint16_t nehalem = 0x1a;
  const bool platform_bank = identity.intel && identity.family == 6 && identity.model < nehalem;
  return {.count = std::min(static_cast<unsigned>(bits(*capabilities, 0, 8)), banks_max),
          .global_control = (*capabilities & bit(8)) != 0,
          .counts_corrected = (*capabilities & bit(10)) != 0,
          .software_recovery = (*capabilities & bit(24)) != 0,
          .first_controlled = platform_bank ? 1U : 0U,
          .old_opteron = identity.amd && identity.family == 0x0f};
}

std::optional<Error> read_bank(power::CpuAccess& cpu, unsigned bank) noexcept {
  const auto status = cpu.read_msr(of_bank(msr::status, bank));
  if (!status || (*status & status_valid) == 0) return std::nullopt;
  Error error{.bank = bank, .status = *status};
  if ((*status & status_has_address) != 0) error.address = cpu.read_msr(of_bank(msr::address, bank)).value_or(0);
  if ((*status & status_has_misc) != 0) error.misc = cpu.read_msr(of_bank(msr::misc, bank)).value_or(0);
  return error;
}

// A write of any value except 0 faults (16.3.2.2).
void clear_bank(power::CpuAccess& cpu, unsigned bank) noexcept { (void)cpu.write_msr(of_bank(msr::status, bank), 0); }

void turn_on(power::CpuAccess& cpu, const Banks& banks) noexcept {
  if (banks.count == 0) return;
  if (banks.global_control) (void)cpu.write_msr(msr::global_control, all_ones);
  for (unsigned bank = banks.first_controlled; bank < banks.count; ++bank) {
    // This bit of the K8's north bridge reports harmless table walks. Linux leaves it off, too.
    constexpr unsigned north_bridge = 4;
    constexpr std::uint64_t table_walk = bit(10);
    (void)cpu.write_msr(of_bank(msr::control, bank), banks.old_opteron && bank == north_bridge ? all_ones & ~table_walk : all_ones);
  }
}

bool Error::uncorrected() const noexcept { return (status & status_uncorrected) != 0; }

// 16.6.3: on CPUs with software recovery, an error that raises no exception ("UCNA") is found only by polling.
bool Error::belongs_to_exception(const Banks& banks) const noexcept {
  return uncorrected() && (!banks.software_recovery || (status & (status_signalled | status_context_corrupt)) != 0);
}

std::uint64_t Error::times(const Banks& banks) const noexcept {
  if (!banks.counts_corrected || uncorrected()) return 1;
  return std::max<std::uint64_t>(bits(status, 38, 15), 1);
}

void Error::describe(Line& line) const noexcept {
  line << "bank " << bank << ": " << kind_of(static_cast<std::uint16_t>(status)) << (uncorrected() ? ", uncorrected" : ", corrected");
  if ((status & status_context_corrupt) != 0) line << ", the core's state is corrupt";
  if ((status & status_overflow) != 0) line << ", further errors were lost";
  line << ", status " << hex(status);
  if ((status & status_has_address) != 0) line << ", address " << hex(address);
  if ((status & status_has_misc) != 0) line << ", misc " << hex(misc);
}

const char* kind_of(std::uint16_t code) noexcept {
  constexpr std::uint16_t filtered = 1 << 12;  // "correction report filtering", no part of the error's code
  struct Kind {
    std::uint16_t mask, value;
    const char* name;
  };
  constexpr Kind kinds[] = {
      {0xffff, 0x0001, "unclassified error"},
      {0xffff, 0x0002, "parity error of the microcode ROM"},
      {0xffff, 0x0003, "error reported by another component"},
      {0xffff, 0x0005, "internal parity error"},
      {0xffff, 0x0400, "internal timer error"},
      {0xffff, 0x0e0b, "I/O error"},
      {0xfc00, 0x0400, "internal error"},
      {0xfffc, 0x000c, "cache error"},
      {0xfff0, 0x0010, "TLB error"},
      {0xff80, 0x0080, "memory error"},
      {0xff00, 0x0100, "cache error"},
      {0xff80, 0x0280, "memory error"},
      {0xf800, 0x0800, "bus or interconnect error"},
  };
  for (const Kind& kind : kinds) {
    if ((code & ~filtered & kind.mask) == kind.value) return kind.name;
  }
  return "error";
}

}  // namespace neap::x86::machine_check
