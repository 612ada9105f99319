// SPDX-License-Identifier: BSL-1.0
// Runs the record maker on invented input, for record_maker_test.py.
//
// Input: items of 80 bytes: operation and core (u32 each), ns (u64), then 64 bytes: a raw entry, or eight u64.
// Output: for each log entry its core (u64) and its 64 bytes.
#include <stdio.h>
#include <string.h>

#include "record_maker.h"

enum { CORES = 4 };
enum Operation { BASE, START, RAW, REST, STOP, MARK, CHANGE };
struct Item {
  uint32_t operation, core;
  uint64_t ns;
  union {
    struct RawEntry raw;
    uint64_t numbers[8];
  };
};

static void write_entry(void* context, const void* entry) {
  const uint64_t core = *(const uint32_t*)context;
  fwrite(&core, sizeof core, 1, stdout);
  fwrite(entry, ENTRY_BYTES, 1, stdout);
}

int main(void) {
  static struct Machine machine = {.cpu_tsc_hz = 2 * (uint64_t)TICKS_PER_SECOND};
  static struct RecordMaker makers[CORES];
  struct Item item;
  while (fread(&item, sizeof item, 1, stdin) == 1) {
    if (item.core >= CORES) return 2;
    struct RecordMaker* maker = &makers[item.core];
    const uint64_t* numbers = item.numbers;
    const struct QueueCounts counts = {numbers[1], numbers[2], numbers[3], numbers[4]};
    const struct CounterValues values = {.valid = 1u << COUNTER_INSTRUCTIONS, .values = {numbers[2]}};
    struct SettingsEntry settings = {.changed = (uint8_t)numbers[0], .itr_us = (uint32_t)numbers[1]};
    switch (item.operation) {
      case BASE:
        machine_set_base(&machine, (uint32_t)numbers[0], &counts);
        break;
      case START:
        *maker = (struct RecordMaker){.machine = &machine, .core = item.core, .run = 1, .sink = write_entry, .context = &maker->core};
        maker_start(maker, item.ns, 1, numbers[0], numbers[1], &values);
        break;
      case RAW:
        maker_take(maker, &item.raw);
        break;
      case REST:
        maker_add_rest(maker, (uint32_t)numbers[0], &counts);
        break;
      case STOP:
        maker_stop(maker, item.ns, 1, numbers[0], numbers[1], &values);
        break;
      case MARK:
        maker_mark(maker, item.ns, (uint8_t)numbers[0]);
        break;
      case CHANGE:
        ++machine.generation;
        maker_change(maker, item.ns, &settings);
        break;
      default:
        return 2;
    }
  }
  return 0;
}
