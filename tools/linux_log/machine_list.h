// SPDX-License-Identifier: BSL-1.0
// The machine list of a Linux system: the facts that decide whether two measurements may be compared (docs/machine-list.md).
//
// Linux reports these facts in /proc, /sys, CPUID, model-specific registers and ethtool's requests. The list gathers them under the names
// that Neap's control command `machine` uses. Nothing is changed, except that reading the card's registers takes about a millisecond.
#pragma once

#include <stdio.h>

enum {
  MACHINE_LIST_WRITTEN = 0,
  MACHINE_LIST_NO_INTERFACE = -1,  // there is no network interface with this name; nothing was written
  MACHINE_LIST_NOT_WRITTEN = -2,   // writing to `out` failed, or memory was short
};

// Writes the list as one JSON object in one line, with a line feed. `interface` is the name of a network interface. NULL means the first
// interface (by name) whose driver is ixgbe; if there is none, the members of the card are absent. Members that need a privilege which the
// caller lacks are absent.
int machine_list_write(FILE* out, const char* interface);
