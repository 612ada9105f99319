// SPDX-License-Identifier: BSL-1.0
// A run: the time for which the log records, from start to stop. It joins the kernel's rings, the record makers and the files.
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

struct CoreRun {
  struct RecordMaker maker;
  struct LogFile file;
  uint64_t lost;  // raw entries that found the ring full
  char text[HEADER_TEXT_BYTES];
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
  const char* out;  // folder; NULL: the logs stay in memory
  bool is_on, is_there;  // a run is on; there is a run, on or finished
  bool is_reported;      // a problem was printed already
  uint32_t runs;         // since boot
  uint64_t end_ns;       // of the run that is on; 0: none
  uint64_t settings_due_ns;
  int64_t queues;        // for which the interrupt numbers were read
  uint32_t drain_period_ms, drain_period_ms_max;
};

/// Begins a run and empties the logs. Returns false, and one sentence in `error`.
bool run_start(struct Tracer* tracer, char* error, size_t error_bytes);
/// Moves what the kernel has written into the logs, and records changes of settings. MUST be called every `drain_period_ms`.
void run_drain(struct Tracer* tracer);
/// Ends the run and writes the headers.
void run_stop(struct Tracer* tracer);
/// Discards the run.
void run_clear(struct Tracer* tracer);
/// Entries that did not fit into the rings or the log.
uint64_t run_unwritten(const struct Tracer* tracer, uint32_t core);
/// Writes the header of a core's file as of now.
void run_header(const struct Tracer* tracer, uint32_t core, unsigned char* into);
