// SPDX-License-Identifier: BSL-1.0
// Linux's settings that matter for a run: the interface's, the CPUs' frequency and the network stack's.
//
// Each row of the table has a number, which Settings entries have in `changed`. The log's header has the table as text. A value is read
// from the driver or from a file of sysfs. Neap-trace reads all of them once a second, because Linux has no cheap event for their change.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "card.h"
#include "counters.h"

enum { SETTINGS_MAX = 32, SETTING_ABSENT = -1, IDLE_STATES_MAX = 10, NAME_BYTES = 32 };

struct Settings {
  const struct Card* card;
  uint32_t cpus;
  int files[SETTINGS_MAX][CPUS_MAX];       // of sysfs, kept open; -1: not there
  int64_t values[SETTINGS_MAX][CPUS_MAX];  // SETTING_ABSENT: this machine does not have it
};

uint32_t settings_count(void);
/// The row's text for the header: name:field:kind:unit:choices.
const char* settings_text(uint32_t number);
bool settings_is_of_cpu(uint32_t number);
void settings_open(struct Settings* settings, const struct Card* card, uint32_t cpus);
/// Reads all values. Calls `changed` for each value that differs from the last read; `cpu` is 0 for a setting of the machine.
void settings_read(struct Settings* settings, void (*changed)(void* context, uint32_t number, uint32_t cpu), void* context);
/// Fills the entry with a CPU's present values. `number`: the setting that the entry states, or CHANGED_NOTHING.
void settings_fill(const struct Settings* settings, uint32_t cpu, uint32_t number, struct SettingsEntry* entry);
/// Returns true if sockets polled the card without interrupts at the last read.
bool settings_has_busy_poll(const struct Settings* settings);
