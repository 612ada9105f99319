// SPDX-License-Identifier: BSL-1.0
// The interface between the network stack and a card's driver.
//
// A frame should not be copied between the wire and the application, and neither side should depend on the other. The driver does not use
// lwIP, and the stack does not use descriptors. So driver and stack share one buffer type with room for the stack's header, and an
// interface of a few calls. A queue pair belongs to one core: its calls MUST be made on that core, and nothing here takes a lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <expected>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernel/console.hpp"
#include "kernel/counter.hpp"
#include "kernel/error.hpp"
#include "kernel/machine.hpp"
#include "kernel/task.hpp"

namespace neap {

using MacAddress = std::array<std::uint8_t, 6>;

/// Returns a random address of the locally administered kind, for a device that has none.
inline MacAddress random_mac() noexcept {
  const std::uint64_t random = machine::random_bits();
  MacAddress mac;
  std::memcpy(mac.data(), &random, mac.size());
  mac[0] = static_cast<std::uint8_t>((mac[0] & 0xFC) | 2);  // local, and no group (IEEE 802, 8.2)
  return mac;
}

/// Appends `mac` as six pairs of digits with colons between them.
inline Line& operator<<(Line& line, const MacAddress& mac) noexcept {
  constexpr char digits[] = "0123456789abcdef";
  for (std::size_t i = 0; i < mac.size(); ++i) {
    if (i > 0) line << ':';
    line << digits[mac[i] >> 4] << digits[mac[i] & 15];
  }
  return line;
}

/// A receive buffer that holds a frame or a piece of one. The device's pool owns the memory. The holder MUST give the buffer back by
/// `release()` on the core that received it. The holder MAY use `stack_area` (for an lwIP pbuf header), so receiving a frame allocates
/// nothing.
struct ReceiveBuffer {
  std::byte* data = nullptr;      ///< first byte of the frame or piece; the holder MUST NOT change the pointer
  std::uint32_t bytes = 0;        ///< bytes valid at `data`
  ReceiveBuffer* next = nullptr;  ///< next piece of the same frame, or null
  void (*return_to)(ReceiveBuffer*) noexcept = nullptr;
  std::uint32_t pool_index = 0;  ///< used only by the driver
  alignas(8) std::array<std::byte, 104> stack_area{};

  void release() noexcept { return_to(this); }
};

/// The device's results for a received frame (checksums, hash of the flow, VLAN tag) in one word, which is cheap to pass. The positions in
/// the word are this interface's own. A driver MAY use masks alone if its descriptors have the same positions, which it asserts.
class ReceiveInfo {
 public:
  // Results of checksums. If none of these bits is set, the device did not check. The header of IPv6 has no checksum, so a frame of IPv6
  // never has `ip_good`.
  static constexpr std::uint32_t l4_good = 1 << 5;                                         ///< the checksum of TCP or UDP is right
  static constexpr std::uint32_t ip_good = 1 << 6;                                         ///< the checksum of the IPv4 header is right
  static constexpr std::uint32_t bad = 1 << 7;                                             ///< one of the two checksums is wrong
  static constexpr std::uint64_t hash_type_mask = 0xF, hash_mask = 0xFFFF'FFFF'0000'0000;  ///< see `of_parts`

  constexpr ReceiveInfo() = default;
  /// `hash_type`: the driver's number, below 16, for the set of header fields that were hashed; 0: there is no hash. Then `hash` MUST be
  /// the same for all frames of the queue. `vlan_tag`: 0 if the frame had no tag or still contains it.
  constexpr explicit ReceiveInfo(std::uint32_t checksums, std::uint32_t hash_type = 0, std::uint32_t hash = 0,
                                 std::uint16_t vlan_tag = 0) noexcept
      : word_(std::uint64_t{hash} << 32 | (hash_type & hash_type_mask) | checksums | std::uint64_t{vlan_tag} << 16) {}
  /// `hash_and_type` MUST have no bits except those of `hash_mask` and `hash_type_mask`. `checksums` MUST have no bits except `l4_good`,
  /// `ip_good` and `bad`. The result has no VLAN tag.
  static constexpr ReceiveInfo of_parts(std::uint64_t hash_and_type, std::uint64_t checksums) noexcept {
    ReceiveInfo info;
    info.word_ = hash_and_type | checksums;
    return info;
  }

