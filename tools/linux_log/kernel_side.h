// SPDX-License-Identifier: BSL-1.0
// The BPF programs and the rings that they fill.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "card.h"
#include "counters.h"
#include "raw.h"

struct KernelOptions {
  uint32_t cpus, ring_entries;
  uint64_t sample_period_ns;
  bool record_sleeps;
  uint32_t polling_state;  // number of the idle state that does not sleep; UINT32_MAX: none
  uint32_t idle_states;    // of cpuidle; 0: it has no driver
};

struct KernelSide {
  struct bpf_object* object;
  struct bpf_link *interrupt_hook, *idle_hook, *poll_hook;  // NULL: not attached
  struct RawRing* rings;                                    // one for each CPU
  struct RawVector* vectors;                                // by interrupt number
  uint32_t cpus, ring_entries;
  bool has_account;  // the kernel's account of idle time is used in place of the tracepoint cpu_idle
};

/// Loads the programs without attaching them. Returns false, and one sentence with the remedy in `error`.
bool kernel_load(struct KernelSide* kernel, const struct KernelOptions* options, const struct Card* card, const struct Counters* counters,
                 char* error, size_t error_bytes);
/// Clears the rings and attaches the programs, except the hook for polls.
bool kernel_attach(struct KernelSide* kernel, const struct Card* card, char* error, size_t error_bytes);
void kernel_detach(struct KernelSide* kernel);
/// Attaches or detaches the hook for polls. A failure is ignored: the frames of a poll then belong to the next interrupt's record.
void kernel_hook_polls(struct KernelSide* kernel, bool is_wanted);
/// Makes an entry RAW_SLEEPS with the CPU's number of sleeps at `now_ns`. Returns false if the entries of the hooks have it.
bool kernel_read_sleeps(const struct KernelSide* kernel, uint32_t cpu, uint64_t now_ns, struct RawEntry* into);
/// Tells the programs the interrupt numbers of the card, and makes them forget what they know of each.
void kernel_find_interrupts(struct KernelSide* kernel, const struct Card* card);
/// Copies the new raw entries of a CPU, in order, and frees their places in the ring. Returns their number, `room` at most.
uint32_t kernel_drain(struct KernelSide* kernel, uint32_t cpu, struct RawEntry* into, uint32_t room);
/// Brings the rings' sleeps up to date, if the kernel's account is used. This ends a sleep of each CPU.
void kernel_read_account(struct KernelSide* kernel);
/// Reads a CPU's cumulative sleep at `now_ns`, with the part of a sleep that is on. kernel_read_account MUST precede it.
void kernel_idle(const struct KernelSide* kernel, uint32_t cpu, uint64_t now_ns, uint32_t* sleeps, uint64_t* idle_ns);
uint64_t kernel_lost(const struct KernelSide* kernel, uint32_t cpu);
