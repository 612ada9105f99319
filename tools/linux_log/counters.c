// SPDX-License-Identifier: BSL-1.0
#include "counters.h"

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// The kernel's description of a counter: an event of the CPU's own PMU, or a name in sysfs.
struct Source {
  const char* name;
  const char* pmu;  // folder in /sys/bus/event_source/devices; NULL: a hardware event
  const char* event;
  uint64_t config;
};
static const struct Source sources[COUNTERS] = {
    [COUNTER_INSTRUCTIONS] = {"instructions", NULL, NULL, PERF_COUNT_HW_INSTRUCTIONS},
    [COUNTER_CYCLES] = {"cycles", NULL, NULL, PERF_COUNT_HW_CPU_CYCLES},
    [COUNTER_REFERENCE_CYCLES] = {"reference_cycles", NULL, NULL, PERF_COUNT_HW_REF_CPU_CYCLES},
    [COUNTER_LLC_MISSES] = {"llc_misses", NULL, NULL, PERF_COUNT_HW_CACHE_MISSES},
    [COUNTER_PACKAGE_ENERGY] = {"package_energy", "power", "energy-pkg", 0},
    [COUNTER_DRAM_ENERGY] = {"dram_energy", "power", "energy-ram", 0},
    [COUNTER_CORE_C3] = {"core_c3", "cstate_core", "c3-residency", 0},
    [COUNTER_CORE_C6] = {"core_c6", "cstate_core", "c6-residency", 0},
    [COUNTER_CORE_C7] = {"core_c7", "cstate_core", "c7-residency", 0},
    [COUNTER_PACKAGE_C2] = {"package_c2", "cstate_pkg", "c2-residency", 0},
    [COUNTER_PACKAGE_C3] = {"package_c3", "cstate_pkg", "c3-residency", 0},
    [COUNTER_PACKAGE_C6] = {"package_c6", "cstate_pkg", "c6-residency", 0},
    [COUNTER_PACKAGE_C7] = {"package_c7", "cstate_pkg", "c7-residency", 0},
};

static int open_event(uint32_t type, uint64_t config, uint32_t cpu) {
  struct perf_event_attr attributes = {.type = type, .size = sizeof attributes, .config = config};
  return (int)syscall(SYS_perf_event_open, &attributes, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/// Reads a number or a text "event=0x02" of sysfs. Returns false if it is not there.
static bool read_config(const char* pmu, const char* path, const char* prefix, uint64_t* value) {
  char name[256], text[64];
  snprintf(name, sizeof name, "/sys/bus/event_source/devices/%s/%s", pmu, path);
  FILE* file = fopen(name, "re");
  if (!file) return false;
  const bool is_read = fgets(text, sizeof text, file) && strncmp(text, prefix, strlen(prefix)) == 0;
  fclose(file);
  if (is_read) *value = strtoull(text + strlen(prefix), NULL, 0);
  return is_read;
}

static bool is_of_package(int number) {
  return number == COUNTER_PACKAGE_ENERGY || number == COUNTER_DRAM_ENERGY || number >= COUNTER_PACKAGE_C2;
}

static void open_counter(struct Counters* counters, int number, uint32_t cpu, const uint32_t* packages) {
  for (uint32_t other = 0; is_of_package(number) && other < cpu; ++other) {
    if (packages[other] != packages[cpu]) continue;
    counters->fds[cpu][number] = counters->fds[other][number];
    return;
  }
  const struct Source* source = &sources[number];
  uint64_t type = PERF_TYPE_HARDWARE, config = source->config;
  if (source->pmu) {
    char path[64];
    snprintf(path, sizeof path, "events/%s", source->event);
    if (!read_config(source->pmu, "type", "", &type) || !read_config(source->pmu, path, "event=", &config)) return;
  }
  const int fd = open_event((uint32_t)type, config, cpu);
  if (fd < 0) return;
  uint64_t value;
  if (read(fd, &value, sizeof value) != sizeof value) {
    close(fd);
    return;
  }
  counters->fds[cpu][number] = fd;
  counters->present |= 1u << number;
}

/// The TSC's rate, from the factors that perf publishes for its conversion to nanoseconds.
static uint64_t read_tsc_hz(void) {
  struct perf_event_attr attributes = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attributes, .config = PERF_COUNT_SW_DUMMY};
  const int fd = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (fd < 0) return 0;
  uint64_t hz = 0;
  const struct perf_event_mmap_page* page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) {
    if (page->cap_user_time && page->time_mult)
      hz = (uint64_t)(((unsigned __int128)TICKS_PER_SECOND << page->time_shift) / page->time_mult);
    munmap((void*)(uintptr_t)page, (size_t)sysconf(_SC_PAGESIZE));
  }
  close(fd);
  return hz;
}

void counters_open(struct Counters* counters, uint32_t cpus, const uint32_t* packages) {
  memset(counters->fds, 0xFF, sizeof counters->fds);
  counters->present = 0;
  counters->cpu_tsc_hz = read_tsc_hz();
  for (uint32_t cpu = 0; cpu < cpus; ++cpu) {
    for (int number = 0; number < COUNTERS; ++number) open_counter(counters, number, cpu, packages);
  }
}

/// Returns the first CPU with the same event; `cpu` if there is none.
static uint32_t first_with(const struct Counters* counters, uint32_t cpu, int number) {
  for (uint32_t other = 0; is_of_package(number) && other < cpu; ++other) {
    if (counters->fds[other][number] == counters->fds[cpu][number]) return other;
  }
  return cpu;
}

void counters_read(const struct Counters* counters, uint32_t cpus, struct CounterValues* into) {
  memset(into, 0, sizeof *into * cpus);
  for (uint32_t cpu = 0; cpu < cpus; ++cpu) {
    for (int number = 0; number < COUNTERS; ++number) {
      const int fd = counters->fds[cpu][number];
      const uint32_t first = first_with(counters, cpu, number);
      uint64_t* value = &into[cpu].values[number];
      if (first != cpu) {
        *value = into[first].values[number];
        into[cpu].valid |= into[first].valid & 1u << number;
      } else if (fd >= 0 && read(fd, value, sizeof *value) == sizeof *value) {
        into[cpu].valid |= 1u << number;
      }
    }
  }
}

const char* counter_name(int counter) { return sources[counter].name; }
