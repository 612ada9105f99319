// SPDX-License-Identifier: BSL-1.0
// What the network sees of a card.
//
// A frame should not be copied between the wire and the application, and neither side should know the other: the driver does not know lwIP,
// the stack does not know descriptors. So both share one buffer type with room for the stack's own header in it, and a card is an interface
// of a few calls. All of it is per core: a queue pair belongs to one core, its calls are made on that core, and nothing here locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <vector>

#include "kernel/console.hpp"
#include "kernel/counter.hpp"
#include "kernel/error.hpp"
#include "kernel/task.hpp"

namespace neap {

using MacAddress = std::array<std::uint8_t, 6>;

/// As six pairs of digits with colons between them.
inline Line& operator<<(Line& line, const MacAddress& mac) noexcept {
  constexpr char digits[] = "0123456789abcdef";
  for (std::size_t i = 0; i < mac.size(); ++i) {
    if (i > 0) line << ':';
    line << digits[mac[i] >> 4] << digits[mac[i] & 15];
  }
  return line;
}

/// A receive buffer that holds a frame or a piece of one. The device's pool owns the memory; who holds the buffer gives it back by
/// `release()` on the core that received it. `stack_area` is the holder's to use (an lwIP pbuf header lives there), so taking a frame in
/// allocates nothing.
struct ReceiveBuffer {
  std::byte* data = nullptr;      ///< first byte of the frame or piece; whoever holds the buffer leaves the pointer as it is
  std::uint32_t bytes = 0;        ///< bytes valid at `data`
  ReceiveBuffer* next = nullptr;  ///< next piece of the same frame, or null
  void (*return_to)(ReceiveBuffer*) noexcept = nullptr;
  std::uint32_t pool_index = 0;  ///< the driver's
  alignas(8) std::array<std::byte, 104> stack_area{};

  void release() noexcept { return_to(this); }
};

/// What the card found out about a received frame: one word, put together by hand, since every frame has one. Its lowest bits and its
/// upper half are where the 82599 has them (82599 datasheet 7.1.6.2), so that its driver has nothing to shift.
class ReceiveInfo {
 public:
  // Of checksums; neither good nor bad: the card did not look.
  static constexpr std::uint32_t l4_good = 1 << 5;  ///< TCP's or UDP's
  static constexpr std::uint32_t ip_good = 1 << 6;  ///< the IPv4 header's
  static constexpr std::uint32_t bad = 1 << 7;      ///< one of them is wrong

  constexpr ReceiveInfo() = default;
  /// `rss_type`: what the hash was made of, by the number that RSS gives it (82599 datasheet 7.1.2.8), below 16; 0: there is no hash.
  /// `vlan_tag`: 0 when the frame had none or it was left in place.
  constexpr explicit ReceiveInfo(std::uint32_t checksums, std::uint32_t rss_type = 0, std::uint32_t rss_hash = 0,
                                 std::uint16_t vlan_tag = 0) noexcept
      : word_(std::uint64_t{rss_hash} << 32 | rss_type | checksums | std::uint64_t{vlan_tag} << 16) {}
  /// The hash and its type, each in its place, and what is known of checksums; no tag.
  static constexpr ReceiveInfo in_place(std::uint64_t hash_and_type, std::uint64_t checksums) noexcept {
    ReceiveInfo info;
    info.word_ = hash_and_type | checksums;
    return info;
  }

  [[nodiscard]] constexpr bool l4_checksum_good() const noexcept { return (word_ & l4_good) != 0; }
  [[nodiscard]] constexpr bool ip_checksum_good() const noexcept { return (word_ & ip_good) != 0; }
  [[nodiscard]] constexpr bool checksum_bad() const noexcept { return (word_ & bad) != 0; }
  [[nodiscard]] constexpr std::uint32_t rss_type() const noexcept { return word_ & 0xF; }
  [[nodiscard]] constexpr std::uint32_t rss_hash() const noexcept { return static_cast<std::uint32_t>(word_ >> 32); }
  [[nodiscard]] constexpr std::uint16_t vlan_tag() const noexcept { return static_cast<std::uint16_t>(word_ >> 16); }

 private:
  std::uint64_t word_ = 0;
};

/// A frame on its way up: its first piece, and what the card found out about it.
struct ReceivedFrame {
  ReceiveBuffer* frame = nullptr;
  ReceiveInfo info;
};

/// A physically contiguous piece of an outgoing frame. It must stay unchanged until `transmitted`.
struct TransmitPiece {
  const std::byte* data;
  std::uint32_t bytes;
};

/// Checksums that the card fills in. A bit each: 1 for that of the IPv4 header, 2 for TCP's, 4 for UDP's. Without the first, layer 3 is
/// IPv6, which has none.
enum class Checksums : std::uint8_t { none = 0, ipv4 = 1, tcp_ipv6 = 2, tcp_ipv4 = 3, udp_ipv6 = 4, udp_ipv4 = 5 };

/// What the card is to do to an outgoing frame. An IPv4 header's checksum field is zero. That of TCP or UDP holds the folded, not inverted
/// pseudo-header sum: with the length for ordinary frames, without it when `segment_bytes` asks for TSO (82599 datasheet 7.2.4, 7.2.5).
/// Eight bytes: it passes in a register, and two of them are compared as one number.
struct TransmitOffload {
  std::uint8_t l2_bytes = 14;
  std::uint8_t l3_bytes = 0;
  std::uint8_t l4_bytes = 0;  ///< header, with options; needed for TSO
  Checksums checksums = Checksums::none;
  std::uint16_t segment_bytes = 0;  ///< TSO: payload bytes a segment; 0: no TSO
  std::uint16_t unused = 0;

