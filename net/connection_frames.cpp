// SPDX-License-Identifier: BSL-1.0
// Frames that are not the usual ones: SYNs, selective acknowledgements, long segments, segments that the card still reads, cards that fill
// in no checksums, and neighbours whose address is not known.
#include "net/connection_frames.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernel/panic.hpp"
#include "net/tcp/options.hpp"

namespace neap::net {

namespace {

constexpr std::uint8_t ect_0 = 2;  // RFC 3168, 5
constexpr std::uint32_t ect_0_ipv6 = std::uint32_t{ect_0} << 20;

}  // namespace

bool ConnectionState::resolve_anew() noexcept {
  if (over_ipv6_) return resolve_ipv6();
  const auto remote = static_cast<std::uint32_t>(headers_.addresses >> 32);
  if (!stack_.find_neighbour(remote, headers_.to_mac)) return false;
  std::uint64_t sum = (headers_.addresses & 0xFFFF'FFFF) + (headers_.addresses >> 32) + (std::uint32_t{IP_PROTO_TCP} << 8);
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  headers_.checksum = static_cast<std::uint16_t>(sum);
  headers_.generation = etharp_generation;
  return true;
}

unsigned ConnectionState::flags_of(const OutgoingSegment& segment) const noexcept {
  unsigned flags = flag::ack;
  if (segment.has(tcp::SentSegment::syn)) {
    if (state_ == TcpState::syn_sent) {
      // RFC 3168, 6.1.1.1: a repeated SYN asks without ECN, because some routers drop such SYNs.
      const bool asks = tcp::settings.ecn && !send_.has_retransmission() && !segment.has(tcp::SentSegment::ever_retransmitted);
      return asks ? flag::syn | flag::ece | flag::cwr : flag::syn;
    }
    return flag::syn | flag::ack | (ecn_ ? flag::ece : 0U);
  }
  if (segment.has(tcp::SentSegment::fin)) flags |= flag::fin;
  // PSH marks bytes behind which none waits.
  if (segment.bytes != 0 && segment.end() == send_.nxt && waiting_bytes() == 0) flags |= flag::psh;
  return flags;
}

/// Writes the options of `segment` in front of its payload. Returns their length.
std::size_t ConnectionState::write_options(OutgoingSegment& segment, bool syn) noexcept {
  const tcp::Timestamps timestamps{.value = stack_.now_ms() + timestamp_offset_, .echo = timestamp_recent_};
  if (!syn && out_of_order_.empty()) [[likely]] {
    if (!timestamps_) return 0;
    tcp::write_timestamps(segment.payload() - tcp::timestamps_bytes, timestamps);
    return tcp::timestamps_bytes;
  }
  std::array<std::byte, tcp::options_bytes_max> options;
  const std::size_t bytes =
      syn ? write_options_of_syn(options.data(), timestamps) : write_options_with_sack(segment, options.data(), timestamps);
  std::memcpy(segment.payload() - bytes, options.data(), bytes);
  return bytes;
}

std::size_t ConnectionState::write_options_of_syn(std::byte* at, const tcp::Timestamps& timestamps) const noexcept {
  const bool first = state_ == TcpState::syn_sent;
  return tcp::write_syn_options(at, {.mss = link_mss(),
                                     .window_shift = tcp::window_shift_for(tcp::settings.receive_bytes_max),
                                     .window_scale = first || receive_.shift() != 0,
                                     .sack_permitted = first ? tcp::settings.sack : sack_,
                                     .has_timestamps = first ? tcp::settings.timestamps : timestamps_,
                                     .timestamps = timestamps});
}

/// A full segment has no room for SACK blocks.
std::size_t ConnectionState::write_options_with_sack(const OutgoingSegment& segment, std::byte* at,
                                                     const tcp::Timestamps& timestamps) noexcept {
  const std::size_t unused = segment.bytes < send_.mss ? send_.mss - segment.bytes : 0;
  const std::size_t room = segment.bytes == 0 ? tcp::options_bytes_max : std::min(unused, tcp::options_bytes_max);
  std::size_t bytes = 0;
  if (timestamps_) {
    tcp::write_timestamps(at, timestamps);
    bytes = tcp::timestamps_bytes;
  }
  if (sack_ && !out_of_order_.empty()) {
    const std::size_t left = std::min(tcp::options_bytes_max - bytes, room);
    std::size_t count_max = timestamps_ ? tcp::sack_blocks_timestamps : tcp::sack_blocks_max;
    while (count_max > 0 && tcp::sack_bytes(count_max) > left) --count_max;
    if (count_max > 0) {
      std::array<tcp::SequenceRange, tcp::sack_blocks_max> blocks;
      const std::size_t count = out_of_order_.sack_blocks(receive_.next(), std::span(blocks).first(count_max));
      bytes += tcp::write_sack(at + bytes, std::span(blocks).first(count));
    }
  }
  return bytes;
}

ConnectionState::Sent ConnectionState::transmit(OutgoingSegment& segment, std::uint32_t sequence, unsigned flags) noexcept {
  if (headers_.generation != etharp_generation || !stack_.offloads_checksums() || !out_of_order_.empty() ||
      segment.kind != OutgoingSegment::Kind::inside || segment.bytes > send_.mss || segment.references != 1 || (flags & flag::syn) != 0 ||
      ecn_) [[unlikely]]
    return transmit_slowly(segment, sequence, flags);
  return transmit_whole(segment, sequence, flags, control_);
}

ConnectionState::Sent ConnectionState::transmit_slowly(OutgoingSegment& original, std::uint32_t sequence, unsigned flags) noexcept {
  const bool syn = (flags & flag::syn) != 0;
  if (over_ipv6_ && !syn && !ecn_ && out_of_order_.empty() && stack_.offloads_checksums() && original.references == 1 &&
      original.kind == OutgoingSegment::Kind::inside && original.bytes <= send_.mss && resolve_ipv6())
    return transmit_ipv6(original, sequence, flags);
  OutgoingSegment* segment = &original;
  if (original.references != 1) {  // the card reads it
    segment = OutgoingSegment::make_envelope(original);
    if (segment == nullptr) return Sent::refused;
  }
  struct Dropper {
    OutgoingSegment& original;
    OutgoingSegment* segment;
    ~Dropper() {
      if (segment != &original) OutgoingSegment::release(*segment);
    }
  } const dropper{original, segment};

  const bool is_long = original.bytes > send_.mss;
  const std::size_t options_bytes = write_options(*segment, syn);
  if (ecn_ && !syn) {
    if (congestion_echo_.echo()) flags |= flag::ece;
    if (original.bytes != 0 && sequence == send_.nxt && send_.take_cwr()) flags |= flag::cwr;
  }
  const std::uint16_t window = syn ? receive_.announce_unscaled() : receive_.announce(held_bytes_, acknowledgements_.full_bytes());
  const bool resolved = resolve();
  const bool marks = ecn_ && original.bytes != 0 && sequence == send_.nxt;
  if (over_ipv6_) {
    fill_in_headers_ipv6(*segment, options_bytes, sequence, flags, window, is_long);
    SegmentHeaders6& headers = segment->headers_ipv6(options_bytes);
    if (marks) headers.ip.version_and_flow = headers.ip.version_and_flow | ect_0_ipv6;
    if ((flags & flag::ack) == 0) headers.acknowledgement = 0;
  } else {
    fill_in_headers(*segment, options_bytes, sequence, flags, window, is_long);
    if (marks) segment->headers(options_bytes).service = ect_0;
    if ((flags & flag::ack) == 0) segment->headers(options_bytes).acknowledgement = 0;
  }

  std::array<TransmitPiece, Stack::pieces_max> pieces;
  const unsigned count = segment->pieces_of(std::span(pieces).first(stack_.pieces_limit()));
  std::uint32_t frames = 1;
  if (count == 0 || !resolved) {
    if (is_long) {  // its repetition is sent in frames
      if (!over_ipv6_) stack_.ask_for_neighbour(static_cast<std::uint32_t>(headers_.addresses >> 32));
    } else if (!stack_.send_copy_of(*segment, resolved)) {
      return Sent::refused;
    }
  } else {
    TransmitOffload offload{.l3_bytes = static_cast<std::uint8_t>(headers_bytes() - SegmentHeaders::tcp_header_bytes),
                            .l4_bytes = static_cast<std::uint8_t>(SegmentHeaders::tcp_header_bytes + options_bytes),
                            .checksums = over_ipv6_ ? Checksums::tcp_ipv6 : Checksums::tcp_ipv4,
                            .segment_bytes = is_long ? send_.mss : std::uint16_t{0}};
    const std::uint32_t bytes = segment->headers_bytes + original.bytes;
    frames = frames_sent(bytes, offload).frames;
    if (!stack_.offloads_checksums()) {
      stack_.fill_in_checksums({pieces.data(), count});
      offload = {};
    }
    if (!stack_.send_frame(*segment, {pieces.data(), count}, bytes, offload, control_)) return Sent::refused;
    if (is_long) stack_.count_long_segment(frames);
  }
  ip_id = static_cast<u16_t>(ip_id + frames);
  if ((flags & flag::ack) != 0) {
    acknowledged_to_ = receive_.next();
    ack_delayed_ = false;
    acknowledgements_.sent(original.bytes != 0);
  }
  return Sent::done;
}

}  // namespace neap::net
