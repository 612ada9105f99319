// SPDX-License-Identifier: BSL-1.0
// The hooks of neap-trace: tracepoints that copy cumulative counters into a ring for each CPU (raw.h).
//
// The budget is 600 instructions for an interrupt, with the work of user space. So the hooks are plain tracepoints: a trampoline for a
// function (fentry, fexit) costs about 100 instructions more. An interrupt reads the clock once and the statistics of two rings, 16 bytes
// each. Their addresses are remembered for each interrupt number.
//
// A hook for each passage through idle costs about 280 instructions an interrupt or more. So the kernel's own account of idle time is read,
// if it has a driver of cpuidle: a load from `tick_cpu_sched`, to which the interrupt's entry has added the sleep that it ended. The last
// state is read with each sample, and the number of sleeps when user space empties the ring. Without that driver, or to record each sleep,
// the tracepoint cpu_idle is used.
//
// The hook for polls costs about 90 instructions a poll. User space attaches it only while there are polls without an interrupt.
//
// The structures below have only the members that are read. CO-RE finds their offsets in the running kernel's BTF.
// libbpf's headers need the types of the kernel's headers before them.
// clang-format off
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
// clang-format on

#include "raw.h"

#define KERNEL_TYPE __attribute__((preserve_access_index))

struct net_device {
  int ifindex;
} KERNEL_TYPE;
struct napi_struct {
  struct net_device* dev;
  int (*poll)(struct napi_struct*, int);
} KERNEL_TYPE;
struct irqaction {
  void* dev_id;
} KERNEL_TYPE;
struct ixgbe_queue_stats {
  __u64 packets;
  __u64 bytes;
} KERNEL_TYPE;
struct ixgbe_ring {
  struct ixgbe_ring* next;
  struct ixgbe_queue_stats stats;
} KERNEL_TYPE;
struct ixgbe_ring_container {
  struct ixgbe_ring* ring;
} KERNEL_TYPE;
struct ixgbe_q_vector {
  __u16 v_idx;
  __u16 itr;
  struct ixgbe_ring_container rx, tx;
  struct napi_struct napi;
} KERNEL_TYPE;

struct tick_sched {
  __s64 idle_sleeptime;
  __s64 iowait_sleeptime;
} KERNEL_TYPE;
struct cpuidle_state_usage {
  unsigned long long usage;
  __u64 time_ns;
} KERNEL_TYPE;
struct cpuidle_device {
  __s64 next_hrtimer;
  int last_state_idx;
  struct cpuidle_state_usage states_usage[RAW_IDLE_STATES_MAX];
} KERNEL_TYPE;

// Variables of the kernel for each CPU. They are used only if `kernel_account` is set.
extern const struct tick_sched tick_cpu_sched __ksym __weak;
extern struct cpuidle_device* const cpuidle_devices __ksym __weak;

struct Counts {
  __u64 packets;
  __u64 bytes;
};

#define ERRORS_FROM ((__u64) - 4095) /* a negative error number; no counter gets there */
enum { RINGS_OF_VECTOR_MAX = 8, AWAKE = 0xFFFFFFFF /* PWR_EVENT_EXIT */ };

// Set before the programs are loaded. The verifier takes them for constants and leaves out code that they disable.
const volatile __u64 ixgbe_poll_address = 0;
const volatile __u64 sample_period_ns = 1000000;
const volatile __u32 interface_index = 0;
const volatile __u32 counters = 0;  // a bit for each counter that has events
const volatile __u32 record_sleeps = 0;
const volatile __u32 polling_state = AWAKE;  // number of the idle state that does not sleep
const volatile __u32 kernel_account = 0;     // the kernel's account of idle time is used in place of the tracepoint cpu_idle
const volatile __u32 idle_states = 0;        // number of cpuidle's states

struct RawVector vectors[RAW_IRQS_MAX];

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);  // the loader sets the number of CPUs
  __type(key, __u32);
  __type(value, struct RawRing);
} rings SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
  __uint(max_entries, 1);  // the loader sets RAW_COUNTERS_STRIDE for each CPU
  __uint(key_size, sizeof(__u32));
  __uint(value_size, sizeof(__u32));
} events SEC(".maps");

static __always_inline struct RawRing* ring_of(__u32 cpu) { return bpf_map_lookup_elem(&rings, &cpu); }

