// SPDX-License-Identifier: BSL-1.0
// Passes a received frame to TCP or lwIP, or to the core that handles it. Frames of open connections mostly do not come here
// (connection_receiving.cpp).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/log.hpp"
#include "kernel/panic.hpp"
#include "lwip/etharp.h"
#include "lwip/ip.h"
#include "lwip/prot/ethernet.h"
#include "lwip/prot/iana.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/tcp.h"
#include "net/control_frames.hpp"
#include "net/lwip/lwip_hooks.h"
#include "net/received_piece.hpp"
#include "net/stack.hpp"

namespace neap::net {

/// The header fields of a received frame that decide which core handles it.
struct FrameHeaders {
  std::uint16_t ethertype = 0;
  bool fragment = false;
  bool tcp = false;
  bool igmp = false;
  bool icmp = false;
  bool for_dhcp_client = false;
};

namespace {

constexpr std::size_t ethernet_bytes = SIZEOF_ETH_HDR;
constexpr std::size_t arp_bytes = SIZEOF_ETHARP_HDR;
constexpr std::size_t udp_destination_port = 2;
constexpr std::uint64_t reassembly_ms = (IP_REASS_MAXAGE + 1) * 1000;

std::uint16_t read_u16(const std::byte* at) noexcept {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(at[0]) << 8 | std::to_integer<unsigned>(at[1]));
}

[[gnu::always_inline]] inline FrameHeaders parse_headers(const std::byte* frame, std::size_t bytes) noexcept {
  FrameHeaders headers{.ethertype = read_u16(frame + 12)};
  if (headers.ethertype != ETHTYPE_IP || bytes < ethernet_bytes + IP_HLEN) return headers;
  const std::byte* const ip = frame + ethernet_bytes;
  headers.fragment = (read_u16(ip + 6) & (IP_OFFMASK | IP_MF)) != 0;
  const auto protocol = std::to_integer<unsigned>(ip[9]);
  headers.tcp = protocol == IP_PROTO_TCP;
  if (headers.tcp) [[likely]]
    return headers;
  headers.igmp = protocol == IP_PROTO_IGMP;
  headers.icmp = protocol == IP_PROTO_ICMP;
  const std::size_t ip_bytes = (std::to_integer<std::size_t>(ip[0]) & 0xF) * 4;
  if (protocol == IP_PROTO_UDP && bytes >= ethernet_bytes + ip_bytes + udp_destination_port + 2) {
    headers.for_dhcp_client = read_u16(ip + ip_bytes + udp_destination_port) == LWIP_IANA_PORT_DHCP_CLIENT;
  }
  return headers;
}

/// Returns the destination of a frame, in host byte order, if it is an IPv4 multicast group; 0 otherwise.
std::uint32_t group_of(const std::byte* frame, std::size_t bytes) noexcept {
  constexpr std::size_t destination = ethernet_bytes + 16;
  if (read_u16(frame + 12) != ETHTYPE_IP || bytes < ethernet_bytes + IP_HLEN) return 0;
  const std::uint32_t address = std::uint32_t{read_u16(frame + destination)} << 16 | read_u16(frame + destination + 2);
  return address >> 28 == 0xE ? address : 0;
}

void pbuf_freed(pbuf* freed) noexcept { Stack::here()->received_buffer_freed(&ReceivedPiece::of(*freed).buffer()); }

}  // namespace

void Stack::free_heap_buffer(ReceiveBuffer* buffer) noexcept { std::free(buffer); }

ReceiveBuffer* Stack::allocate_heap_buffer(std::size_t bytes) noexcept {
  void* const block = std::malloc(sizeof(ReceiveBuffer) + bytes);
  if (block == nullptr) return nullptr;
  auto* const buffer = new (block) ReceiveBuffer;
  buffer->data = static_cast<std::byte*>(block) + sizeof(ReceiveBuffer);
  buffer->bytes = static_cast<std::uint32_t>(bytes);
  buffer->return_to = &free_heap_buffer;
  return buffer;
}

void Stack::release_chain(ReceiveBuffer* frame) noexcept {
  while (frame != nullptr) {
    ReceiveBuffer* const next = frame->next;
    frame->release();
    frame = next;
  }
}

ReceiveBuffer* Stack::copy_to_heap(const ReceiveBuffer* frame, std::size_t bytes) noexcept {
  ReceiveBuffer* const copy = allocate_heap_buffer(bytes);
  if (copy == nullptr) return nullptr;
  std::byte* out = copy->data;
  for (; frame != nullptr; frame = frame->next) {
    require(frame->bytes <= bytes, "a frame is no longer than the sum of its buffers", frame->bytes);
    bytes -= frame->bytes;
    out = std::copy_n(frame->data, frame->bytes, out);
  }
  return copy;
}

