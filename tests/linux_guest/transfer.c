// SPDX-License-Identifier: BSL-1.0
// Transfers over a network with impairments, between two machines on the model machine (tools/model/transfer.py).
//
// A client asks a server to send or to receive a number of bytes on a new connection. Both ends compute a sum over all bytes, which depends
// on their order, and the receiver measures the time from the request to the last byte. The server is this program, or Neap's image
// bench_transfer. bench/transfer/protocol.hpp describes the messages. The client takes its work from a plan, one step a line:
//
//   network SEED LIST              the world's network is from now on LIST (sim/world/src/network_frame.rs)
//   down NAME BYTES SEED SECONDS   the server sends BYTES, a multiple of 8, within SECONDS
//   up NAME BYTES SEED SECONDS     the client sends them
//   idle NAME SECONDS              waits until the server has no other connection and holds no bytes
//   pause MS
//
//   transfer serve PORT
//   transfer run HOST PORT INTERFACE PLAN
//
// Each step with a NAME prints one line, and a transfer that fails does not end the plan:
//
//   transfer: NAME ok BYTES NS SUM [OPEN HALF_OPEN HELD HELD_MAX RETRANSMISSIONS]     the numbers in brackets: of `idle`
//   transfer: NAME failed REASON
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { words_max = 8192, silence_seconds = 300, line_bytes_max = 1024, backlog = 16 };
enum { ether_type = 0x88B5, header_bytes = 14, frame_bytes_min = 60, poll_ms = 500 };
enum Kind { kind_up = 1, kind_down = 2, kind_status = 3 };

static const uint64_t magic = 0x315246534E415254U;  // "TRANSFR1" as little-endian bytes
static const uint64_t factor = 0x9E3779B97F4A7C15U;
static const unsigned char switch_address[6] = {0x02, 0x82, 0x59, 0x90, 0xFF, 0x01};

struct Request {
  uint64_t magic, kind, bytes, seed;
};
struct Received {
  uint64_t bytes, sum, ns;
};
struct Status {
  uint64_t open, half_open, held_bytes, held_bytes_max, retransmissions;
};

static uint64_t block[words_max];

static uint64_t now_ns(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000U + (uint64_t)at.tv_nsec;
}

