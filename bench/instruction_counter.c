// SPDX-License-Identifier: BSL-1.0
// Counts the instructions that a guest executes: a plugin for QEMU's TCG.
//
// Cost is measured in instructions, because times on an emulated machine mean nothing. Each instruction calls the plugin before it runs, so
// counts are exact, even with exceptions and interrupts. Instructions between two marker instructions of the image (bench/marks.hpp) are
// counted for each region. The total of each CPU is counted too, and the part of it in the upper half of the address space, where images
// are and firmware is not. A repeated string instruction counts once, however often it repeats. With `repetitions=on` each repetition
// counts, if QEMU runs with -icount: only then does each of them call the plugin.
//
// The packages of QEMU that can run plugins do not contain the plugin header, and the header needs GLib. So this file declares the few
// functions that it uses. The arguments of callbacks changed once. Up to API version 6 (QEMU 11.0) the first argument is the plugin's
// number. From version 7 on this argument is missing, and the user data is an additional last argument. One function (`translated`) serves
// both versions, because both pass two arguments in the same registers.
//
//   -plugin instruction_counter.so,out=FILE|live=FILE[,repetitions=on][,skip=LOW:HIGH]...[,profile=LOW:HIGH:FILE]
//
//   out     the file for the counts, as JSON, written when QEMU exits
//   live    a file with the counts at any time, 64 bytes for each CPU, its instructions in the first 8. It is a mapping, because QEMU with
//           the model machine's plugin ends without a call of this one.
//   skip    hexadecimal addresses: instructions in [LOW, HIGH) are not counted
//   profile a file with the counts at any time of the instructions in [LOW, HIGH), 8 bytes for each address. It is a mapping, so that the
//           counts of a window are the difference of two copies. With several CPUs, which share the counts, some may be lost.
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef PLUGIN_API
#define PLUGIN_API 7
#endif

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*ExecuteCallback)(unsigned cpu, void* data);
typedef void (*TranslateCallback)(void* first, void* second);
typedef void (*ExitCallback)(void);
enum { no_registers = 0 };

extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* block);
extern struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb* block, size_t index);
extern size_t qemu_plugin_insn_data(const struct qemu_plugin_insn* instruction, void* to, size_t bytes);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn* instruction);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn* instruction);
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, TranslateCallback callback, void* data);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn* instruction, ExecuteCallback callback, int flags, void* data);
extern void qemu_plugin_register_atexit_cb(uint64_t plugin, ExitCallback callback, void* data);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = PLUGIN_API;
EXPORT int qemu_plugin_install(uint64_t plugin, const void* info, int argc, char** argv);

enum { cpus_max = 256, regions_max = 64, visits_kept = 16384, skips_max = 64, marker_bytes = 7, profile_bytes_max = 1 << 26 };

/// The counts of one CPU. Only the thread of that CPU writes them.
struct Executed {
  uint64_t instructions, upper;
} __attribute__((aligned(64)));
struct Cpu {
  uint64_t repeating;  // address of the last instruction, if that instruction was a repeated one; otherwise 0
  uint64_t region_began[regions_max];
  bool region_open[regions_max];
} __attribute__((aligned(64)));

struct Region {
  uint64_t visits, instructions;
  uint64_t kept[visits_kept];  // instruction counts of the region's first visits, for the median
  uint64_t unmatched;          // end marks without a begin mark
};

static struct Executed counts_of_report[cpus_max];
static struct Executed* counts = counts_of_report;
static struct Cpu cpus[cpus_max];
static struct Region regions[regions_max];
static pthread_mutex_t regions_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  uint64_t low, high;
} skips[skips_max];
static size_t skip_count;
static const char* out_path;
static bool counts_repetitions;
static uint64_t* profile;
static uint64_t profile_low, profile_bytes;

static void count_one(unsigned cpu, uint64_t address) {
  ++counts[cpu].instructions;
  counts[cpu].upper += address >> 63;  // 1 in the upper half
  if (address - profile_low < profile_bytes) ++profile[address - profile_low];
}

/// `data` is the instruction's address.
static void executed(unsigned cpu, void* data) {
  if (cpu >= cpus_max) return;
  count_one(cpu, (uintptr_t)data);
  cpus[cpu].repeating = 0;
}

static void executed_repeated(unsigned cpu, void* data) {
  if (cpu >= cpus_max || cpus[cpu].repeating == (uintptr_t)data) return;
  count_one(cpu, (uintptr_t)data);
  cpus[cpu].repeating = (uintptr_t)data;
}

