// SPDX-License-Identifier: BSL-1.0
#include "kernel_side.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// The compiled programs, NEAP_TRACE_OBJECT, are a part of this program: one file is all that a machine needs.
__asm__(".section .rodata\n.balign 16\n.global neap_trace_object\nneap_trace_object:\n.incbin \"" NEAP_TRACE_OBJECT
        "\"\n.global neap_trace_object_end\nneap_trace_object_end:\n.previous\n");
extern const unsigned char neap_trace_object[], neap_trace_object_end[];

enum { HOOK_END_US = 2000 };

static char first_complaint[256];

static int keep_complaint(enum libbpf_print_level level, const char* format, va_list arguments) {
  if (level == LIBBPF_WARN && !*first_complaint) {
    vsnprintf(first_complaint, sizeof first_complaint, format, arguments);
    first_complaint[strcspn(first_complaint, "\n")] = 0;
  }
  if (getenv("NEAP_TRACE_DEBUG")) vfprintf(stderr, format, arguments);
  return 0;
}

static uint64_t address_of(const char* symbol) {
  FILE* file = fopen("/proc/kallsyms", "re");
  if (!file) return 0;
  char line[512], name[256];
  unsigned long long address = 0;
  bool is_found = false;
  while (!is_found && fgets(line, sizeof line, file)) {
    is_found = sscanf(line, "%llx %*c %255s", &address, name) == 2 && strcmp(name, symbol) == 0;
  }
  fclose(file);
  return is_found ? address : 0;
}

static struct bpf_map* section_map(const struct bpf_object* object, const char* section) {
  struct bpf_map* map;
  bpf_object__for_each_map(map, object) {
    const char* name = bpf_map__name(map);
    const size_t length = strlen(name), wanted = strlen(section);
    if (length >= wanted && strcmp(name + length - wanted, section) == 0) return map;
  }
  return NULL;
}

