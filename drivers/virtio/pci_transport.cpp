// SPDX-License-Identifier: BSL-1.0
// virtio over PCI (4.1): the structures are in BARs, at places that capabilities name.
#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <span>

#include "drivers/virtio/transport.hpp"

namespace neap::virtio {

namespace {

using Bytes = std::span<volatile std::byte>;
constexpr std::uint8_t vendor_capability = 9;
constexpr std::uint16_t vendor = 0x1AF4, transitional_network = 0x1000, network = 0x1041;
/// 4.1.4: values of `cfg_type`.
constexpr std::uint32_t common_structure = 1, notify_structure = 2, device_structure = 4;

/// Finds the structure that `type` names. `multiplier` gets the word that follows the capability of notifications.
Result<Bytes> map_structure(const pci::Device& device, std::uint32_t type, std::uint32_t bytes_min, std::uint32_t* multiplier = nullptr) {
  for (std::uint16_t at = device.find_capability(vendor_capability); at != 0; at = device.find_capability(vendor_capability, at)) {
    const auto word = [&](unsigned offset) { return device.read_config(static_cast<std::uint16_t>(at + offset), 4); };
    const std::uint32_t bar_number = device.read_config(static_cast<std::uint16_t>(at + 4), 1);
    // 4.1.4.1: of several capabilities of one type, the first usable one holds; BAR numbers above 5 are reserved.
    if (device.read_config(static_cast<std::uint16_t>(at + 3), 1) != type || bar_number > 5) continue;
    const auto bar = device.map_bar(bar_number);
    if (!bar) return std::unexpected(bar.error());
    const std::uint64_t offset = word(8), bytes = word(12);
    if (offset + bytes > bar->size() || bytes < bytes_min)
      return failure(ErrorCode::device, "virtio: a structure does not fit into its BAR", offset);
    if (multiplier != nullptr) *multiplier = word(16);
    return bar->subspan(offset, bytes);
  }
  return failure(ErrorCode::unsupported, "virtio: the device has no modern interface", type);
}

class PciTransport final : public Transport {
 public:
  PciTransport(const pci::Device& device, Bytes common, Bytes device_bytes, Bytes notify, std::uint32_t multiplier) noexcept
      : device_(device), regions_{common, device_bytes}, notify_(notify), multiplier_(multiplier) {}

  [[nodiscard]] std::uint32_t read(Register place) const noexcept override {
    const volatile std::byte* const at = address(place);
    if (at == nullptr) return 0;
    // 4.1.3.1: each field is read by accesses of its own width.
    if (place.bytes == 1) return __atomic_load_n(reinterpret_cast<const volatile std::uint8_t*>(at), __ATOMIC_ACQUIRE);
    if (place.bytes == 2) return __atomic_load_n(reinterpret_cast<const volatile std::uint16_t*>(at), __ATOMIC_ACQUIRE);
    return __atomic_load_n(reinterpret_cast<const volatile std::uint32_t*>(at), __ATOMIC_ACQUIRE);
  }
  void write(Register place, std::uint64_t value) const noexcept override {
    volatile std::byte* const at = address(place);
    if (at == nullptr) return;
    if (place.bytes == 1) return __atomic_store_n(reinterpret_cast<volatile std::uint8_t*>(at), value, __ATOMIC_RELEASE);
    if (place.bytes == 2) return __atomic_store_n(reinterpret_cast<volatile std::uint16_t*>(at), value, __ATOMIC_RELEASE);
    __atomic_store_n(reinterpret_cast<volatile std::uint32_t*>(at), value, __ATOMIC_RELEASE);
    if (place.bytes == 8) __atomic_store_n(reinterpret_cast<volatile std::uint32_t*>(at + 4), value >> 32, __ATOMIC_RELEASE);
  }
  [[nodiscard]] volatile std::uint16_t* notify_address(std::uint32_t offset) const noexcept override {
    const std::uint64_t at = std::uint64_t{offset} * multiplier_;
    if (at + sizeof(std::uint16_t) > notify_.size() || at % sizeof(std::uint16_t) != 0) return nullptr;
    return reinterpret_cast<volatile std::uint16_t*>(notify_.data() + at);
  }
  [[nodiscard]] unsigned vectors() const noexcept override { return device_.msix_vectors(); }
  [[nodiscard]] Result<void> route(unsigned entry, unsigned core, std::uint8_t vector) const override {
    return device_.route_msix(entry, core, vector);
  }
  void enable(bool on) const noexcept override { device_.enable(on); }
  [[nodiscard]] NetDeviceIdentity identity() const noexcept override {
    constexpr std::uint16_t revision_offset = 8;
    return {.name = "virtio-net",
            .vendor_id = device_.vendor_id,
            .device_id = device_.device_id,
            .revision = static_cast<std::uint8_t>(device_.read_config(revision_offset, 1))};
  }

 private:
  [[nodiscard]] volatile std::byte* address(Register place) const noexcept {
    const Bytes region = regions_[static_cast<unsigned>(place.region)];
    return std::size_t{place.offset} + place.bytes <= region.size() ? region.data() + place.offset : nullptr;
  }

  const pci::Device& device_;
  std::array<Bytes, 2> regions_;
  Bytes notify_;
  std::uint32_t multiplier_;
};

}  // namespace

bool is_network_card(const pci::Device& device) noexcept {
  return device.vendor_id == vendor && (device.device_id == network || device.device_id == transitional_network);
}

Result<std::unique_ptr<Transport>> open_pci(const pci::Device& device) {
  const auto common = map_structure(device, common_structure, reg::common_bytes);
  if (!common) return std::unexpected(common.error());
  std::uint32_t multiplier = 0;
  const auto notify = map_structure(device, notify_structure, sizeof(std::uint16_t), &multiplier);
  if (!notify) return std::unexpected(notify.error());
  // A device without configuration need not have this structure.
  const auto own = map_structure(device, device_structure, 0);
  // Only now, because a device that decodes memory already has its addresses from firmware (kernel/x86/pci.cpp).
  device.enable_registers();
  std::unique_ptr<Transport> transport(new (std::nothrow) PciTransport(device, *common, own.value_or(Bytes{}), *notify, multiplier));
  if (!transport) return failure(ErrorCode::out_of_memory, "virtio: no memory for the device");
  return transport;
}

}  // namespace neap::virtio