// Returns an entry to fill; 0: the ring is full, which is counted.
static __always_inline struct RawEntry* reserve(struct RawRing* ring) {
  const __u64 tail = *(volatile __u64*)&ring->tail;
  if (ring->head - tail >= ring->usable) {
    __sync_fetch_and_add(&ring->lost, 1);
    return 0;
  }
  const __u64 at = __sync_fetch_and_add(&ring->head, 1);
  return &ring->entries[at & (RAW_ENTRIES_MAX - 1)];
}

// x86 keeps the order of stores, so the compiler's order is enough.
static __always_inline void publish(struct RawEntry* entry, __u64 ns) {
  barrier();
  *(volatile __u64*)&entry->ns = ns;
}

static __always_inline void add_rings(struct Counts* into, struct ixgbe_ring* ring) {
  into->packets = into->bytes = 0;
  for (int i = 0; i < RINGS_OF_VECTOR_MAX && ring; ++i) {
    into->packets += BPF_CORE_READ(ring, stats.packets);
    into->bytes += BPF_CORE_READ(ring, stats.bytes);
    ring = BPF_CORE_READ(ring, next);
  }
}

static __always_inline __u32 ring_id_of(const struct ixgbe_ring* rx, const struct ixgbe_ring* tx) {
  return (__u32)((__u64)(rx ? rx : tx) >> 6);
}

// Fills an entry from the vector itself.
static __noinline int copy_all_rings(struct RawEntry* entry, __u64 vector) {
  if (!entry) return 0;
  struct ixgbe_q_vector* q = (void*)vector;
  struct ixgbe_ring* rx = BPF_CORE_READ(q, rx.ring);
  struct ixgbe_ring* tx = BPF_CORE_READ(q, tx.ring);
  struct Counts counts;
  entry->queue = BPF_CORE_READ(q, v_idx);
  entry->itr = BPF_CORE_READ(q, itr);
  entry->ring_id = ring_id_of(rx, tx);
  add_rings(&counts, rx);
  entry->rx_packets = counts.packets;
  entry->rx_bytes = counts.bytes;
  add_rings(&counts, tx);
  entry->tx_packets = counts.packets;
  entry->tx_bytes = counts.bytes;
  return 0;
}

// The first interrupt of this number, or the number belongs to another vector now.
static __noinline int learn(struct RawVector* known, __u64 vector) {
  if (!known) return 0;
  struct ixgbe_q_vector* q = (void*)vector;
  struct ixgbe_ring* rx = BPF_CORE_READ(q, rx.ring);
  struct ixgbe_ring* tx = BPF_CORE_READ(q, tx.ring);
  const __u32 stats = bpf_core_field_offset(struct ixgbe_ring, stats);
  known->rx_stats = rx ? (__u64)rx + stats : 0;
  known->tx_stats = tx ? (__u64)tx + stats : 0;
  known->ring_id = ring_id_of(rx, tx);
  known->several = (rx && BPF_CORE_READ(rx, next)) || (tx && BPF_CORE_READ(tx, next));
  known->queue = BPF_CORE_READ(q, v_idx);
  known->itr = BPF_CORE_READ(q, itr);
  known->vector = vector;
  return 0;
}

// `end`: the number after the last counter that is read.
static __always_inline void sample_group(struct RawRing* ring, __u32 cpu, __u64 ns, __u32 first, __u32 end) {
  const __u32 group = (1 << RAW_SAMPLE_VALUES) - 1;
  if (!(counters >> first & group)) return;
  struct RawEntry* entry = reserve(ring);
  if (!entry) return;
  __u32 valid = 0;
#pragma unroll
  for (__u32 i = 0; i < RAW_SAMPLE_VALUES; ++i) {
    entry->values[i] = 0;
    if (first + i >= end || !(counters >> (first + i) & 1)) continue;
    const __u64 value = bpf_perf_event_read(&events, cpu * RAW_COUNTERS_STRIDE + first + i);
    if (value >= ERRORS_FROM) continue;
    entry->values[i] = value;
    valid |= 1 << i;
  }
  entry->kind = RAW_SAMPLE;
  entry->state = first;
  entry->queue = valid;
  publish(entry, ns);
}

