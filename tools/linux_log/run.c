// SPDX-License-Identifier: BSL-1.0
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SETTINGS_PERIOD_MS = 1000, DRAIN_PERIOD_MS_MIN = 5, POLLS_QUIET_MS = 1000 };
// A poll of ixgbe that receives or sends so many frames has used its whole budget, and NAPI polls again without an interrupt.
enum { POLL_RX_FRAMES = 64, POLL_TX_FRAMES = 256 };
static const char runs_file[] = "/run/neap-trace.runs";  // numbers the runs since boot; the folder is emptied at boot

/// Returns the next number of a run. Two runs of one boot must differ, also if neap-trace was started again.
static uint32_t next_run(struct Tracer* tracer) {
  char line[32];
  if (!tracer->runs && text_read_line(runs_file, line, sizeof line)) tracer->runs = (uint32_t)strtoul(line, NULL, 10);
  ++tracer->runs;
  FILE* file = fopen(runs_file, "we");
  if (file) {
    fprintf(file, "%u\n", tracer->runs);
    fclose(file);
  }
  return tracer->runs;
}

static bool open_files(struct Tracer* tracer, char* error, size_t error_bytes) {
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) {
    struct LogFile* file = &tracer->cores[cpu].file;
    if (file->fd < 0 && tracer->out) {
      char path[4096];
      snprintf(path, sizeof path, "%s/core%u.log.making", tracer->out, cpu);
      file->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    } else if (file->fd < 0) {
      file->fd = memfd_create("neap-trace", MFD_CLOEXEC);
    }
    if (file->fd < 0 || !log_reset(file)) {
      snprintf(error, error_bytes, "%s cannot be written (%s); name another folder: --out", tracer->out ? tracer->out : "the log's memory",
               strerror(errno));
      return false;
    }
  }
  return true;
}

static void make_texts(struct Tracer* tracer) {
  tracer->facts.end = clock_pair();
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) {
    host_header_text(&tracer->host, &tracer->card, &tracer->counters, &tracer->settings, &tracer->facts, cpu, tracer->cores[cpu].text);
  }
}

/// Writes the Settings entry of the start, and the value of each setting.
static void write_settings(struct Tracer* tracer, uint32_t cpu, uint64_t now_ns) {
  struct SettingsEntry entry;
  settings_fill(&tracer->settings, cpu, CHANGED_NOTHING, &entry);
  maker_settings(&tracer->cores[cpu].maker, now_ns, &entry, KIND_SETTINGS);
  for (uint32_t number = 0; number < settings_count(); ++number) {
    if (tracer->settings.values[number][settings_is_of_cpu(number) ? cpu : 0] == SETTING_ABSENT) continue;
    settings_fill(&tracer->settings, cpu, number, &entry);
    maker_settings(&tracer->cores[cpu].maker, now_ns, &entry, KIND_CONFIGURED);
  }
}

static void set_base(struct Tracer* tracer) {
  memset(&tracer->machine, 0, sizeof tracer->machine);
  memset(tracer->seen, 0, sizeof tracer->seen);
  tracer->machine.cpu_tsc_hz = tracer->counters.cpu_tsc_hz;
  if (!card_read(&tracer->card)) return;
  for (uint32_t queue = 0; queue < QUEUES_MAX; ++queue) {
    struct QueueCounts counts;
    if (!card_queue(&tracer->card, queue, &counts)) continue;
    machine_set_base(&tracer->machine, queue, &counts);
    tracer->seen[queue] = (struct QueueSeen){counts.rx_packets, counts.tx_packets};
  }
}

bool run_start(struct Tracer* tracer, char* error, size_t error_bytes) {
  if (tracer->is_on) run_stop(tracer);
  tracer->is_there = false;  // its logs are emptied
  if (!open_files(tracer, error, error_bytes) || !kernel_attach(&tracer->kernel, &tracer->card, error, error_bytes)) return false;
  settings_read(&tracer->settings, NULL, NULL);
  tracer->queues = card_queues(&tracer->card);
  // From here on the hooks record. Entries up to the start record's time are dropped; their frames are below the base that is read after.
  set_base(tracer);
  tracer->facts.run = next_run(tracer);
  tracer->facts.begin = clock_pair();
  host_card_counters(&tracer->card, tracer->facts.counters_start);
  tracer->facts.counters_stop[0] = 0;
  make_texts(tracer);
  const uint64_t wall_ns = wall_clock_ns(), now_ns = monotonic_ns();
  uint32_t sleeps[CPUS_MAX];
  uint64_t idle_ns[CPUS_MAX];
  kernel_read_account(&tracer->kernel);  // after the start's time, and before the stop's: a run has no more sleep than time
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) kernel_idle(&tracer->kernel, cpu, now_ns, &sleeps[cpu], &idle_ns[cpu]);
  struct CounterValues counted[CPUS_MAX];
  counters_read(&tracer->counters, tracer->host.cpus, counted);
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) {
    struct CoreRun* core = &tracer->cores[cpu];
    core->maker = (struct RecordMaker){.machine = &tracer->machine,
                                       .core = cpu,
                                       .package = tracer->host.package_of[cpu],
                                       .run = tracer->facts.run,
                                       .sink = log_append,
                                       .context = &core->file,
                                       .idle_state = 1};
    core->lost = 0;
    core->kept_at = core->kept_count = 0;
    maker_start(&core->maker, now_ns, wall_ns, sleeps[cpu], idle_ns[cpu], &counted[cpu]);
    write_settings(tracer, cpu, now_ns);
  }
  tracer->is_on = tracer->is_there = true;
  tracer->end_ns = tracer->polls_until_ns = 0;
  tracer->settings_due_ns = now_ns + SETTINGS_PERIOD_MS * 1000000ULL;
  return true;
}

