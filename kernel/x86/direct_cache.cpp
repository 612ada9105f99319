// SPDX-License-Identifier: BSL-1.0
// Direct cache access (DCA): a tag in a card's write is a hint to put the data into a core's cache.
//
// The CPU must support the hints (CPUID leaf 1, ECX bit 18), and the chipset's I/OAT device must forward them. The tag is the low byte of
// the core's APIC id, as in the chipset's default table. If firmware changed that table, hints reach the wrong core, which costs only time.
// Untested: no machine with such a chipset was available.
#include <algorithm>
#include <array>

#include "kernel/machine.hpp"
#include "kernel/pci.hpp"
#include "kernel/x86/cores.hpp"
#include "kernel/x86/cpu.hpp"

namespace neap::machine {

Result<std::uint8_t> cache_tag(unsigned core) noexcept {
  constexpr std::uint32_t cpu_has_dca = 1U << 18;
  if ((x86::cpuid(1).ecx & cpu_has_dca) == 0)
    return failure(ErrorCode::unsupported, "this CPU has no direct cache access (CPUID leaf 1, ECX bit 18)");
  // Device ids of I/OAT's first function: chipsets 5400, 5500 and 5520, Jasper Forest, Xeons from Sandy Bridge to Broadwell.
  constexpr std::array<std::uint16_t, 7> io_at_devices{0x402F, 0x3430, 0x3710, 0x3C20, 0x0E20, 0x2F20, 0x6F20};
  const bool chipset = std::ranges::any_of(pci::devices(), [&](const pci::Device& device) {
    return device.vendor_id == 0x8086 && std::ranges::find(io_at_devices, device.device_id) != io_at_devices.end();
  });
  if (!chipset) return failure(ErrorCode::unsupported, "the chipset has no I/OAT device, without which there is no direct cache access");
  return static_cast<std::uint8_t>(x86::apic_id_of(core));
}

}  // namespace neap::machine
