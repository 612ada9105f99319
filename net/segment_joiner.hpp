// SPDX-License-Identifier: BSL-1.0
// Segments that follow each other become one frame, which the card cuts up again (TSO).
//
// lwIP cuts a stream into segments and sends them one after the other; to the card each is a frame with descriptors of its own. Those of
// one connection that follow each other without a gap differ in nothing that the card could not write itself (82599 datasheet 7.2.4). So
// the first is held back, the next ones are added to it, and all go to the card as one frame, at the latest when the event ends. What
// then leaves the card is, byte by byte, what would have left it without.
//
// Two forms, as the published studies had them: `copy` copies headers and payload into one buffer, and lwIP has its segments back at once;
// `chain` leaves the payload where it is, and holds every segment until the card has read it. The headers are the frame's own in both,
// since lwIP still needs the segments' for a retransmission.
//
// Belongs to one core; internal to net/.
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
  /// Of a frame, whatever the card takes.
  static constexpr unsigned pieces_max = 40;
  static constexpr unsigned segments_max = 48;
  static constexpr std::uint32_t frame_bytes_max = 64 * 1024;
  static constexpr std::size_t headers_bytes_max = 14 + 20 + 60;
  /// Of the form `copy`, each of `frame_bytes_max`; when none is left, segments go one by one.
  static constexpr unsigned copy_buffers_max = 32;
  /// Payload of a segment that is worth the waiting.
  static constexpr std::uint32_t segment_bytes_min = 256;

  explicit SegmentJoiner(const NetDeviceLimits& limits) noexcept;
  SegmentJoiner(const SegmentJoiner&) = delete;
  SegmentJoiner& operator=(const SegmentJoiner&) = delete;
  ~SegmentJoiner() { drop(); }

  /// Why a device with these limits cannot be asked; null: it can.
  [[nodiscard]] static const char* why_not(const NetDeviceLimits& limits) noexcept;

  [[nodiscard]] bool holds() const noexcept { return segments_ != 0; }
  /// Holds `frame` (with a reference of its own) if others may follow it; nothing is held yet. False: nothing was done.
  [[nodiscard]] bool begin(pbuf& frame, policy::Segmentation form) noexcept;
  /// Adds `frame` to what is held if it is the next segment. False: nothing was done, and what is held goes first.
  [[nodiscard]] bool add(pbuf& frame) noexcept;

  /// What is held, as the card takes it. May be asked for again if the card had no room.
  struct Frame {
    TransmitPieces pieces;
    TransmitOffload offload;
    pbuf* token;  ///< to be freed once the card has read the frame
    std::uint32_t bytes;
    unsigned segments;
  };
  [[nodiscard]] Frame frame() noexcept;
  /// The frame, and its token, are somebody else's now.
  void forget() noexcept { segments_ = 0; }
  /// Gives up what is held.
  void drop() noexcept;

  struct Counters {
    Counter copied_bytes;
    Counter no_memory;  ///< segments that went alone because no buffer or no memory was left
  };
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

  /// Gives this core's spare memory back to malloc (tests, which look for leaks).
  static void trim() noexcept;

 private:
  [[nodiscard]] bool follows(const pbuf& frame) const noexcept;
  /// Adds where `frame`'s bytes lie to the pieces, without the first `skip`. False: too many pieces, and nothing was done.
  [[nodiscard]] bool add_pieces(const pbuf& frame, std::uint32_t skip) noexcept;
  [[nodiscard]] bool leaves_room_for(const pbuf& second) const noexcept;
  /// Makes a joined frame of the one segment that is held. False: no memory.
  [[nodiscard]] bool make_joined() noexcept;

  const unsigned pieces_limit_;
  const std::uint32_t bytes_limit_;
  unsigned segments_ = 0;  // held; 0: none
  bool last_ = false;      // nothing may follow: a short one, or one with PSH
  bool push_ = false;
  policy::Segmentation form_ = policy::Segmentation::off;
  pbuf* first_ = nullptr;          // of one alone
  JoinedFrame* joined_ = nullptr;  // of two and more
  std::uint32_t headers_bytes_ = 0;
  std::uint32_t segment_bytes_ = 0;
  std::uint32_t bytes_ = 0;  // headers, and all payload
  std::uint32_t next_sequence_ = 0;
  std::uint16_t next_id_ = 0;
  unsigned count_ = 0;
  std::array<TransmitPiece, pieces_max> pieces_;
  alignas(8) std::array<std::byte, headers_bytes_max> headers_{};  // the first segment's
  Counters counters_;
};

}  // namespace neap::net
