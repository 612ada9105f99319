// SPDX-License-Identifier: BSL-1.0
// What Linux's driver of the card says about itself, by ethtool's ioctl and sysfs.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record_maker.h"

enum { STATISTIC_NAME_BYTES = 32 };

struct Card {
  char interface[16];
  int socket;
  int index;  // of the interface
  uint32_t statistics;
  char (*names)[STATISTIC_NAME_BYTES];
  uint64_t* values;
};

/// Opens an interface. Returns false, and one sentence with the remedy in `error`, if it does not exist or its driver is not ixgbe.
bool card_open(struct Card* card, const char* interface, char* error, size_t error_bytes);
/// Finds the first interface of an ixgbe. Returns false if there is none.
bool card_find(char* interface, size_t bytes);
/// Reads all statistics into `values`. Returns false if the driver refuses.
bool card_read(struct Card* card);
/// Sums packets and bytes of a queue of the last read, as `ethtool -S` names them. Returns false if there is no such queue.
bool card_queue(const struct Card* card, uint32_t queue, struct QueueCounts* counts);

/// Values of settings; -1: the driver does not have it.
int64_t card_itr_us(const struct Card* card);
int64_t card_ring(const struct Card* card, bool is_rx);
int64_t card_queues(const struct Card* card);
int64_t card_offload(const struct Card* card, uint32_t command);

/// Reads the interrupt numbers of the interface from /proc/interrupts and calls `found` for each.
bool card_interrupts(const struct Card* card, void (*found)(void* context, uint32_t irq), void* context);
