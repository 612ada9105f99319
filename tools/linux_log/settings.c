// SPDX-License-Identifier: BSL-1.0
#include "settings.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum Source { FROM_ITR, FROM_ADAPTIVE, FROM_RX_RING, FROM_TX_RING, FROM_QUEUES, FROM_OFFLOAD, FROM_FILE, FROM_CPU_FILE };
enum { NUMBER_ITR = 1, NUMBER_TURBO = 4, NUMBER_BUSY_POLL = 18, NUMBER_BUSY_READ = 19 };

struct Row {
  const char* text;
  enum Source source;
  const char* path;     // of FROM_FILE and FROM_CPU_FILE: a file, with the interface's name or the CPU's number
  const char* choices;  // words that the file may have, as in `text`; NULL: a number
  uint32_t command;     // of FROM_OFFLOAD
};

#define GOVERNORS "performance|powersave|schedutil|ondemand|conservative|userspace|other"
#define PREFERENCES "default|performance|balance_performance|balance_power|power|other"
#define IDLE_GOVERNORS "menu|teo|ladder|haltpoll|other"
#define CPU_FOLDER "/sys/devices/system/cpu/cpu%u/cpufreq/"
#define NET_FOLDER "/sys/class/net/%s/"

// A row's place is its number. Number 0 is Neap's `idle`, here the deepest state that is enabled.
static const struct Row rows[] = {
    {"idle:idle_state:choice", FROM_FILE, "", NULL, 0},
    {"itr:itr_us::us:0=off|1=adaptive", FROM_ITR, NULL, NULL, 0},
    {"governor::choice::" GOVERNORS, FROM_CPU_FILE, CPU_FOLDER "scaling_governor", GOVERNORS, 0},
    {"epp::choice::" PREFERENCES, FROM_CPU_FILE, CPU_FOLDER "energy_performance_preference", PREFERENCES, 0},
    {"no_turbo::switch", FROM_FILE, "/sys/devices/system/cpu/intel_pstate/no_turbo", NULL, 0},
    {"frequency_min:::kHz", FROM_CPU_FILE, CPU_FOLDER "scaling_min_freq", NULL, 0},
    {"frequency_max:::kHz", FROM_CPU_FILE, CPU_FOLDER "scaling_max_freq", NULL, 0},
    {"rx_ring", FROM_RX_RING, NULL, NULL, 0},
    {"tx_ring", FROM_TX_RING, NULL, NULL, 0},
    {"queues", FROM_QUEUES, NULL, NULL, 0},
    {"gro::switch", FROM_OFFLOAD, NULL, NULL, ETHTOOL_GGRO},
    {"lro::switch", FROM_OFFLOAD, NULL, NULL, ETHTOOL_GFLAGS},
    {"tso::switch", FROM_OFFLOAD, NULL, NULL, ETHTOOL_GTSO},
    {"threaded_napi::switch", FROM_FILE, NET_FOLDER "threaded", NULL, 0},
    {"gro_flush_timeout:::ns", FROM_FILE, NET_FOLDER "gro_flush_timeout", NULL, 0},
    {"defer_hard_irqs", FROM_FILE, NET_FOLDER "napi_defer_hard_irqs", NULL, 0},
    {"adaptive_itr::switch", FROM_ADAPTIVE, NULL, NULL, 0},
    {"idle_governor::choice::" IDLE_GOVERNORS, FROM_FILE, "/sys/devices/system/cpu/cpuidle/current_governor", IDLE_GOVERNORS, 0},
    {"busy_poll:::us", FROM_FILE, "/proc/sys/net/core/busy_poll", NULL, 0},
    {"busy_read:::us", FROM_FILE, "/proc/sys/net/core/busy_read", NULL, 0},
};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)ROWS <= SETTINGS_MAX, "each row has a place");

uint32_t settings_count(void) { return ROWS; }
const char* settings_text(uint32_t number) { return rows[number].text; }
bool settings_is_of_cpu(uint32_t number) { return rows[number].source == FROM_CPU_FILE; }

