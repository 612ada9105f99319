// SPDX-License-Identifier: BSL-1.0
// The machine as firmware describes it (ACPI 6.5, chapter 5).
//
// The kernel needs the cores, the window for PCI configuration, a timer of known rate, the distances between cores and memory, and the
// power-off sequence. Tables are read once, at boot. Nothing in them is trusted: lengths and checksums are verified first, and every list
// is bounded. There is no AML interpreter. The only AML value needed, the sleep type for power-off, is a constant package that every
// firmware encodes in the same form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/x86/firmware/acpi_tables.hpp"
#include "kernel/x86/firmware/pcie.hpp"
#include "kernel/x86/firmware/remapping.hpp"

namespace neap::x86::acpi {

/// One PCI segment's configuration window (PCI Firmware 3.3, 4.1.2): bus b at base + (b << 20).
using PciWindow = pcie::Window;
constexpr std::size_t pci_windows_max = 16;

struct Tables : Fadt, SoftOff {
  std::span<const Core> cores;     ///< usable cores, each APIC id once, in the table's order; empty without a MADT
  std::span<const PciWindow> pci;  ///< the windows in which `pcie::window_problem` found no error
  remapping::Units remapping;      ///< Intel's IOMMUs
  std::uint64_t local_apic;        ///< physical address of the local APIC's registers, for CPUs without x2APIC
  bool legacy_devices;             ///< the machine has 8259 interrupt controllers
};

/// Finds and reads the tables, and passes the NUMA nodes to `memory`. Missing values stay zero and are reported on the console. Called on
/// core 0, before `memory::hand_over`.
void initialise();

[[nodiscard]] const Tables& tables();

}  // namespace neap::x86::acpi