static uint64_t less(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t add_word(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * factor;
  return sum ^ (sum >> 29);
}

// Returns null, or the reason of a failure.
static const char* failure(const char* what) {
  static char text[200];
  snprintf(text, sizeof text, "%s: %s", what, errno ? strerror(errno) : "the stream ended");
  return text;
}

static const char* send_all(int stream, const void* from, size_t bytes) {
  for (const char* at = from; bytes;) {
    const ssize_t sent = send(stream, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return failure("sending");
    at += sent;
    bytes -= (size_t)sent;
  }
  return NULL;
}

static const char* receive_all(int stream, void* into, size_t bytes) {
  errno = 0;
  return recv(stream, into, bytes, MSG_WAITALL) == (ssize_t)bytes ? NULL : failure("receiving");
}

static const char* send_stream(int stream, const struct Request* request, uint64_t end_ns, uint64_t* sum) {
  uint64_t number = request->seed;
  *sum = factor;
  for (uint64_t left = request->bytes; left;) {
    const uint64_t bytes = less(left, sizeof block);
    for (uint64_t i = 0; i < bytes / 8; i++) {
      block[i] = ++number * factor;
      *sum = add_word(*sum, block[i]);
    }
    const char* failed = send_all(stream, block, bytes);
    if (failed) return failed;
    left -= bytes;
    if (now_ns() > end_ns) return "the time limit is over";
  }
  return NULL;
}

static const char* receive_stream(int stream, const struct Request* request, uint64_t end_ns, uint64_t* sum) {
  size_t held = 0;  // bytes of an unfinished word
  *sum = factor;
  for (uint64_t left = request->bytes; left;) {
    errno = 0;
    const ssize_t got = recv(stream, (char*)block + held, less(left, sizeof block - held), 0);
    if (got <= 0) return failure("receiving");
    left -= (uint64_t)got;
    const size_t bytes = held + (size_t)got;
    for (size_t i = 0; i < bytes / 8; i++) *sum = add_word(*sum, block[i]);
    held = bytes % 8;
    memmove(block, (char*)block + bytes - held, held);
    if (now_ns() > end_ns) return "the time limit is over";
  }
  return NULL;
}

static void limit_silence(int stream) {
  const struct timeval silence = {.tv_sec = silence_seconds};
  setsockopt(stream, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
  setsockopt(stream, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
}

static void answer(int stream) {
  struct Request request;
  limit_silence(stream);
  if (receive_all(stream, &request, sizeof request) || request.magic != magic) return;
  const uint64_t begin_ns = now_ns();
  uint64_t sum = 0;
  if (request.kind == kind_down && !send_stream(stream, &request, UINT64_MAX, &sum)) {
    send_all(stream, &sum, sizeof sum);
  } else if (request.kind == kind_up && !receive_stream(stream, &request, UINT64_MAX, &sum)) {
    const struct Received received = {request.bytes, sum, now_ns() - begin_ns};
    send_all(stream, &received, sizeof received);
  } else if (request.kind == kind_status) {
    const struct Status idle = {.open = 1};  // Linux's memory is not examined
    send_all(stream, &idle, sizeof idle);
  }
  char rest;
  shutdown(stream, SHUT_WR);
  while (recv(stream, &rest, 1, 0) > 0) continue;
}

static int serve(uint16_t port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
  const struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  signal(SIGCHLD, SIG_IGN);
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
      bind(listener, (const struct sockaddr*)&address, sizeof address) || listen(listener, backlog)) {
    perror("transfer: listening");
    return 1;
  }
  for (;;) {
    const int stream = accept(listener, NULL, NULL);
    if (stream < 0) continue;
    if (fork() == 0) {
      close(listener);
      answer(stream);
      exit(0);
    }
    close(stream);
  }
}

struct Client {
  struct sockaddr_in server;
  const char* interface;
};

static const char* ask(const struct Client* client, const struct Request* request, int* stream) {
  *stream = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (*stream < 0) return failure("socket");
  limit_silence(*stream);
  if (connect(*stream, (const struct sockaddr*)&client->server, sizeof client->server)) return failure("connecting");
  return send_all(*stream, request, sizeof *request);
}

// `received`: what the receiver measured.
static const char* exchange(int stream, const struct Request* request, uint64_t begin_ns, uint64_t end_ns, struct Received* received) {
  uint64_t sum = 0;
  const char* failed = NULL;
  if (request->kind == kind_up) {
    failed = send_stream(stream, request, end_ns, &sum);
    if (!failed) failed = receive_all(stream, received, sizeof *received);
    if (!failed && received->bytes != request->bytes) failed = "the server received another number of bytes";
  } else {
    failed = receive_stream(stream, request, end_ns, &received->sum);
    received->ns = now_ns() - begin_ns;
    received->bytes = request->bytes;
    if (!failed) failed = receive_all(stream, &sum, sizeof sum);
  }
  return failed || sum == received->sum ? failed : "the sums of both ends differ";
}

static void transfer(const struct Client* client, const char* name, const struct Request* request, uint64_t seconds) {
  int stream = -1;
  struct Received received = {0};
  const char* failed = ask(client, request, &stream);
  const uint64_t begin_ns = now_ns();
  if (!failed) failed = exchange(stream, request, begin_ns, begin_ns + seconds * 1000000000U, &received);
  if (failed) {
    const struct linger reset = {.l_onoff = 1};
    printf("transfer: %s failed %s\n", name, failed);
    if (stream >= 0) setsockopt(stream, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  } else {
    printf("transfer: %s ok %" PRIu64 " %" PRIu64 " %016" PRIx64 "\n", name, received.bytes, received.ns, received.sum);
  }
  if (stream >= 0) close(stream);
}

static const char* ask_status(const struct Client* client, struct Status* status) {
  const struct Request request = {magic, kind_status, 0, 0};
  int stream = -1;
  const char* failed = ask(client, &request, &stream);
  if (!failed) failed = receive_all(stream, status, sizeof *status);
  if (stream >= 0) close(stream);
  return failed;
}

static void await_idle(const struct Client* client, const char* name, uint64_t seconds) {
  const uint64_t begin_ns = now_ns();
  struct Status status;
  for (;;) {
    const char* failed = ask_status(client, &status);
    const int idle = !failed && status.open <= 1 && !status.half_open && !status.held_bytes;
    const uint64_t took_ns = now_ns() - begin_ns;
    if (!idle && took_ns < seconds * 1000000000U) {
      usleep(poll_ms * 1000);
      continue;
    }
    if (failed) {
      printf("transfer: %s failed %s\n", name, failed);
    } else if (!idle) {
      printf("transfer: %s failed %" PRIu64 " connections are open, %" PRIu64 " half open, %" PRIu64 " bytes are held\n", name,
             status.open - 1, status.half_open, status.held_bytes);
    } else {
      printf("transfer: %s ok 0 %" PRIu64 " 0 %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", name, took_ns, status.open,
             status.half_open, status.held_bytes, status.held_bytes_max, status.retransmissions);
    }
    return;
  }
}

// Sends the text to the world's switch, which takes effect within some microseconds.
static int set_network(const struct Client* client, const char* text) {
  unsigned char frame[header_bytes + line_bytes_max] = {0};
  struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(client->interface), .sll_halen = 6};
  const int packets = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  const size_t bytes = header_bytes + strlen(text);
  memcpy(to.sll_addr, switch_address, sizeof switch_address);
  memcpy(frame, switch_address, sizeof switch_address);
  frame[12] = ether_type >> 8;
  frame[13] = ether_type & 0xFF;
  memcpy(frame + header_bytes, text, strlen(text));
  const size_t padded = bytes < frame_bytes_min ? frame_bytes_min : bytes;
  const int good = packets >= 0 && sendto(packets, frame, padded, 0, (const struct sockaddr*)&to, sizeof to) == (ssize_t)padded;
  if (!good) perror("transfer: setting the network");
  close(packets);
  usleep(20000);
  return good;
}

static int step(const struct Client* client, const char* line) {
  char name[64], text[line_bytes_max];
  struct Request request = {.magic = magic};
  uint64_t seconds;
  unsigned ms;
  if (sscanf(line, "network %1023[^\n]", text) == 1) return set_network(client, text);
  if (sscanf(line, "pause %u", &ms) == 1) return usleep(ms * 1000) == 0;
  if (sscanf(line, "idle %63s %" SCNu64, name, &seconds) == 2) {
    await_idle(client, name, seconds);
    return 1;
  }
  if (sscanf(line, "%63s %63s %" SCNu64 " %" SCNu64 " %" SCNu64, text, name, &request.bytes, &request.seed, &seconds) != 5) return 0;
  request.kind = !strcmp(text, "up") ? kind_up : !strcmp(text, "down") ? kind_down : 0;
  if (!request.kind || request.bytes % 8) return 0;
  transfer(client, name, &request, seconds);
  return 1;
}

static int run(const struct Client* client, const char* path) {
  char line[line_bytes_max];
  FILE* const plan = fopen(path, "r");
  if (!plan) {
    perror(path);
    return 1;
  }
  while (fgets(line, sizeof line, plan)) {
    if (!step(client, line)) {
      fprintf(stderr, "transfer: a wrong line in the plan: %s", line);
      return 1;
    }
    fflush(stdout);
  }
  return 0;
}

int main(int count, char** words) {
  if (count == 3 && !strcmp(words[1], "serve")) return serve((uint16_t)atoi(words[2]));
  struct Client client = {.server = {.sin_family = AF_INET}};
  if (count == 6 && !strcmp(words[1], "run") && inet_pton(AF_INET, words[2], &client.server.sin_addr) == 1) {
    client.server.sin_port = htons((uint16_t)atoi(words[3]));
    client.interface = words[4];
    return run(&client, words[5]);
  }
  fputs("usage: see the head of transfer.c\n", stderr);
  return 2;
}