static void region_begins(unsigned cpu, void* data) {
  if (cpu >= cpus_max) return;
  const uintptr_t region = (uintptr_t)data;
  cpus[cpu].repeating = 0;
  cpus[cpu].region_began[region] = counts[cpu].instructions;
  cpus[cpu].region_open[region] = true;
}

static void region_ends(unsigned cpu, void* data) {
  if (cpu >= cpus_max) return;
  struct Cpu* const self = &cpus[cpu];
  struct Region* const region = &regions[(uintptr_t)data];
  const uint64_t instructions = counts[cpu].instructions - self->region_began[(uintptr_t)data];
  self->repeating = 0;
  pthread_mutex_lock(&regions_lock);
  if (!self->region_open[(uintptr_t)data]) {
    ++region->unmatched;
  } else {
    if (region->visits < visits_kept) region->kept[region->visits] = instructions;
    ++region->visits;
    region->instructions += instructions;
  }
  pthread_mutex_unlock(&regions_lock);
  self->region_open[(uintptr_t)data] = false;
}

/// Detects repeated instructions (Intel SDM volume 2, 2.1.1 and "REP"). Prefixes come in any order, but REX comes last. The opcode after
/// them is one of INS, OUTS, MOVS, CMPS, STOS, LODS or SCAS.
static bool repeats(const uint8_t* code, size_t bytes) {
  bool repeat = false;
  size_t i = 0;
  for (; i < bytes; ++i) {
    const uint8_t byte = code[i];
    if (byte == 0xF2 || byte == 0xF3) {
      repeat = true;
    } else if (byte != 0x66 && byte != 0x67 && byte != 0x2E && byte != 0x36 && byte != 0x3E && byte != 0x26 && byte != 0x64 &&
               byte != 0x65) {
      break;
    }
  }
  if (i < bytes && (code[i] & 0xF0) == 0x40) ++i;
  if (!repeat || i >= bytes) return false;
  const uint8_t opcode = code[i];
  return (opcode >= 0x6C && opcode <= 0x6F) || (opcode >= 0xA4 && opcode <= 0xA7) || (opcode >= 0xAA && opcode <= 0xAF);
}

/// Returns 1 for a begin mark, 2 for an end mark, otherwise 0. A mark is nopl disp32(%rax) with the bytes 'N', 'B', region, 1 or 2.
static int marker(const uint8_t* code, size_t bytes, uintptr_t* region) {
  static const uint8_t opening[] = {0x0F, 0x1F, 0x80, 'N', 'B'};
  if (bytes != marker_bytes || memcmp(code, opening, sizeof opening) != 0 || code[5] >= regions_max) return 0;
  *region = code[5];
  return code[6] == 1 || code[6] == 2 ? code[6] : 0;
}

static bool skipped(uint64_t address) {
  for (size_t i = 0; i < skip_count; ++i) {
    if (address >= skips[i].low && address < skips[i].high) return true;
  }
  return false;
}

/// Up to API version 6 the arguments are (number, block), from version 7 on (block, user data). Our user data is null.
static void translated(void* first, void* second) {
  const struct qemu_plugin_tb* const block = second != NULL ? second : first;
  const size_t count = qemu_plugin_tb_n_insns(block);
  for (size_t i = 0; i < count; ++i) {
    struct qemu_plugin_insn* const instruction = qemu_plugin_tb_get_insn(block, i);
    const uint64_t address = qemu_plugin_insn_vaddr(instruction);
    uint8_t code[16] = {0};
    size_t bytes = qemu_plugin_insn_size(instruction);
    if (bytes > sizeof code) bytes = sizeof code;
    bytes = qemu_plugin_insn_data(instruction, code, bytes);
    uintptr_t region = 0;
    const int mark = marker(code, bytes, &region);
    if (mark != 0) {
      qemu_plugin_register_vcpu_insn_exec_cb(instruction, mark == 1 ? region_begins : region_ends, no_registers, (void*)region);
    } else if (!skipped(address)) {
      const bool repeated = !counts_repetitions && repeats(code, bytes);
      qemu_plugin_register_vcpu_insn_exec_cb(instruction, repeated ? executed_repeated : executed, no_registers, (void*)(uintptr_t)address);
    }
  }
}

static int compare(const void* one, const void* other) {
  const uint64_t a = *(const uint64_t*)one, b = *(const uint64_t*)other;
  return a < b ? -1 : a > b;
}

