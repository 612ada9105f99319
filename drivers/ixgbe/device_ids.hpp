// SPDX-License-Identifier: BSL-1.0
// The PCI device ids of the 82599, X540 and X550.
#pragma once

#include <cstdint>

#include "drivers/ixgbe/model.hpp"
#include "kernel/pci.hpp"

namespace neap::ixgbe {

constexpr std::uint16_t vendor_intel = 0x8086;

struct DeviceKind {
  std::uint16_t device_id;
  const Model* model;
  Medium medium;
};

/// The ids are from the 82599 specification update and the public PCI id list. tools/vfio.py reads them from this file.
constexpr DeviceKind device_kinds[] = {
    {0x10FB, &model_82599, Medium::sfp},   {0x1507, &model_82599, Medium::sfp},   {0x1529, &model_82599, Medium::sfp},
    {0x154A, &model_82599, Medium::sfp},   {0x154D, &model_82599, Medium::sfp},   {0x1557, &model_82599, Medium::sfp},
    {0x1558, &model_82599, Medium::sfp},   {0x10F7, &model_82599, Medium::fixed}, {0x10F8, &model_82599, Medium::fixed},
    {0x10F9, &model_82599, Medium::fixed}, {0x10FC, &model_82599, Medium::fixed}, {0x1514, &model_82599, Medium::fixed},
    {0x1517, &model_82599, Medium::fixed}, {0x152A, &model_82599, Medium::fixed}, {0x1528, &model_x540, Medium::phy},
    {0x1560, &model_x540, Medium::phy},    {0x1563, &model_x550, Medium::phy},    {0x15D1, &model_x550, Medium::phy},
};

/// Returns null if the driver does not know the device.
[[nodiscard]] constexpr const DeviceKind* kind_of(const pci::Device& device) noexcept {
  if (device.vendor_id != vendor_intel) return nullptr;
  for (const DeviceKind& kind : device_kinds) {
    if (kind.device_id == device.device_id) return &kind;
  }
  return nullptr;
}

}  // namespace neap::ixgbe
