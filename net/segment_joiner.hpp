// SPDX-License-Identifier: BSL-1.0
// TCP segmentation offload (TSO): consecutive segments are joined into one frame, which the card segments again.
//
// lwIP sends a stream as segments, each of which is a frame with its own descriptors. The headers of a connection's consecutive segments
// differ only in fields that the card can write (82599 datasheet 7.2.4). So the joiner holds the first segment and adds later segments to
// it. The card gets all held segments as one frame before the event ends, and sends the same bytes on the wire as without joining.
//
// `tso` selects one of two forms. `copy` copies headers and payload into one buffer and frees lwIP's segments at once. `chain` leaves the
// payload in place and holds every segment until the card has read it. Both forms copy the headers, because retransmission changes them.
//
// A joiner belongs to one core. Internal to net/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernel/counter.hpp"
#include "kernel/net_device.hpp"
#include "kernel/policy.hpp"

struct pbuf;

namespace neap::net {

struct JoinedFrame;

class SegmentJoiner {
 public:
  static constexpr unsigned pieces_max = 40, segments_max = 48;
  static constexpr std::uint32_t frame_bytes_max = 64 * 1024;
  static constexpr std::size_t headers_bytes_max = 14 + 20 + 60;
  /// The number of buffers for `copy`, each of `frame_bytes_max`. Without a free buffer, segments are sent one by one.
  static constexpr unsigned copy_buffers_max = 32;
  /// Segments with less payload than this are not joined.
  static constexpr std::uint32_t segment_bytes_min = 256;

  explicit SegmentJoiner(const NetDeviceLimits& limits) noexcept;
  SegmentJoiner& operator=(SegmentJoiner&&) = delete;
  ~SegmentJoiner() { drop(); }

  /// Returns the reason why a device with these limits does not support TSO; null if it supports TSO.
  [[nodiscard]] static const char* unsupported_reason(const NetDeviceLimits& limits) noexcept;

  [[nodiscard]] bool holds() const noexcept { return segments_ != 0; }
  /// If further segments may follow, holds `frame`, takes a reference to it and returns true. MUST NOT be called while a frame is held.
  [[nodiscard]] bool begin(pbuf& frame, policy::Segmentation form) noexcept;
  /// Adds `frame` if it is the next segment. Otherwise returns false; the held frame MUST then be sent first.
  [[nodiscard]] bool add(pbuf& frame) noexcept;

  /// The held frame as the card gets it. `frame()` may be called again if the card had no room.
  struct Frame {
    TransmitPieces pieces;
    TransmitOffload offload;
    pbuf* token;  ///< MUST be freed when the card has read the frame
    std::uint32_t bytes;
    unsigned segments;
  };
  [[nodiscard]] Frame frame() noexcept;
  /// Gives up ownership: the card now owns the frame and its token.
  void forget() noexcept { segments_ = 0; }
  void drop() noexcept;

  struct Counters {
    Counter copied_bytes;
    Counter no_memory;  ///< segments sent alone because no buffer or memory was free
  };
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

  /// Returns this core's spare memory to malloc (for tests that look for leaks).
  static void trim() noexcept;

 private:
  [[nodiscard]] bool follows(const pbuf& frame) const noexcept;
  /// Adds the pieces of `frame` without its first `skip` bytes. Returns false and adds none if there are too many pieces.
  [[nodiscard]] bool add_pieces(const pbuf& frame, std::uint32_t skip) noexcept;
  [[nodiscard]] bool leaves_room_for(const pbuf& second) const noexcept;
  /// Turns the one held segment into a joined frame. Returns false if memory is short.
  [[nodiscard]] bool make_joined() noexcept;

  const unsigned pieces_limit_;
  const std::uint32_t bytes_limit_;
  unsigned segments_ = 0;  // segments held; 0: none
  bool last_ = false;      // no segment may follow: the last one is short or has PSH
  bool push_ = false;
  policy::Segmentation form_ = policy::Segmentation::off;
  pbuf* first_ = nullptr;          // set if one segment is held
  JoinedFrame* joined_ = nullptr;  // set if two or more are held
  std::uint32_t headers_bytes_ = 0, segment_bytes_ = 0;
  std::uint32_t bytes_ = 0;  // bytes of the headers and all payload
  std::uint32_t next_sequence_ = 0;
  std::uint16_t next_id_ = 0;
  unsigned count_ = 0;
  std::array<TransmitPiece, pieces_max> pieces_;
  alignas(8) std::array<std::byte, headers_bytes_max> headers_{};  // the first segment's headers
  Counters counters_;
};

}  // namespace neap::net
