// SPDX-License-Identifier: BSL-1.0
// The checks of a received TCP segment, and the answers to segments without a connection (RFC 9293, 3.10.7.1 and 3.10.7.2).
//
// Segments do not pass lwIP. Fragments do: lwIP reassembles them, and hands the datagram over (stack_receive.cpp).
#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "lwip/etharp.h"
#include "lwip/ip4.h"
#include "lwip/prot/ip.h"
#include "net/connection_frames.hpp"
#include "net/control_frames.hpp"
#include "net/internet_checksum.hpp"
#include "net/owner_search.hpp"
#include "net/stack.hpp"

namespace neap::net {

namespace {

constexpr std::size_t ip_at = SegmentHeaders::ethernet_bytes;
constexpr std::size_t ip_bytes_min = SegmentHeaders::ip_header_bytes, tcp_bytes_min = SegmentHeaders::tcp_header_bytes;
/// The headers of a segment, with all options.
constexpr std::size_t headers_bytes_max = ip_at + 60 + 60;
constexpr unsigned icmp_unreachable = 3;

template <typename T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <typename T>
T load_big(const std::byte* at) noexcept {
  return std::byteswap(load<T>(at));
}
unsigned octet(const std::byte* at) noexcept { return std::to_integer<unsigned>(*at); }

/// RFC 1122, 3.2.1.3, and RFC 9293, MUST-57 and MUST-63: a segment has two hosts.
bool is_host(std::uint32_t address, std::uint32_t own, std::uint32_t netmask) noexcept {
  const bool network_broadcast = netmask != ~0U && (address & netmask) == (own & netmask) && (address | netmask) == ~0U;
  return address >> 24 != 0 && address >> 24 != 127 && address >> 28 < 0xE && !network_broadcast;
}

/// Of either version of IP.
std::uint32_t pseudo_header_sum_of(const std::byte* ip_header, std::size_t tcp_bytes) noexcept {
  InternetSum sum;
  if (octet(ip_header) >> 4 == 6) {
    sum.add({ip_header + 8, 32});
  } else {
    sum.add({ip_header + 12, 8});
  }
  sum.add_folded(std::uint32_t{IP_PROTO_TCP} << 8);
  sum.add_folded(std::byteswap(static_cast<std::uint16_t>(tcp_bytes)));
  return sum.folded();
}

/// The fields behind the addresses. The header has been checked.
void read_tcp_header(IncomingSegment& segment, const std::byte* tcp, std::size_t tcp_bytes) noexcept {
  const std::size_t tcp_header_bytes = (octet(tcp + 12) >> 4) * 4;
  segment.sequence = load_big<std::uint32_t>(tcp + 4);
  segment.acknowledgement = load_big<std::uint32_t>(tcp + 8);
  segment.flags = octet(tcp + 13);
  segment.window = load_big<std::uint16_t>(tcp + 14);
  segment.payload_bytes = static_cast<std::uint32_t>(tcp_bytes - tcp_header_bytes);
  segment.payload_at = static_cast<std::uint32_t>(tcp - segment.frame->data + tcp_header_bytes);
  segment.option_bytes = {tcp + tcp_bytes_min, tcp_header_bytes - tcp_bytes_min};
}

}  // namespace

// --- Checks ------------------------------------------------------------------------------------------------------------------------------
ReceiveBuffer* Stack::with_headers_in_one_buffer(ReceiveBuffer* frame, std::size_t frame_bytes) noexcept {
  if (frame->bytes >= std::min(frame_bytes, headers_bytes_max)) return frame;
  ReceiveBuffer* const copy = copy_to_heap(frame, frame_bytes);
  release_chain(frame);
  if (copy == nullptr) counters_.dropped_memory.add();
  return copy;
}

void Stack::input_tcp(ReceiveBuffer* frame, std::size_t frame_bytes, ReceiveInfo info) noexcept {
  frame = with_headers_in_one_buffer(frame, frame_bytes);
  if (frame == nullptr) return;
  IncomingSegment segment{.frame = frame};
  const std::byte* const ip = frame->data + ip_at;
  Counter* dropped = &counters_.dropped_malformed;
  const bool valid = [&] {
    if (frame_bytes < ip_at + ip_bytes_min) return false;
    const std::size_t ip_header_bytes = (octet(ip) & 0xF) * 4, ip_bytes = load_big<std::uint16_t>(ip + 2);
    if (octet(ip) >> 4 != 4 || ip_header_bytes < ip_bytes_min || ip_bytes > frame_bytes - ip_at ||
        ip_bytes < ip_header_bytes + tcp_bytes_min)
      return false;
    const std::byte* const tcp = ip + ip_header_bytes;
    const std::size_t tcp_bytes = ip_bytes - ip_header_bytes, tcp_header_bytes = (octet(tcp + 12) >> 4) * 4;
    if (tcp_header_bytes < tcp_bytes_min || tcp_header_bytes > tcp_bytes) return false;
    dropped = &counters_.dropped_checksum;
    if (!info.ip_checksum_good() && sum_of(frame, ip_at, ip_header_bytes, 0) != 0xFFFF) return false;
    if (!info.l4_checksum_good() && sum_of(frame, ip_at + ip_header_bytes, tcp_bytes, pseudo_header_sum_of(ip, tcp_bytes)) != 0xFFFF)
      return false;
    dropped = &counters_.dropped_protocol;
    const std::uint32_t own = netif_ip4_addr(&netif_)->addr;
    const bool group_frame = (frame->data[0] & std::byte{1}) != std::byte{0};
    if (own == 0 || load<std::uint32_t>(ip + 16) != own || group_frame ||
        !is_host(load_big<std::uint32_t>(ip + 12), std::byteswap(own), std::byteswap(netif_ip4_netmask(&netif_)->addr)))
      return false;
    segment.key = SegmentAddresses{.addresses = load<std::uint64_t>(ip + 12), .ports = load<std::uint32_t>(tcp)};
    read_tcp_header(segment, tcp, tcp_bytes);
    segment.marked = (octet(ip + 1) & 3) == 3;
    return true;
  }();
  if (valid) {
    input_segment(segment, table_.find(std::get<SegmentAddresses>(segment.key)));
  } else {
    dropped->add();
  }
  if (segment.frame != nullptr) release_chain(segment.frame);
}

// The card has checked neither the header of IPv6, which has no checksum, nor the checksum of a packet that had extension headers.
void Stack::input_tcp6(ReceiveBuffer* frame, std::size_t transport_at, ReceiveInfo info) noexcept {
  require(transport_at == ip_at + SegmentHeaders6::ip_header_bytes, "the transport header follows the fixed header of IPv6", transport_at);
  std::size_t frame_bytes = 0;
  for (const ReceiveBuffer* piece = frame; piece != nullptr; piece = piece->next) frame_bytes += piece->bytes;
  frame = with_headers_in_one_buffer(frame, frame_bytes);
  if (frame == nullptr) return;
  IncomingSegment segment{.frame = frame};
  const std::byte* const ip = frame->data + ip_at;
  const std::byte* const tcp = frame->data + transport_at;
  Counter* dropped = &counters_.dropped_malformed;
  const bool valid = [&] {
    const std::size_t tcp_bytes = load_big<std::uint16_t>(ip + 4);
    if (tcp_bytes < tcp_bytes_min || tcp_bytes > frame_bytes - transport_at) return false;
    const std::size_t tcp_header_bytes = (octet(tcp + 12) >> 4) * 4;
    if (tcp_header_bytes < tcp_bytes_min || tcp_header_bytes > tcp_bytes) return false;
    dropped = &counters_.dropped_checksum;
    if (info.checksum_bad()) return false;
    if (!info.l4_checksum_good() && sum_of(frame, transport_at, tcp_bytes, pseudo_header_sum_of(ip, tcp_bytes)) != 0xFFFF) return false;
    dropped = &counters_.dropped_protocol;
    if ((frame->data[0] & std::byte{1}) != std::byte{0}) return false;  // a segment has two hosts, and no group
    SegmentAddresses6 key{.addresses = {}, .ports = load<std::uint32_t>(tcp)};
    std::memcpy(&key.addresses, ip + 8, sizeof key.addresses);
    segment.key = key;
    read_tcp_header(segment, tcp, tcp_bytes);
    segment.marked = (load_big<std::uint32_t>(ip) & SegmentHeaders6::congestion_bits) == SegmentHeaders6::congestion_bits;
    return true;
  }();
  if (valid) {
    input_segment(segment, table6_.find(std::get<SegmentAddresses6>(segment.key)));
  } else {
    dropped->add();
  }
  if (segment.frame != nullptr) release_chain(segment.frame);
}

void Stack::input_segment(IncomingSegment& segment, ConnectionState* connection) noexcept {
  counters_.segments_received.add();
  if (connection != nullptr) {
    connection->input(segment);
  } else if (!group_.device_decides || !pass_on_to_owner(segment)) {
    input_without_connection(segment);
  }
}

// A device that decides by itself may have forgotten a flow, or may not follow it at all.
bool Stack::pass_on_to_owner(IncomingSegment& segment) noexcept {
  const auto local_port = std::byteswap(static_cast<std::uint16_t>(ports_of(segment.key) >> 16));
  const unsigned core = group_.core_of_port(local_port, core_);
  if (core == core_ || find_listener(local_port) != nullptr) return false;
  std::size_t bytes = 0;
  for (const ReceiveBuffer* piece = segment.frame; piece != nullptr; piece = piece->next) bytes += piece->bytes;
  // The checksums were checked here.
  pass_on(core, copy_to_heap(segment.frame, bytes), ReceiveInfo(ReceiveInfo::ip_good | ReceiveInfo::l4_good));
  return true;
}

// --- Segments without a connection -------------------------------------------------------------------------------------------------------
void Stack::input_without_connection(IncomingSegment& segment) noexcept {
  if (!tcp::parse_options(segment.option_bytes, segment.has(flag::syn), segment.options)) counters_.options_malformed.add();
  std::uint32_t initial_at_least = 0;
  if (time_waits() != 0) {
    const tcp::TimeWaitSegment fields{.sequence = segment.sequence,
                                      .length = segment.length(),
                                      .syn = segment.has(flag::syn),
                                      .ack = segment.has(flag::ack),
                                      .rst = segment.has(flag::rst),
                                      .fin = segment.has(flag::fin),
                                      .has_timestamps = segment.options.has_timestamps,
                                      .timestamp = segment.options.timestamps.value};
    struct Found {
      bool found;
      tcp::TimeWaitVerdict verdict;
      tcp::TimeWaitNumbers numbers;
    };
    const Found decision = std::visit(
        [&](const auto& key) -> Found {
          const auto own = time_wait_of(key).decide(key, fields, now_us());
          return {.found = own.found, .verdict = own.verdict, .numbers = own.numbers};
        },
        segment.key);
    if (decision.found) {
      switch (decision.verdict) {
        case tcp::TimeWaitVerdict::drop:
          return;
        case tcp::TimeWaitVerdict::acknowledge: {
          std::array<std::byte, tcp::timestamps_bytes> options;
          const auto& numbers = decision.numbers;
          tcp::write_timestamps(options.data(), {.value = now_ms() + numbers.timestamp_offset, .echo = numbers.timestamp_recent});
          return send_bare({.sent = reversed(segment.key),
                            .sequence = numbers.send_next,
                            .acknowledgement = numbers.receive_next,
                            .flags = flag::ack,
                            .window = numbers.window,
                            .options = std::span(options).first(numbers.has_timestamps ? options.size() : 0)});
        }
        case tcp::TimeWaitVerdict::accept_syn:
          initial_at_least = decision.numbers.send_next + 1;
          break;
      }
    }
  }
  Listener* const listener = find_listener(std::byteswap(static_cast<std::uint16_t>(ports_of(segment.key) >> 16)));
  if (segment.has(flag::rst)) return;
  if (listener == nullptr) {
    counters_.dropped_protocol.add();
    return answer_by_reset(segment);
  }
  if (segment.has(flag::ack)) {
    if (segment.has(flag::syn) || !take_cookie(*listener, segment)) answer_by_reset(segment);
    return;
  }
  if (segment.has(flag::syn)) input_syn(*listener, segment, initial_at_least);
}

void Stack::answer_by_reset(const IncomingSegment& segment) noexcept {
  if (segment.has(flag::rst)) return;
  if (!reset_limit_.take(now_us())) {
    counters_.resets_limited.add();
    return;
  }
  if (segment.has(flag::ack)) {
    send_bare({.sent = reversed(segment.key), .sequence = segment.acknowledgement, .flags = flag::rst});
  } else {
    send_bare({.sent = reversed(segment.key), .acknowledgement = segment.sequence + segment.length(), .flags = flag::rst | flag::ack});
  }
}

// --- Frames without a connection ---------------------------------------------------------------------------------------------------------
void Stack::fill_in_checksums(TransmitPieces pieces) noexcept {
  auto* const ip = const_cast<std::byte*>(pieces[0].data) + ip_at;
  const bool ipv6 = octet(ip) >> 4 == 6;
  const std::size_t ip_header_bytes = ipv6 ? SegmentHeaders6::ip_header_bytes : (octet(ip) & 0xF) * 4;
  const std::size_t tcp_bytes = ipv6 ? load_big<std::uint16_t>(ip + 4) : load_big<std::uint16_t>(ip + 2) - ip_header_bytes;
  if (!ipv6) {
    std::memset(ip + 10, 0, 2);
    InternetSum header;
    header.add({ip, ip_header_bytes});
    const auto ip_checksum = static_cast<std::uint16_t>(~header.folded());
    std::memcpy(ip + 10, &ip_checksum, sizeof ip_checksum);
  }
  std::byte* const tcp = ip + ip_header_bytes;
  std::memset(tcp + 16, 0, 2);
  InternetSum sum;
  sum.add_folded(pseudo_header_sum_of(ip, tcp_bytes));
  sum.add({tcp, pieces[0].bytes - ip_at - ip_header_bytes});
  for (const TransmitPiece& piece : pieces.subspan(1)) sum.add({piece.data, piece.bytes});
  const auto tcp_checksum = static_cast<std::uint16_t>(~sum.folded());
  std::memcpy(tcp + 16, &tcp_checksum, sizeof tcp_checksum);
}

bool Stack::send_copy_of(OutgoingSegment& segment, bool resolved) noexcept {
  if (octet(segment.frame_begin() + ip_at) >> 4 == 6) return send_copy_of_ipv6(segment);
  std::array<TransmitPiece, 2> one;
  const std::uint32_t bytes = segment.headers_bytes + segment.bytes;
  pbuf* const packet = pbuf_alloc(PBUF_LINK, static_cast<u16_t>(bytes - ip_at), PBUF_RAM);
  if (packet == nullptr) {
    counters_.dropped_memory.add();
    return false;
  }
  auto* to = static_cast<std::byte*>(packet->payload);
  std::memcpy(to, segment.frame_begin() + ip_at, segment.headers_bytes - ip_at);
  to += segment.headers_bytes - ip_at;
  OutgoingSegment& holder = segment.kind == OutgoingSegment::Kind::envelope ? *segment.inner() : segment;
  if (holder.kind == OutgoingSegment::Kind::inside) {
    std::memcpy(to, holder.payload(), segment.bytes);
  } else {
    holder.data().peek({to, segment.bytes});
  }
  if (resolved) counters_.transmit_copied.add();
  if (!offloads_checksums_) {
    one[0] = {.data = static_cast<const std::byte*>(packet->payload) - ip_at, .bytes = bytes};
    fill_in_checksums(std::span(one).first(1));
  }
  const auto* const ip = static_cast<const std::byte*>(packet->payload);
  const ip4_addr_t remote{.addr = load<std::uint32_t>(ip + 16)};
  const err_t error = netif_.output(&netif_, packet, &remote);
  pbuf_free(packet);
  if (error == ERR_OK) counters_.segments_sent.add();
  return error != ERR_MEM || !resolved;  // a copy that a neighbour's queue refuses is lost on the way
}

void Stack::send_bare(const BareSegment& segment) noexcept {
  if (transmitting_stopped_) return;
  OutgoingSegment* const made = OutgoingSegment::make(0);
  if (made == nullptr) {
    counters_.dropped_memory.add();
    return;
  }
  const std::size_t options_bytes = segment.options.size();
  const auto write_tcp = [&](auto& headers) {
    headers.sequence = segment.sequence;
    headers.acknowledgement = segment.acknowledgement;
    headers.length_and_flags = static_cast<std::uint16_t>(SegmentHeaders::no_options + (options_bytes << 10) + segment.flags);
    headers.window = segment.window;
    headers.set_checksum(0);
  };
  if (const auto* const ipv6 = std::get_if<SegmentAddresses6>(&segment.sent)) {
    SegmentHeaders6& headers = made->headers_ipv6(options_bytes);
    headers.ip = headers_of(*ipv6).headers;
    headers.ip.payload_bytes = static_cast<std::uint16_t>(tcp_bytes_min + options_bytes);
    write_tcp(headers);
    made->headers_bytes = static_cast<std::uint16_t>(SegmentHeaders6::bytes + options_bytes);
  } else {
    const auto& sent = std::get<SegmentAddresses>(segment.sent);
    ConnectionHeaders connection{};
    connection.addresses = sent.addresses;
    connection.ports = sent.ports;
    SegmentHeaders& headers = made->headers(options_bytes);
    connection.write(common_headers_, headers);
    headers.id = ip_id++;
    headers.time_to_live = tcp_time_to_live;
    headers.protocol = IP_PROTO_TCP;
    headers.ip_checksum = 0;
    headers.ip_bytes = static_cast<std::uint16_t>(ip_bytes_min + tcp_bytes_min + options_bytes);
    write_tcp(headers);
    made->headers_bytes = static_cast<std::uint16_t>(SegmentHeaders::bytes + options_bytes);
  }
  if (options_bytes != 0) std::memcpy(made->payload() - options_bytes, segment.options.data(), options_bytes);
  static_cast<void>(send_copy_of(*made, false));
  OutgoingSegment::release(*made);
}

bool Stack::find_neighbour(std::uint32_t remote, std::uint8_t (&mac)[6]) noexcept {
  const ip4_addr_t next_hop{.addr = next_hop_of(remote)};
  if (next_hop.addr == 0) return false;
  const eth_addr* const found = etharp_use(&netif_, &next_hop);
  if (found == nullptr) return false;
  std::memcpy(mac, found->addr, sizeof mac);
  return true;
}

void Stack::ask_for_neighbour(std::uint32_t remote) noexcept {
  const ip4_addr_t next_hop{.addr = next_hop_of(remote)};
  if (next_hop.addr != 0) static_cast<void>(etharp_query(&netif_, &next_hop, nullptr));
  want_checks();
}

std::uint32_t Stack::next_hop_of(std::uint32_t remote) const noexcept {
  if (!netif_is_up(&netif_) || !netif_is_link_up(&netif_)) return 0;
  const std::uint32_t own = netif_ip4_addr(&netif_)->addr, mask = netif_ip4_netmask(&netif_)->addr;
  return ((remote ^ own) & mask) == 0 ? remote : netif_ip4_gw(&netif_)->addr;
}

// --- ICMP --------------------------------------------------------------------------------------------------------------------------------
void Stack::input_icmp(const ReceiveBuffer& frame, std::size_t bytes) noexcept {
  constexpr unsigned time_exceeded = 11, parameter_problem = 12;
  constexpr std::size_t icmp_bytes = 8, quoted_tcp_bytes = 8;
  const std::byte* const ip = frame.data + ip_at;
  if (frame.bytes < ip_at + ip_bytes_min) return;
  const std::size_t ip_header_bytes = (octet(ip) & 0xF) * 4;
  const std::byte* const icmp = ip + ip_header_bytes;
  const std::byte* const quoted = icmp + icmp_bytes;
  const std::byte* const end = frame.data + frame.bytes;
  if (quoted + ip_bytes_min > end || octet(quoted) >> 4 != 4 || octet(quoted + 9) != IP_PROTO_TCP) return;
  const std::byte* const tcp = quoted + (octet(quoted) & 0xF) * 4;
  if ((octet(quoted) & 0xF) * 4 < ip_bytes_min || tcp + quoted_tcp_bytes > end) return;
  const unsigned type = octet(icmp);
  if (type != icmp_unreachable && type != time_exceeded && type != parameter_problem) return;
  const std::size_t ip_bytes = load_big<std::uint16_t>(ip + 2);
  if (ip_header_bytes < ip_bytes_min || ip_bytes < ip_header_bytes + icmp_bytes || ip_bytes > bytes - ip_at) return;
  if (sum_of(&frame, ip_at + ip_header_bytes, ip_bytes - ip_header_bytes, 0) != 0xFFFF) return;
  const SegmentError error{.sent = {.addresses = load<std::uint64_t>(quoted + 12), .ports = load<std::uint32_t>(tcp)},
                           .sequence = load_big<std::uint32_t>(tcp + 4),
                           .type = static_cast<std::uint8_t>(type),
                           .code = static_cast<std::uint8_t>(octet(icmp + 1)),
                           .next_hop_mtu = load_big<std::uint16_t>(icmp + 6),
                           .quoted_ip_bytes = load_big<std::uint16_t>(quoted + 2)};
  if (static_cast<std::uint32_t>(error.sent.addresses) != netif_ip4_addr(&netif_)->addr) return;
  // RSS knows no ports of ICMP, so the frame may have come to another core than the connection's segments.
  const auto local_port = std::byteswap(static_cast<std::uint16_t>(error.sent.ports));
  OwnerSearch search{.core = core_, .cores = 1};
  if (group_.device_decides) {
    search = group_.owners_of_port(local_port, core_);
  } else {
    search.core = group_.device.receiving_core(std::byteswap(static_cast<std::uint32_t>(error.sent.addresses >> 32)),
                                               std::byteswap(static_cast<std::uint32_t>(error.sent.addresses)),
                                               std::byteswap(static_cast<std::uint16_t>(error.sent.ports >> 16)), local_port);
    if (search.core - group_.first >= group_.cores) return;
  }
  if (search.core == core_) {
    if (on_icmp_error(error) || search.cores == 1) return;
    search = group_.after(search);
    if (!search_limit_.take(now_us())) return counters_.icmp_errors_limited.add();
  }
  ask_owners(search, [error](Stack& stack, bool) noexcept { return stack.on_icmp_error(error); });
}

bool Stack::on_icmp_error(const SegmentError& error) noexcept {
  ConnectionState* const connection = table_.find(error.sent.reversed());
  if (connection == nullptr) return false;
  want_checks();
  counters_.icmp_errors.add();
  constexpr unsigned protocol_unreachable = 2, port_unreachable = 3, fragmentation_needed = 4;
  const bool unreachable = error.type == icmp_unreachable;
  if (unreachable && error.code == fragmentation_needed) {
    connection->too_big(error.sequence, error.next_hop_mtu, error.quoted_ip_bytes);
  } else {
    connection->unreachable(error.sequence, unreachable && (error.code == protocol_unreachable || error.code == port_unreachable));
  }
  return true;
}

}  // namespace neap::net
