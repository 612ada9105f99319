// SPDX-License-Identifier: BSL-1.0
// From lwIP to the card: a chain of pbufs becomes the pieces of a frame, held until the card has read them.
#include <array>
#include <cstring>

#include "kernel/log.hpp"
#include "lwip/ip.h"
#include "lwip/prot/ethernet.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/tcp.h"
#include "lwip/prot/udp.h"
#include "net/control_frames.hpp"
#include "net/stack.hpp"

namespace neap::net {

namespace {

/// Folded, not inverted sum of the pseudo-header (RFC 9293, 3.1), in the byte order that it has in the packet.
std::uint16_t pseudo_header_sum(const ip_hdr& ip, std::uint16_t l4_bytes) noexcept {
  std::uint64_t sum = ip.src.addr;
  sum += ip.dest.addr;
  sum += lwip_htons(IPH_PROTO(&ip));
  sum += lwip_htons(l4_bytes);
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

/// Tells the card which checksums to fill in, and prepares their fields. The headers lie in the first piece; nobody else reads it yet.
TransmitOffload offload_checksums(pbuf& first) noexcept {
  auto* const bytes = static_cast<std::byte*>(first.payload);
  std::uint16_t ethertype;
  std::memcpy(&ethertype, bytes + 12, sizeof ethertype);
  TransmitOffload offload;
  if (ethertype != PP_HTONS(ETHTYPE_IP) || first.len < SIZEOF_ETH_HDR + IP_HLEN) return offload;
  auto& ip = *reinterpret_cast<ip_hdr*>(bytes + SIZEOF_ETH_HDR);
  const std::uint16_t ip_bytes = IPH_HL_BYTES(&ip);
  offload.checksums = Checksums::ipv4;
  offload.l3_bytes = static_cast<std::uint8_t>(ip_bytes);
  IPH_CHKSUM_SET(&ip, 0);
  if ((IPH_OFFSET(&ip) & PP_HTONS(IP_OFFMASK | IP_MF)) != 0) return offload;  // a fragment: UDP without a checksum, or ICMP with one

  const auto l4_bytes = static_cast<std::uint16_t>(lwip_ntohs(IPH_LEN(&ip)) - ip_bytes);
  std::byte* const l4 = bytes + SIZEOF_ETH_HDR + ip_bytes;
  if (IPH_PROTO(&ip) == IP_PROTO_TCP && first.len >= SIZEOF_ETH_HDR + ip_bytes + TCP_HLEN) {
    auto& tcp = *reinterpret_cast<tcp_hdr*>(l4);
    offload.checksums = Checksums::tcp_ipv4;
    offload.l4_bytes = TCPH_HDRLEN_BYTES(&tcp);
    tcp.chksum = pseudo_header_sum(ip, l4_bytes);
  } else if (IPH_PROTO(&ip) == IP_PROTO_UDP && first.len >= SIZEOF_ETH_HDR + ip_bytes + UDP_HLEN) {
    auto& udp = *reinterpret_cast<udp_hdr*>(l4);
    offload.checksums = Checksums::udp_ipv4;
    offload.l4_bytes = UDP_HLEN;
    udp.chksum = pseudo_header_sum(ip, l4_bytes);
  }
  return offload;
}

}  // namespace

err_t Stack::transmit(pbuf* frame) noexcept {
  if (silent_) return ERR_IF;
  std::array<TransmitPiece, pieces_max> pieces;
  const unsigned most = std::min<unsigned>(pieces_max, limits_.transmit_pieces_max);
  unsigned count = 0;
  bool fits = true;
  for (const pbuf* piece = frame; piece != nullptr; piece = piece->next) {
    if (piece->len == 0) continue;
    if (count == most) {
      fits = false;
      break;
    }
    pieces[count++] = {.data = static_cast<const std::byte*>(piece->payload), .bytes = piece->len};
  }
  pbuf* held = frame;
  if (!fits) {
    held = pbuf_clone(PBUF_RAW, PBUF_RAM, frame);
    if (held == nullptr) {
      counters_.dropped_memory.add();
      return ERR_MEM;
    }
    counters_.transmit_copied.add();
    pieces[0] = {.data = static_cast<const std::byte*>(held->payload), .bytes = held->len};
    count = 1;
  } else {
    pbuf_ref(held);
  }

  const TransmitOffload offload = limits_.checksum_offload ? offload_checksums(*held) : TransmitOffload{};
  std::uint16_t ethertype;
  std::memcpy(&ethertype, static_cast<const std::byte*>(held->payload) + 12, sizeof ethertype);
  if (ethertype == PP_HTONS(ETHTYPE_ARP)) arp_dirty_ = true;
  want_event_end();

  if (const auto taken = sender_->transmit({pieces.data(), count}, offload, held); !taken.has_value()) {
    pbuf_free(held);
    if (taken.error() == ErrorCode::full) {
      counters_.transmit_full.add();
      return ERR_MEM;
    }
    counters_.transmit_failed.add();
    return ERR_IF;
  }
  if (is_control_frame(pieces[0].data, pieces[0].bytes, LocalPort::source)) [[unlikely]] {
    const FramesSent sent = frames_sent(held->tot_len, offload);
    log::count_control({.tx_frames = sent.frames, .tx_bytes = sent.bytes});
    counters_.control_frames_sent.add(sent.frames);
    counters_.control_bytes_sent.add(sent.bytes);
  }
  ++frames_in_flight_;
  counters_.frames_sent.add();
  counters_.bytes_sent.add(held->tot_len);
  return ERR_OK;
}

void Stack::transmitted(std::span<void* const> tokens) noexcept {
  frames_in_flight_ -= static_cast<unsigned>(tokens.size());
  for (void* const token : tokens) pbuf_free(static_cast<pbuf*>(token));
}

void Stack::transmit_room() noexcept {
  retry_blocked_ = true;
  want_event_end();
}

}  // namespace neap::net
