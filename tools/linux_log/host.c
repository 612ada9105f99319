// SPDX-License-Identifier: BSL-1.0
#include "host.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "format_text.h"  // tools/linux_log/build.py makes it from tools/log/format.json

static uint64_t clock_ns(clockid_t clock) {
  struct timespec at;
  clock_gettime(clock, &at);
  return (uint64_t)at.tv_sec * 1000000000U + (uint64_t)at.tv_nsec;
}

uint64_t monotonic_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
uint64_t wall_clock_ns(void) { return clock_ns(CLOCK_REALTIME); }

struct ClockPair clock_pair(void) {
  enum { TRIES = 5 };
  struct ClockPair best = {0};
  uint64_t best_gap_ns = UINT64_MAX;
  // An interrupt between the two readings would separate them. The closest of some readings counts.
  for (int i = 0; i < TRIES; ++i) {
    const uint64_t before_ns = monotonic_ns(), tsc = __rdtsc(), gap_ns = monotonic_ns() - before_ns;
    if (gap_ns >= best_gap_ns) continue;
    best_gap_ns = gap_ns;
    best = (struct ClockPair){.ns = before_ns + gap_ns / 2, .tsc = tsc};
  }
  return best;
}

/// Adds the raw TSC's rate and its value at tick 0 of the log's clock, so that times of other programs can be placed in the log.
static void add_raw_tsc(struct Text* text, const struct RunFacts* facts) {
  const uint64_t ns = facts->end.ns - facts->begin.ns, ticks = facts->end.tsc - facts->begin.tsc;
  if (facts->end.ns <= facts->begin.ns || facts->end.tsc <= facts->begin.tsc) return;
  const uint64_t hz = (uint64_t)((unsigned __int128)ticks * TICKS_PER_SECOND / ns);
  const uint64_t since_tick_0 = (uint64_t)((unsigned __int128)facts->end.ns * ticks / ns);
  if (hz && since_tick_0 <= facts->end.tsc) {
    text_add(text, ",\"raw_tsc\":{\"hz\":%" PRIu64 ",\"at_tick_0\":%" PRIu64 "}", hz, facts->end.tsc - since_tick_0);
  }
}

/// Makes a name that a header may have: small letters, digits and underscores.
static void make_name(const char* from, char* into) {
  size_t used = 0;
  for (; *from && used < NAME_BYTES - 1; ++from) {
    if (isalnum((unsigned char)*from)) {
      into[used++] = (char)tolower((unsigned char)*from);
    } else if (used && into[used - 1] != '_') {
      into[used++] = '_';
    }
  }
  into[used] = 0;
}

static void read_idle_states(struct Host* host) {
  host->polling_state = UINT32_MAX;
  for (; host->idle_state_count < IDLE_STATES_MAX; ++host->idle_state_count) {
    char path[96], name[64];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cpuidle/state%u/name", host->idle_state_count);
    if (!text_read_line(path, name, sizeof name)) break;
    char* into = host->idle_states[host->idle_state_count];
    make_name(name, into);
    if (!*into) snprintf(into, NAME_BYTES, "state%u", host->idle_state_count);
    if (strcmp(into, "poll") == 0) host->polling_state = host->idle_state_count;
  }
  host->cpuidle_state_count = host->idle_state_count;
  if (host->idle_state_count) return;
  // Without a cpuidle driver, the kernel reports state 1 for its default, which is HLT or MWAIT for C1.
  snprintf(host->idle_states[0], NAME_BYTES, "poll");
  snprintf(host->idle_states[1], NAME_BYTES, "halt");
  host->idle_state_count = 2;
}