  [[nodiscard]] constexpr bool l4_checksum_good() const noexcept { return (word_ & l4_good) != 0; }
  [[nodiscard]] constexpr bool ip_checksum_good() const noexcept { return (word_ & ip_good) != 0; }
  [[nodiscard]] constexpr bool checksum_bad() const noexcept { return (word_ & bad) != 0; }
  /// True if the device has found both checksums of a frame of IPv4 right.
  [[nodiscard]] constexpr bool checksums_good() const noexcept { return (word_ & (l4_good | ip_good | bad)) == (l4_good | ip_good); }
  /// True if the device has found the only checksum of a frame of IPv6 right, which is that of TCP or UDP.
  [[nodiscard]] constexpr bool ipv6_checksum_good() const noexcept { return (word_ & (l4_good | bad)) == l4_good; }
  [[nodiscard]] constexpr std::uint32_t rss_type() const noexcept { return static_cast<std::uint32_t>(word_ & hash_type_mask); }
  [[nodiscard]] constexpr std::uint32_t rss_hash() const noexcept { return static_cast<std::uint32_t>(word_ >> 32); }
  [[nodiscard]] constexpr std::uint16_t vlan_tag() const noexcept { return static_cast<std::uint16_t>(word_ >> 16); }

 private:
  std::uint64_t word_ = 0;
};

/// A received frame: its first piece, and the device's results.
struct ReceivedFrame {
  ReceiveBuffer* frame = nullptr;
  ReceiveInfo info;
};

/// A physically contiguous piece of an outgoing frame. It MUST stay unchanged until `transmitted` reports the frame.
struct TransmitPiece {
  const std::byte* data;
  std::uint32_t bytes;
};

/// Checksums that the card fills in, one bit for each: 1 IPv4 header, 2 TCP, 4 UDP. Without the bit of the IPv4 header, layer 3 is IPv6,
/// whose header has no checksum.
enum class Checksums : std::uint8_t { none = 0, ipv4 = 1, tcp_ipv6 = 2, tcp_ipv4 = 3, udp_ipv6 = 4, udp_ipv4 = 5 };

/// The card's work on an outgoing frame. The checksum field of TCP or UDP MUST hold the sum of the pseudo-header with the length, folded
/// and not inverted. For a card that fills in IP headers (`NetDeviceLimits::ip_header_offload`), the IPv4 header's checksum field MUST be
/// zero; in a frame that it segments, the length field of the IP header MUST be zero too, and the sum MUST NOT include the length. For
/// another card, the stack completes the IP header as if the frame were one packet. The struct has eight bytes, so it is passed in a
/// register, and two structs are compared like two numbers.
struct TransmitOffload {
  std::uint8_t l2_bytes = 14;
  std::uint8_t l3_bytes = 0;  ///< length of the IP header with options or extension headers; at least 20 for IPv4 and 40 for IPv6
  std::uint8_t l4_bytes = 0;  ///< length of the TCP or UDP header with options; needed for segmentation
  Checksums checksums = Checksums::none;
  std::uint16_t segment_bytes = 0;  ///< payload bytes of each segment that the card cuts; 0: no segmentation
  std::uint16_t unused = 0;

