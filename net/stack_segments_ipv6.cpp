// SPDX-License-Identifier: BSL-1.0
// TCP over IPv6: frames that are not sent by a connection itself, errors that ICMPv6 reports, and addresses that the machine has lost.
// Received segments are checked in stack_segments.cpp.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "net/connection_frames.hpp"
#include "net/internet_checksum.hpp"
#include "net/stack.hpp"

namespace neap::net {

ConnectionIpv6 Stack::headers_of(const SegmentAddresses6& sent) noexcept {
  ConnectionIpv6 part;
  std::memcpy(part.headers.from_mac, common_headers_.from_mac, sizeof part.headers.from_mac);
  part.headers.version_and_flow = 0x6000'0000 | flow_label(sent);
  part.headers.hops = ipv6_.hops();
  part.headers.set_key(sent);
  InternetSum sum;
  sum.add(std::as_bytes(std::span(part.headers.addresses)));
  sum.add_folded(std::uint32_t{part.headers.next} << 8);
  part.checksum = sum.folded();
  return part;
}

// The packet is copied, and waits if the neighbour is not known.
bool Stack::send_copy_of_ipv6(OutgoingSegment& segment) noexcept {
  const std::byte* const ip = segment.frame_begin() + SegmentHeaders6::ethernet_bytes;
  const std::byte* const tcp = ip + SegmentHeaders6::ip_header_bytes;
  OutgoingSegment& holder = segment.kind == OutgoingSegment::Kind::envelope ? *segment.inner() : segment;
  ipv6::Octets body(holder.payload(), segment.bytes);
  OutgoingSegment* flat = nullptr;
  if (holder.kind == OutgoingSegment::Kind::chain) {
    flat = OutgoingSegment::make_any(segment.bytes);
    if (flat == nullptr) {
      counters_.dropped_memory.add();
      return false;
    }
    holder.copy_payload(0, {flat->payload(), segment.bytes});
    body = {flat->payload(), segment.bytes};
  }
  std::array<std::byte, SegmentHeaders6::tcp_header_bytes + tcp::options_bytes_max> header;
  const std::size_t header_bytes = segment.headers_bytes - SegmentHeaders6::ethernet_bytes - SegmentHeaders6::ip_header_bytes;
  require(header_bytes <= header.size(), "a header of TCP has at most 60 bytes", header_bytes);
  std::memcpy(header.data(), tcp, header_bytes);
  const ipv6::Octets head(header.data(), header_bytes);
  const Address from = Address::read(ip + 8), to = Address::read(ip + 24);
  constexpr std::size_t checksum_at = 16;
  ipv6::write_16(header.data() + checksum_at, 0);
  ipv6::write_16(header.data() + checksum_at,
                 static_cast<std::uint16_t>(~ipv6::transport_sum(from, to, ipv6::next_header::tcp, head, body)));
  const std::uint32_t flow = ipv6::read_32({ip, 4}, 0) & 0x0FFF'FFFF;
  const Result<void> sent = ipv6_.send(from, to, ipv6::next_header::tcp, head, body, flow);
  if (flat != nullptr) OutgoingSegment::release(*flat);
  if (sent.has_value()) counters_.segments_sent.add();
  return sent.has_value() || sent.error().code != ErrorCode::out_of_memory;  // without a route it is lost on the way
}

std::optional<bool> Stack::on_icmpv6_error_of_segment(const IcmpV6Error& error) noexcept {
  constexpr std::size_t quoted_bytes_min = 8;
  if (error.transport.size() < quoted_bytes_min) return std::nullopt;
  SegmentAddresses6 sent;
  error.from.write(reinterpret_cast<std::byte*>(sent.addresses.data()));
  error.to.write(reinterpret_cast<std::byte*>(sent.addresses.data()) + 16);
  std::memcpy(&sent.ports, error.transport.data(), sizeof sent.ports);
  ConnectionState* const connection = table6_.find(sent.reversed());
  if (connection == nullptr) return std::nullopt;
  want_checks();
  counters_.icmp_errors.add();
  const std::uint32_t sequence = ipv6::read_32(error.transport, 4);
  if (error.type == ipv6::icmp::too_big) {
    if (error.parameter < ipv6::mtu_min) return false;  // RFC 8201, 4: no link has a smaller MTU
    const auto mtu = static_cast<std::uint16_t>(std::min<std::uint32_t>(error.parameter, 0xFFFF));
    return connection->too_big(sequence, mtu, 0);
  }
  // RFC 9293, 3.9.2.2: a port that is not reachable, or a prohibition, is final. Of the other errors a route may recover.
  constexpr std::uint8_t code_prohibited = 1;
  connection->unreachable(sequence, error.type == ipv6::icmp::unreachable &&
                                        (error.code == code_prohibited || error.code == ipv6::icmp::code_port_unreachable));
  return true;
}

// No segment can leave with the address, so the peer is not told. Another machine may have the address now.
void Stack::on_address_removed(const Address& address) noexcept {
  want_checks();
  for (std::uint32_t chain = 0; chain < table6_.chains(); ++chain) {
    for (ConnectionState* connection = table6_.first_of(chain); connection != nullptr;) {
      ConnectionState* const next = connection->chain_next;
      if (connection->local().address == address) {
        if (connection->listener() != nullptr) {
          connection->drop_half_open();
        } else {
          connection->drop(false, ErrorCode::closed);
        }
      }
      connection = next;
    }
  }
}

}  // namespace neap::net