static void* map_shared(const struct bpf_map* map, size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return mmap(NULL, (bytes + page - 1) / page * page, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
}

// Sets the constants of the programs by name. The object's BTF has their places.
static bool set_constants(const struct bpf_object* object, const struct KernelOptions* options, const struct Card* card, uint32_t counters,
                          bool has_account) {
  size_t bytes = 0;
  struct bpf_map* map = section_map(object, ".rodata");
  // The map's content before it is loaded. libbpf declares it constant, and copies it to the kernel from there.
  unsigned char* values = map ? (unsigned char*)(uintptr_t)bpf_map__initial_value(map, &bytes) : NULL;
  const struct btf* types = bpf_object__btf(object);
  if (!values || !types) return false;
  const struct {
    const char* name;
    uint64_t value;
  } constants[] = {
      {"ixgbe_poll_address", address_of("ixgbe_poll")},
      {"sample_period_ns", options->sample_period_ns},
      {"interface_index", (uint64_t)card->index},
      {"counters", counters},
      {"record_sleeps", options->record_sleeps},
      {"polling_state", options->polling_state},
      {"kernel_account", has_account},
      {"idle_states", options->idle_states},
  };
  const int section = btf__find_by_name_kind(types, ".rodata", BTF_KIND_DATASEC);
  if (section < 0) return false;
  const struct btf_type* type = btf__type_by_id(types, (uint32_t)section);
  const struct btf_var_secinfo* places = btf_var_secinfos(type);
  size_t set = 0;
  for (int i = 0; i < btf_vlen(type); ++i) {
    const char* name = btf__name_by_offset(types, btf__type_by_id(types, places[i].type)->name_off);
    for (size_t j = 0; j < sizeof constants / sizeof *constants; ++j) {
      if (strcmp(name, constants[j].name) != 0 || places[i].offset + places[i].size > bytes) continue;
      memcpy(values + places[i].offset, &constants[j].value, places[i].size);
      ++set;
    }
  }
  return set == sizeof constants / sizeof *constants && constants[0].value;
}

static bool set_events(const struct bpf_object* object, const struct Counters* counters, uint32_t cpus) {
  const int map = bpf_object__find_map_fd_by_name(object, "events");
  for (uint32_t cpu = 0; cpu < cpus; ++cpu) {
    for (uint32_t number = 0; number < COUNTERS; ++number) {
      const uint32_t key = cpu * RAW_COUNTERS_STRIDE + number;
      const int fd = counters->fds[cpu][number];
      if (fd >= 0 && bpf_map_update_elem(map, &key, &fd, BPF_ANY)) return false;
    }
  }
  return true;
}

static bool has_member(const struct btf* types, const char* structure, const char* member) {
  const int number = btf__find_by_name_kind(types, structure, BTF_KIND_STRUCT);
  if (number < 0) return false;
  const struct btf_type* type = btf__type_by_id(types, (uint32_t)number);
  const struct btf_member* members = btf_members(type);
  for (int i = 0; i < btf_vlen(type); ++i) {
    if (strcmp(btf__name_by_offset(types, members[i].name_off), member) == 0) return true;
  }
  return false;
}

/// Returns true if this kernel has the account of idle time that the programs read.
static bool has_account(const struct KernelOptions* options) {
  if (options->record_sleeps || !options->idle_states || options->idle_states > RAW_IDLE_STATES_MAX) return false;
  struct btf* types = btf__load_vmlinux_btf();
  if (!types) return false;
  const bool is_there = btf__find_by_name_kind(types, "tick_cpu_sched", BTF_KIND_VAR) > 0 &&
                        btf__find_by_name_kind(types, "cpuidle_devices", BTF_KIND_VAR) > 0 &&
                        has_member(types, "tick_sched", "idle_sleeptime") && has_member(types, "tick_sched", "iowait_sleeptime") &&
                        has_member(types, "cpuidle_device", "next_hrtimer");
  btf__free(types);
  return is_there;
}

static bool fail(char* error, size_t error_bytes, const char* what, const char* remedy) {
  snprintf(error, error_bytes, "%s (%s); %s", what, *first_complaint ? first_complaint : strerror(errno), remedy);
  return false;
}

static struct bpf_program* program_named(const struct KernelSide* kernel, const char* name) {
  return bpf_object__find_program_by_name(kernel->object, name);
}

bool kernel_load(struct KernelSide* kernel, const struct KernelOptions* options, const struct Card* card, const struct Counters* counters,
                 char* error, size_t error_bytes) {
  memset(kernel, 0, sizeof *kernel);
  kernel->cpus = options->cpus;
  kernel->ring_entries = options->ring_entries;
  libbpf_set_print(keep_complaint);
  kernel->object = bpf_object__open_mem(neap_trace_object, (size_t)(neap_trace_object_end - neap_trace_object), NULL);
  if (!kernel->object) return fail(error, error_bytes, "the embedded BPF programs cannot be read", "build neap-trace again");
  struct bpf_map* rings = bpf_object__find_map_by_name(kernel->object, "rings");
  struct bpf_map* events = bpf_object__find_map_by_name(kernel->object, "events");
  bpf_map__set_max_entries(rings, options->cpus);
  bpf_map__set_max_entries(events, options->cpus * RAW_COUNTERS_STRIDE);
  kernel->has_account = has_account(options);
  const char* const programs_with[] = {"neap_account", "neap_sleeps"};
  for (size_t i = 0; i < 2; ++i) bpf_program__set_autoload(program_named(kernel, programs_with[i]), kernel->has_account);
  bpf_program__set_autoload(program_named(kernel, "neap_idle"), !kernel->has_account);
  if (!set_constants(kernel->object, options, card, counters->present, kernel->has_account)) {
    return fail(error, error_bytes, "/proc/kallsyms does not show ixgbe_poll", "run neap-trace as root, with the module ixgbe loaded");
  }
  if (bpf_object__load(kernel->object)) {
    return fail(error, error_bytes, "the kernel refused the BPF programs",
                "Debian 12's kernel 6.1 and later ones are known to accept them");
  }
  if (!set_events(kernel->object, counters, options->cpus))
    return fail(error, error_bytes, "the counters cannot be read by BPF programs", "try --no-counters");
  struct bpf_map* variables = section_map(kernel->object, ".bss");
  kernel->rings = map_shared(rings, sizeof(struct RawRing) * options->cpus);
  kernel->vectors = variables ? map_shared(variables, RAW_IRQS_MAX * sizeof(struct RawVector)) : MAP_FAILED;
  if (kernel->rings == MAP_FAILED || kernel->vectors == MAP_FAILED) {
    return fail(error, error_bytes, "the rings cannot be mapped", "free some memory");
  }
  return true;
}

static void use(void* context, uint32_t irq) {
  struct KernelSide* kernel = context;
  if (irq < RAW_IRQS_MAX) kernel->vectors[irq].ours = 1;
}

void kernel_find_interrupts(struct KernelSide* kernel, const struct Card* card) {
  for (uint32_t irq = 0; irq < RAW_IRQS_MAX; ++irq) {
    if (kernel->vectors[irq].ours) kernel->vectors[irq] = (struct RawVector){0};
  }
  card_interrupts(card, use, kernel);
}

bool kernel_attach(struct KernelSide* kernel, const struct Card* card, char* error, size_t error_bytes) {
  for (uint32_t cpu = 0; cpu < kernel->cpus; ++cpu) {
    memset(&kernel->rings[cpu], 0, sizeof kernel->rings[cpu]);
    kernel->rings[cpu].usable = kernel->ring_entries - RAW_RESERVE;
  }
  kernel_find_interrupts(kernel, card);
  kernel->interrupt_hook = bpf_program__attach(program_named(kernel, "neap_interrupt"));
  if (!kernel->has_account) kernel->idle_hook = bpf_program__attach(program_named(kernel, "neap_idle"));
  if (!kernel->interrupt_hook || (!kernel->has_account && !kernel->idle_hook)) {
    kernel_detach(kernel);
    return fail(error, error_bytes, "a BPF program cannot be attached", "look for another tracer with `bpftool prog`");
  }
  return true;
}

static void detach(struct bpf_link** link) {
  bpf_link__destroy(*link);
  *link = NULL;
}

void kernel_hook_polls(struct KernelSide* kernel, bool is_wanted) {
  if (is_wanted == (kernel->poll_hook != NULL)) return;
  for (uint32_t cpu = 0; cpu < kernel->cpus; ++cpu) __atomic_store_n(&kernel->rings[cpu].are_polls_hooked, is_wanted, __ATOMIC_RELEASE);
  if (is_wanted) kernel->poll_hook = bpf_program__attach(program_named(kernel, "neap_poll"));
  if (!is_wanted) detach(&kernel->poll_hook);
}

void kernel_detach(struct KernelSide* kernel) {
  detach(&kernel->interrupt_hook);
  detach(&kernel->idle_hook);
  detach(&kernel->poll_hook);
  // A hook that runs on another CPU now ends within microseconds. After that, nothing writes to the rings.
  usleep(HOOK_END_US);
}

uint32_t kernel_drain(struct KernelSide* kernel, uint32_t cpu, struct RawEntry* into, uint32_t room) {
  struct RawRing* ring = &kernel->rings[cpu];
  const uint64_t tail = ring->tail;
  uint32_t count = 0;
  for (; count < room; ++count) {
    struct RawEntry* entry = &ring->entries[(tail + count) & (RAW_ENTRIES_MAX - 1)];
    if (!__atomic_load_n(&entry->ns, __ATOMIC_ACQUIRE)) break;
    into[count] = *entry;
    __atomic_store_n(&entry->ns, 0, __ATOMIC_RELEASE);
  }
  if (count) __atomic_store_n(&ring->tail, tail + count, __ATOMIC_RELEASE);
  return count;
}

void kernel_read_account(struct KernelSide* kernel) {
  if (!kernel->has_account) return;
  const int program = bpf_program__fd(program_named(kernel, "neap_account"));
  for (uint32_t cpu = 0; cpu < kernel->cpus; ++cpu) {
    // A CPU that is offline refuses it. It does not sleep either.
    LIBBPF_OPTS(bpf_test_run_opts, on_cpu, .flags = BPF_F_TEST_RUN_ON_CPU, .cpu = cpu);
    bpf_prog_test_run_opts(program, &on_cpu);
  }
}

bool kernel_read_sleeps(const struct KernelSide* kernel, uint32_t cpu, uint64_t now_ns, struct RawEntry* into) {
  if (!kernel->has_account) return false;
  struct RawSleepsOf of = {.cpu = cpu};
  LIBBPF_OPTS(bpf_test_run_opts, call, .ctx_in = &of, .ctx_size_in = sizeof of);
  if (bpf_prog_test_run_opts(bpf_program__fd(program_named(kernel, "neap_sleeps")), &call)) return false;
  *into = (struct RawEntry){.ns = now_ns, .kind = RAW_SLEEPS, .sleeps = kernel->rings[cpu].sleeps};
  return true;
}

void kernel_idle(const struct KernelSide* kernel, uint32_t cpu, uint64_t now_ns, uint32_t* sleeps, uint64_t* idle_ns) {
  const struct RawRing* ring = &kernel->rings[cpu];
  uint64_t since;
  // A hook that ends the sleep changes both values.
  do {
    since = __atomic_load_n(&ring->asleep_since_ns, __ATOMIC_ACQUIRE);
    *idle_ns = __atomic_load_n(&ring->idle_ns, __ATOMIC_ACQUIRE);
    *sleeps = __atomic_load_n(&ring->sleeps, __ATOMIC_ACQUIRE);
  } while (since != __atomic_load_n(&ring->asleep_since_ns, __ATOMIC_ACQUIRE));
  if (since && since < now_ns) *idle_ns += now_ns - since;
}

uint64_t kernel_lost(const struct KernelSide* kernel, uint32_t cpu) { return __atomic_load_n(&kernel->rings[cpu].lost, __ATOMIC_RELAXED); }
