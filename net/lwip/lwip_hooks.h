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

/* 0012: true if this core has joined the group. */
int neap_lwip_wants_group(const ip4_addr_t* group);
#define LWIP_HOOK_IP4_WANTS_GROUP(netif, group) neap_lwip_wants_group(group)

/* 0018: an answer of a DHCP server; `event` is an `enum lwip_dhcp_event`. */
void neap_lwip_dhcp_event(int event);
#define LWIP_HOOK_DHCP_EVENT(event) neap_lwip_dhcp_event(event)

#ifdef __cplusplus
}
#endif
#endif
