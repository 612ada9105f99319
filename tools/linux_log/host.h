// SPDX-License-Identifier: BSL-1.0
// Facts about this Linux that do not change while neap-trace runs, and the text of a log's header.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "card.h"
#include "counters.h"
#include "settings.h"
#include "text.h"

enum { COUNTED_TEXT_BYTES = 2560, HEADER_TEXT_BYTES = HEADER_BYTES };
#define TRACER "neap-trace 0.1.0"

struct Host {
  uint32_t cpus, packages;
  uint32_t package_of[CPUS_MAX];
  char boot_id[20];  // 16 hexadecimal digits
  uint64_t boot_id_number;
  char release[80], cpu[128], command_line[2048];
  char idle_states[IDLE_STATES_MAX][NAME_BYTES];   // by number
  uint32_t idle_state_count, cpuidle_state_count;  // of cpuidle: 0 if it has no driver
  uint32_t polling_state;                          // UINT32_MAX: none
};

/// The same moment on the log's clock and on the CPU's raw TSC.
struct ClockPair {
  uint64_t ns, tsc;
};

/// Facts of one run for the header's text.
struct RunFacts {
  struct ClockPair begin, end;  // of the run, or the last two readings
  uint32_t run, sample_period_us;
  char application[64];
  char counters_start[COUNTED_TEXT_BYTES], counters_stop[COUNTED_TEXT_BYTES];  // JSON objects; empty: none
};

void host_read(struct Host* host);
/// Writes the card's counters that are not a queue's and not 0 as a JSON object.
void host_card_counters(const struct Card* card, char* into);
/// Writes the JSON text of a core's header to `into`, HEADER_TEXT_BYTES.
void host_header_text(const struct Host* host, const struct Card* card, const struct Counters* counters, const struct Settings* settings,
                      const struct RunFacts* facts, uint32_t core, char* into);
uint64_t monotonic_ns(void);
uint64_t wall_clock_ns(void);
struct ClockPair clock_pair(void);
