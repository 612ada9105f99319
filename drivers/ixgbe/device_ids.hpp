// SPDX-License-Identifier: BSL-1.0
// The PCI device ids of the 82599.
#pragma once

#include <cstdint>

#include "kernel/pci.hpp"

namespace neap::ixgbe {

constexpr std::uint16_t vendor_intel = 0x8086;

struct DeviceKind {
  std::uint16_t device_id;
  bool sfp;  ///< has an SFP+ cage; other cards (backplane, CX4) keep the link mode of their EEPROM
};

/// The ids are from the 82599 specification update and the public PCI id list.
constexpr DeviceKind device_kinds[] = {
    {0x10FB, true},  {0x1507, true},  {0x1529, true},  {0x154A, true},  {0x154D, true},  {0x1557, true},  {0x1558, true},
    {0x10F7, false}, {0x10F8, false}, {0x10F9, false}, {0x10FC, false}, {0x1514, false}, {0x1517, false}, {0x152A, false},
};

/// Returns null if the device is no 82599.
[[nodiscard]] constexpr const DeviceKind* kind_of(const pci::Device& device) noexcept {
  if (device.vendor_id != vendor_intel) return nullptr;
  for (const DeviceKind& kind : device_kinds) {
    if (kind.device_id == device.device_id) return &kind;
  }
  return nullptr;
}

}  // namespace neap::ixgbe