static int open_file(const struct Settings* settings, const struct Row* row, uint32_t cpu) {
  char path[160];
  const char* place = strchr(row->path, '%');
  const int before = place ? (int)(place - row->path) : (int)strlen(row->path);
  if (place && row->source == FROM_CPU_FILE) {
    snprintf(path, sizeof path, "%.*s%u%s", before, row->path, cpu, place + 2);
  } else {
    snprintf(path, sizeof path, "%.*s%s%s", before, row->path, place ? settings->card->interface : "", place ? place + 2 : "");
  }
  return *path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

void settings_open(struct Settings* settings, const struct Card* card, uint32_t cpus) {
  settings->card = card;
  settings->cpus = cpus;
  for (uint32_t number = 0; number < ROWS; ++number) {
    const bool is_file = rows[number].source == FROM_FILE || rows[number].source == FROM_CPU_FILE;
    for (uint32_t cpu = 0; cpu < cpus; ++cpu) {
      const bool is_needed = is_file && (cpu == 0 || settings_is_of_cpu(number));
      settings->files[number][cpu] = is_needed ? open_file(settings, &rows[number], cpu) : -1;
      settings->values[number][cpu] = SETTING_ABSENT;
    }
  }
}

static int64_t number_of(const char* word, const char* choices) {
  int64_t number = 0;
  for (const char* at = choices; at; ++number) {
    const char* end = strchr(at, '|');
    const size_t length = end ? (size_t)(end - at) : strlen(at);
    if (!end || (strlen(word) == length && strncmp(word, at, length) == 0)) break;  // the last choice is "other"
    at = end + 1;
  }
  return number;
}

static int64_t read_file(int file, const char* choices) {
  char text[64];
  const ssize_t length = file < 0 ? -1 : pread(file, text, sizeof text - 1, 0);
  if (length <= 0) return SETTING_ABSENT;
  text[length] = 0;
  text[strcspn(text, "\n")] = 0;
  if (choices) return number_of(text, choices);
  char* end;
  const long long value = strtoll(text, &end, 10);
  return end == text || value < 0 ? SETTING_ABSENT : value;
}

/// The deepest idle state of CPU 0 that is enabled.
static int64_t deepest_state(void) {
  int64_t deepest = SETTING_ABSENT;
  for (int state = 0; state < IDLE_STATES_MAX; ++state) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cpuidle/state%d/disable", state);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) break;
    if (read_file(file, NULL) == 0) deepest = state;
    close(file);
  }
  return deepest;
}

static int64_t read_value(const struct Settings* settings, uint32_t number, uint32_t cpu) {
  const struct Row* row = &rows[number];
  if (number == 0) return deepest_state();
  switch (row->source) {
    case FROM_ITR:
      return card_itr_us(settings->card);
    case FROM_ADAPTIVE:
      // The driver of the 82599 takes and shows rx-usecs 1 for its adaptive interval.
      return settings->values[NUMBER_ITR][0] < 0 ? SETTING_ABSENT : settings->values[NUMBER_ITR][0] == 1;
    case FROM_RX_RING:
      return card_ring(settings->card, true);
    case FROM_TX_RING:
      return card_ring(settings->card, false);
    case FROM_QUEUES:
      return card_queues(settings->card);
    case FROM_OFFLOAD:
      return card_offload(settings->card, row->command);
    default:
      return read_file(settings->files[number][cpu], row->choices);
  }
}

void settings_read(struct Settings* settings, void (*changed)(void* context, uint32_t number, uint32_t cpu), void* context) {
  for (uint32_t number = 0; number < ROWS; ++number) {
    for (uint32_t cpu = 0; cpu < (settings_is_of_cpu(number) ? settings->cpus : 1); ++cpu) {
      const int64_t value = read_value(settings, number, cpu);
      if (value == settings->values[number][cpu]) continue;
      settings->values[number][cpu] = value;
      if (changed) changed(context, number, cpu);
    }
  }
}

void settings_fill(const struct Settings* settings, uint32_t cpu, uint32_t number, struct SettingsEntry* entry) {
  enum { TURBO_OFF, TURBO_ON, TURBO_UNKNOWN };
  memset(entry, 0, sizeof *entry);
  const int64_t itr_us = settings->values[NUMBER_ITR][0], no_turbo = settings->values[NUMBER_TURBO][0];
  const int64_t idle_state = settings->values[0][0];
  entry->changed = (uint8_t)number;
  entry->idle_state = idle_state < 0 ? 1 : (uint8_t)idle_state;
  entry->turbo = no_turbo < 0 ? TURBO_UNKNOWN : no_turbo ? TURBO_OFF : TURBO_ON;
  entry->itr_us = itr_us < 0 ? 0 : (uint32_t)itr_us;
  if (number == CHANGED_NOTHING) return;
  const int64_t value = settings->values[number][settings_is_of_cpu(number) ? cpu : 0];
  entry->card_value = value < 0 ? 0 : value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

bool settings_has_busy_poll(const struct Settings* settings) {
  return settings->values[NUMBER_BUSY_POLL][0] > 0 || settings->values[NUMBER_BUSY_READ][0] > 0;
}
