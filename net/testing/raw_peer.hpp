// SPDX-License-Identifier: BSL-1.0
// Peers without a stack: TCP segments that a test makes up, over IPv4 or IPv6.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "net/ipv6/packet.hpp"
#include "net/testing/frames.hpp"

namespace neap::net::testing {

constexpr unsigned fin_flag = 1, syn_flag = 2, rst_flag = 4, psh_flag = 8, ack_flag = 16;

/// A segment whose options and payload are in `Octets`.
template <class Octets>
struct SegmentOf {
  Endpoint from, to;
  std::uint32_t sequence = 0, acknowledged = 0;
  unsigned flags = 0;
  std::uint16_t window = 0xFFFF;
  Octets options{};  ///< padded by zeros to a multiple of four bytes
  Octets payload{};
  // Over IPv6.
  std::uint8_t hops = 64;
  std::uint32_t flow = 0;  ///< traffic class and flow label
};
/// A segment with memory of its own.
using RawSegment = SegmentOf<Bytes>;
/// A segment that refers to a frame or to other memory, for code that makes or reads many segments.
using SegmentView = SegmentOf<std::span<const std::byte>>;

template <class To, class From>
[[nodiscard]] SegmentOf<To> segment_as(const SegmentOf<From>& other) {
  return {.from = other.from,
          .to = other.to,
          .sequence = other.sequence,
          .acknowledged = other.acknowledged,
          .flags = other.flags,
          .window = other.window,
          .options = To(other.options.begin(), other.options.end()),
          .payload = To(other.payload.begin(), other.payload.end()),
          .hops = other.hops,
          .flow = other.flow};
}

/// Makes a frame from a simulated neighbour. Its payload is zeros.
[[nodiscard]] inline Bytes ipv6_headers(ipv6::Header header, const MacAddress& to_mac, std::size_t payload_bytes) {
  header.payload_bytes = static_cast<std::uint16_t>(payload_bytes);
  Bytes frame(ipv6::ethernet_bytes + ipv6::header_bytes + payload_bytes);
  Writer to(frame);
  to.put(std::as_bytes(std::span(to_mac)));
  to.put<6>(neighbour_mac);
  to.put<2>(ipv6::ethertype);
  header.write(frame.data() + ipv6::ethernet_bytes);
  return frame;
}

/// Makes a frame to the card of `to`, whose MAC address is `mac`, with valid checksums.
[[nodiscard]] inline Bytes frame_from(const SegmentView& segment, const MacAddress& mac) {
  constexpr std::array<std::byte, 3> no_options{};
  const std::size_t padded = (segment.options.size() + 3) / 4 * 4, bytes = 20 + padded + segment.payload.size();
  Bytes frame = segment.from.address.is_v4()
                    ? ipv4_headers({.from = segment.from.address.v4(), .to = segment.to.address.v4(), .to_mac = mac}, bytes)
                    : ipv6_headers({.next = ipv6::next_header::tcp,
                                    .hops = segment.hops,
                                    .from = segment.from.address,
                                    .to = segment.to.address,
                                    .flow = segment.flow},
                                   mac, bytes);
  Writer to(std::span<std::byte>(frame).last(bytes));
  to.put<2>(segment.from.port);
  to.put<2>(segment.to.port);
  to.put<4>(segment.sequence);
  to.put<4>(segment.acknowledged);
  to.put<2>((5 + padded / 4) << 12 | segment.flags);
  to.put<2>(segment.window);
  to.put<4>(0);
  to.put(segment.options);
  to.put(std::span<const std::byte>(no_options).first(padded - segment.options.size()));
  to.put(segment.payload);
  fill_checksums(frame);
  return frame;
}
inline Bytes frame_of(const RawSegment& segment, const MacAddress& mac) {
  return frame_from(segment_as<std::span<const std::byte>>(segment), mac);
}

/// Returns the segment in a frame, as a view of the frame. If the frame has none, its flags are 0.
[[nodiscard]] inline SegmentView view_of_segment(const Bytes& frame) {
  SegmentView segment;
  std::size_t tcp = 34, end = 0;
  if (frame.size() >= 74 && word(frame, 12) == ipv6::ethertype && octet(frame, 20) == ipv6::next_header::tcp) {
    const ipv6::Header header = ipv6::Header::read(ipv6::Octets(frame).subspan(ipv6::ethernet_bytes));
    tcp = 54;
    if (tcp + header.payload_bytes > frame.size()) return segment;
    segment.from.address = header.from;
    segment.to.address = header.to;
    segment.hops = header.hops;
    segment.flow = quad(frame, 14) & 0x0FFF'FFFF;
    end = tcp + header.payload_bytes;
  } else if (frame.size() < 54 || word(frame, 12) != 0x0800 || octet(frame, 14) != 0x45 || octet(frame, 23) != 6) {
    return segment;
  } else {
    segment.from.address = Ipv4Address{quad(frame, 26)};
    segment.to.address = Ipv4Address{quad(frame, 30)};
    end = 14 + word(frame, 16);
  }
  const std::size_t data = tcp + (octet(frame, tcp + 12) >> 4) * 4;
  if (end > frame.size() || data > end) return segment;
  segment.from.port = word(frame, tcp);
  segment.to.port = word(frame, tcp + 2);
  segment.sequence = quad(frame, tcp + 4);
  segment.acknowledged = quad(frame, tcp + 8);
  segment.flags = octet(frame, tcp + 13);
  segment.window = word(frame, tcp + 14);
  segment.options = std::span(frame).subspan(tcp + 20, data - tcp - 20);
  segment.payload = std::span(frame).subspan(data, end - data);
  return segment;
}
/// As `view_of_segment`, with memory of its own.
inline RawSegment segment_in(const Bytes& frame) { return segment_as<Bytes>(view_of_segment(frame)); }

/// A TCP peer that the test controls completely. The test MUST pass the server's segments for this peer to `process`.
class RawPeer {
 public:
  RawPeer(WireCard& card, Endpoint from, Endpoint to, std::uint32_t sequence = 1000)
      : card_(card), from_(from), to_(to), sequence_(sequence) {}

  void send(unsigned flags, Bytes payload = {}, Bytes options = {}) {
    send_at(sequence_, flags, payload, std::move(options));
    sequence_ += static_cast<std::uint32_t>(payload.size()) + ((flags & (syn_flag | fin_flag)) != 0 ? 1 : 0);
  }
  /// Sends a segment with this sequence number. The peer's next sequence number does not change.
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
