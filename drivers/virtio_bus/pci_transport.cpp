// SPDX-License-Identifier: BSL-1.0
// virtio over PCI (4.1): the structures are in BARs, at places that capabilities name.
#include <new>

#include "drivers/virtio_bus/transport.hpp"
#include "kernel/register_block.hpp"

namespace neap::virtio {

namespace {

constexpr std::uint8_t vendor_capability = 9;
/// 4.1.4: values of `cfg_type`.
constexpr std::uint32_t common_structure = 1, notify_structure = 2, device_structure = 4;

struct Structure {
  RegisterBlock registers;
  std::uint32_t multiplier;  ///< the word behind the capability of notifications
};

/// Finds and maps the structure that `type` names.
Result<Structure> map_structure(const pci::Device& device, std::uint32_t type) {
  for (std::uint16_t at = device.find_capability(vendor_capability); at != 0; at = device.find_capability(vendor_capability, at)) {
    const auto field = [&](unsigned offset, unsigned bytes) { return device.read_config(static_cast<std::uint16_t>(at + offset), bytes); };
    // 4.1.4.1: of several capabilities of one type, the first usable one holds; BAR numbers above 5 are reserved.
    if (field(3, 1) != type || field(4, 1) > 5) continue;
    const auto mapped = device.map_bar(field(4, 1), field(8, 4), field(12, 4));
    if (!mapped) return std::unexpected(mapped.error());
    return Structure{.registers = RegisterBlock(*mapped), .multiplier = type == notify_structure ? field(16, 4) : 0};
  }
  return failure(ErrorCode::unsupported, "virtio: the device has no modern interface", type);
}

class PciTransport final : public Transport {
 public:
  PciTransport(const pci::Device& device, RegisterBlock common, RegisterBlock own, const Structure& notify) noexcept
      : bus_(device), common_(common), own_(own), notify_(notify) {}

  [[nodiscard]] std::uint32_t read(Register place) const noexcept override { return block(place).read(place.offset, place.bytes); }
  void write(Register place, std::uint64_t value) const noexcept override { block(place).write(place.offset, place.bytes, value); }
  [[nodiscard]] volatile std::uint16_t* notify_address(std::uint32_t offset) const noexcept override {
    return notify_.registers.at<std::uint16_t>(std::uint64_t{offset} * notify_.multiplier);
  }
  [[nodiscard]] const CardBus& bus() const noexcept override { return bus_; }

 private:
  [[nodiscard]] const RegisterBlock& block(Register place) const noexcept { return place.region == Region::common ? common_ : own_; }

  PciBus bus_;
  RegisterBlock common_, own_;
  Structure notify_;
};

}  // namespace

Result<std::unique_ptr<Transport>> open_pci(const pci::Device& device) {
  const auto common = map_structure(device, common_structure), notify = map_structure(device, notify_structure);
  if (!common) return std::unexpected(common.error());
  if (!notify) return std::unexpected(notify.error());
  if (common->registers.bytes() < reg::common_bytes) return failure(ErrorCode::device, "virtio: the device has too few registers");
  // A device without configuration need not have this structure.
  const auto own = map_structure(device, device_structure);
  // Only now, because a device that decodes memory already has its addresses from firmware (kernel/x86/pci.cpp).
  device.enable_registers();
  const RegisterBlock own_registers = own ? own->registers : RegisterBlock();
  std::unique_ptr<Transport> transport(new (std::nothrow) PciTransport(device, common->registers, own_registers, *notify));
  if (!transport) return failure(ErrorCode::out_of_memory, "virtio: no memory for the device");
  return transport;
}

}  // namespace neap::virtio