void Stack::take_in(ReceiveBuffer* frame, std::size_t bytes, ReceiveInfo info) noexcept {
  if (is_control_frame(frame->data, frame->bytes, LocalPort::destination)) [[unlikely]] {
    log::count_control({.rx_frames = 1, .rx_bytes = bytes});
    counters_.control_frames_received.add();
    counters_.control_bytes_received.add(bytes);
  }

  if (frame->bytes < ethernet_bytes || bytes > 0xFFFF) {
    counters_.dropped_malformed.add();
    release_chain(frame);
    return;
  }
  const FrameHeaders headers = parse_headers(frame->data, frame->bytes);
  if (headers.ethertype == ipv6::ethertype && group_.ipv6_setting.mode != Ipv6Setting::Mode::off) {
    counters_.ipv6_received.add();
    return ipv6_.receive(frame, bytes, info);
  }
  const bool arp = headers.ethertype == ETHTYPE_ARP;
  if ((!arp && headers.ethertype != ETHTYPE_IP) || (arp && frame->bytes < ethernet_bytes + arp_bytes)) {
    counters_.dropped_malformed.add();
    release_chain(frame);
    return;
  }
  if (info.checksum_bad()) {
    counters_.dropped_checksum.add();
    release_chain(frame);
    return;
  }
  if (!primary() && (arp || headers.fragment || headers.igmp || headers.for_dhcp_client)) {
    ReceiveBuffer* const copy = copy_to_heap(frame, bytes);
    release_chain(frame);
    pass_on(group_.first, copy, info);
    return;
  }
  if ((frame->data[0] & std::byte{1}) != std::byte{0}) [[unlikely]] {
    const std::uint32_t group = group_of(frame->data, frame->bytes);
    if (group != 0 && !headers.igmp && !headers.fragment && !sort_multicast(frame, bytes, group, info)) return;
  }
  accept(frame, headers, info);
}

// Accepts every frame that this core handles, from the card or passed on by another core. A layer 4 checksum covers the whole datagram, so
// the card's verdict on a fragment is ignored. lwIP checks the sum after reassembly.
[[gnu::always_inline]] inline void Stack::accept(ReceiveBuffer* frame, const FrameHeaders& headers, ReceiveInfo info) noexcept {
  std::size_t frame_bytes = 0;
  for (const ReceiveBuffer* piece = frame; piece != nullptr; piece = piece->next) frame_bytes += piece->bytes;
  if (headers.igmp) groups_dirty_ = true;
  if (headers.fragment) {
    times_.reassembly_until = BootClock::now().time_since_epoch() / std::chrono::milliseconds(1) + reassembly_ms;
    info = ReceiveInfo(info.ip_checksum_good() ? ReceiveInfo::ip_good : 0);
  }
  if (headers.ethertype == ETHTYPE_ARP) arp_dirty_ = true;
  static_cast<void>(now_us());  // brings the ages of neighbours up to date
  if (headers.tcp && !headers.fragment) return input_tcp(frame, frame_bytes, info);
  if (headers.icmp && !headers.fragment) input_icmp(*frame, frame_bytes);
  if (headers.for_dhcp_client) wake_lease_clock();
  input(frame, info);
}

void Stack::input(ReceiveBuffer* frame, ReceiveInfo info) noexcept {
  want_checks();
  // The interface's flags name the checksums that lwIP has to check. They are set for each frame, because lwIP handles one at a time.
  std::uint16_t checks = checksum_base_;
  if (info.ip_checksum_good()) checks = static_cast<std::uint16_t>(checks & ~NETIF_CHECKSUM_CHECK_IP);
  if (info.l4_checksum_good()) checks = static_cast<std::uint16_t>(checks & ~NETIF_CHECKSUM_CHECK_UDP);
  NETIF_SET_CHECKSUM_CTRL(&netif_, checks);
  pbuf* const chain = wrap(frame);
  if (netif_.input(chain, &netif_) != ERR_OK) {
    counters_.dropped_protocol.add();
    pbuf_free(chain);
  }
  NETIF_SET_CHECKSUM_CTRL(&netif_, checksum_base_);
}

pbuf* Stack::wrap(ReceiveBuffer* frame) noexcept {
  pbuf* chain = nullptr;
  while (frame != nullptr) {
    ReceiveBuffer* const next = std::exchange(frame->next, nullptr);
    hold_buffer(*frame);
    ReceivedPiece& piece = ReceivedPiece::make(*frame);
    piece.custom.custom_free_function = &pbuf_freed;
    const auto bytes = static_cast<std::uint16_t>(frame->bytes);
    pbuf* const own = pbuf_alloced_custom(PBUF_RAW, bytes, PBUF_REF, &piece.custom, frame->data, bytes);
    if (chain == nullptr) {
      chain = own;
    } else {
      pbuf_cat(chain, own);
    }
    frame = next;
  }
  return chain;
}

