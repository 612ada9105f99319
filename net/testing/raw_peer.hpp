// SPDX-License-Identifier: BSL-1.0
// Peers without a stack: TCP frames and addresses that a test makes up.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "net/network.hpp"
#include "net/testing/wire.hpp"

namespace neap::net::testing {

constexpr unsigned fin_flag = 1, syn_flag = 2, rst_flag = 4, psh_flag = 8, ack_flag = 16;

struct RawSegment {
  Endpoint from, to;
  std::uint32_t sequence = 0, acknowledged = 0;
  unsigned flags = 0;
  std::uint16_t window = 0xFFFF;
  Bytes options{};  ///< a multiple of four bytes
  Bytes payload{};
};

/// Makes a frame to the card of `to`, whose MAC address is `mac`, with valid checksums.
inline Bytes frame_of(const RawSegment& segment, const MacAddress& mac) {
  Bytes frame;
  const auto put = [&](std::uint64_t value, unsigned bytes) {
    while (bytes-- > 0) frame.push_back(static_cast<std::byte>(value >> 8 * bytes));
  };
  for (const std::uint8_t byte : mac) put(byte, 1);
  put(0x0200'0000'00FE, 6);
  put(0x0800, 2);
  put(0x4500, 2);
  put(40 + segment.options.size() + segment.payload.size(), 2);
  put(0x0001'0000, 4);
  put(0x4006'0000, 4);
  put(segment.from.address.value, 4);
  put(segment.to.address.value, 4);
  put(segment.from.port, 2);
  put(segment.to.port, 2);
  put(segment.sequence, 4);
  put(segment.acknowledged, 4);
  put((5 + segment.options.size() / 4) << 12 | segment.flags, 2);
  put(segment.window, 2);
  put(0, 4);
  frame.insert(frame.end(), segment.options.begin(), segment.options.end());
  frame.insert(frame.end(), segment.payload.begin(), segment.payload.end());
  fill_checksums(frame);
  return frame;
}

/// Returns the segment in a frame. If the frame has none, its flags are 0.
inline RawSegment segment_in(const Bytes& frame) {
  const auto get = [&](std::size_t at, unsigned bytes) {
    std::uint32_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) value = value << 8 | std::to_integer<std::uint32_t>(frame[at + i]);
    return value;
  };
  RawSegment segment;
  if (frame.size() < 54 || get(12, 2) != 0x0800 || get(14, 1) != 0x45 || get(23, 1) != 6) return segment;
  const std::size_t data = 34 + (get(46, 1) >> 4) * 4;
  const std::size_t end = 14 + get(16, 2);
  if (end > frame.size() || data > end) return segment;
  segment.from = {.address = {get(26, 4)}, .port = static_cast<std::uint16_t>(get(34, 2))};
  segment.to = {.address = {get(30, 4)}, .port = static_cast<std::uint16_t>(get(36, 2))};
  segment.sequence = get(38, 4);
  segment.acknowledged = get(42, 4);
  segment.flags = get(47, 1);
  segment.window = static_cast<std::uint16_t>(get(48, 2));
  segment.options.assign(frame.begin() + 54, frame.begin() + static_cast<std::ptrdiff_t>(data));
  segment.payload.assign(frame.begin() + static_cast<std::ptrdiff_t>(data), frame.begin() + static_cast<std::ptrdiff_t>(end));
  return segment;
}

/// Makes an ARP packet, by default an answer of a simulated neighbour. `mac` is the receiver's MAC address.
inline Bytes arp_answer(Ipv4Address from, Ipv4Address to, const MacAddress& mac, unsigned operation = 2,
                        std::uint64_t sender = 0x0200'0000'00FE) {
  Bytes frame;
  const auto put = [&](std::uint64_t value, unsigned bytes) {
    while (bytes-- > 0) frame.push_back(static_cast<std::byte>(value >> 8 * bytes));
  };
  for (const std::uint8_t byte : mac) put(byte, 1);
  put(sender, 6);
  put(0x0806'0001'0800, 6);
  put(0x0604, 2);
  put(operation, 2);
  put(sender, 6);
  put(from.value, 4);
  for (const std::uint8_t byte : mac) put(byte, 1);
  put(to.value, 4);
  return frame;
}

/// A TCP peer that the test controls completely. The test MUST pass the server's segments for this peer to `process`.
class RawPeer {
 public:
  RawPeer(WireCard& card, Endpoint from, Endpoint to, std::uint32_t sequence = 1000)
      : card_(card), from_(from), to_(to), sequence_(sequence) {}

  void send(unsigned flags, Bytes payload = {}, Bytes options = {}) {
    send_at(sequence_, flags, payload, std::move(options));
    sequence_ += static_cast<std::uint32_t>(payload.size()) + ((flags & (syn_flag | fin_flag)) != 0 ? 1 : 0);
  }
  /// Sends a segment at `sequence`, without a change of the peer's own sequence number.
  void send_at(std::uint32_t sequence, unsigned flags, Bytes payload = {}, Bytes options = {}) {
    card_.arrive(frame_of({.from = from_,
                           .to = to_,
                           .sequence = sequence,
                           .acknowledged = (flags & ack_flag) != 0 ? acknowledge : 0,
                           .flags = flags,
                           .window = window,
                           .options = std::move(options),
                           .payload = std::move(payload)},
                          card_.mac()));
  }
  /// Records a segment that the server has sent.
  void process(const RawSegment& segment) {
    if ((segment.flags & syn_flag) != 0) acknowledge = segment.sequence + 1;
    if ((segment.flags & syn_flag) != 0) answered = true;
    if ((segment.flags & rst_flag) != 0) reset = true;
    if ((segment.flags & fin_flag) != 0) finished = true;
    const auto end =
        segment.sequence + static_cast<std::uint32_t>(segment.payload.size()) + (segment.flags & (syn_flag | fin_flag) ? 1 : 0);
    if (static_cast<std::int32_t>(end - highest) > 0 || highest == 0) highest = end;
    if ((segment.flags & ack_flag) != 0) taken = segment.acknowledged;
    server_window = segment.window;
  }
  [[nodiscard]] std::uint32_t sequence() const { return sequence_; }
  [[nodiscard]] Endpoint from() const { return from_; }

  std::uint32_t acknowledge = 0;  ///< acknowledgement number of the next sent segment
  std::uint16_t window = 0xFFFF;  ///< window of the next sent segment
  std::atomic<bool> answered{false}, reset{false}, finished{false};
  std::atomic<std::uint32_t> highest{0};  ///< sequence number after the server's last byte
  std::atomic<std::uint32_t> taken{0};    ///< the server's last acknowledgement number
  std::atomic<std::uint16_t> server_window{0};

 private:
  WireCard& card_;
  Endpoint from_, to_;
  std::uint32_t sequence_;
};

}  // namespace neap::net::testing
