// SPDX-License-Identifier: BSL-1.0
#include "control.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "machine_list.h"

enum {
  CHUNK_ENTRIES = 1024,
  CHUNK_BYTES = CHUNK_ENTRIES * ENTRY_BYTES,
  BLOCK_BYTES = 64,
  ANSWER_BYTES = 2 * LINE_BYTES_MAX,
  OUTPUT_BYTES = BLOCK_BYTES + CHUNK_BYTES + ANSWER_BYTES,
  MACHINE_BYTES_MAX = OUTPUT_BYTES - 16,
  STALLED_SECONDS = 10,
  WRONG_TOKENS_MAX = 3,
  TICK_NS = 1000000000,
};
enum BlockType { BLOCK_HEADER = 1, BLOCK_ENTRIES = 2, BLOCK_CORE_END = 4, BLOCK_END = 5, BLOCK_ALIVE = 6 };
enum Mode { MODE_LINES, MODE_GET, MODE_STREAM };
static const uint32_t block_magic = 0x4B4C424E;

struct Client {
  int fd;  // -1: a free place
  bool is_proven, is_skipping, is_ending, has_ended;
  uint32_t wrong_tokens;
  uint64_t active_ns, progress_ns;
  size_t input_used, output_used, output_at;
  enum Mode mode;
  uint32_t run;  // that is sent
  uint32_t core;
  uint64_t get_at, get_end;
  bool is_live, is_core_header_sent, is_finished;
  uint64_t block_number, alive_ns;
  uint64_t positions[CPUS_MAX];
  char input[LINE_BYTES_MAX + 1];
  unsigned char output[OUTPUT_BYTES];
};

struct Control {
  struct Tracer* tracer;
  int listener;
  char token[TOKEN_BYTES_MAX + 1];
  struct Client* clients;
};

static void end_client(struct Client* client, bool is_reset) {
  if (client->fd < 0) return;
  if (is_reset) {
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  close(client->fd);
  client->fd = -1;
}

__attribute__((format(printf, 2, 3))) static void answer(struct Client* client, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const size_t room = OUTPUT_BYTES - client->output_used;
  const int length = vsnprintf((char*)client->output + client->output_used, room, format, arguments);
  va_end(arguments);
  if (length < 0 || (size_t)length + 1 >= room) return end_client(client, true);
  client->output_used += (size_t)length;
  client->output[client->output_used++] = '\n';
}

// ---- lines ----

static void do_status(struct Control* control, struct Client* client) {
  struct Tracer* tracer = control->tracer;
  run_catch_up(tracer);
  uint64_t lines = 0, unwritten = 0;
  uint32_t clients = 0;
  for (uint32_t cpu = 0; tracer->is_there && cpu < tracer->host.cpus; ++cpu) {
    lines += tracer->cores[cpu].file.entries;
    unwritten += run_unwritten(tracer, cpu);
  }
  for (uint32_t i = 0; i < CLIENTS_MAX; ++i) clients += control->clients[i].fd >= 0;
  answer(client,
         "ok application=%s; version=" TRACER "; system=linux; kernel=%s; cores=%u; uptime_s=%" PRIu64
         "; boot_id=%s; run=%u; logging=%s; lines=%" PRIu64 "; unwritten=%" PRIu64
         "; generation=%u; clients=%u; control_core=none; token=%s; dialect=none; log=%" PRIu64
         "; log_full=stop; log_sample_us=%u; log_events=none",
         tracer->facts.application, tracer->host.release, tracer->host.cpus, monotonic_ns() / TICK_NS, tracer->host.boot_id,
         tracer->is_there ? tracer->facts.run : 0, tracer->is_on ? "on" : "off", lines, unwritten, tracer->machine.generation, clients,
         *control->token ? "yes" : "no", tracer->cores[0].file.entries_max, tracer->facts.sample_period_us);
}

static void do_start(struct Control* control, struct Client* client, char* value) {
  struct Tracer* tracer = control->tracer;
  const uint64_t bound_ns = value ? text_parse_time_ns(value) : 0;
  char error[512];
  if (value && !bound_ns) return answer(client, "error: start takes a time such as 10s; Linux counts no requests");
  if (!run_start(tracer, error, sizeof error)) return answer(client, "error: %s", error);
  if (bound_ns) tracer->end_ns = monotonic_ns() + bound_ns;
  if (bound_ns) return answer(client, "ok run=%u time_ns=%" PRIu64, tracer->facts.run, bound_ns);
  answer(client, "ok run=%u", tracer->facts.run);
}

static void do_stop(struct Control* control, struct Client* client) {
  struct Tracer* tracer = control->tracer;
  if (!tracer->is_on) return answer(client, "error: no run is on");
  run_stop(tracer);
  uint64_t lines = 0, unwritten = 0;
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) {
    lines += tracer->cores[cpu].file.entries;
    unwritten += run_unwritten(tracer, cpu);
  }
  answer(client, "ok run=%u lines=%" PRIu64 " unwritten=%" PRIu64, tracer->facts.run, lines, unwritten);
}