  [[nodiscard]] constexpr bool ipv4() const noexcept { return (static_cast<unsigned>(checksums) & 1) != 0; }
  [[nodiscard]] constexpr bool tcp() const noexcept { return (static_cast<unsigned>(checksums) & 2) != 0; }
  [[nodiscard]] constexpr bool udp() const noexcept { return (static_cast<unsigned>(checksums) & 4) != 0; }
  [[nodiscard]] constexpr std::uint32_t headers_bytes() const noexcept { return std::uint32_t{l2_bytes} + l3_bytes + l4_bytes; }
};
static_assert(sizeof(TransmitOffload) == sizeof(std::uint64_t));

/// The lengths that a frame may have, in bytes: `min` to `min + range`.
struct FrameLengths {
  std::uint32_t min = ~0U, range = 0;  ///< as they are here, no frame fits
  // For each frame the narrow form is used, which takes two instructions less.
  [[nodiscard]] constexpr bool contain(std::uint32_t bytes) const noexcept { return bytes - min <= range; }
  [[nodiscard]] constexpr bool contain(std::uint64_t bytes) const noexcept { return bytes - min <= range; }
};
/// The lengths of frames with this offload, for a card that sends up to `frame_bytes_max` bytes and cuts up to `tso_bytes_max`. Only header
/// lengths that are plausible are accepted.
constexpr FrameLengths frame_lengths(TransmitOffload offload, std::uint32_t frame_bytes_max, std::uint32_t tso_bytes_max) noexcept {
  constexpr std::uint32_t ethernet_bytes = 14, ipv4_bytes = 20, ipv6_bytes = 40, tcp_bytes = 20;
  const bool segment = offload.segment_bytes != 0;
  if (offload.checksums == Checksums::none && !segment) return {.min = 1, .range = frame_bytes_max - 1};
  const std::uint32_t headers = offload.headers_bytes();
  if (offload.l2_bytes < ethernet_bytes || offload.l3_bytes < (offload.ipv4() ? ipv4_bytes : ipv6_bytes) || headers > frame_bytes_max)
    return {};
  if (!segment) return {.min = headers, .range = frame_bytes_max - headers};
  if (!offload.tcp() || offload.l4_bytes < tcp_bytes || headers + offload.segment_bytes > frame_bytes_max || headers >= tso_bytes_max)
    return {};
  return {.min = headers + 1, .range = tso_bytes_max - headers - 1};
}

/// The frames that a device sends for one frame of the stack: several if it segments, each with headers of its own. Bytes are without FCS
/// and without the padding that a device adds to short frames.
struct FramesSent {
  std::uint32_t frames, bytes;
};
constexpr FramesSent frames_sent(std::uint32_t frame_bytes, TransmitOffload offload) noexcept {
  if (offload.segment_bytes == 0) return {.frames = 1, .bytes = frame_bytes};
  const std::uint32_t headers = offload.headers_bytes();
  const std::uint32_t segments = (frame_bytes - headers + offload.segment_bytes - 1) / offload.segment_bytes;
  return {.frames = segments, .bytes = frame_bytes + (segments - 1) * headers};
}

/// A stack implements this, with one instance for each core. All calls are made on that core, inside an event, and MUST NOT throw.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  /// Passes one or more whole frames, in the order of their arrival. The receiver owns each `frame` (and its `next` pieces) from here on.
  /// The list itself belongs to the device and is not valid after the call.
  virtual void receive(std::span<const ReceivedFrame> frames) noexcept = 0;
  /// TX completions: the card has read every piece of the frames with these tokens. Tokens are reported in the order in which their frames
  /// were queued, one for each frame, including null tokens.
  virtual void transmitted(std::span<void* const> tokens) noexcept = 0;
  /// The end of back-pressure: `transmit` had returned `full`, and now there is room for the largest frame. Called once for any number of
  /// refusals, after the completions that made the room.
  virtual void transmit_room() noexcept {}
  virtual void link_changed(bool up) noexcept = 0;
};

using TransmitPieces = std::span<const TransmitPiece>;
using TransmitResult = std::expected<void, ErrorCode>;

/// One core's transmit queue.
class FrameSender {
 public:
  virtual ~FrameSender() = default;
  /// Queues a frame, which is `pieces` put together, headers included. The card is notified at the end of the event, once for all frames of
  /// the event. `token` is passed to `transmitted` later. Errors: `full` (the ring has no room; counted; `transmit_room` is called later),
  /// `invalid` (too many pieces, too long, an impossible offload), `closed` (no link, or the device is gone). After an error the frame is
  /// not queued and the token is not passed on.
  [[nodiscard]] virtual TransmitResult transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept = 0;
  /// Reports all completions that the card has written, by `transmitted` and `transmit_room`, within this call. A device MAY otherwise
  /// report them late, because nothing has to happen on a TX completion. So a stack calls this before it acts on what the card still holds,
  /// such as before it retransmits. MUST NOT be called from within a call of the receiver. A device that is never late MAY do nothing.
  virtual void reap() noexcept {}
};

