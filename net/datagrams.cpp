// SPDX-License-Identifier: BSL-1.0
// UDP: the core that received a datagram passes it to the port's receiver. `send_datagram` sends from the calling core.
#include <algorithm>
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
    auto& receiver = *static_cast<Stack::DatagramPort*>(argument);
    Stack& stack = *Stack::here();
    if (stack.memory_short()) {
      stack.counters().dropped_memory.add();
      pbuf_free(data);
      return;
    }
    Datagram datagram{.from = {.address = {lwip_ntohl(from->addr)}, .port = port},
                      .to = {.address = {lwip_ntohl(ip_current_dest_addr()->addr)}, .port = pcb->local_port},
                      .data = take(stack, data)};
    try {
      receiver.receiver(std::move(datagram));
    } catch (const std::bad_alloc&) {
      stack.counters().handler_out_of_memory.add();
    }
  }
};

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
  const DatagramPort* port = datagram_ports_;
  while (port != nullptr && port->pcb->local_port != from_port) port = port->next;
  if (port == nullptr) return failure(ErrorCode::invalid, "no receiver at this port", from_port);
  if (to.port == 0 || to.address.value == 0) return failure(ErrorCode::invalid, "no such address", to.port);
  if (bytes.size() > datagram_bytes_max) return failure(ErrorCode::invalid, "longer than a datagram", bytes.size());
  static_cast<void>(now_us());  // brings the ages of neighbours up to date
  pbuf* const data = pbuf_alloc(PBUF_TRANSPORT, static_cast<std::uint16_t>(bytes.size()), PBUF_RAM);
  if (data == nullptr) return failure(ErrorCode::out_of_memory, "no memory for a datagram", bytes.size());
  require(data->len == bytes.size(), "a new datagram is one piece of memory", data->len);
  std::ranges::copy(bytes, static_cast<std::byte*>(data->payload));
  const ip_addr_t address{.addr = lwip_htonl(to.address.value)};
  const err_t error = udp_sendto(port->pcb, data, &address, to.port);
  pbuf_free(data);
  want_checks();
  if (error == ERR_OK) return {};
  if (error == ERR_MEM) return failure(ErrorCode::full, "no room for a datagram in the card's ring or a neighbour's queue", to.port);
  return failure(ErrorCode::closed, "no address or no link", to.port);
}

}  // namespace neap::net