static __noinline int sample(struct RawRing* ring, __u32 cpu, __u64 ns) {
  if (!ring) return 0;
  if (ring->samples++ % RAW_SAMPLES_BETWEEN) {
    sample_group(ring, cpu, ns, 0, RAW_FREQUENT_COUNTERS);
    return 0;
  }
  sample_group(ring, cpu, ns, 0, RAW_SAMPLED_COUNTERS);
  sample_group(ring, cpu, ns, RAW_SAMPLE_VALUES, RAW_SAMPLED_COUNTERS);
  return 0;
}

// Returns this CPU's time asleep, by the kernel's account.
static __always_inline __u64 accounted_sleep_ns(const struct RawRing* ring) {
  const struct tick_sched* tick = bpf_this_cpu_ptr(&tick_cpu_sched);
  const __u64 idle_ns = tick->idle_sleeptime + tick->iowait_sleeptime;
  // While a CPU polls, the time of other interrupts' handlers is polling to cpuidle, but not idle to the kernel.
  return idle_ns > ring->polled_ns ? idle_ns - ring->polled_ns : 0;
}

static __always_inline __u64 read_u64(const void* from) {
  __u64 value = 0;
  bpf_probe_read_kernel(&value, sizeof value, from);
  return value;
}

// Reads a CPU's number of sleeps from cpuidle, and the time in the state that does not sleep.
static __always_inline void read_idle_states(struct RawRing* ring, struct cpuidle_device* device) {
  // CO-RE has no index that varies, so the place of a state is computed here.
  const char* state = (const char*)device + bpf_core_field_offset(struct cpuidle_device, states_usage);
  __u32 sleeps = 0;
  for (__u32 i = 0; i < RAW_IDLE_STATES_MAX && i < idle_states; ++i) {
    if (i == polling_state) {
      ring->polled_ns = read_u64(state + bpf_core_field_offset(struct cpuidle_state_usage, time_ns));
    } else {
      sleeps += read_u64(state + bpf_core_field_offset(struct cpuidle_state_usage, usage));
    }
    state += bpf_core_type_size(struct cpuidle_state_usage);
  }
  ring->sleeps = sleeps;
  ring->state = BPF_CORE_READ(device, last_state_idx);
}

static __noinline int read_last_state(struct RawRing* ring) {
  if (!ring) return 0;
  struct cpuidle_device* const* place = bpf_this_cpu_ptr(&cpuidle_devices);
  struct cpuidle_device* device = *place;
  if (device) ring->state = BPF_CORE_READ(device, last_state_idx);
  return 0;
}

// Fills what an entry has of its CPU.
static __always_inline void copy_idle(struct RawEntry* entry, const struct RawRing* ring) {
  entry->state = ring->state;
  if (!kernel_account) entry->sleeps = ring->sleeps;
  entry->is_stale = kernel_account;
  entry->idle_ns = kernel_account ? accounted_sleep_ns(ring) : ring->idle_ns;
}

// Ends the sleep, if the CPU is asleep. An interrupt may arrive here, so exactly one caller takes the begin of the sleep.
static __always_inline void wake(struct RawRing* ring, __u64 ns, __u32 queue) {
  const __u64 since = __sync_lock_test_and_set(&ring->asleep_since_ns, 0);
  if (!since) return;
  ring->idle_ns += ns - since;
  if (!record_sleeps) return;
  struct RawEntry* entry = reserve(ring);
  if (!entry) return;
  entry->kind = RAW_IDLE;
  entry->state = ring->state;
  entry->queue = queue;
  entry->idle_ns = since;
  publish(entry, ns);
}

