// SPDX-License-Identifier: BSL-1.0
#include "net/transmit_offload.hpp"

#include <cstring>

#include "kernel/panic.hpp"
#include "lwip/inet_chksum.h"
#include "lwip/ip.h"
#include "lwip/pbuf.h"
#include "lwip/prot/ethernet.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/tcp.h"
#include "lwip/prot/udp.h"

namespace neap::net {

std::uint16_t pseudo_header_sum(const ip_hdr& ip, std::uint16_t l4_bytes) noexcept {
  std::uint64_t sum = ip.src.addr;
  sum += ip.dest.addr;
  sum += lwip_htons(IPH_PROTO(&ip));
  sum += lwip_htons(l4_bytes);
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

TransmitOffload offload_checksums(pbuf& first, bool ip_header_offload) noexcept {
  require(first.len >= SIZEOF_ETH_HDR, "a frame's first piece holds the Ethernet header", first.len);
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
  if (!ip_header_offload) IPH_CHKSUM_SET(&ip, inet_chksum(&ip, ip_bytes));
  if ((IPH_OFFSET(&ip) & PP_HTONS(IP_OFFMASK | IP_MF)) != 0)
    return offload;  // a UDP fragment has no layer 4 checksum; ICMP's checksum is complete

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

}  // namespace neap::net
