// SPDX-License-Identifier: BSL-1.0
// UDP: the core that received a datagram passes it to the port's receiver. `send_datagram` sends from the calling core.
#include <algorithm>
#include <array>
#include <new>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "lwip/igmp.h"
#include "lwip/udp.h"
#include "net/received_piece.hpp"
#include "net/stack.hpp"

namespace neap::net {

namespace {

/// RFC 1112, 6.1: the default TTL of a multicast datagram is 1, so it stays on the local network.
constexpr std::uint8_t group_hops = 1;
constexpr std::size_t datagram_bytes_max = 0xFFFF - 20 - 8;

void release_on_own_core(RemoteNode* node) noexcept;

/// Releases a piece on the core that received it, because that core's pool owns the receive buffer.
void release_piece(void* owner) noexcept {
  auto& piece = *static_cast<ReceivedPiece*>(owner);
  if (this_core() != piece.stack->core()) {
    piece.run = &release_on_own_core;
    hand_over(piece.stack->core(), piece);
    return;
  }
  const std::size_t memory_bytes = Stack::memory_of(piece.buffer());
  Stack& stack = *piece.stack;
  pbuf_free(&piece.custom.pbuf);  // frees the piece too
  stack.datagram_released(memory_bytes);
}

void release_on_own_core(RemoteNode* node) noexcept { release_piece(static_cast<ReceivedPiece*>(node)); }

Buffer take(Stack& stack, pbuf* chain) noexcept {
  Buffer data;
  if (stack.card_buffers_short(true)) {
    pbuf* const copy = stack.copy_of(*chain);
    if (copy != nullptr) pbuf_free(std::exchange(chain, copy));
  }
  while (chain != nullptr) {
    pbuf* const next = std::exchange(chain->next, nullptr);
    chain->tot_len = chain->len;
    if (chain->len == 0) {
      pbuf_free(chain);
    } else {
      ReceivedPiece& piece = ReceivedPiece::of(*chain);
      require((chain->flags & PBUF_FLAG_IS_CUSTOM) != 0, "a datagram consists of receive buffers", chain->flags);
      piece.stack = &stack;
      piece.piece = {
          .data = static_cast<const std::byte*>(chain->payload), .bytes = chain->len, .release = &release_piece, .owner = &piece};
      data.append_piece(piece.piece);
      stack.datagram_held(Stack::memory_of(piece.buffer()));
    }
    chain = next;
  }
  return data;
}

}  // namespace

struct DatagramCallbacks {
  static void received(void* argument, udp_pcb* pcb, pbuf* data, const ip_addr_t* from, u16_t port) noexcept {
    Stack::here()->deliver(*static_cast<Stack::DatagramPort*>(argument), data,
                           {.address = Ipv4Address{lwip_ntohl(from->addr)}, .port = port},
                           {.address = Ipv4Address{lwip_ntohl(ip_current_dest_addr()->addr)}, .port = pcb->local_port});
  }
};

void Stack::deliver(DatagramPort& port, pbuf* data, const Endpoint& from, const Endpoint& to) noexcept {
  if (memory_short()) {
    counters_.dropped_memory.add();
    pbuf_free(data);
    return;
  }
  try {
    port.receiver({.from = from, .to = to, .data = take(*this, data)});
  } catch (const std::bad_alloc&) {
    counters_.handler_out_of_memory.add();
  }
}

Stack::DatagramPort* Stack::find_port(std::uint16_t port) const noexcept {
  DatagramPort* entry = datagram_ports_;
  while (entry != nullptr && entry->pcb->local_port != port) entry = entry->next;
  return entry;
}

void Stack::input_udp6(ReceiveBuffer* frame, std::size_t transport_at, ReceiveInfo info) noexcept {
  constexpr std::size_t header_bytes = 8;
  if (frame->next != nullptr) {  // a jumbo frame: the checksum and a quotation of the packet need one piece of memory
    std::size_t frame_bytes = 0;
    for (const ReceiveBuffer* piece = frame; piece != nullptr; piece = piece->next) frame_bytes += piece->bytes;
    ReceiveBuffer* const copy = copy_to_heap(frame, frame_bytes);
    release_chain(frame);
    if (copy == nullptr) return counters_.dropped_memory.add();
    frame = copy;
  }
  const ipv6::Octets first(frame->data, frame->bytes);
  const ipv6::Octets packet = first.subspan(transport_at - ipv6::header_bytes);
  const ipv6::Header header = ipv6::Header::read(packet);
  const std::size_t bytes = first.size() < transport_at + header_bytes ? 0 : ipv6::read_16(first, transport_at + 4);
  if (bytes < header_bytes || bytes > header.payload_bytes || first.size() < transport_at + bytes ||
      ipv6::read_16(first, transport_at + 6) == 0) {
    counters_.dropped_malformed.add();  // RFC 8200, 8.1: a checksum is needed
    return release_chain(frame);
  }
  if (info.checksum_bad() || (!info.l4_checksum_good() && ipv6::transport_sum(header.from, header.to, ipv6::next_header::udp,
                                                                              first.subspan(transport_at, bytes)) != 0xFFFF)) {
    counters_.dropped_checksum.add();
    return release_chain(frame);
  }
  const Endpoint from{.address = header.from, .port = ipv6::read_16(first, transport_at)};
  const Endpoint to{.address = header.to, .port = ipv6::read_16(first, transport_at + 2)};
  DatagramPort* const port = find_port(to.port);
  if (port == nullptr) {
    counters_.dropped_protocol.add();
    if (!to.address.is_multicast()) ipv6_.report_closed_port(packet.first(ipv6::header_bytes + header.payload_bytes));
    return release_chain(frame);
  }
  pbuf* const data = wrap(frame);
  pbuf_remove_header(data, transport_at + header_bytes);
  pbuf_realloc(data, static_cast<u16_t>(bytes - header_bytes));
  deliver(*port, data, from, to);
}

std::optional<bool> Stack::on_icmpv6_error(const IcmpV6Error& error) noexcept {
  if (error.protocol == ipv6::next_header::tcp) return on_icmpv6_error_of_segment(error);
  // A datagram is sent from a port that has a receiver.
  if (error.protocol == ipv6::next_header::udp && find_port(ipv6::read_16(error.transport, 0)) != nullptr) return true;
  return std::nullopt;
}

Result<void> Stack::receive_datagrams(std::uint16_t port, const DatagramReceiver& receiver) {
  auto made = std::make_unique<DatagramPort>(DatagramPort{.receiver = receiver});
  udp_pcb* const pcb = udp_new_ip_type(IPADDR_TYPE_V4);
  if (pcb == nullptr) return failure(ErrorCode::out_of_memory, "no memory for a port of UDP", port);
  if (udp_bind(pcb, IP4_ADDR_ANY, port) != ERR_OK) {
    udp_remove(pcb);
    return failure(ErrorCode::invalid, "the port is in use", port);
  }
  udp_set_multicast_ttl(pcb, group_hops);
  udp_recv(pcb, &DatagramCallbacks::received, made.get());
  made->pcb = pcb;
  made->next = datagram_ports_;
  datagram_ports_ = made.release();
  return {};
}

void Stack::end_datagrams(std::uint16_t port) noexcept {
  for (DatagramPort** entry = &datagram_ports_; *entry != nullptr; entry = &(*entry)->next) {
    if ((*entry)->pcb->local_port != port) continue;
    const std::unique_ptr<DatagramPort> ended(*entry);
    *entry = ended->next;
    udp_remove(ended->pcb);
    return;
  }
}

Result<void> Stack::send_datagram(std::uint16_t from_port, Endpoint to, std::span<const std::byte> bytes) noexcept {
  const DatagramPort* const port = find_port(from_port);
  if (port == nullptr) return failure(ErrorCode::invalid, "no receiver at this port", from_port);
  if (to.port == 0 || to.address.is_unspecified()) return failure(ErrorCode::invalid, "no such address", to.port);
  if (bytes.size() > datagram_bytes_max) return failure(ErrorCode::invalid, "longer than a datagram", bytes.size());
  if (!to.address.is_v4()) return send_datagram6(from_port, to, bytes);
  static_cast<void>(now_us());  // brings the ages of neighbours up to date
  pbuf* const data = pbuf_alloc(PBUF_TRANSPORT, static_cast<std::uint16_t>(bytes.size()), PBUF_RAM);
  if (data == nullptr) return failure(ErrorCode::out_of_memory, "no memory for a datagram", bytes.size());
  require(data->len == bytes.size(), "a new datagram is one piece of memory", data->len);
  std::ranges::copy(bytes, static_cast<std::byte*>(data->payload));
  const ip_addr_t address{.addr = lwip_htonl(to.address.v4().value)};
  const err_t error = udp_sendto(port->pcb, data, &address, to.port);
  pbuf_free(data);
  want_checks();
  if (error == ERR_OK) return {};
  if (error == ERR_MEM) return failure(ErrorCode::full, "no room for a datagram in the card's ring or a neighbour's queue", to.port);
  return failure(ErrorCode::closed, "no address or no link", to.port);
}

Result<void> Stack::send_datagram6(std::uint16_t from_port, const Endpoint& to, std::span<const std::byte> bytes) noexcept {
  const auto from = ipv6_.source_for(to.address);
  if (!from) return failure(ErrorCode::closed, "no address or no link", to.port);
  std::array<std::byte, 8> header;
  ipv6::write_16(header.data(), from_port);
  ipv6::write_16(header.data() + 2, to.port);
  ipv6::write_16(header.data() + 4, static_cast<unsigned>(header.size() + bytes.size()));
  ipv6::write_16(header.data() + 6, 0);
  const auto sum = static_cast<std::uint16_t>(~ipv6::transport_sum(*from, to.address, ipv6::next_header::udp, header, bytes));
  ipv6::write_16(header.data() + 6, sum == 0 ? 0xFFFF : sum);  // RFC 8200, 8.1: 0 means no checksum
  return ipv6_.send(*from, to.address, ipv6::next_header::udp, header, bytes);
}

}  // namespace neap::net