static __always_inline struct RawPending* pending_of(struct RawRing* ring, __u64 vector) {
  return &ring->pending[(vector >> 7 ^ vector >> 12) & (RAW_PENDING - 1)];
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(neap_interrupt, int irq, struct irqaction* action) {
  __u32 number = irq;
  if (number >= RAW_IRQS_MAX) return 0;
  barrier_var(number);  // without it the compiler leaves out the mask, by which the verifier knows the bound
  struct RawVector* known = &vectors[number & (RAW_IRQS_MAX - 1)];
  const __u64 vector = (__u64)action->dev_id;
  if (known->vector != vector) {
    if (!known->ours) return 0;
    learn(known, vector);
  }
  const __u32 cpu = bpf_get_smp_processor_id();
  struct RawRing* ring = ring_of(cpu);
  if (!ring) return 0;
  const __u64 now = bpf_ktime_get_ns();
  if (!kernel_account && ring->asleep_since_ns) wake(ring, now, known->queue);
  if (ring->are_polls_hooked) {
    struct RawPending* pending = pending_of(ring, vector);
    pending->vector = vector;
    pending->accounted = 1;
  }
  if ((counters || kernel_account) && now >= ring->next_sample_ns) {
    ring->next_sample_ns = now + sample_period_ns;
    if (kernel_account) read_last_state(ring);
    struct ixgbe_q_vector* q = (void*)vector;
    known->itr = BPF_CORE_READ(q, itr);
    sample(ring, cpu, now);
  }
  struct RawEntry* entry = reserve(ring);
  if (!entry) return 0;
  if (known->several) {
    copy_all_rings(entry, vector);
  } else {
    // Packets and bytes are neighbours, in the ring's statistics and in the entry. A read that fails leaves zeros, which add nothing.
    bpf_probe_read_kernel(&entry->rx_packets, sizeof(struct Counts), (const void*)known->rx_stats);
    bpf_probe_read_kernel(&entry->tx_packets, sizeof(struct Counts), (const void*)known->tx_stats);
    entry->queue = known->queue;
    entry->itr = known->itr;
    entry->ring_id = known->ring_id;
  }
  copy_idle(entry, ring);
  entry->kind = RAW_INTERRUPT;
  publish(entry, now);
  return 0;
}

// The end of a poll. The record of a poll that follows an interrupt is the interrupt's. A poll that used its whole budget is polled again
// without an interrupt: this record stands for that next poll.
SEC("tp_btf/napi_poll")
int BPF_PROG(neap_poll, struct napi_struct* napi, int work, int budget) {
  struct RawRing* ring = ring_of(bpf_get_smp_processor_id());
  if (!ring) return 0;
  const __u64 vector = (__u64)napi - bpf_core_field_offset(struct ixgbe_q_vector, napi);
  struct RawPending* pending = pending_of(ring, vector);
  const int again = work >= budget;
  // Only vectors of the interface are entered, so the usual poll is over without a look at the NAPI.
  const int accounted = pending->vector == vector && pending->accounted;
  if (accounted && !again) {
    pending->accounted = 0;
    return 0;
  }
  if (!again && work == 0) return 0;
  if ((__u64)napi->poll != ixgbe_poll_address || napi->dev->ifindex != interface_index) return 0;
  pending->vector = vector;
  pending->accounted = again;
  struct RawEntry* entry = reserve(ring);
  if (!entry) return 0;
  copy_all_rings(entry, vector);
  copy_idle(entry, ring);
  entry->kind = RAW_POLL;
  publish(entry, bpf_ktime_get_ns());
  return 0;
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(neap_idle, __u32 state, __u32 cpu) {
  struct RawRing* ring = ring_of(cpu);
  if (!ring) return 0;
  if (state == AWAKE) {
    // An interrupt that ended the sleep has closed it, with its own time.
    if (ring->asleep_since_ns) wake(ring, bpf_ktime_get_ns(), RAW_NO_QUEUE);
    return 0;
  }
  if (state == polling_state) return 0;
  ++ring->sleeps;
  ring->state = state;
  *(volatile __u64*)&ring->asleep_since_ns = bpf_ktime_get_ns();
  return 0;
}

// User space executes this on each CPU at the begin and the end of a run. Its interrupt ends a sleep, so the account is complete.
SEC("raw_tp")
int neap_account(void* context) {
  struct RawRing* ring = ring_of(bpf_get_smp_processor_id());
  struct cpuidle_device* const* place = bpf_this_cpu_ptr(&cpuidle_devices);
  struct cpuidle_device* device = *place;
  if (!ring || !device) return 0;
  read_idle_states(ring, device);
  // cpuidle counts a sleep after the interrupt that ended it. Until then, the device knows the next timer.
  if (BPF_CORE_READ(device, next_hrtimer)) ++ring->sleeps;
  ring->idle_ns = accounted_sleep_ns(ring);
  return 0;
}

// User space executes this on its own CPU, for another one, whose sleep it does not disturb.
SEC("syscall")
int neap_sleeps(struct RawSleepsOf* of) {
  struct RawRing* ring = ring_of(of->cpu);
  struct cpuidle_device* const* place = bpf_per_cpu_ptr(&cpuidle_devices, of->cpu);
  if (!ring || !place) return 0;
  struct cpuidle_device* device = *place;
  if (device) read_idle_states(ring, device);
  return 0;
}

char _license[] SEC("license") = "GPL";