static void flush_files(struct Tracer* tracer) {
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) {
    struct CoreRun* core = &tracer->cores[cpu];
    log_flush(&core->file);
    if (core->file.error && !tracer->is_reported) {
      fprintf(stderr, "neap-trace: the log of core %u cannot be written (%s); further entries are counted as unwritten\n", cpu,
              strerror(core->file.error));
      tracer->is_reported = true;
    }
  }
}

/// Makes log entries of all raw entries that are kept, in the order of their times. The order matters only for a queue that moved.
static void make_entries(struct Tracer* tracer) {
  for (;;) {
    struct CoreRun* first = NULL;
    for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) {
      struct CoreRun* core = &tracer->cores[cpu];
      if (core->kept_at == core->kept_count) continue;
      if (!first || core->kept[core->kept_at].ns < first->kept[first->kept_at].ns) first = core;
    }
    if (!first) break;
    maker_take(&first->maker, &first->kept[first->kept_at++]);
  }
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) tracer->cores[cpu].kept_at = tracer->cores[cpu].kept_count = 0;
  flush_files(tracer);
}

/// Returns true if a queue had enough frames between two entries that a poll may have used its whole budget.
static bool is_busy(struct Tracer* tracer, const struct RawEntry* entries, uint32_t count) {
  bool is_any = false;
  for (const struct RawEntry* raw = entries; raw < entries + count; ++raw) {
    if (raw->kind > RAW_POLL || raw->queue >= QUEUES_MAX) continue;
    struct QueueSeen* seen = &tracer->seen[raw->queue];
    is_any |= raw->rx_packets >= seen->rx_packets + POLL_RX_FRAMES || raw->tx_packets >= seen->tx_packets + POLL_TX_FRAMES;
    *seen = (struct QueueSeen){raw->rx_packets, raw->tx_packets};
  }
  return is_any;
}

/// Attaches the hook for polls while there are polls without an interrupt.
static void hook_polls(struct Tracer* tracer, bool is_busy, uint64_t now_ns) {
  if (is_busy || settings_has_busy_poll(&tracer->settings)) {
    tracer->polls_until_ns = now_ns + POLLS_QUIET_MS * 1000000ULL;
    kernel_hook_polls(&tracer->kernel, true);
  } else if (now_ns >= tracer->polls_until_ns) {
    kernel_hook_polls(&tracer->kernel, false);
  }
}

/// Copies the raw entries of all rings. Returns the largest number that one ring had.
static uint32_t drain_rings(struct Tracer* tracer) {
  uint32_t most = 0;
  bool is_any_busy = false;
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) {
    struct CoreRun* core = &tracer->cores[cpu];
    if (core->kept_count >= RAW_KEPT_MAX - RAW_ENTRIES_MAX) make_entries(tracer);
    struct RawEntry* into = core->kept + core->kept_count;
    const uint32_t taken = kernel_drain(&tracer->kernel, cpu, into, RAW_ENTRIES_MAX);
    core->kept_count += taken;
    is_any_busy |= is_busy(tracer, into, taken);
    if (tracer->is_on && taken && kernel_read_sleeps(&tracer->kernel, cpu, monotonic_ns(), into + taken)) ++core->kept_count;
    if (taken > most) most = taken;
    core->lost = kernel_lost(&tracer->kernel, cpu);
  }
  if (tracer->is_on) hook_polls(tracer, is_any_busy, monotonic_ns());
  return most;
}