static void report(void) {
  if (out_path == NULL) return;
  FILE* const out = fopen(out_path, "w");
  if (out == NULL) {
    perror(out_path);
    return;
  }
  fprintf(out, "{\"cpus\": [");
  size_t last = 0;
  for (size_t cpu = 0; cpu < cpus_max; ++cpu) {
    if (counts[cpu].instructions != 0) last = cpu;
  }
  for (size_t cpu = 0; cpu <= last; ++cpu) fprintf(out, "%s%llu", cpu == 0 ? "" : ", ", (unsigned long long)counts[cpu].instructions);
  fprintf(out, "], \"upper\": [");
  for (size_t cpu = 0; cpu <= last; ++cpu) fprintf(out, "%s%llu", cpu == 0 ? "" : ", ", (unsigned long long)counts[cpu].upper);
  fprintf(out, "], \"regions\": {");
  const char* separator = "";
  for (size_t i = 0; i < regions_max; ++i) {
    struct Region* const region = &regions[i];
    if (region->visits == 0 && region->unmatched == 0) continue;
    const size_t kept = region->visits < visits_kept ? region->visits : visits_kept;
    qsort(region->kept, kept, sizeof region->kept[0], compare);
    fprintf(out,
            "%s\"%zu\": {\"visits\": %llu, \"instructions\": %llu, \"min\": %llu, \"median\": %llu, \"max\": %llu, \"unmatched\": %llu}",
            separator, i, (unsigned long long)region->visits, (unsigned long long)region->instructions, (unsigned long long)region->kept[0],
            (unsigned long long)region->kept[kept / 2], (unsigned long long)region->kept[kept == 0 ? 0 : kept - 1],
            (unsigned long long)region->unmatched);
    separator = ", ";
  }
  fprintf(out, "}}\n");
  fclose(out);
}

/// Replaces strtoull: newer C libraries link strtoull under a symbol that older ones lack.
static bool parse_hex(const char** text, uint64_t* value) {
  const char* at = *text;
  *value = 0;
  for (;; ++at) {
    const char c = *at;
    unsigned digit;
    if (c >= '0' && c <= '9') {
      digit = (unsigned)(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = (unsigned)(c - 'a') + 10;
    } else {
      break;
    }
    *value = *value << 4 | digit;
  }
  const bool any = at != *text;
  *text = at;
  return any;
}

static bool parse_skip(const char* text) {
  if (skip_count == skips_max || !parse_hex(&text, &skips[skip_count].low) || *text++ != ':') return false;
  if (!parse_hex(&text, &skips[skip_count].high) || *text != '\0') return false;
  ++skip_count;
  return true;
}

/// Returns a new file's mapping, which is zero; NULL on error.
static void* mapped_file(const char* path, size_t bytes) {
  const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return NULL;
  void* const mapped = ftruncate(file, (off_t)bytes) != 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return mapped == MAP_FAILED ? NULL : mapped;
}

static bool keep_live(const char* path) {
  struct Executed* const mapped = mapped_file(path, sizeof counts_of_report);
  if (mapped == NULL) return false;
  counts = mapped;
  return true;
}

static bool keep_profile(const char* text) {
  uint64_t high = 0;
  if (!parse_hex(&text, &profile_low) || *text++ != ':' || !parse_hex(&text, &high) || *text++ != ':') return false;
  if (high <= profile_low || high - profile_low > profile_bytes_max) return false;
  profile = mapped_file(text, (high - profile_low) * sizeof profile[0]);
  if (profile == NULL) return false;
  profile_bytes = high - profile_low;
  return true;
}

int qemu_plugin_install(uint64_t plugin, const void* info, int argc, char** argv) {
  (void)info;
  for (int i = 0; i < argc; ++i) {
    if (strncmp(argv[i], "out=", 4) == 0) {
      out_path = argv[i] + 4;
      continue;
    }
    if (strncmp(argv[i], "live=", 5) == 0) {
      if (!keep_live(argv[i] + 5)) {
        perror(argv[i] + 5);
        return 1;
      }
      continue;
    }
    if (strncmp(argv[i], "profile=", 8) == 0) {
      if (!keep_profile(argv[i] + 8)) {
        fprintf(stderr, "instruction counter: cannot use '%s'\n", argv[i]);
        return 1;
      }
      continue;
    }
    if (strcmp(argv[i], "repetitions=on") == 0) {
      counts_repetitions = true;
      continue;
    }
    if (strncmp(argv[i], "skip=", 5) != 0 || !parse_skip(argv[i] + 5)) {
      fprintf(stderr, "instruction counter: cannot use '%s'\n", argv[i]);
      return 1;
    }
  }
  if (out_path == NULL && counts == counts_of_report) {
    fprintf(stderr, "instruction counter: out=FILE or live=FILE is missing\n");
    return 1;
  }
  qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated, NULL);
  qemu_plugin_register_atexit_cb(plugin, report, NULL);
  return 0;
}
