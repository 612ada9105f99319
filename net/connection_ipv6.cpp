// SPDX-License-Identifier: BSL-1.0
// Frames of connections over IPv6, and the neighbours that they go to.
#include "net/connection_ipv6.hpp"

#include <array>
#include <cstring>

#include "kernel/machine.hpp"
#include "kernel/siphash.hpp"
#include "net/connection_frames.hpp"
#include "net/internet_checksum.hpp"
#include "net/tcp/options.hpp"

namespace neap::net {

namespace {

/// A peer's last segment is a sign that its neighbour is reachable for this time, in units of 1,024 us.
constexpr std::uint32_t progress_valid_units = 4'000;

}  // namespace

std::uint32_t flow_label(const tcp::SegmentAddresses6& sent) noexcept {
  static const SipKey secret{.low = machine::random_bits(), .high = machine::random_bits()};
  std::array<std::uint8_t, sizeof sent.addresses + sizeof sent.ports> names;
  std::memcpy(names.data(), &sent.addresses, sizeof sent.addresses);
  std::memcpy(names.data() + sizeof sent.addresses, &sent.ports, sizeof sent.ports);
  constexpr std::uint32_t label_mask = 0xF'FFFF;
  return static_cast<std::uint32_t>(siphash(secret, names)) & label_mask;
}

/// A neighbour that has gone is noticed because it is resolved again every few seconds. It counts as reachable if the peer has acknowledged
/// or sent new bytes since then (RFC 4861, 7.3.1).
bool ConnectionState::resolve_ipv6() noexcept {
  ConnectionIpv6& part = *headers_.ipv6;
  StackIpv6& ipv6 = stack_.ipv6();
  const std::uint32_t now_s = stack_.now_s();
  if (part.is_resolved(ipv6.generation(), now_s)) [[likely]]
    return true;
  const Address peer = source_address(part.headers.key().reversed());
  const std::uint32_t progress = send_.una + receive_.next();
  if (state_ >= TcpState::established && progress != part.progress &&
      static_cast<std::uint32_t>(stack_.now_us() >> 10) - received_at_ < progress_valid_units) {
    part.progress = progress;
    ipv6.confirm(peer);
  }
  part.generation = 0;
  const auto mac = ipv6.resolve(peer);
  if (!mac.has_value()) return false;
  std::memcpy(part.headers.to_mac, mac->data(), mac->size());
  part.headers.hops = ipv6.hops();
  part.resolved_s = now_s;
  part.generation = ipv6.generation();
  return true;
}

/// `cut_up`: as for `fill_in_headers`.
void ConnectionState::fill_in_headers_ipv6(OutgoingSegment& segment, std::size_t options_bytes, std::uint32_t sequence, unsigned flags,
                                           std::uint16_t window, bool cut_up) noexcept {
  const ConnectionIpv6& part = *headers_.ipv6;
  SegmentHeaders6& headers = segment.headers_ipv6(options_bytes);
  headers.ip = part.headers;
  fill_in_tcp(headers, options_bytes, sequence, receive_.next(), flags, window);
  std::uint32_t sum = part.checksum;
  if (!cut_up || stack_.completes_ip_headers()) {
    const auto tcp_bytes = static_cast<std::uint16_t>(SegmentHeaders6::tcp_header_bytes + options_bytes + segment.bytes);
    headers.ip.payload_bytes = tcp_bytes;
    sum += std::byteswap(tcp_bytes);
    sum += sum >> 16;
  }
  headers.set_checksum(static_cast<std::uint16_t>(sum));
  segment.headers_bytes = static_cast<std::uint16_t>(SegmentHeaders6::bytes + options_bytes);
}

/// The usual frame, as the short form of `transmit` sends it over IPv4. The neighbour MUST be resolved.
ConnectionState::Sent ConnectionState::transmit_ipv6(OutgoingSegment& segment, std::uint32_t sequence, unsigned flags) noexcept {
  const std::uint16_t window = receive_.announce(held_bytes_, acknowledgements_.full_bytes());
  TransmitOffload offload{
      .l3_bytes = SegmentHeaders6::ip_header_bytes, .l4_bytes = SegmentHeaders6::tcp_header_bytes, .checksums = Checksums::tcp_ipv6};
  if (timestamps_) [[likely]] {
    tcp::write_timestamps(segment.payload() - tcp::timestamps_bytes,
                          {.value = stack_.now_ms() + timestamp_offset_, .echo = timestamp_recent_});
    offload.l4_bytes += tcp::timestamps_bytes;
  }
  fill_in_headers_ipv6(segment, offload.l4_bytes - SegmentHeaders6::tcp_header_bytes, sequence, flags, window, false);
  const TransmitPiece piece{.data = segment.frame_begin(), .bytes = segment.headers_bytes + segment.bytes};
  if (!stack_.send_frame(segment, {&piece, 1}, piece.bytes, offload, control_)) [[unlikely]]
    return Sent::refused;
  acknowledged_to_ = receive_.next();
  ack_delayed_ = false;
  acknowledgements_.sent(segment.bytes != 0);
  return Sent::done;
}

}  // namespace neap::net
