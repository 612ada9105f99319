// SPDX-License-Identifier: BSL-1.0
// The registers and features that all virtio devices have (virtio 1.2, OASIS committee specification, 2022).
//
// All fields are little-endian, as the CPU is. Section numbers are those of that specification. The driver of a kind of device adds the
// registers of its configuration and its features.
#pragma once

#include <cstdint>

namespace neap::virtio {

// --- Registers (4.1.4.3) -----------------------------------------------------------------------------------------------------------------
/// The structures of a device that drivers read and write.
enum class Region : std::uint8_t { common, device };
struct Register {
  Region region;
  std::uint8_t offset, bytes;
};
namespace reg {
constexpr Register device_feature_select{Region::common, 0, 4}, device_feature{Region::common, 4, 4};
constexpr Register driver_feature_select{Region::common, 8, 4}, driver_feature{Region::common, 12, 4};
constexpr Register config_vector{Region::common, 16, 2};
constexpr Register device_status{Region::common, 20, 1}, config_generation{Region::common, 21, 1};
constexpr Register queue_select{Region::common, 22, 2}, queue_size{Region::common, 24, 2}, queue_vector{Region::common, 26, 2};
constexpr Register queue_enable{Region::common, 28, 2}, queue_notify_offset{Region::common, 30, 2};
constexpr Register queue_descriptors{Region::common, 32, 8}, queue_available{Region::common, 40, 8}, queue_used{Region::common, 48, 8};
constexpr std::uint32_t common_bytes = 56;
}  // namespace reg

constexpr std::uint16_t no_vector = 0xFFFF;  // 4.1.5.1.2

/// 2.1: bits of the device's status.
namespace status {
constexpr std::uint32_t acknowledge = 1, driver = 2, driver_ok = 4, features_ok = 8, needs_reset = 64, failed = 128;
}  // namespace status

// --- Features (6) ------------------------------------------------------------------------------------------------------------------------
namespace feature {
constexpr std::uint64_t bit(unsigned number) noexcept { return std::uint64_t{1} << number; }
constexpr std::uint64_t indirect = bit(28), event_index = bit(29);
constexpr std::uint64_t version_1 = bit(32), access_platform = bit(33), order_platform = bit(36);
}  // namespace feature

}  // namespace neap::virtio