static void do_mark(struct Control* control, struct Client* client, const char* value) {
  static const char* const phases[] = {"preload", "warm_up", "window", "drain", "end"};
  for (uint8_t i = 0; value && i < sizeof phases / sizeof *phases; ++i) {
    if (strcmp(value, phases[i]) != 0) continue;
    if (!control->tracer->is_on) return answer(client, "ok no run");
    run_catch_up(control->tracer);  // so that the mark follows the records before it
    maker_mark(&control->tracer->cores[0].maker, monotonic_ns(), i);
    return answer(client, "ok");
  }
  answer(client, "error: '%.40s' is no phase of a load; accepted here: preload warm_up window drain end", value ? value : "");
}

static void do_get(struct Control* control, struct Client* client, const char* value) {
  struct Tracer* tracer = control->tracer;
  uint64_t core;
  if (!value || !text_parse_number(value, tracer->host.cpus - 1, &core)) {
    return answer(client, "error: there is no core '%.40s' (0 to %u)", value ? value : "", tracer->host.cpus - 1);
  }
  if (!tracer->is_there) return answer(client, "error: there is no run; start begins one");
  run_catch_up(tracer);
  unsigned char* at = client->output + client->output_used;
  run_header(tracer, (uint32_t)core, at);
  client->output_used += HEADER_BYTES;
  client->mode = MODE_GET;
  client->core = (uint32_t)core;
  client->run = tracer->facts.run;
  client->get_at = 0;
  client->get_end = tracer->cores[core].file.flushed;
}

static void do_stream(struct Control* control, struct Client* client, char* words) {
  const struct Tracer* tracer = control->tracer;
  char* rest = words;
  const char* mode = strsep(&rest, ",");
  if (!mode || (strcmp(mode, "after") != 0 && strcmp(mode, "live") != 0)) return answer(client, "error: stream takes after or live first");
  if (!tracer->is_there) return answer(client, "error: there is no run; start begins one");
  memset(client->positions, 0, sizeof client->positions);
  for (char* word; (word = strsep(&rest, ","));) {
    char* number = word;
    const char* name = strsep(&number, "=");
    uint64_t value, core;
    if (!number || !text_parse_number(number, UINT64_MAX >> 8, &value)) return answer(client, "error: '%.40s' is no position", word);
    if (strcmp(name, "run") == 0) {
      if (value != tracer->facts.run)
        return answer(client, "error: run %" PRIu64 " is gone; the present run is %u", value, tracer->facts.run);
    } else if (text_parse_number(name, tracer->host.cpus - 1, &core)) {
      client->positions[core] = value;
    } else {
      return answer(client, "error: there is no core '%.40s' (0 to %u)", name, tracer->host.cpus - 1);
    }
  }
  answer(client, "ok");
  client->mode = MODE_STREAM;
  client->is_live = strcmp(mode, "live") == 0;
  client->run = tracer->facts.run;
  client->core = 0;
  client->is_core_header_sent = client->is_finished = false;
  client->block_number = 0;
  client->alive_ns = monotonic_ns();
}

static void do_machine(struct Control* control, struct Client* client) {
  char* text = NULL;
  size_t bytes = 0;
  FILE* memory = open_memstream(&text, &bytes);
  const int status = memory ? machine_list_write(memory, control->tracer->card.interface) : -1;
  if (memory) fclose(memory);
  if (text) text[strcspn(text, "\n")] = 0;
  if (status != 0 || !text || bytes > MACHINE_BYTES_MAX) {
    answer(client, "error: the list cannot be made");
  } else {
    answer(client, "ok %s", text);
  }
  free(text);
}

static void do_token(struct Control* control, struct Client* client, const char* value) {
  if (!*control->token) return answer(client, "ok no token is needed");
  // The comparison takes the same time whichever byte differs.
  unsigned char differs = !value || strlen(value) != strlen(control->token);
  for (size_t i = 0; value && !differs && control->token[i]; ++i) differs |= (unsigned char)(value[i] ^ control->token[i]);
  client->is_proven |= !differs;
  if (!differs) return answer(client, "ok");
  answer(client, "error: wrong token");
  client->is_ending |= ++client->wrong_tokens >= WRONG_TOKENS_MAX;
}

