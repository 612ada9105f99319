// SPDX-License-Identifier: BSL-1.0
// Access to the registers of a virtio device of any kind, and the agreement on features.
//
// Setting a device up takes many register accesses, whose meaning depends on selectors. So this interface has virtual functions, and host
// tests simulate the device behind it. Traffic needs one address only, that of a queue's notification.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "drivers/card_bus.hpp"
#include "drivers/virtio_bus/registers.hpp"
#include "drivers/virtio_bus/ring.hpp"
#include "kernel/error.hpp"
#include "kernel/pci.hpp"
#include "kernel/task.hpp"

namespace neap::virtio {

class Transport {
 public:
  virtual ~Transport() = default;
  /// The value of a register of at most 4 bytes. All ones if the device is gone; zero if its structure is too short for the register.
  [[nodiscard]] virtual std::uint32_t read(Register place) const noexcept = 0;
  /// A register of 8 bytes is written as two halves (4.1.3.1).
  virtual void write(Register place, std::uint64_t value) const noexcept = 0;
  /// The address to which a queue's number is written (4.1.4.4); null if `offset` is outside of the structure.
  [[nodiscard]] virtual volatile std::uint16_t* notify_address(std::uint32_t offset) const noexcept = 0;
  [[nodiscard]] virtual const CardBus& bus() const noexcept = 0;
};

/// PCI's identity of a virtio device with the modern interface: `pci_device_first` plus its kind (4.1.2).
constexpr std::uint16_t pci_vendor = 0x1AF4, pci_device_first = 0x1040;
/// Maps the structures of the device (4.1.4). Errors: `unsupported` (a legacy device), `device` (a structure outside of its BAR), and those
/// of `map_bar`.
[[nodiscard]] Result<std::unique_ptr<Transport>> open_pci(const pci::Device& device);

/// Resets the device and waits until it says so (4.1.4.3.1). Errors: `timeout`.
[[nodiscard]] task<Result<void>> reset(const Transport& transport);
/// Features that are of use only with all of `needs`.
struct Requirement {
  std::uint64_t features, needs;
};
/// 3.1.1, steps 2 to 6: agrees on those of the `wanted` features that the device offers and whose requirements are met. Errors:
/// `unsupported`.
[[nodiscard]] Result<std::uint64_t> negotiate(const Transport& transport, std::uint64_t wanted,
                                              std::span<const Requirement> requirements) noexcept;

// 4.1.5.1.3: the steps to start a queue. Between them, the caller allocates its ring.
/// Returns the number of descriptors of the ring: what the device offers, and at most `descriptors_max`. Errors: `device`.
[[nodiscard]] Result<std::uint32_t> select_queue(const Transport& transport, unsigned number, std::uint32_t descriptors_max) noexcept;
/// Tells the device where `ring` is, and turns the queue on. `vector`: an entry of MSI-X, or `no_vector`. `event_index`: device and driver
/// agree on that feature. The queue MUST be the one that was selected last. Errors: `device`.
[[nodiscard]] Result<void> enable_queue(const Transport& transport, Ring& ring, unsigned number, unsigned vector,
                                        bool event_index) noexcept;

}  // namespace neap::virtio
