// SPDX-License-Identifier: BSL-1.0
// Traffic between a guest and its network, with every byte compared: one program for both ends.
//
// A card that segments, joins and checks must not change the data. A stream is a pattern in which no eight bytes occur twice, so a
// misplaced byte is found. The receiver compares each word, and the sender sends the total at the end. A stream consists of blocks, each
// behind a header. An empty block ends the stream, so that a broken connection is not mistaken for a whole stream. The receiver sends its
// count back.
//
//   traffic serve PORT                                   both kinds of service, until killed
//   traffic up|down HOST PORT SECONDS FLOWS [unchecked]  TCP to or from the server: prints "bytes N ms N"
//   traffic echo HOST PORT SECONDS IN_FLIGHT BYTES       UDP there and back: prints "answers N again N ms N median_us N p99_us N"
//
// `unchecked` sends one block repeatedly and compares nothing. It is for measurements, because comparing takes most of the time. A wrong
// byte, a truncated stream, or SILENCE_SECONDS without data ends the program with status 1 and one line on standard error.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { block_words = 8192, most_flows = 64, most_in_flight = 1024, most_datagram_bytes = 9000, most_times = 1 << 22 };
enum { silence_seconds = 60, resend_ms = 1000, nobody_yet_tries = 50 };

struct Request {
  uint64_t down;  // the server sends
  uint64_t unchecked;
  uint64_t ms;
};

struct Header {
  uint64_t number;
  uint64_t bytes;  // 0 in the last block
};

static uint64_t block[block_words];

static void fail(const char* what) {
  fprintf(stderr, "traffic: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000U + (uint64_t)at.tv_nsec;
}

static uint64_t word(uint64_t number, uint64_t index) { return (number * block_words + index + 1) * 0x9E3779B97F4A7C15U; }

static void send_all(int stream, const void* from, size_t bytes) {
  for (const char* at = from; bytes;) {
    const ssize_t sent = send(stream, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) fail("sending");
    at += sent;
    bytes -= (size_t)sent;
  }
}

static void receive_all(int stream, void* into, size_t bytes) {
  errno = 0;
  if (recv(stream, into, bytes, MSG_WAITALL) != (ssize_t)bytes) fail("the stream broke off");
}

static uint64_t send_stream(int stream, const struct Request* request) {
  const uint64_t end = now_ns() + request->ms * 1000000U;
  struct Header header = {0, sizeof block};
  while (now_ns() < end) {
    if (!request->unchecked || header.number == 0) {
      for (uint64_t i = 0; i < block_words; i++) block[i] = word(header.number, i);
    }
    send_all(stream, &header, sizeof header);
    send_all(stream, block, sizeof block);
    header.number++;
  }
  const uint64_t sent = header.number * sizeof block;
  header.bytes = 0;
  send_all(stream, &header, sizeof header);
  uint64_t received = 0;
  receive_all(stream, &received, sizeof received);
  if (received != sent) fail("the other end counts other bytes");
  return sent;
}

static uint64_t receive_stream(int stream, const struct Request* request) {
  uint64_t number = 0;
  for (;; number++) {
    struct Header header;
    receive_all(stream, &header, sizeof header);
    if (header.number != number || (header.bytes && header.bytes != sizeof block)) fail("a wrong byte in a header");
    if (!header.bytes) break;
    receive_all(stream, block, sizeof block);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < block_words && !request->unchecked; i++) wrong |= block[i] ^ word(number, i);
    if (wrong) fail("a wrong byte");
  }
  const uint64_t received = number * sizeof block;
  send_all(stream, &received, sizeof received);
  return received;
}

static int open_socket(int type) {
  const int made = socket(AF_INET6, type | SOCK_CLOEXEC, 0);
  const struct timeval silence = {.tv_sec = silence_seconds};
  if (made < 0 || setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence) ||
      setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence)) {
    fail("socket");
  }
  return made;
}

static int listening(int type, uint16_t port) {
  const int made = open_socket(type);
  const int yes = 1;
  const struct timeval forever = {0};
  const struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT};
  if (setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) || setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever) ||
      bind(made, (const struct sockaddr*)&address, sizeof address)) {
    fail("bind");
  }
  return made;
}

static void answer_datagrams(int from) {
  static char data[most_datagram_bytes];
  for (;;) {
    struct sockaddr_in6 peer;
    socklen_t peer_bytes = sizeof peer;
    const ssize_t bytes = recvfrom(from, data, sizeof data, 0, (struct sockaddr*)&peer, &peer_bytes);
    if (bytes > 0) sendto(from, data, (size_t)bytes, 0, (struct sockaddr*)&peer, peer_bytes);
  }
}

