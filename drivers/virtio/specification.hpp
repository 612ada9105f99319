// SPDX-License-Identifier: BSL-1.0
// Numbers and layouts of virtio-net in virtio 1.2 (OASIS committee specification, 2022), as far as the driver uses them.
//
// All fields are little-endian, as the CPU is. Section numbers in drivers/virtio/ are those of that specification.
#pragma once

#include <cstdint>

#include "drivers/virtio_bus/registers.hpp"

namespace neap::virtio {

// --- The device's configuration (5.1.4) --------------------------------------------------------------------------------------------------
namespace reg {
constexpr Register status{Region::device, 6, 2}, queue_pairs_max{Region::device, 8, 2};
constexpr Register mtu{Region::device, 10, 2}, speed{Region::device, 12, 4};
constexpr Register rss_key_max{Region::device, 17, 1}, rss_table_max{Region::device, 18, 2};
}  // namespace reg

constexpr std::uint32_t link_up_bit = 1;  // in `status`
constexpr std::uint32_t speed_unknown = ~0U;

// --- Features (5.1.3) --------------------------------------------------------------------------------------------------------------------
namespace feature {
constexpr std::uint64_t checksum = bit(0), guest_checksum = bit(1), control_guest_offloads = bit(2), mtu = bit(3), mac = bit(5);
constexpr std::uint64_t guest_tso4 = bit(7), guest_tso6 = bit(8), host_tso4 = bit(11), host_tso6 = bit(12);
constexpr std::uint64_t merged_buffers = bit(15), status = bit(16), control_queue = bit(17), control_receive = bit(18),
                        multiqueue = bit(22);
constexpr std::uint64_t queue_coalescing = bit(52), coalescing = bit(53), rss = bit(60), speed = bit(63);
}  // namespace feature

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