static void do_line(struct Control* control, struct Client* client, char* line) {
  static const char help[] =
      "status; start[,TIME]; stop; clear; mark,WHAT; get,CORE; stream,after|live[,run=N][,CORE=POSITION...]; machine; rdtsc; token,TOKEN; "
      "help";
  line[strcspn(line, "\r")] = 0;
  while (*line == ' ') ++line;
  char* value = line;
  const char* name = strsep(&value, ",");
  if (strcmp(name, "token") == 0) return do_token(control, client, value);
  if (strcmp(name, "help") == 0) return answer(client, "ok %s", help);
  if (!client->is_proven) return answer(client, "error: a token is needed: token,TOKEN");
  if (strcmp(name, "status") == 0 || strcmp(name, "print") == 0) return do_status(control, client);
  if (strcmp(name, "start") == 0) return do_start(control, client, value);
  if (strcmp(name, "stop") == 0) return do_stop(control, client);
  if (strcmp(name, "mark") == 0) return do_mark(control, client, value);
  if (strcmp(name, "get") == 0) return do_get(control, client, value);
  if (strcmp(name, "stream") == 0) return do_stream(control, client, value);
  if (strcmp(name, "machine") == 0) return do_machine(control, client);
  if (strcmp(name, "rdtsc") == 0) {
    return answer(client, "ok tsc=%" PRIu64 "; tsc_hz=%d; now_ns=%" PRIu64 "; core=0", monotonic_ns(), TICKS_PER_SECOND, monotonic_ns());
  }
  if (strcmp(name, "clear") == 0) {
    run_clear(control->tracer);
    return answer(client, "ok");
  }
  answer(client, "error: there is no command '%.40s' here; accepted here: %s", name, help);
}

// ---- logs ----

static void put(unsigned char* at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) at[i] = (unsigned char)(value >> 8 * i);
}

/// Adds a block to the output, which MUST be empty. The payload is behind the place of the block's header already.
static void add_block(const struct Control* control, struct Client* client, enum BlockType type, uint32_t core, uint64_t position,
                      uint32_t payload_bytes, uint64_t count) {
  unsigned char* at = client->output + client->output_used;
  memset(at, 0, BLOCK_BYTES);
  put(at, block_magic, 4);
  at[4] = (unsigned char)type;
  put(at + 6, core, 2);
  put(at + 8, client->block_number++, 8);
  put(at + 16, position, 8);
  put(at + 24, payload_bytes, 4);
  put(at + 28, crc32c(0, at + BLOCK_BYTES, payload_bytes), 4);
  put(at + 32, count, 8);
  put(at + 40, client->run, 4);
  put(at + 48, control->tracer->host.boot_id_number, 8);
  put(at + 60, crc32c(0, at, 60), 4);
  client->output_used += BLOCK_BYTES + payload_bytes;
  client->alive_ns = monotonic_ns();
}

/// Reads entries of a core's file. Returns their number.
static uint32_t read_entries(const struct LogFile* file, uint64_t position, uint64_t end, unsigned char* into) {
  const uint64_t count = position >= end ? 0 : end - position < CHUNK_ENTRIES ? end - position : CHUNK_ENTRIES;
  if (!count) return 0;
  const ssize_t bytes = pread(file->fd, into, count * ENTRY_BYTES, HEADER_BYTES + (off_t)(position * ENTRY_BYTES));
  return bytes < 0 ? 0 : (uint32_t)bytes / ENTRY_BYTES;
}

static bool send_entries(const struct Control* control, struct Client* client, uint32_t core) {
  const struct LogFile* file = &control->tracer->cores[core].file;
  const uint64_t position = client->positions[core];
  const uint32_t count = read_entries(file, position, file->flushed, client->output + client->output_used + BLOCK_BYTES);
  if (!count) return false;
  add_block(control, client, BLOCK_ENTRIES, core, position, count * ENTRY_BYTES, count);
  client->positions[core] += count;
  return true;
}

