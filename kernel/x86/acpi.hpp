// SPDX-License-Identifier: BSL-1.0
// What firmware says about the machine (ACPI 6.5, chapter 5).
//
// Wanted are the cores, the window for PCI configuration, a timer of known rate, how far memory is from cores, and how to switch off.
// Tables are read once, at boot, with nothing trusted: lengths and checksums first, every list bounded. There is no AML interpreter; the
// one thing needed of AML, the sleep type for power-off, is a constant package that every firmware writes in the same form.
#pragma once

#include <cstdint>
#include <span>

#include "kernel/x86/firmware/acpi_tables.hpp"
#include "kernel/x86/firmware/pcie.hpp"
#include "kernel/x86/firmware/remapping.hpp"

namespace neap::x86::acpi {

/// One PCI segment's configuration window (PCI Firmware 3.3, 4.1.2): bus b at base + (b << 20).
using PciWindow = pcie::Window;

struct Tables : Fadt, SoftOff {
  std::span<const Core> cores;     ///< usable ones, each APIC id once, in firmware's order; empty without a MADT
  std::span<const PciWindow> pci;  ///< those that can be believed
  remapping::Units remapping;      ///< Intel's IOMMUs
  std::uint64_t local_apic;        ///< physical, for CPUs without x2APIC
  bool legacy_devices;             ///< 8259 interrupt controllers are there
};

/// Finds and reads the tables, and tells `memory` about nodes. What is missing stays zero and is said on the console. Core 0, before
/// `hand_over`.
void initialise();

[[nodiscard]] const Tables& tables();

}  // namespace neap::x86::acpi
