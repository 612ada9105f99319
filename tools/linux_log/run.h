// SPDX-License-Identifier: BSL-1.0
// A run: the time for which the log records, from start to stop. It joins the kernel's rings, the record makers and the files.
//
// The work of user space would disturb the run that is measured. So the raw entries of the rings are only copied while the run is on, which
// takes about 15 instructions an entry. Log entries are made of them when the run ends, or earlier if a client needs them or if
// RAW_KEPT_MAX of a core are waiting.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "card.h"
#include "counters.h"
#include "host.h"
#include "kernel_side.h"
#include "log_file.h"
#include "record_maker.h"
#include "settings.h"

enum { RAW_KEPT_MAX = 1 << 18 /* 16 MiB for each core, of which only what is used takes memory */ };

struct CoreRun {
  struct RawEntry* kept;  // RAW_KEPT_MAX places
  uint32_t kept_count, kept_at;
  struct RecordMaker maker;
  struct LogFile file;
  uint64_t lost;  // raw entries that found the ring full
  char text[HEADER_TEXT_BYTES];
};

/// Frames of a queue up to its last raw entry.
struct QueueSeen {
  uint64_t rx_packets, tx_packets;
};

struct Tracer {
  struct Host host;
  struct Card card;
  struct Counters counters;
  struct Settings settings;
  struct KernelSide kernel;
  struct Machine machine;
  struct RunFacts facts;
  struct CoreRun* cores;
  const char* out;       // folder; NULL: the logs stay in memory
  bool is_on, is_there;  // a run is on; there is a run, on or finished
  bool is_reported;      // a problem was printed already
  bool is_live;          // a client follows the logs while the run is on
  uint32_t runs;         // since boot
  uint64_t end_ns;       // of the run that is on; 0: none
  uint64_t settings_due_ns;
  uint64_t polls_until_ns;  // the hook for polls stays attached until then
  struct QueueSeen seen[QUEUES_MAX];
  int64_t queues;  // for which the interrupt numbers were read
  uint32_t drain_period_ms, drain_period_ms_max;
};

/// Begins a run and empties the logs. Returns false, and one sentence in `error`.
bool run_start(struct Tracer* tracer, char* error, size_t error_bytes);
/// Empties the kernel's rings, and records changes of settings. MUST be called every `drain_period_ms`.
void run_drain(struct Tracer* tracer);
/// Empties the rings and brings the logs up to date.
void run_catch_up(struct Tracer* tracer);
/// Ends the run and writes the headers.
void run_stop(struct Tracer* tracer);
/// Discards the run.
void run_clear(struct Tracer* tracer);
/// Entries that did not fit into the rings or the log.
uint64_t run_unwritten(const struct Tracer* tracer, uint32_t core);
/// Writes the header of a core's file as of now.
void run_header(const struct Tracer* tracer, uint32_t core, unsigned char* into);