static void serve(uint16_t port) {
  signal(SIGCHLD, SIG_IGN);
  const int datagrams = listening(SOCK_DGRAM, port);
  const int listener = listening(SOCK_STREAM, port);
  if (listen(listener, most_flows)) fail("listen");
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    answer_datagrams(datagrams);
  }
  for (;;) {
    const int stream = accept(listener, NULL, NULL);
    if (stream < 0) continue;
    if (fork() == 0) {
      const struct timeval silence = {.tv_sec = silence_seconds};
      setsockopt(stream, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
      setsockopt(stream, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
      struct Request request;
      receive_all(stream, &request, sizeof request);
      if (request.down) {
        send_stream(stream, &request);
      } else {
        receive_stream(stream, &request);
      }
      exit(0);
    }
    close(stream);
  }
}

// Returns an IPv4 address in its IPv6-mapped form, or an IPv6 address (a link-local address with "%INTERFACE" is not supported).
static struct sockaddr_in6 address_of(const char* host, uint16_t port) {
  struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  char mapped[64];
  snprintf(mapped, sizeof mapped, "%s%s", strchr(host, ':') ? "" : "::ffff:", host);
  if (inet_pton(AF_INET6, mapped, &address.sin6_addr) != 1) fail("not an address");
  return address;
}

static int connected(int type, const char* host, uint16_t port) {
  const struct sockaddr_in6 address = address_of(host, port);
  for (int i = 0; i < nobody_yet_tries; i++) {
    const int made = open_socket(type);
    if (connect(made, (const struct sockaddr*)&address, sizeof address) == 0) return made;
    if (errno != ECONNREFUSED) fail("connect");
    close(made);
    usleep(100000);
  }
  fail("nobody listens");
  return -1;
}

static uint64_t one_flow(const char* host, uint16_t port, const struct Request* request) {
  const int stream = connected(SOCK_STREAM, host, port);
  send_all(stream, request, sizeof *request);
  return request->down ? receive_stream(stream, request) : send_stream(stream, request);
}

static int stream_flows(const char* host, uint16_t port, const struct Request* request, int flows) {
  const uint64_t start = now_ns();
  int counts[2];
  if (pipe(counts)) fail("pipe");
  for (int i = 0; i < flows; i++) {
    if (fork() == 0) {
      const uint64_t bytes = one_flow(host, port, request);
      exit(write(counts[1], &bytes, sizeof bytes) != sizeof bytes);
    }
  }
  close(counts[1]);
  uint64_t total = 0;
  int good = 0;
  for (uint64_t bytes; read(counts[0], &bytes, sizeof bytes) == sizeof bytes; good++) total += bytes;
  printf("bytes %llu ms %llu\n", (unsigned long long)total, (unsigned long long)((now_ns() - start) / 1000000U));
  return good == flows ? 0 : 1;
}

static int ascending(const void* a, const void* b) {
  const uint32_t x = *(const uint32_t*)a, y = *(const uint32_t*)b;
  return (x > y) - (x < y);
}

struct Probe {
  uint32_t slot;
  uint32_t turn;
  uint64_t at_ns;
};

static void send_probe(int peer, char* data, size_t bytes, struct Probe* probe, uint32_t slot) {
  *probe = (struct Probe){slot, probe->turn + 1, now_ns()};
  memcpy(data, probe, sizeof *probe);
  send(peer, data, bytes, 0);
}

// Keeps `in_flight` datagrams in flight. If no answer arrives for a second, all of them are sent again, and counted as `again`. Answers to
// the first copies are then ignored.
static int echo(const char* host, uint16_t port, uint64_t seconds, int in_flight, size_t bytes) {
  static struct Probe sent[most_in_flight];
  static char data[most_datagram_bytes];
  uint32_t* const times = malloc(most_times * sizeof *times);
  const int peer = connected(SOCK_DGRAM, host, port);
  if (!times) fail("malloc");
  uint64_t answers = 0, again = 0;
  const uint64_t start = now_ns(), end = start + seconds * 1000000000U;
  for (uint64_t now = start; now < end; now = now_ns()) {
    struct pollfd wait = {.fd = peer, .events = POLLIN};
    if (answers == 0 || poll(&wait, 1, resend_ms) == 0) {
      if (answers && now > end) break;
      for (uint32_t slot = 0; slot < (uint32_t)in_flight; slot++) {
        send_probe(peer, data, bytes, &sent[slot], slot);
        again += answers != 0;
      }
      if (answers == 0 && poll(&wait, 1, resend_ms) == 0) continue;
    }
    while (recv(peer, data, bytes, MSG_DONTWAIT) == (ssize_t)bytes) {
      struct Probe probe;
      memcpy(&probe, data, sizeof probe);
      if (probe.slot >= (uint32_t)in_flight) fail("a wrong byte in an answer");
      if (probe.turn != sent[probe.slot].turn) continue;
      now = now_ns();
      times[answers++ % most_times] = (uint32_t)((now - probe.at_ns) / 1000U);
      send_probe(peer, data, bytes, &sent[probe.slot], probe.slot);
    }
  }
  const uint64_t ms = (now_ns() - start) / 1000000U, kept = answers < most_times ? answers : most_times;
  if (answers == 0) fail("no answer");
  qsort(times, kept, sizeof *times, ascending);
  printf("answers %llu again %llu ms %llu median_us %u p99_us %u\n", (unsigned long long)answers, (unsigned long long)again,
         (unsigned long long)ms, times[kept / 2], times[kept * 99 / 100]);
  return 0;
}

int main(int count, char** words) {
  const char* what = count > 1 ? words[1] : "";
  if (count == 3 && !strcmp(what, "serve")) serve((uint16_t)atoi(words[2]));
  if (count >= 6 && (!strcmp(what, "up") || !strcmp(what, "down"))) {
    const struct Request request = {.down = *what == 'd', .unchecked = count > 6, .ms = (uint64_t)(atof(words[4]) * 1000)};
    const int flows = atoi(words[5]);
    if (flows >= 1 && flows <= most_flows) return stream_flows(words[2], (uint16_t)atoi(words[3]), &request, flows);
  }
  if (count == 7 && !strcmp(what, "echo")) {
    const int in_flight = atoi(words[5]), bytes = atoi(words[6]);
    if (in_flight >= 1 && in_flight <= most_in_flight && bytes >= (int)sizeof(struct Probe) && bytes <= most_datagram_bytes) {
      return echo(words[2], (uint16_t)atoi(words[3]), (uint64_t)atoi(words[4]), in_flight, (size_t)bytes);
    }
  }
  fputs("usage: see the head of traffic.c\n", stderr);
  return 2;
}