static void note_change(void* context, uint32_t number, uint32_t cpu) {
  struct Tracer* tracer = context;
  drain_rings(tracer);
  make_entries(tracer);  // with the generation before the change
  ++tracer->machine.generation;
  const uint64_t now_ns = monotonic_ns();
  const bool is_of_cpu = settings_is_of_cpu(number);
  for (uint32_t at = is_of_cpu ? cpu : 0; at < (is_of_cpu ? cpu + 1 : tracer->host.cpus); ++at) {
    struct SettingsEntry entry;
    settings_fill(&tracer->settings, at, number, &entry);
    maker_change(&tracer->cores[at].maker, now_ns, &entry);
  }
}

void run_catch_up(struct Tracer* tracer) {
  if (!tracer->is_on) return;
  drain_rings(tracer);
  make_entries(tracer);
}

void run_drain(struct Tracer* tracer) {
  if (!tracer->is_on) return;
  const uint32_t most = drain_rings(tracer);
  if (tracer->is_live) make_entries(tracer);
  // A ring that was a quarter full is emptied more often, one that was nearly empty less often.
  if (most > tracer->kernel.ring_entries / 4 && tracer->drain_period_ms > DRAIN_PERIOD_MS_MIN) {
    tracer->drain_period_ms /= 2;
  } else if (most < tracer->kernel.ring_entries / 16 && tracer->drain_period_ms < tracer->drain_period_ms_max) {
    tracer->drain_period_ms *= 2;
  }
  const uint64_t now_ns = monotonic_ns();
  if (now_ns >= tracer->settings_due_ns) {
    tracer->settings_due_ns = now_ns + SETTINGS_PERIOD_MS * 1000000ULL;
    settings_read(&tracer->settings, note_change, tracer);
    const int64_t queues = card_queues(&tracer->card);
    if (queues != tracer->queues) kernel_find_interrupts(&tracer->kernel, &tracer->card);
    tracer->queues = queues;
  }
  if (tracer->end_ns && now_ns >= tracer->end_ns) run_stop(tracer);
}

/// Adds what the queues counted after their last interrupt to the core that had it.
static void add_rest(struct Tracer* tracer) {
  if (!card_read(&tracer->card)) return;
  for (uint32_t queue = 0; queue < QUEUES_MAX; ++queue) {
    struct QueueCounts counts;
    const struct QueueState* state = &tracer->machine.queues[queue];
    if (!card_queue(&tracer->card, queue, &counts)) continue;
    const uint32_t cpu = state->is_seen ? state->cpu : queue % tracer->host.cpus;
    maker_add_rest(&tracer->cores[cpu].maker, queue, &counts);
  }
}

void run_stop(struct Tracer* tracer) {
  if (!tracer->is_on) return;
  tracer->is_on = false;
  kernel_read_account(&tracer->kernel);
  const uint64_t wall_ns = wall_clock_ns(), now_ns = monotonic_ns();
  uint32_t sleeps[CPUS_MAX];
  uint64_t idle_ns[CPUS_MAX];
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) kernel_idle(&tracer->kernel, cpu, now_ns, &sleeps[cpu], &idle_ns[cpu]);
  // At once, because the work below would be counted too: it takes milliseconds.
  struct CounterValues counted[CPUS_MAX];
  counters_read(&tracer->counters, tracer->host.cpus, counted);
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) tracer->cores[cpu].maker.end_ns = now_ns;
  kernel_detach(&tracer->kernel);
  drain_rings(tracer);
  make_entries(tracer);
  add_rest(tracer);
  host_card_counters(&tracer->card, tracer->facts.counters_stop);
  make_texts(tracer);
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) {
    struct CoreRun* core = &tracer->cores[cpu];
    core->file.is_closing = true;
    maker_stop(&core->maker, now_ns, wall_ns, sleeps[cpu], idle_ns[cpu], &counted[cpu]);
    log_flush(&core->file);
    unsigned char header[HEADER_BYTES];
    run_header(tracer, cpu, header);
    if (pwrite(core->file.fd, header, sizeof header, 0) != (ssize_t)sizeof header && !core->file.error) core->file.error = errno;
  }
}

void run_clear(struct Tracer* tracer) {
  if (tracer->is_on) {
    tracer->is_on = false;
    kernel_detach(&tracer->kernel);
  }
  tracer->is_there = false;
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) {
    if (tracer->cores[cpu].file.fd >= 0) log_reset(&tracer->cores[cpu].file);
  }
}

uint64_t run_unwritten(const struct Tracer* tracer, uint32_t core) { return tracer->cores[core].file.unwritten + tracer->cores[core].lost; }

void run_header(const struct Tracer* tracer, uint32_t core, unsigned char* into) {
  const struct LogFile* file = &tracer->cores[core].file;
  const struct HeaderNumbers numbers = {.core = core, .entries = file->flushed, .unwritten = run_unwritten(tracer, core)};
  log_header(into, &numbers, tracer->cores[core].text);
}
