// SPDX-License-Identifier: BSL-1.0
// Numbers and layouts of virtio 1.2 (OASIS committee specification, 2022), as far as the driver uses them.
//
// All fields are little-endian, as the CPU is. Section numbers in drivers/virtio/ are those of that specification.
#pragma once

#include <cstdint>

namespace neap::virtio {

// --- Registers (4.1.4.3, 5.1.4) ----------------------------------------------------------------------------------------------------------
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

constexpr Register status{Region::device, 6, 2}, queue_pairs_max{Region::device, 8, 2};
constexpr Register mtu{Region::device, 10, 2}, speed{Region::device, 12, 4};
constexpr Register rss_key_max{Region::device, 17, 1}, rss_table_max{Region::device, 18, 2};
}  // namespace reg

constexpr std::uint16_t no_vector = 0xFFFF;  // 4.1.5.1.2
constexpr std::uint32_t link_up_bit = 1;     // 5.1.4, in `status`
constexpr std::uint32_t speed_unknown = ~0U;

/// 2.1: bits of the device's status.
namespace status {
constexpr std::uint32_t acknowledge = 1, driver = 2, driver_ok = 4, features_ok = 8, needs_reset = 64, failed = 128;
}  // namespace status

// --- Features (5.1.3, 6) -----------------------------------------------------------------------------------------------------------------
namespace feature {
constexpr std::uint64_t bit(unsigned number) noexcept { return std::uint64_t{1} << number; }
constexpr std::uint64_t checksum = bit(0), guest_checksum = bit(1), control_guest_offloads = bit(2), mtu = bit(3), mac = bit(5);
constexpr std::uint64_t guest_tso4 = bit(7), guest_tso6 = bit(8), host_tso4 = bit(11), host_tso6 = bit(12);
constexpr std::uint64_t merged_buffers = bit(15), status = bit(16), control_queue = bit(17), control_receive = bit(18),
                        multiqueue = bit(22);
constexpr std::uint64_t indirect = bit(28), event_index = bit(29);
constexpr std::uint64_t version_1 = bit(32), access_platform = bit(33), order_platform = bit(36);
constexpr std::uint64_t queue_coalescing = bit(52), coalescing = bit(53), rss = bit(60), speed = bit(63);
}  // namespace feature

// --- Rings (2.7) -------------------------------------------------------------------------------------------------------------------------
struct alignas(16) Descriptor {
  std::uint64_t address;
  std::uint32_t bytes;
  std::uint16_t flags, next;
};
namespace descriptor_flag {
constexpr std::uint16_t next = 1, device_writes = 2, indirect = 4;
}  // namespace descriptor_flag

struct UsedEntry {
  std::uint32_t id;     ///< index of the chain's first descriptor
  std::uint32_t bytes;  ///< that the device wrote
};

// --- Headers of frames (5.1.6) -----------------------------------------------------------------------------------------------------------
struct FrameHeader {
  std::uint8_t flags = 0, segmentation = 0;
  std::uint16_t header_bytes = 0, segment_bytes = 0, checksum_start = 0, checksum_offset = 0;
  std::uint16_t buffers = 0;  ///< of a received frame
};
constexpr std::uint32_t frame_header_bytes = 12;
static_assert(sizeof(FrameHeader) == frame_header_bytes);
namespace header_flag {
constexpr std::uint8_t needs_checksum = 1, data_valid = 2;
}  // namespace header_flag
constexpr std::uint8_t segmentation_tcp4 = 1, segmentation_tcp6 = 4;

// --- Commands of the control queue (5.1.6.5) ---------------------------------------------------------------------------------------------
struct Command {
  std::uint8_t command_class, command;
};
namespace command {
constexpr Command set_promiscuous{0, 0}, set_all_multicast{0, 1}, set_mac_tables{1, 0};
constexpr Command set_queue_pairs{4, 0}, set_rss{4, 1}, set_guest_offloads{5, 0};
constexpr Command set_receive_coalescing{6, 1}, set_queue_coalescing{6, 2};
constexpr std::uint8_t done = 0;  ///< the device's answer
}  // namespace command
/// 5.1.6.4.3: the hash types of `set_rss`: IPv4, TCP and UDP over it, and the same over IPv6.
constexpr std::uint32_t rss_hash_types = 0x3F;

}  // namespace neap::virtio
