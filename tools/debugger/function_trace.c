// SPDX-License-Identifier: BSL-1.0
// A plugin for QEMU's TCG that records the functions that one CPU of a guest enters.
//
// The launcher passes the addresses of the image's functions. QEMU translates code block by block. When a block runs, the plugin knows the
// block's function, and whether the block begins a function, ends in a call or ends in a return. From this it keeps a copy of the guest's
// call stack (the shadow). It records each function that is entered, with its depth in the shadow. The shadow cannot follow an exception, a
// coroutine or a switch of stacks. If a block in the middle of a function runs, the plugin corrects the shadow: it drops all entries above
// that function's last entry.
//
// The output file is a memory-mapped ring of the last records, so the records survive any end of QEMU. Its format, little endian:
//   u64 records ever written, u64 capacity, then records of u64 instructions (of this CPU, approximately), u32 function, u32 depth
//
// This file declares QEMU's functions without QEMU's header; bench/instruction_counter.c gives the reason.
//
//   -plugin function_trace.so,out=FILE,functions=FILE,cpu=N
//
//   functions   three u64 each, ascending: first byte, one past the last, 1 if an interrupt enters the function without a call, else 0
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef PLUGIN_API
#define PLUGIN_API 7
#endif

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*ExecuteCallback)(unsigned cpu, void* data);
typedef void (*TranslateCallback)(void* first, void* second);
enum { no_registers = 0 };

extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* block);
extern struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb* block, size_t index);
extern size_t qemu_plugin_insn_data(const struct qemu_plugin_insn* instruction, void* to, size_t bytes);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn* instruction);
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, TranslateCallback callback, void* data);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn* instruction, ExecuteCallback callback, int flags, void* data);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = PLUGIN_API;
EXPORT int qemu_plugin_install(uint64_t plugin, const void* info, int argc, char** argv);

struct Function {
  uint64_t first, end, by_interrupt;
};
struct Entry {
  uint64_t instructions;
  uint32_t function, depth;
};
struct Ring {
  uint64_t written, capacity;
  struct Entry entries[];
};

enum { depth_max = 1024, entries_max = 1 << 24 };

static const struct Function* functions;
static size_t function_count;
static struct Ring* ring;
static unsigned traced_cpu;

// State of the traced CPU, used only by that CPU's thread in QEMU.
static uint32_t stack[depth_max];
static uint32_t depth;
static uint64_t instructions;
static bool called;  // the previous block ended in a call

// Facts about consecutive instructions of one function, packed into the 64 bits of a callback's argument.
enum { begins_bit = 1 << 0, calls_bit = 1 << 1, returns_bit = 1 << 2, interrupt_bit = 1 << 3, function_shift = 32, count_shift = 16 };

static void enter(uint32_t function, bool by_call) {
  if (!by_call && depth > 0) --depth;  // after a jump, the entry replaces that of the jumping function
  if (depth == depth_max) {            // the shadow is full: its outer half is dropped
    memmove(stack, stack + depth_max / 2, sizeof stack / 2);
    depth = depth_max / 2;
  }
  ring->entries[ring->written % ring->capacity] = (struct Entry){.instructions = instructions, .function = function, .depth = depth};
  ++ring->written;
  stack[depth++] = function;
}

static void ran(unsigned cpu, void* data) {
  if (cpu != traced_cpu) return;
  const uint64_t known = (uintptr_t)data;
  const uint32_t function = (uint32_t)(known >> function_shift);
  if (known & begins_bit) {
    enter(function, called || (known & interrupt_bit) != 0);
  } else {
    uint32_t place = depth;
    while (place > 0 && stack[place - 1] != function) --place;
    if (place > 0) {
      depth = place;
    } else {
      enter(function, true);  // the function is not in the shadow, because tracing began inside it
    }
  }
  instructions += known >> count_shift & 0xFFFF;
  called = (known & calls_bit) != 0;
  if ((known & returns_bit) && depth > 0) --depth;
}

