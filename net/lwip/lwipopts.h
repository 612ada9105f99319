/* SPDX-License-Identifier: BSL-1.0 */
/* The parts of lwIP that are built, and their limits. Each core has its own stack, so every number here is for one core.
   Everything that a peer can make a core hold is limited here, in net/stack.hpp or in net/listeners.hpp. Each refusal is counted. */
#ifndef NEAP_LWIPOPTS_H
#define NEAP_LWIPOPTS_H

/* --- Shape: no threads, no sockets, timers by net/stack_timers.cpp
 * ------------------------------------------------------------------------ */
#define NO_SYS 1
#define SYS_LIGHTWEIGHT_PROT 0
#define LWIP_NETCONN 0
#define LWIP_SOCKET 0
#define LWIP_TIMERS 0
#define LWIP_TIMERS_CUSTOM 1
#ifdef NDEBUG
#define LWIP_NOASSERT 1
#endif
#define LWIP_HOOK_FILENAME "net/lwip/lwip_hooks.h"

/* --- Memory: per-core free lists with a limit for each kind of object, filled by malloc (lwip-patches/0002)
 * ------------------------------ */
#define MEM_ALIGNMENT 8
#define MEM_LIBC_MALLOC 1
#define MEMP_MEM_MALLOC 1
#define LWIP_MEMP_PER_CORE 1
#define MEM_USE_POOLS 0
#define MEMP_NUM_UDP_PCB 32
#define MEMP_NUM_IGMP_GROUP 257 /* net/groups.hpp, and 224.0.0.1 */
#define MEMP_NUM_PBUF 4194304
#define MEMP_NUM_REASSDATA 16
#define MEMP_NUM_FRAG_PBUF 256
#define MEMP_NUM_ARP_QUEUE (ARP_PENDING_MAX * ARP_QUEUE_LEN + 1) /* enough for all pending entries */
#define PBUF_POOL_SIZE 0                                         /* frames arrive in the card's own buffers */
#define PBUF_POOL_FREE_OOSEQ 0
#define MEMP_NUM_SYS_TIMEOUT 0
#define PBUF_LINK_HLEN 16 /* Ethernet's 14, and 2 that align the IP header */
#define ETH_PAD_SIZE 0

/* --- Link, IP
 * ------------------------------------------------------------------------------------------------------------------------------ */
#define LWIP_IPV4 1
#define LWIP_IPV6 0
#define IPV6_FRAG_COPYHEADER 1 /* 64-bit pointers do not fit into the field that lwIP uses otherwise */
#define LWIP_ARP 1
#define ARP_TABLE_SIZE 120
#define ARP_PENDING_MAX 32 /* entries without an answer; one more replaces the oldest of these (lwip-patches/0023) */
#define ARP_QUEUEING 1
#define ARP_QUEUE_LEN 16 /* packets that wait for one neighbour's address */
#define ETHARP_TABLE_MATCH_NETIF 0
#define LWIP_NETIF_HWADDRHINT 1
#define LWIP_NETIF_HOSTNAME 1
#define LWIP_NETIF_LOOPBACK 0
#define LWIP_HAVE_LOOPIF 0
#define LWIP_NETIF_TX_SINGLE_PBUF 0
#define IP_FORWARD 0
#define IP_REASSEMBLY 1
#define IP_REASS_MAX_PBUFS 64 /* card buffers that incomplete datagrams may hold, on the one core that reassembles */
#define IP_FRAG 1
#define IP_REASS_FREE_OLDEST 1
#define LWIP_ICMP 1
#define LWIP_BROADCAST_PING 0
#define LWIP_RAW 0
#define LWIP_IGMP 1 /* the first core sends and receives it for all cores */
#define LWIP_AUTOIP 0
#define LWIP_DNS 0

/* The card computes the checksums that it supports. For each frame, the netif's flags name the checksums that lwIP computes. */
#define LWIP_CHECKSUM_CTRL_PER_NETIF 1

/* --- DHCP (RFC 2131). A conflict check would delay the address by at least 4 s. Conflicts are reported after binding instead.
 * --------------- */
#define LWIP_DHCP 1
#define LWIP_DHCP_DOES_ACD_CHECK 0
#define LWIP_ACD 0
#define DHCP_CREATE_RAND_XID 1
#define DHCP_COARSE_TIMER_SECS 1 /* a lease is counted in seconds; net/stack_timers.cpp counts many in one step */
#define DHCP_TIMEOUT_SIZE_T u32_t
#define LWIP_DHCP_GET_NTP_SRV 0

/* --- UDP
 * ---------------------------------------------------------------------------------------------------------------------------------------
 */
#define LWIP_UDP 1
#define LWIP_UDPLITE 0

/* --- TCP: net/ has its own
 * --------------------------------------------------------------------------------------------------------------------------- */
#define LWIP_TCP 0

/* --- Counters
 * ---------------------------------------------------------------------------------------------------------------------------------- */
#define LWIP_STATS 1
#define LWIP_STATS_LARGE 1
#define LINK_STATS 0
#define MEM_STATS 0
#define MEMP_STATS 0
#define SYS_STATS 0
#define UDP_STATS 1
#define IGMP_STATS 1
#define MIB2_STATS 0

#endif