static void fill_stream(const struct Control* control, struct Client* client) {
  const struct Tracer* tracer = control->tracer;
  const bool is_on = tracer->is_on;
  for (uint32_t core = 0; is_on && client->is_live && core < tracer->host.cpus; ++core) {
    if (send_entries(control, client, core)) return;
  }
  if (is_on) {
    if (monotonic_ns() - client->alive_ns >= TICK_NS) add_block(control, client, BLOCK_ALIVE, 0, 0, 0, 0);
    return;
  }
  if (client->core < tracer->host.cpus) {
    const uint64_t entries = tracer->cores[client->core].file.entries;
    if (send_entries(control, client, client->core)) return;
    if (!client->is_core_header_sent) {
      run_header(tracer, client->core, client->output + client->output_used + BLOCK_BYTES);
      add_block(control, client, BLOCK_HEADER, client->core, 0, HEADER_BYTES, 0);
      client->is_core_header_sent = true;
      return;
    }
    add_block(control, client, BLOCK_CORE_END, client->core, 0, 0, entries);
    client->is_core_header_sent = false;
    ++client->core;
    return;
  }
  uint64_t total = 0;
  for (uint32_t core = 0; core < tracer->host.cpus; ++core) total += tracer->cores[core].file.entries;
  add_block(control, client, BLOCK_END, 0, 0, 0, total);
  client->is_ending = true;
}

static void fill_get(const struct Control* control, struct Client* client) {
  const struct LogFile* file = &control->tracer->cores[client->core].file;
  const uint32_t count = read_entries(file, client->get_at, client->get_end, client->output);
  client->output_used = (size_t)count * ENTRY_BYTES;
  client->get_at += count;
  client->is_ending = client->get_at >= client->get_end;
  if (!count && !client->is_ending) end_client(client, true);  // the rest cannot be read
}

/// Makes the next part of a log, if all output is sent. Resets a client whose run is gone.
static void fill(const struct Control* control, struct Client* client) {
  if (client->mode == MODE_LINES || client->is_ending || client->output_used) return;
  if (!control->tracer->is_there || control->tracer->facts.run != client->run) return end_client(client, true);
  if (client->mode == MODE_GET) {
    fill_get(control, client);
  } else {
    fill_stream(control, client);
  }
}

// ---- connections ----

static void take_lines(struct Control* control, struct Client* client) {
  // One line at a time has its answer in the output, so the output is bounded and a slow reader is not read from.
  while (client->fd >= 0 && client->mode == MODE_LINES && !client->is_ending && !client->output_used) {
    char* end = memchr(client->input, '\n', client->input_used);
    if (!end) break;
    *end = 0;
    const size_t taken = (size_t)(end + 1 - client->input);
    if (client->is_skipping) {
      client->is_skipping = false;
      answer(client, "error: line too long");
    } else if (strlen(client->input) != taken - 1) {
      answer(client, "error: the line has a zero byte");
    } else {
      do_line(control, client, client->input);
    }
    memmove(client->input, client->input + taken, client->input_used - taken);
    client->input_used -= taken;
  }
  if (client->input_used == LINE_BYTES_MAX && !memchr(client->input, '\n', LINE_BYTES_MAX)) {
    client->is_skipping = true;
    client->input_used = 0;
  }
}

static void receive(struct Client* client) {
  const ssize_t bytes = recv(client->fd, client->input + client->input_used, LINE_BYTES_MAX - client->input_used, MSG_DONTWAIT);
  if (bytes > 0) {
    client->input_used += (size_t)bytes;
    client->active_ns = monotonic_ns();
  } else if (bytes == 0) {
    client->has_ended = true;
  } else if (errno != EAGAIN && errno != EINTR) {
    end_client(client, true);
  }
}

