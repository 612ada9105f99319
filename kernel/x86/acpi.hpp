// SPDX-License-Identifier: BSL-1.0
// What firmware says about the machine (ACPI 6.5, chapter 5).
//
// Wanted are the cores, the window for PCI configuration, a timer of known rate, how far memory is from cores, and how to switch off.
// Tables are read once, at boot, with nothing trusted: lengths and checksums first, every list bounded. There is no AML interpreter; the
// one thing needed of AML, the sleep type for power-off, is a constant package that every firmware writes in the same form.
#pragma once

#include <cstdint>
#include <span>

#include "kernel/x86/firmware/pcie.hpp"
#include "kernel/x86/firmware/remapping.hpp"

namespace neap::x86::acpi {

struct Core {
  std::uint32_t apic_id;
  std::uint32_t node;
};

/// One PCI segment's configuration window (PCI Firmware 3.3, 4.1.2): bus b at base + (b << 20).
using PciWindow = pcie::Window;

/// A register as ACPI describes it (5.2.3.2); `address` 0: there is none.
struct Register {
  enum class Space : std::uint8_t { memory = 0, port = 1 };
  Space space;
  std::uint64_t address;
};

struct Tables {
  std::span<const Core> cores;     ///< usable ones, each APIC id once, in firmware's order; empty without a MADT
  std::span<const PciWindow> pci;  ///< those that can be believed
  remapping::Units remapping;      ///< Intel's IOMMUs
  std::uint64_t local_apic;        ///< physical, for CPUs without x2APIC
  Register power_timer;            ///< 3.579545 MHz
  bool power_timer_32_bits;
  Register power_control_a, power_control_b;
  std::uint16_t smi_command_port;  ///< 0: ACPI mode needs no switching on
  std::uint8_t acpi_enable_value;
  bool soft_off_known;
  std::uint8_t soft_off_type_a, soft_off_type_b;
  Register reset;
  std::uint8_t reset_value;
  std::uint8_t century_register;  ///< of the RTC, 0: unknown
  bool legacy_devices;            ///< 8259 interrupt controllers are there
};

/// Finds and reads the tables, and tells `memory` about nodes. What is missing stays zero and is said on the console. Core 0, before
/// `hand_over`.
void initialise();

[[nodiscard]] const Tables& tables();

}  // namespace neap::x86::acpi
