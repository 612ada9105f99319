/* SPDX-License-Identifier: BSL-1.0 */
/* What lwIP needs to know about compiler and machine. The same for bare metal and for the host's tests. */
#ifndef NEAP_LWIP_ARCH_CC_H
#define NEAP_LWIP_ARCH_CC_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* newlib has ssize_t without its limit; without this lwIP would define its own ssize_t as int, which differs on 64 bits. */
#ifndef SSIZE_MAX
#define SSIZE_MAX LONG_MAX
#endif

/* Every variable of lwIP lives once a core (lwip-patches/0001). `__thread` and not `thread_local`: the headers are read by C and by C++,
   and C++'s keyword would put an initialisation check in front of each access from another file. */
#define LWIP_PER_CORE __thread

#ifndef BYTE_ORDER
#define LITTLE_ENDIAN 1234
#define BIG_ENDIAN 4321
#define BYTE_ORDER LITTLE_ENDIAN
#endif
#define LWIP_NO_INTTYPES_H 0
#define LWIP_TIMEVAL_PRIVATE 0
#define LWIP_ERR_T int

/* Built in, they are one instruction (and constants of constants); lwIP's own are calls. */
#define lwip_htons(x) __builtin_bswap16(x)
#define lwip_htonl(x) __builtin_bswap32(x)
#define LWIP_DONT_PROVIDE_BYTEORDER_FUNCTIONS

#define LWIP_CHKSUM_ALGORITHM 3

#ifdef __cplusplus
extern "C" {
#endif
void neap_lwip_assertion_failed(const char* message, const char* file, int line) __attribute__((noreturn));
uint32_t neap_lwip_random(void);
#ifdef __cplusplus
}
#endif

#define LWIP_PLATFORM_DIAG(x) \
  do {                        \
  } while (0)
#define LWIP_PLATFORM_ASSERT(message) neap_lwip_assertion_failed(message, __FILE__, __LINE__)
#define LWIP_RAND() neap_lwip_random()

#endif