/// Returns the function that contains an address, or function_count if there is none.
static size_t find(uint64_t address) {
  size_t low = 0, high = function_count;  // finds the first function that begins after the address
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (functions[middle].first <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low > 0 && address < functions[low - 1].end ? low - 1 : function_count;
}

/// Intel SDM volume 2: CALL is E8 or FF /2 or FF /3, RET is C3, C2, CB or CA, IRET CF. Prefixes and REX come before these bytes.
static uint64_t kind_of(const struct qemu_plugin_insn* instruction) {
  uint8_t code[16];
  const size_t bytes = qemu_plugin_insn_data(instruction, code, sizeof code);
  size_t i = 0;
  while (i < bytes && (code[i] == 0xF2 || code[i] == 0xF3 || code[i] == 0x66 || code[i] == 0x3E || code[i] == 0x2E)) ++i;
  if (i < bytes && (code[i] & 0xF0) == 0x40) ++i;
  if (i >= bytes) return 0;
  if (code[i] == 0xE8) return calls_bit;
  if (code[i] == 0xFF && i + 1 < bytes && ((code[i + 1] >> 3 & 7) == 2 || (code[i + 1] >> 3 & 7) == 3)) return calls_bit;
  const bool returns = code[i] == 0xC3 || code[i] == 0xC2 || code[i] == 0xCB || code[i] == 0xCA || code[i] == 0xCF;
  return returns ? returns_bit : 0;
}

/// Up to API version 6 the arguments are (number, block), from version 7 on (block, user data). The plugin's user data is null.
static void translated(void* first, void* second) {
  const struct qemu_plugin_tb* const block = second != NULL ? second : first;
  const size_t count = qemu_plugin_tb_n_insns(block);
  // A block may extend from one function into the next.
  for (size_t i = 0; i < count;) {
    struct qemu_plugin_insn* const start = qemu_plugin_tb_get_insn(block, i);
    const uint64_t address = qemu_plugin_insn_vaddr(start);
    const size_t function = find(address);
    size_t end = i + 1;
    while (end < count) {
      const uint64_t next = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(block, end));
      if (find(next) != function || (function < function_count && next == functions[function].first)) break;
      ++end;
    }
    if (function < function_count) {
      uint64_t known = (uint64_t)function << function_shift | (uint64_t)((end - i) & 0xFFFF) << count_shift;
      if (address == functions[function].first) known |= begins_bit;
      if (functions[function].by_interrupt) known |= interrupt_bit | begins_bit;
      known |= kind_of(qemu_plugin_tb_get_insn(block, end - 1));
      qemu_plugin_register_vcpu_insn_exec_cb(start, ran, no_registers, (void*)(uintptr_t)known);
    }
    i = end;
  }
}

static void* map_file(const char* path, size_t* bytes, bool writable) {
  const int file = open(path, writable ? O_RDWR : O_RDONLY);
  struct stat status;
  void* mapped = MAP_FAILED;
  if (file >= 0 && fstat(file, &status) == 0 && status.st_size > 0) {
    *bytes = (size_t)status.st_size;
    mapped = mmap(NULL, *bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, file, 0);
  }
  if (file >= 0) close(file);
  return mapped == MAP_FAILED ? NULL : mapped;
}

/// Replaces strtoull: newer C libraries link strtoull under a symbol that older libraries lack.
static bool parse_number(const char* text, unsigned* value) {
  *value = 0;
  if (*text == '\0') return false;
  for (; *text != '\0'; ++text) {
    if (*text < '0' || *text > '9' || *value > entries_max) return false;
    *value = *value * 10 + (unsigned)(*text - '0');
  }
  return true;
}

int qemu_plugin_install(uint64_t plugin, const void* info, int argc, char** argv) {
  (void)info;
  size_t ring_bytes = 0, function_bytes = 0;
  for (int i = 0; i < argc; ++i) {
    bool good = false;
    if (strncmp(argv[i], "out=", 4) == 0) {
      ring = map_file(argv[i] + 4, &ring_bytes, true);
      good = ring != NULL;
    } else if (strncmp(argv[i], "functions=", 10) == 0) {
      functions = map_file(argv[i] + 10, &function_bytes, false);
      function_count = function_bytes / sizeof(struct Function);
      good = functions != NULL;
    } else if (strncmp(argv[i], "cpu=", 4) == 0) {
      good = parse_number(argv[i] + 4, &traced_cpu);
    }
    if (!good) {
      fprintf(stderr, "function trace: cannot use '%s'\n", argv[i]);
      return 1;
    }
  }
  if (functions == NULL || ring_bytes < sizeof(struct Ring) + sizeof(struct Entry)) {
    fprintf(stderr, "function trace: out=FILE and functions=FILE are needed\n");
    return 1;
  }
  // The launcher has set the file's size, which is the ring's size.
  ring->capacity = (ring_bytes - sizeof(struct Ring)) / sizeof(struct Entry);
  qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated, NULL);
  return 0;
}
