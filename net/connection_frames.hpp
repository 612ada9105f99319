// SPDX-License-Identifier: BSL-1.0
// The frame of a connection's segment: headers, options, and the way to the card.
//
// Nearly every segment goes to a neighbour whose address is known, by a card that fills in checksums, with timestamps as its only option or
// without options. These functions serve this case and are inlined into the short paths. All other cases are in connection_frames.cpp.
// Internal to net/.
#pragma once

#include <cstdint>
#include <utility>

#include "lwip/etharp.h"
#include "lwip/ip4.h"
#include "lwip/prot/ip.h"
#include "net/connection_state.hpp"
#include "net/stack.hpp"

namespace neap::net {

constexpr std::uint8_t tcp_time_to_live = 255;  // as lwIP's TCP_TTL

// The generation is 0 over IPv6.
[[gnu::always_inline]] inline bool ConnectionState::resolve() noexcept {
  return headers_.generation == etharp_generation || resolve_anew();
}

/// The sender's object of a segment that the card may still be reading.
[[gnu::always_inline]] inline std::uint32_t ConnectionState::memory_of(OutgoingSegment& segment) noexcept {
  auto bytes = static_cast<std::uint32_t>(segment.memory_bytes());
  if (segment.kind == OutgoingSegment::Kind::chain) [[unlikely]]
    bytes += segment.bytes + static_cast<std::uint32_t>(segment.data().pieces() * memory::piece_bytes);
  return bytes;
}

/// The fields of TCP's header but the ports and the checksum, which are alike over both versions of IP.
template <class Headers>
[[gnu::always_inline]] inline void fill_in_tcp(Headers& headers, std::size_t options_bytes, std::uint32_t sequence,
                                               std::uint32_t acknowledgement, unsigned flags, std::uint16_t window) noexcept {
  headers.sequence = sequence;
  headers.acknowledgement = acknowledgement;
  headers.length_and_flags = static_cast<std::uint16_t>(SegmentHeaders::no_options + (options_bytes << 10) + flags);
  headers.window = window;
}

/// `cut_up`: the card segments the frame, and may fill in the lengths (82599 datasheet 7.2.4). The checksum of IP is left out.
[[gnu::always_inline]] inline void ConnectionState::fill_in_headers(OutgoingSegment& segment, std::size_t options_bytes,
                                                                    std::uint32_t sequence, unsigned flags, std::uint16_t window,
                                                                    bool cut_up) noexcept {
  SegmentHeaders& headers = segment.headers(options_bytes);
  headers_.write(stack_.common_headers(), headers);
  headers.id = ip_id;
  headers.time_to_live = tcp_time_to_live;
  headers.protocol = IP_PROTO_TCP;
  headers.ip_checksum = 0;
  fill_in_tcp(headers, options_bytes, sequence, receive_.next(), flags, window);
  std::uint32_t sum = headers_.checksum;
  if (!cut_up || stack_.completes_ip_headers()) {
    const auto tcp_bytes = static_cast<std::uint16_t>(SegmentHeaders::tcp_header_bytes + options_bytes + segment.bytes);
    headers.ip_bytes = static_cast<std::uint16_t>(SegmentHeaders::ip_header_bytes + tcp_bytes);
    sum += std::byteswap(tcp_bytes);
    sum += sum >> 16;
  }
  headers.set_checksum(static_cast<std::uint16_t>(sum));
  segment.headers_bytes = static_cast<std::uint16_t>(SegmentHeaders::bytes + options_bytes);
}

/// The end of `transmit`, for a segment of one piece that is one frame and has no option but timestamps.
[[gnu::always_inline]] inline ConnectionState::Sent ConnectionState::transmit_whole(OutgoingSegment& segment, std::uint32_t sequence,
                                                                                    unsigned flags, bool control) noexcept {
  constexpr TransmitOffload offload{
      .l3_bytes = SegmentHeaders::ip_header_bytes, .l4_bytes = SegmentHeaders::tcp_header_bytes, .checksums = Checksums::tcp_ipv4};
  constexpr TransmitOffload offload_with_timestamps{.l3_bytes = SegmentHeaders::ip_header_bytes,
                                                    .l4_bytes = SegmentHeaders::tcp_header_bytes + tcp::timestamps_bytes,
                                                    .checksums = Checksums::tcp_ipv4};
  const std::uint16_t window = receive_.announce(held_bytes_, acknowledgements_.full_bytes());
  bool taken = false;
  if (timestamps_) [[likely]] {
    tcp::write_timestamps(segment.payload() - tcp::timestamps_bytes,
                          {.value = stack_.now_ms() + timestamp_offset_, .echo = timestamp_recent_});
    fill_in_headers(segment, tcp::timestamps_bytes, sequence, flags, window, false);
    taken = stack_.send_whole_frame(segment, offload_with_timestamps, control);
  } else {
    fill_in_headers(segment, 0, sequence, flags, window, false);
    taken = stack_.send_whole_frame(segment, offload, control);
  }
  if (!taken) [[unlikely]]
    return Sent::refused;
  ++ip_id;
  acknowledged_to_ = receive_.next();
  ack_delayed_ = false;
  acknowledgements_.sent(segment.bytes != 0);
  return Sent::done;
}

/// As `transmit`, for the next bytes of an ordinary connection (`update_ordinary`), which fit the windows. `segment` MUST NOT have been
/// passed to the card before.
[[gnu::always_inline]] inline ConnectionState::Sent ConnectionState::transmit_next(OutgoingSegment& segment) noexcept {
  constexpr unsigned flags = flag::ack | flag::psh;
  if (headers_.generation != etharp_generation || !stack_.offloads_checksums() || segment.kind != OutgoingSegment::Kind::inside)
      [[unlikely]]
    return transmit(segment, send_.nxt, flags);
  return transmit_whole(segment, send_.nxt, flags, false);
}

}  // namespace neap::net
