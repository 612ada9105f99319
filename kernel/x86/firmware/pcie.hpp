// SPDX-License-Identifier: BSL-1.0
// PCI Express links of cards, and checks of PCI configuration windows.
//
// Firmware configures the width, speed, payload and power states of a link. A card in the wrong slot or with ASPM on is slow without any
// error, so a driver prints its link at start-up. Only one setting can cause errors instead of low speed: the card's payload size, if the
// upstream port accepts only smaller packets. All devices on a path must agree on the size (PCIe 6.0, 7.5.3.4).
#pragma once

#include <cstdint>
#include <span>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"

namespace neap::x86::pcie {

constexpr std::uint8_t capability_id = 0x10;
// Offsets in the capability (PCIe 6.0, 7.5.3).
constexpr std::uint16_t device_capabilities = 0x04, device_control = 0x08, link_control = 0x10, link_status = 0x12;

/// Values read from registers of the capability.
struct Words {
  std::uint32_t device_capabilities = 0;
  std::uint16_t device_control = 0, link_control = 0, link_status = 0;
};

struct Link {
  unsigned lanes = 0;
  unsigned speed_100mtps = 0;  ///< speed of each lane in units of 100 megatransfers a second: 25, 50, 80 …; 0: unknown
  unsigned payload_bytes = 0, payload_bytes_max = 0, read_request_bytes = 0;
  bool sleeps_l0s = false, sleeps_l1 = false;  ///< ASPM
};
[[nodiscard]] Link decode(const Words& words) noexcept;

/// Rate in one direction without the overhead of the line code (8b/10b up to 5 GT/s, then 128b/130b), including packet headers.
[[nodiscard]] std::uint64_t megabits_per_second(const Link& link) noexcept;

/// Appends a text such as "x8 at 5.0 GT/s, payload 256 of 512 bytes, read requests of 512 bytes, ASPM off".
void describe(const Link& link, Line& line) noexcept;

/// Returns the card's Device Control register with the payload size reduced to the port's; unchanged if the port's is not smaller.
[[nodiscard]] std::uint16_t payload_matched(std::uint16_t own_control, std::uint16_t port_control) noexcept;

/// A configuration window from MCFG.
struct Window {
  std::uint64_t base;
  std::uint16_t segment;
  std::uint8_t first_bus, last_bus;
};
/// The reason why a window must not be used; null if it may be. `before`: the accepted windows.
[[nodiscard]] const char* window_problem(const Window& window, std::span<const Window> before,
                                         std::span<const machine::MemoryRange> ram) noexcept;

}  // namespace neap::x86::pcie
