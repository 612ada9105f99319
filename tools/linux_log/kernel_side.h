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
};

struct KernelSide {
  struct bpf_object* object;
  struct bpf_link* links[4];
  struct RawRing* rings;      // one for each CPU
  struct RawVector* vectors;  // by interrupt number
  uint32_t cpus, ring_entries;
};

/// Loads the programs without attaching them. Returns false, and one sentence with the remedy in `error`.
bool kernel_load(struct KernelSide* kernel, const struct KernelOptions* options, const struct Card* card, const struct Counters* counters,
                 char* error, size_t error_bytes);
/// Clears the rings and attaches the programs.
bool kernel_attach(struct KernelSide* kernel, const struct Card* card, char* error, size_t error_bytes);
void kernel_detach(struct KernelSide* kernel);
/// Tells the programs the interrupt numbers of the card, and makes them forget what they know of each.
void kernel_find_interrupts(struct KernelSide* kernel, const struct Card* card);
/// Copies the new raw entries of a CPU, in order, and frees their places in the ring. Returns their number, `room` at most.
uint32_t kernel_drain(struct KernelSide* kernel, uint32_t cpu, struct RawEntry* into, uint32_t room);
/// Reads a CPU's cumulative sleep at `now_ns`, with the part of a sleep that is on.
void kernel_idle(const struct KernelSide* kernel, uint32_t cpu, uint64_t now_ns, uint32_t* sleeps, uint64_t* idle_ns);
uint64_t kernel_lost(const struct KernelSide* kernel, uint32_t cpu);
