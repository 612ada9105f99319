// SPDX-License-Identifier: BSL-1.0
// A program whose instructions are known to the last one, for tests of performance counters on the model machine.
//
//   known_count                     executes KNOWN_INSTRUCTIONS and exits: nothing else runs at user level
//   known_count EVENT KIND FIRST    counts a loop by perf's counter EVENT (a number of PERF_TYPE_HARDWARE), read by RDPMC
//
// KIND is `all` or `user`, the levels that count. FIRST is the number of the first of two marks: CPUID makes the model write a snapshot
// (docs/model-machine.md). Both marks are between the two RDPMC, so perf's count is the model's and COUNTED_OUTSIDE instructions more.
// The output is perf's count. Status 1: perf refused, or the counter was not on the CPU.
//
// It is linked without a C library, because a library's start-up code is not known to the last instruction.
#include <linux/perf_event.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

enum { rounds = 5000000, model_machine_leaf = 0x4e656170, cpu = 0, page_bytes = 4096 };
// KNOWN_INSTRUCTIONS of `_start`: 3 that look at argc, 1 that sets up the rounds, 2 a round, 3 that exit. known_count.py has these numbers.

static long call(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}

static _Noreturn void leave(long status) {
  for (;;) call(SYS_exit, status, 0, 0, 0, 0, 0);
}

static uint64_t number_in(const char* text) {
  uint64_t value = 0;
  for (; *text >= '0' && *text <= '9'; ++text) value = value * 10 + (uint64_t)(*text - '0');
  return value;
}

static void print(uint64_t value) {
  char text[24];
  size_t at = sizeof text;
  text[--at] = '\n';
  do {
    text[--at] = (char)('0' + value % 10);
    value /= 10;
  } while (value != 0);
  call(SYS_write, 1, (long)(text + at), (long)(sizeof text - at), 0, 0, 0);
}

// RDPMC and CPUID see what ran before them. The model's count begins with the first CPUID and ends before the second. perf's count has
// COUNTED_OUTSIDE more: the first RDPMC with the 5 instructions behind it, and the second CPUID with the one behind it.
static uint64_t counted(uint32_t counter, uint32_t first_mark) {
  uint64_t before, after, counter_register = counter;
  __asm__ volatile(
      "rdpmc\n"
      "mov %%eax, %%r8d\n"
      "mov %%edx, %%r9d\n"
      "mov %[leaf], %%eax\n"
      "mov %k[mark], %%ecx\n"
      "mov %[rounds], %%r11d\n"
      "cpuid\n"
      "1: dec %%r11d\n"
      "jnz 1b\n"
      "mov %[leaf], %%eax\n"
      "lea 1(%q[mark]), %%ecx\n"
      "cpuid\n"
      "mov %k[counter], %%ecx\n"
      "rdpmc\n"
      "mov %%eax, %%r10d\n"
      "mov %%r8, %[before]\n"
      "mov %%r9, %%r11\n"
      "shl $32, %%r11\n"
      "or %%r11, %[before]\n"
      "mov %%edx, %%r11d\n"
      "shl $32, %%r11\n"
      "or %%r11, %%r10\n"
      "mov %%r10, %[after]\n"
      : [before] "=&S"(before), [after] "=&D"(after), "+&c"(counter_register)
      : [counter] "r"((uint64_t)counter), [mark] "r"((uint64_t)first_mark), [leaf] "i"(model_machine_leaf), [rounds] "i"(rounds)
      : "rax", "rbx", "rdx", "r8", "r9", "r10", "r11", "cc", "memory");
  const uint64_t counter_mask = ((uint64_t)1 << 48) - 1;
  return (after - before) & counter_mask;
}

__attribute__((used)) _Noreturn void measure(char** words) {
  struct perf_event_attr event = {0};
  event.type = PERF_TYPE_HARDWARE;
  event.size = sizeof event;
  event.config = number_in(words[1]);
  event.exclude_kernel = words[2][0] == 'u';
  event.pinned = 1;
  const long file = call(SYS_perf_event_open, (long)&event, -1, cpu, -1, 0, 0);
  if (file < 0) leave(1);
  const long mapped = call(SYS_mmap, 0, page_bytes, 1 /* PROT_READ */, 1 /* MAP_SHARED */, file, 0);
  if (mapped < 0) leave(1);
  const volatile struct perf_event_mmap_page* const page = (const volatile struct perf_event_mmap_page*)mapped;
  const uint32_t index = page->index;  // of the counter, and 1
  if (index == 0) leave(1);
  print(counted(index - 1, (uint32_t)number_in(words[3])));
  leave(0);
}

__asm__(
    ".globl _start\n"
    "_start:\n"
    "mov (%rsp), %rax\n"
    "cmp $1, %rax\n"
    "jne 2f\n"
    "mov $5000000, %ecx\n"
    "1: dec %ecx\n"
    "jnz 1b\n"
    "mov $60, %eax\n"
    "xor %edi, %edi\n"
    "syscall\n"
    "2: lea 8(%rsp), %rdi\n"
    "and $-16, %rsp\n"
    "call measure\n"
    "hlt\n");