static void read_cpu(struct Host* host) {
  FILE* file = fopen("/proc/cpuinfo", "re");
  if (!file) return;
  char line[512];
  while (!*host->cpu && fgets(line, sizeof line, file)) {
    const char* value = strchr(line, ':');
    if (value && strncmp(line, "model name", 10) == 0)
      snprintf(host->cpu, sizeof host->cpu, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
  }
  fclose(file);
}

void host_read(struct Host* host) {
  memset(host, 0, sizeof *host);
  const long cpus = sysconf(_SC_NPROCESSORS_CONF);
  host->cpus = cpus < 1 ? 1 : (uint32_t)cpus;
  for (uint32_t cpu = 0; cpu < host->cpus && cpu < CPUS_MAX; ++cpu) {
    char path[96], number[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/physical_package_id", cpu);
    const long package = text_read_line(path, number, sizeof number) ? strtol(number, NULL, 10) : 0;
    host->package_of[cpu] = package < 0 || package >= CPUS_MAX ? 0 : (uint32_t)package;
    if (host->package_of[cpu] >= host->packages) host->packages = host->package_of[cpu] + 1;
  }
  char id[64];
  size_t used = 0;
  if (!text_read_line("/proc/sys/kernel/random/boot_id", id, sizeof id)) snprintf(id, sizeof id, "0000000000000000");
  for (const char* at = id; *at && used < 16; ++at) {
    if (isxdigit((unsigned char)*at)) host->boot_id[used++] = (char)tolower((unsigned char)*at);
  }
  host->boot_id_number = strtoull(host->boot_id, NULL, 16);
  struct utsname system;
  if (uname(&system) == 0) snprintf(host->release, sizeof host->release, "%s", system.release);
  text_read_line("/proc/cmdline", host->command_line, sizeof host->command_line);
  read_cpu(host);
  read_idle_states(host);
}

void host_card_counters(const struct Card* card, char* into) {
  struct Text text = {.at = into, .bytes = COUNTED_TEXT_BYTES - 2};
  text_add(&text, "{");
  for (uint32_t i = 0; i < card->statistics; ++i) {
    char name[NAME_BYTES];
    make_name(card->names[i], name);
    if (!card->values[i] || strstr(name, "_queue_") || !*name) continue;
    const size_t before = text.used;
    text_add(&text, "%s\"ixgbe.%s\":%" PRIu64, text.used > 1 ? "," : "", name, card->values[i]);
    if (text.is_cut) {
      into[before] = 0;
      text.used = before;
      break;
    }
  }
  into[text.used] = '}';
  into[text.used + 1] = 0;
}

static uint64_t number_in(const char* path, int base) {
  char line[64];
  return text_read_line(path, line, sizeof line) ? strtoull(line, NULL, base) : 0;
}

static void add_card(struct Text* text, const struct Card* card, const struct Settings* settings) {
  char path[96];
  snprintf(path, sizeof path, "/sys/class/net/%s/device/vendor", card->interface);
  const uint64_t vendor = number_in(path, 16);
  snprintf(path, sizeof path, "/sys/class/net/%s/device/device", card->interface);
  const uint64_t device = number_in(path, 16);
  snprintf(path, sizeof path, "/sys/class/net/%s/device/revision", card->interface);
  const uint64_t revision = number_in(path, 16);
  const int64_t queues = card_queues(settings->card);
  text_add(text, ",\"card\":{\"name\":\"ixgbe\",\"id\":\"0x%" PRIx64 "\",\"revision\":%" PRIu64, vendor << 16 | device, revision);
  if (queues >= 0) text_add(text, ",\"queues\":%" PRId64, queues);
  snprintf(path, sizeof path, "/sys/class/net/%s/carrier", card->interface);
  const bool is_up = number_in(path, 10) == 1;
  snprintf(path, sizeof path, "/sys/class/net/%s/speed", card->interface);
  text_add(text, "},\"link\":{\"up\":%s", is_up ? "true" : "false");
  if (is_up) text_add(text, ",\"mbps\":%" PRIu64, number_in(path, 10));
  text_add(text, "}");
}

static void add_idle_states(struct Text* text, const struct Host* host) {
  text_add(text, ",\"idle_states\":[");
  for (uint32_t i = 0; i < host->idle_state_count; ++i) text_add(text, "%s\"%s\"", i ? "," : "", host->idle_states[i]);
  text_add(text, "],\"c_states\":[");
  for (uint32_t i = 0; i < host->idle_state_count; ++i) {
    char path[96], latency[32], target[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cpuidle/state%u/latency", i);
    if (!text_read_line(path, latency, sizeof latency)) break;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cpuidle/state%u/residency", i);
    if (!text_read_line(path, target, sizeof target)) break;
    text_add(text, "%s{\"name\":\"%s\",\"wake_up_us\":%lu,\"target_us\":%lu,\"source\":\"cpuidle\"}", i ? "," : "", host->idle_states[i],
             strtoul(latency, NULL, 10), strtoul(target, NULL, 10));
  }
  text_add(text, "]");
}

static void add_types(struct Text* text) {
  text_add(text, ",\"flags\":%s,\"lines\":%s,\"fields\":{\"record\":\"" RECORD_FORM "\",%s},\"settings\":{", FLAGS_TEXT, LINES_TEXT,
           OTHER_FIELDS_TEXT);
  for (uint32_t number = 0; number < settings_count(); ++number) {
    text_add(text, "%s\"%u\":\"%s\"", number ? "," : "", number, settings_text(number));
  }
  text_add(text, "}");
}

void host_header_text(const struct Host* host, const struct Card* card, const struct Counters* counters, const struct Settings* settings,
                      const struct RunFacts* facts, uint32_t core, char* into) {
  struct Text text = {.at = into, .bytes = HEADER_TEXT_BYTES - 80};
  text_add(&text,
           "{\"format\":\"neap-log\",\"version\":1,\"system\":\"linux\",\"boot_id\":\"%s\",\"run\":%u,\"application\":", host->boot_id,
           facts->run);
  text_add_string(&text, facts->application);
  text_add(&text, ",\"tracer\":\"" TRACER "\",\"kernel\":");
  text_add_string(&text, host->release);
  text_add(&text, ",\"driver\":\"ixgbe\",\"interface\":");
  text_add_string(&text, card->interface);
  text_add(&text, ",\"core\":%u,\"cores\":%u,\"package\":%u,\"packages\":%u,\"cpu\":", core, host->cpus, host->package_of[core],
           host->packages);
  text_add_string(&text, host->cpu);
  text_add(&text, ",\"tsc_hz\":%d", TICKS_PER_SECOND);
  // The clock of the entries began at the boot, so its tick 0 is the moment of the boot. The difference is that of this moment.
  text_add(&text, ",\"wall_clock_at_boot_ns\":%" PRIu64 ",\"tsc_at_boot\":0", wall_clock_ns() - monotonic_ns());
  add_raw_tsc(&text, facts);
  const bool is_energy = counters->present >> COUNTER_PACKAGE_ENERGY & 1, is_dram = counters->present >> COUNTER_DRAM_ENERGY & 1;
  if (is_energy) text_add(&text, ",\"energy_unit_exponent\":%d", ENERGY_UNIT_EXPONENT);
  if (!is_energy) text_add(&text, ",\"energy_unit_exponent\":null");
  if (is_dram) text_add(&text, ",\"dram_energy_unit_exponent\":%d", ENERGY_UNIT_EXPONENT);
  if (!is_dram) text_add(&text, ",\"dram_energy_unit_exponent\":null");
  text_add(&text, ",\"counters\":[");
  bool is_first = true;
  for (int i = 0; i < COUNTERS; ++i) {
    if (!(counters->present >> i & 1)) continue;
    text_add(&text, "%s\"%s\"", is_first ? "" : ",", counter_name(i));
    is_first = false;
  }
  text_add(&text, "],\"unknown\":[\"requests\",\"rx_descriptors\",\"tx_descriptors\"],\"sample_period_us\":%u,\"when_full\":\"stop\"",
           facts->sample_period_us);
  text_add(&text, ",\"command_line\":");
  text_add_string(&text, host->command_line);
  add_card(&text, card, settings);
  if (*facts->counters_start) text_add(&text, ",\"card_counters_start\":%s", facts->counters_start);
  if (*facts->counters_stop) text_add(&text, ",\"card_counters_stop\":%s", facts->counters_stop);
  add_idle_states(&text, host);
  add_types(&text);
  text_add(&text, "}");
}