void Stack::received_buffer_freed(ReceiveBuffer* buffer) noexcept {
  if (buffer->return_to != &free_heap_buffer) {
    require(held_buffers_ > 0, "no more card buffers are released than were received");
    --held_buffers_;
  }
  buffer->release();
}

// --- From core to core -------------------------------------------------------------------------------------------------------------------
void Stack::pass_on(unsigned core, ReceiveBuffer* copy, ReceiveInfo info) noexcept {
  require(core != core_ && core - group_.first < group_.cores, "a frame is passed on to another core of the group", core);
  if (copy == nullptr) {
    counters_.dropped_memory.add();
    return;
  }
  struct Freer {
    void operator()(ReceiveBuffer* buffer) const noexcept { buffer->release(); }
  };
  try {
    auto there = [frame = std::unique_ptr<ReceiveBuffer, Freer>(copy), info]() mutable noexcept {
      Stack* const stack = Stack::here();
      if (stack == nullptr) return;
      stack->want_checks();
      const FrameHeaders headers = parse_headers(frame->data, frame->bytes);
      if (headers.ethertype == ipv6::ethertype) return stack->ipv6_.receive_passed_on(frame.release(), info);
      stack->accept(frame.release(), headers, info);
    };
    if (spawn_on(core, std::move(there)).has_value()) {
      counters_.passed_on.add();
    } else {
      counters_.pass_on_refused.add();
    }
  } catch (const std::bad_alloc&) {
    counters_.dropped_memory.add();
  }
}

// lwIP has removed the link header of `datagram`. The header is made again, because the other core expects a frame.
ReceiveBuffer* Stack::frame_of(pbuf* datagram) const noexcept {
  ReceiveBuffer* const copy = allocate_heap_buffer(ethernet_bytes + datagram->tot_len);
  if (copy == nullptr) return nullptr;
  std::memset(copy->data, 0, ethernet_bytes);
  std::copy_n(reinterpret_cast<const std::byte*>(netif_.hwaddr), ETH_HWADDR_LEN, copy->data);
  copy->data[12] = std::byte{ETHTYPE_IP >> 8};
  copy->data[13] = std::byte{ETHTYPE_IP & 0xFF};
  const std::size_t copied = pbuf_copy_partial(datagram, copy->data + ethernet_bytes, datagram->tot_len, 0);
  require(copied == datagram->tot_len, "a datagram's pbufs hold its total length", copied);
  return copy;
}

// lwIP has changed the IP header into that of a whole datagram. The header's checksum is now wrong. The other core does not check it,
// because the frame is passed on with `ip_good`; the fragments' own checksums were right.
bool Stack::pass_on_reassembled(pbuf* datagram) noexcept {
  const auto* const ip = static_cast<const ip_hdr*>(datagram->payload);
  const std::size_t ip_bytes = IPH_HL_BYTES(ip);
  if (ip4_addr_ismulticast(&ip->dest)) {
    ReceiveBuffer* const copy = frame_of(datagram);
    if (copy == nullptr) counters_.dropped_memory.add();
    const bool ours = copy != nullptr && sort_multicast(copy, copy->bytes, lwip_ntohl(ip->dest.addr), ReceiveInfo(ReceiveInfo::ip_good));
    if (ours) copy->release();
    if (!ours) pbuf_free(datagram);
    return !ours;
  }
  if (IPH_PROTO(ip) != IP_PROTO_TCP) return false;
  std::byte ports[4];
  if (pbuf_copy_partial(datagram, ports, sizeof ports, static_cast<u16_t>(ip_bytes)) != sizeof ports) {
    counters_.dropped_malformed.add();
    pbuf_free(datagram);
    return true;
  }
  const std::uint16_t local_port = read_u16(ports + 2);
  const unsigned core = group_.device_decides ? group_.core_of_port(local_port, core_)
                                              : group_.device.receiving_core(lwip_ntohl(ip->src.addr), lwip_ntohl(ip->dest.addr),
                                                                             read_u16(ports), local_port);
  ReceiveBuffer* const copy = frame_of(datagram);
  pbuf_free(datagram);
  if (core != core_ && core - group_.first < group_.cores) {
    pass_on(core, copy, ReceiveInfo(ReceiveInfo::ip_good));
  } else if (copy != nullptr) {
    input_tcp(copy, copy->bytes, ReceiveInfo(ReceiveInfo::ip_good));
  } else {
    counters_.dropped_memory.add();
  }
  return true;
}

}  // namespace neap::net

extern "C" int neap_lwip_reassembled(pbuf* datagram) { return neap::net::Stack::here()->pass_on_reassembled(datagram) ? 1 : 0; }
