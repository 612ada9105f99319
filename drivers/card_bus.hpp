// SPDX-License-Identifier: BSL-1.0
// The connection of a card to the machine: its identity, its DMA and its interrupt messages.
//
// Every driver needs these from PCI, and the host's unit tests have no PCI. So a card uses this interface, which a test replaces. Registers
// are not a part of it, because each driver accesses them in its own way.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernel/error.hpp"
#include "kernel/net_device.hpp"
#include "kernel/pci.hpp"

namespace neap {

class CardBus {
 public:
  virtual ~CardBus() = default;
  // As the functions of `pci::Device`.
  [[nodiscard]] virtual unsigned msix_vectors() const noexcept = 0;
  [[nodiscard]] virtual Result<void> route_msix(unsigned entry, unsigned core, std::uint8_t vector) const = 0;
  virtual void enable(bool on) const noexcept = 0;
  /// `name`: the card's name in reports, a static text.
  [[nodiscard]] virtual NetDeviceIdentity identity(std::string_view name) const noexcept = 0;
};

class PciBus final : public CardBus {
 public:
  /// `device` MUST outlive this object.
  explicit PciBus(const pci::Device& device) noexcept : device_(device) {}
  [[nodiscard]] unsigned msix_vectors() const noexcept override { return device_.msix_vectors(); }
  [[nodiscard]] Result<void> route_msix(unsigned entry, unsigned core, std::uint8_t vector) const override {
    return device_.route_msix(entry, core, vector);
  }
  void enable(bool on) const noexcept override { device_.enable(on); }
  [[nodiscard]] NetDeviceIdentity identity(std::string_view name) const noexcept override {
    return {.name = name, .vendor_id = device_.vendor_id, .device_id = device_.device_id, .revision = device_.revision};
  }

 private:
  const pci::Device& device_;
};

}  // namespace neap