struct NetDeviceLimits {
  std::uint32_t queue_pairs;          ///< cores 0 to queue_pairs - 1 have a receive and a transmit queue
  std::uint32_t transmit_queues;      ///< cores 0 to transmit_queues - 1 have a transmit queue
  std::uint32_t frame_bytes_max;      ///< without FCS
  std::uint32_t transmit_pieces_max;  ///< largest number of pieces of one frame
  std::uint32_t tso_bytes_max;        ///< 0: the card cannot segment
  bool checksum_offload;              ///< the card fills in the checksums of TCP and UDP
  bool ip_header_offload;             ///< the card completes the headers of IP, too (see `TransmitOffload`)
};

/// The identity of a card, for reports and logs.
struct NetDeviceIdentity {
  std::string_view name;        ///< a static text such as "82599"
  std::uint16_t vendor_id = 0;  ///< of PCI
  std::uint16_t device_id = 0;  ///< of PCI
  std::uint8_t revision = 0;    ///< of PCI
};

/// An IPv6 address in network byte order.
using Ipv6Octets = std::span<const std::uint8_t, 16>;

class NetDevice {
 public:
  virtual ~NetDevice() = default;
  [[nodiscard]] virtual NetDeviceIdentity identity() const noexcept = 0;
  [[nodiscard]] virtual MacAddress mac() const noexcept = 0;
  [[nodiscard]] virtual NetDeviceLimits limits() const noexcept = 0;
  [[nodiscard]] virtual bool link_up() const noexcept = 0;
  /// The speed of the link in Mb/s; 0: there is no link, or its speed is not known.
  [[nodiscard]] virtual std::uint32_t link_megabits() const noexcept = 0;

  /// From the next event on, `receiver` gets the frames of this core's queue pair. MUST be called at most once on each core. The result
  /// MUST be used on this core only. It is valid as long as the device exists.
  [[nodiscard]] virtual FrameSender& attach(FrameReceiver& receiver) = 0;

  /// A result of `receiving_core`, then of each call: the device chooses the core by rules of its own. It SHOULD choose the core that last
  /// sent a frame of the flow. A new flow, or one without traffic for some seconds, MAY arrive on any core with a receive queue.
  static constexpr unsigned device_decides = ~0U;

  /// The core whose receive queue gets frames with these addresses and ports (TCP or UDP over IPv4), or `device_decides`. The stack uses it
  /// to choose local ports. All arguments are in host byte order and as in the received frame: `source` is the peer.
  [[nodiscard]] virtual unsigned receiving_core(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                                std::uint16_t destination_port) const noexcept = 0;

  /// Like `receiving_core`, for TCP or UDP over IPv6. The addresses are in network byte order. Filters that a device has for IPv4 only do
  /// not apply.
  [[nodiscard]] virtual unsigned receiving_core_ipv6(Ipv6Octets source_ip, Ipv6Octets destination_ip, std::uint16_t source_port,
                                                     std::uint16_t destination_port) const noexcept = 0;

  /// Replaces the set of group addresses whose frames the device receives; broadcast frames are always received. A second call on the same
  /// core replaces the first. MUST NOT be called while the device is being closed.
  [[nodiscard]] virtual task<void> set_multicast(std::vector<MacAddress> groups) = 0;

  /// Emits the driver's counters since start: those of `core`, or without `core` the sums over all cores and the driver's global counters.
  /// Any core MAY call it. It runs nothing on other cores and reads no register.
  virtual void report_counters(std::optional<unsigned> core, const Emit& emit) const = 0;
  /// Emits the device's own counters since start: those of one core's queues, or without `core` those of the whole device. Reads registers,
  /// on the core that opened the device. Errors: `closed` (the device is gone); then nothing was emitted. A device without counters MAY
  /// leave this function as it is.
  [[nodiscard]] virtual task<Result<void>> report_device_counters(std::optional<unsigned> /*core*/, const Emit& /*emit*/) {
    co_return Result<void>{};
  }
};

}  // namespace neap
