/* SPDX-License-Identifier: BSL-1.0 */
/* The hooks by which lwIP calls net/, in addition to its own callbacks. A number such as 0003 is that of the patch that adds the hook. */
#ifndef NEAP_LWIP_HOOKS_H
#define NEAP_LWIP_HOOKS_H

#include "lwip/arch.h"
#include "lwip/err.h"
#include "lwip/ip_addr.h"

#ifdef __cplusplus
extern "C" {
#endif

struct eth_addr;
struct netif;
struct pbuf;
struct tcp_pcb;
struct tcp_pcb_listen;

/* RFC 6528: initial sequence numbers that a third party cannot predict. */
u32_t neap_lwip_initial_sequence(const ip_addr_t* local, u16_t local_port, const ip_addr_t* remote, u16_t remote_port);
#define LWIP_HOOK_TCP_ISN(local, local_port, remote, remote_port) neap_lwip_initial_sequence(local, local_port, remote, remote_port)

/* 0003: returns a pbuf with a reference to `data` and to its owner; null without memory. Called inside tcp_write(). */
struct pbuf* neap_lwip_write_reference(const void* data, u16_t bytes);
#define LWIP_HOOK_TCP_WRITE_REFERENCE(data, bytes) neap_lwip_write_reference(data, bytes)

/* 0004: true if tcp_output() shall run now, false if it runs at the end of the event. */
int neap_lwip_input_done(struct tcp_pcb* pcb);
#define LWIP_HOOK_TCP_INPUT_DONE(pcb) neap_lwip_input_done(pcb)

/* 0007: ARP has learned an address. */
void neap_lwip_neighbour_learned(const ip4_addr_t* address, const struct eth_addr* mac, u8_t for_us, u8_t from_us);
#define LWIP_HOOK_ETHARP_LEARNED(netif, address, mac, for_us, from_us) neap_lwip_neighbour_learned(address, mac, for_us, from_us)

/* 0023: an entry was recycled; an announcement found no free entry; a packet that waited for an address was dropped. */
void neap_lwip_neighbour_recycled(void);
#define LWIP_HOOK_ETHARP_RECYCLED() neap_lwip_neighbour_recycled()
void neap_lwip_neighbour_refused(void);
#define LWIP_HOOK_ETHARP_REFUSED() neap_lwip_neighbour_refused()
void neap_lwip_unresolved_dropped(void);
#define LWIP_HOOK_ETHARP_DROPPED() neap_lwip_unresolved_dropped()

/* 0008: true if the datagram was handed over to the core that handles it. */
int neap_lwip_reassembled(struct pbuf* datagram);
#define LWIP_HOOK_IP4_REASSEMBLED(p, netif) neap_lwip_reassembled(p)

/* 0020: true if the payload of this segment shall be dropped unacknowledged. The variable is 1 while the core is short of memory. */
extern LWIP_PER_CORE u8_t neap_lwip_memory_short;
int neap_lwip_refuse_payload(const struct tcp_pcb* pcb, u16_t bytes);
#define LWIP_HOOK_TCP_REFUSE_PAYLOAD(pcb, bytes) (neap_lwip_memory_short != 0 && neap_lwip_refuse_payload(pcb, bytes))

/* 0021. make_cookie returns true if a SYN-ACK with the sequence number `*cookie` shall be sent. check_cookie returns the MSS of a valid
   cookie, otherwise 0. Both use the current packet's addresses. half_open adds `change` to the number of half-open connections. */
int neap_lwip_make_cookie(const struct tcp_pcb_listen* listener, u16_t peer_port, u32_t peer_sequence, u16_t mss, u32_t* cookie);
u16_t neap_lwip_check_cookie(const struct tcp_pcb_listen* listener, u16_t peer_port, u32_t peer_sequence, u32_t cookie);
void neap_lwip_half_open(int change);
#define LWIP_HOOK_TCP_SYN_COOKIE(listener, port, sequence, mss, cookie) neap_lwip_make_cookie(listener, port, sequence, mss, cookie)
#define LWIP_HOOK_TCP_CHECK_COOKIE(listener, port, sequence, cookie) neap_lwip_check_cookie(listener, port, sequence, cookie)
int neap_lwip_cookies_only(const struct tcp_pcb_listen* listener); /* true for a while after the backlog was full */
#define LWIP_HOOK_TCP_COOKIES_ONLY(listener) neap_lwip_cookies_only(listener)
#define LWIP_HOOK_TCP_HALF_OPEN(change) neap_lwip_half_open(change)

/* 0012: true if this core has joined the group. */
int neap_lwip_wants_group(const ip4_addr_t* group);
#define LWIP_HOOK_IP4_WANTS_GROUP(netif, group) neap_lwip_wants_group(group)

/* 0013: a segment was dropped because its sequence or acknowledgement number is unacceptable; a challenge ACK was sent. */
void neap_lwip_segment_refused(void);
#define LWIP_HOOK_TCP_REFUSED(pcb) neap_lwip_segment_refused()
void neap_lwip_challenged(void);
#define LWIP_HOOK_TCP_CHALLENGED(pcb) neap_lwip_challenged()

/* 0018: an answer of a DHCP server; `event` is an `enum lwip_dhcp_event`. */
void neap_lwip_dhcp_event(int event);
#define LWIP_HOOK_DHCP_EVENT(event) neap_lwip_dhcp_event(event)

#ifdef __cplusplus
}
#endif
#endif
