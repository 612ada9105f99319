/* SPDX-License-Identifier: BSL-1.0 */
/* Compiler and machine definitions for lwIP; the same on bare metal and in host tests. */
#ifndef NEAP_LWIP_ARCH_CC_H
#define NEAP_LWIP_ARCH_CC_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* newlib defines ssize_t but not its limit. Without the limit lwIP would define ssize_t as int, which is wrong on 64 bits. */
#ifndef SSIZE_MAX
#define SSIZE_MAX LONG_MAX
#endif

/* Every variable of lwIP exists once for each core (lwip-patches/0001). The headers are also included by C++, where the keyword
   `thread_local` would add an initialisation check to each access from another file. So the keyword is `__thread`. */
#define LWIP_PER_CORE __thread

#ifndef BYTE_ORDER
#define LITTLE_ENDIAN 1234
#define BIG_ENDIAN 4321
#define BYTE_ORDER LITTLE_ENDIAN
#endif
#define LWIP_NO_INTTYPES_H 0
#define LWIP_TIMEVAL_PRIVATE 0
#define LWIP_ERR_T int

/* A built-in is one instruction, or a constant if its argument is constant. lwIP's own byte-order functions cost a call. */
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