static void transmit(struct Client* client) {
  while (client->output_at < client->output_used) {
    const ssize_t bytes =
        send(client->fd, client->output + client->output_at, client->output_used - client->output_at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (bytes < 0) return end_client(client, true);
    client->output_at += (size_t)bytes;
    client->progress_ns = client->active_ns = monotonic_ns();
  }
  client->output_at = client->output_used = 0;
}

static void serve_client(struct Control* control, struct Client* client, short events) {
  enum { ROUNDS_MAX = 64 };  // so that one client does not keep the rings from being emptied
  // A client that is gone does not wait for the end of the run any more.
  if (events & (POLLHUP | POLLERR) && client->mode != MODE_LINES) return end_client(client, true);
  if (events & (POLLIN | POLLHUP | POLLERR) && client->input_used < LINE_BYTES_MAX && !client->has_ended) receive(client);
  for (int round = 0; client->fd >= 0 && round < ROUNDS_MAX; ++round) {
    take_lines(control, client);
    if (client->fd >= 0) fill(control, client);
    if (client->fd < 0 || !client->output_used) break;
    transmit(client);
    if (client->fd < 0 || client->output_used) break;
  }
  if (client->fd < 0) return;
  const bool is_idle = !client->output_used;
  const bool is_stalled = !is_idle && monotonic_ns() - client->progress_ns > (uint64_t)STALLED_SECONDS * TICK_NS;
  const bool is_unproven = !client->is_proven && monotonic_ns() - client->active_ns > (uint64_t)STALLED_SECONDS * TICK_NS;
  if (is_stalled || is_unproven) return end_client(client, true);
  // A client may end its side behind its last line, and still reads the answer. A stream that waits for the end of a run has none yet.
  const bool is_over = client->has_ended && client->mode == MODE_LINES && !memchr(client->input, '\n', client->input_used);
  if (is_idle && (client->is_ending || is_over)) end_client(client, false);
}

static void admit(struct Control* control) {
  const int fd = accept4(control->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  struct Client* place = NULL;
  const uint64_t now_ns = monotonic_ns();
  for (uint32_t i = 0; i < CLIENTS_MAX; ++i) {
    struct Client* client = &control->clients[i];
    const bool is_busy = client->fd >= 0 && (client->mode != MODE_LINES || client->output_used);
    if (is_busy) continue;
    if (!place || client->fd < 0 || (place->fd >= 0 && client->active_ns < place->active_ns)) place = client;
    if (place->fd < 0) break;
  }
  if (!place) {
    static const char full[] = "error: all 16 places are taken by clients at work\n";
    send(fd, full, sizeof full - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
    return;
  }
  end_client(place, true);
  memset(place, 0, offsetof(struct Client, positions));
  place->fd = fd;
  place->is_proven = !*control->token;
  place->active_ns = place->progress_ns = now_ns;
}

struct Control* control_listen(struct Tracer* tracer, const char* address, const char* token, char* error, size_t error_bytes) {
  char text[64];
  snprintf(text, sizeof text, "%s", address);
  char* colon = strrchr(text, ':');
  const char* port = colon ? colon + 1 : text;
  uint64_t number;
  struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (colon) *colon = 0;
  if (strlen(address) >= sizeof text || !text_parse_number(port, 65535, &number) || !number ||
      (colon && !inet_aton(text, &place.sin_addr))) {
    snprintf(error, error_bytes, "--listen takes [ADDRESS:]PORT such as 0.0.0.0:5002, not '%.60s'", address);
    return NULL;
  }
  place.sin_port = htons((uint16_t)number);
  struct Control* control = calloc(1, sizeof *control);
  struct Client* clients = calloc(CLIENTS_MAX, sizeof *clients);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (listener >= 0) setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!control || !clients || listener < 0 || bind(listener, (const struct sockaddr*)&place, sizeof place) ||
      listen(listener, CLIENTS_MAX)) {
    snprintf(error, error_bytes, "cannot listen on %s (%s); choose another port: --listen", address, strerror(errno));
    if (listener >= 0) close(listener);
    free(clients);
    free(control);
    return NULL;
  }
  for (uint32_t i = 0; i < CLIENTS_MAX; ++i) clients[i].fd = -1;
  control->tracer = tracer;
  control->listener = listener;
  control->clients = clients;
  snprintf(control->token, sizeof control->token, "%s", token);
  return control;
}

uint32_t control_wanted(struct Control* control, struct pollfd* fds) {
  control->tracer->is_live = false;
  fds[0] = (struct pollfd){.fd = control->listener, .events = POLLIN};
  for (uint32_t i = 0; i < CLIENTS_MAX; ++i) {
    const struct Client* client = &control->clients[i];
    short events = 0;
    const bool has_more = client->mode == MODE_GET || (client->mode == MODE_STREAM && !control->tracer->is_on);
    if (client->output_used || (client->fd >= 0 && has_more)) {
      events = POLLOUT;
    } else if (client->mode == MODE_LINES && !client->has_ended) {
      events = POLLIN;
    }
    control->tracer->is_live |= client->fd >= 0 && client->mode == MODE_STREAM && client->is_live;
    fds[i + 1] = (struct pollfd){.fd = client->fd, .events = events};
  }
  return CLIENTS_MAX + 1;
}

void control_serve(struct Control* control, const struct pollfd* fds, uint32_t count) {
  for (uint32_t i = 1; i < count; ++i) {
    struct Client* client = &control->clients[i - 1];
    if (client->fd >= 0 && client->fd == fds[i].fd) serve_client(control, client, fds[i].revents);
  }
  if (fds[0].revents & POLLIN) admit(control);
}
