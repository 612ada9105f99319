/* SPDX-License-Identifier: BSL-1.0
 * The network as a shared object of the host: libneap_network.so.
 *
 * A test of a protocol needs exact times and every frame, and an emulator offers neither. This object has the network and the kernel's own
 * sources, one core, and a clock that only the caller advances. Frames go in and out by calls. So a run depends only on its inputs, and a
 * second of the machine costs microseconds. packetdrill's scripts, fuzzers and programs in any language can use it.
 *
 * Rules:
 * - A process has one machine at a time. After `neap_machine_destroy` it can make another one. All calls come from one thread.
 * - Each call runs the machine's events until the machine has nothing more to do at the present time, then returns. No call waits.
 * - Functions that return `int` or `long` return a negative number of <errno.h> on failure, for example -EAGAIN.
 * - A defect of the machine (a panic) ends the process with a message on stderr. A caller that has to go on makes the machine in a child.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever a function or a structure changes its meaning. */
#define NEAP_NETWORK_VERSION 1
unsigned neap_network_version(void);

/* --- The machine and its time ------------------------------------------------------------------------------------------------------------
 * `settings`: words separated by spaces. `ip=A.B.C.D/LEN[,GATEWAY]` (default 192.168.0.1/16,192.168.0.2), `seed=N` (initial sequence
 * numbers and ports; default 1), and the machine's own settings by their names (docs/policy.md). The object answers the machine's ARP
 * requests, for every address; `arp=off` leaves that to the caller. All other calls MUST follow a successful one of this. Returns 1, or 0
 * with the reason in `error`. */
int neap_machine_make(const char* settings, char* error, size_t error_bytes);
void neap_machine_destroy(void);
/* Nanoseconds. A machine's time begins at a whole second: one for the process's first machine, later ones for the next machines. */
uint64_t neap_now_ns(void);
/* Advances the clock from one timer's expiry to the next, up to `time_ns`. */
void neap_advance_to_ns(uint64_t time_ns);
/* As neap_advance_to_ns, but stops as soon as a packet waits for `neap_take_packet`. Returns 1 then, 0 at `time_ns`. */
int neap_advance_to_packet_ns(uint64_t time_ns);

/* --- Frames ------------------------------------------------------------------------------------------------------------------------------
 * A packet is an IP packet without a link header. A frame has an Ethernet header. */
int neap_put_packet(const void* packet, size_t bytes);
int neap_put_frame(const void* frame, size_t bytes);
/* Copy the oldest packet or frame that was not taken yet, and return its length; 0: there is none. A longer one is cut to `capacity`.
 * `time_ns` is the time at which it was sent. `neap_take_packet` drops frames that are not IP. Padding is removed from packets. */
long neap_take_packet(void* packet, size_t capacity, uint64_t* time_ns);
long neap_take_frame(void* frame, size_t capacity, uint64_t* time_ns);

/* --- TCP ---------------------------------------------------------------------------------------------------------------------------------
 * The calls use the public interface of net/network.hpp. Addresses and ports are in host byte order. A handle is a number from 3 on; the
 * smallest free one is given, as by POSIX. */
struct neap_endpoint {
  uint32_t address;
  uint16_t port;
};
/* Errors: -EADDRINUSE, -EINVAL. A listener cannot be closed. */
int neap_listen(uint16_t port);
/* Returns the oldest connection that was not accepted yet, or -EAGAIN. */
int neap_accept(int listener, struct neap_endpoint* remote);
/* Begins a connection. Returns its handle; `neap_connected` tells the rest. */
int neap_connect(uint32_t address, uint16_t port);
/* 1: established; 0: not yet; -ECONNREFUSED, -ETIMEDOUT and others: failed. */
int neap_connected(int handle);
/* Sends up to `bytes` bytes; returns their number. Errors: -EAGAIN (no room), -EPIPE (this side is closed), -ECONNRESET, -ETIMEDOUT. */
long neap_send(int handle, const void* data, size_t bytes);
/* Returns the number of bytes copied, 0 at the end of the peer's data. Errors: -EAGAIN, -ECONNRESET, -ETIMEDOUT. */
long neap_receive(int handle, void* data, size_t bytes);
/* Closes this side after the queued bytes; receiving continues. */
int neap_shutdown(int handle);
/* Closes in order, or resets the connection. The handle becomes free. */
int neap_close(int handle);
int neap_abort(int handle);
int neap_local(int handle, struct neap_endpoint* local);

/* State of a connection. Further fields will be added at the end; `bytes` is the size of the caller's structure. */
struct neap_connection_state {
  uint32_t established;          /* 1 from the end of the handshake until the end of the connection */
  uint32_t peer_closed;          /* 1: the peer's FIN was received in order */
  uint32_t ended;                /* 1: the connection is gone: closed, reset or timed out */
  int32_t error;                 /* 0, or the number of <errno.h> with which it ended */
  uint64_t readable_bytes;       /* received, not read yet */
  uint64_t unacknowledged_bytes; /* queued or sent, and not acknowledged */
  uint64_t send_space_bytes;     /* room for `neap_send` */
  uint64_t held_bytes;           /* memory that the connection holds */
  /* The sender's state; 0 before the handshake ends, and after the connection's end. */
  uint64_t congestion_window_bytes;
  uint64_t threshold_bytes; /* of slow start; 4294967295: none yet */
  uint64_t timeout_us;      /* the retransmission time-out */
};
int neap_state(int handle, struct neap_connection_state* state, size_t bytes);

/* --- UDP --- */
int neap_open_datagrams(uint16_t port);
long neap_send_datagram(int handle, struct neap_endpoint to, const void* data, size_t bytes);
/* Returns the length, or -EAGAIN. */
long neap_receive_datagram(int handle, struct neap_endpoint* from, void* data, size_t bytes);

/* The value of a counter of the network (net/network.hpp, `CountersOf`), by its name; -1: there is none. */
int64_t neap_counter(const char* name);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