  [[nodiscard]] constexpr bool ipv4() const noexcept { return (static_cast<unsigned>(checksums) & 1) != 0; }
  [[nodiscard]] constexpr bool tcp() const noexcept { return (static_cast<unsigned>(checksums) & 2) != 0; }
  [[nodiscard]] constexpr bool udp() const noexcept { return (static_cast<unsigned>(checksums) & 4) != 0; }
  [[nodiscard]] constexpr std::uint32_t headers_bytes() const noexcept { return std::uint32_t{l2_bytes} + l3_bytes + l4_bytes; }
};
static_assert(sizeof(TransmitOffload) == sizeof(std::uint64_t));

/// What a device makes of a frame: with TSO several, each with headers of its own. Bytes are without FCS and without the padding that a
/// device adds to short frames, which is how the 82599 counts them for a queue.
struct FramesSent {
  std::uint32_t frames;
  std::uint32_t bytes;
};
constexpr FramesSent frames_sent(std::uint32_t frame_bytes, TransmitOffload offload) noexcept {
  if (offload.segment_bytes == 0) return {.frames = 1, .bytes = frame_bytes};
  const std::uint32_t headers = offload.headers_bytes();
  const std::uint32_t segments = (frame_bytes - headers + offload.segment_bytes - 1) / offload.segment_bytes;
  return {.frames = segments, .bytes = frame_bytes + (segments - 1) * headers};
}

/// What a stack implements, one instance a core. All calls come on that core, inside an event, and must not throw.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  /// Whole frames, in the order in which they came, at least one. The receiver owns each `frame` (and its `next` pieces) from here on; the
  /// list is the device's, and gone when the call returns.
  virtual void receive(std::span<const ReceivedFrame> frames) noexcept = 0;
  /// The card has read every piece of the frames that carried `tokens`: in the order in which they were queued, each frame's once, null
  /// ones too.
  virtual void transmitted(std::span<void* const> tokens) noexcept = 0;
  /// `transmit` said `full`, and now there is room for the largest frame; once for any number of refusals, after the tokens that made the
  /// room.
  virtual void transmit_room() noexcept {}
  virtual void link_changed(bool up) noexcept = 0;
};

using TransmitPieces = std::span<const TransmitPiece>;
using TransmitResult = std::expected<void, ErrorCode>;

/// One core's way out of a device.
class FrameSender {
 public:
  virtual ~FrameSender() = default;
  /// Queues a frame, `pieces` put together, headers included; the card is told at the end of the event, once for all frames of it. `token`
  /// comes back by `transmitted`. Errors: `full` (ring has no room; counted; `transmit_room` follows when it has again), `invalid` (too
  /// many pieces, too long, an offload that cannot be), `closed` (no link or device gone). After an error the frame was not taken and the
  /// token will not come back.
  [[nodiscard]] virtual TransmitResult transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept = 0;
};

struct NetDeviceLimits {
  std::uint32_t queue_pairs;          ///< cores 0 to queue_pairs - 1 have a receive and a transmit queue,
  std::uint32_t transmit_queues;      ///< and those up to transmit_queues - 1 the latter
  std::uint32_t frame_bytes_max;      ///< without FCS
  std::uint32_t transmit_pieces_max;  ///< pieces a frame may have
  std::uint32_t tso_bytes_max;        ///< 0: the card cannot segment
  bool checksum_offload;
};

class NetDevice {
 public:
  virtual ~NetDevice() = default;
  [[nodiscard]] virtual MacAddress mac() const noexcept = 0;
  [[nodiscard]] virtual NetDeviceLimits limits() const noexcept = 0;
  [[nodiscard]] virtual bool link_up() const noexcept = 0;

  /// Makes `receiver` the owner of this core's queue pair; frames flow from the next event on. Once a core. What it returns is for this
  /// core alone, and lives as long as the device.
  [[nodiscard]] virtual FrameSender& attach(FrameReceiver& receiver) = 0;

  /// The core whose receive queue gets frames with these addresses and ports (TCP or UDP over IPv4); used to choose local ports. All in
  /// host byte order, as they stand in the received frame: `source` is the peer.
  [[nodiscard]] virtual unsigned receiving_core(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                                std::uint16_t destination_port) const noexcept = 0;

  /// From now on takes in frames to these group addresses, and to no others but broadcast, in place of those that it was told before. Of
  /// two callers on one core the later one holds. Not while the device is being closed.
  [[nodiscard]] virtual task<void> set_multicast(std::vector<MacAddress> groups) = 0;

  /// What the driver has counted since start: one core's counters, or (without one) all cores' together and the device's. Any core asks;
  /// none is visited, and no register is read.
  virtual void tell_counters(std::optional<unsigned> core, const Emit& emit) const = 0;
  /// What the device itself has counted since start: for one core's queues, or (without one) for all of it. Reads registers, on the core
  /// that looks after the device. Errors: `closed` (device gone); then nothing was told.
  [[nodiscard]] virtual task<Result<void>> tell_own_counters(std::optional<unsigned> core, const Emit& emit) = 0;
};

}  // namespace neap
