// SPDX-License-Identifier: BSL-1.0
// The counters that this CPU has, as perf events: one event for each counter and CPU. The BPF programs read them, and so does user space.
#pragma once

#include <stdint.h>

#include "record_maker.h"

enum { CPUS_MAX = 256 };

struct Counters {
  uint32_t present;             // a bit for each counter that any CPU has
  int fds[CPUS_MAX][COUNTERS];  // -1: not on this CPU
  uint64_t cpu_tsc_hz;          // 0: unknown
};

/// `packages`: the package of each CPU. CPUs of a package share the events of the package, so that their values are of one series.
void counters_open(struct Counters* counters, uint32_t cpus, const uint32_t* packages);
/// Reads the counters of all CPUs with a system call for each event. `into`: one for each CPU.
void counters_read(const struct Counters* counters, uint32_t cpus, struct CounterValues* into);
const char* counter_name(int counter);
