// SPDX-License-Identifier: BSL-1.0
// A loop whose instructions are known to the last one, between two snapshots of the model machine. tools/bench/counts.py compares the
// model's count with the number that this image prints.
//
// CPUID sees what ran before it. So the count begins with the first CPUID and ends before the second: the first CPUID, the rounds, and two
// instructions that load the operands of the second.
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/x86/cpu.hpp"

namespace {

constexpr std::uint32_t rounds = 1'000'000, nops = 3;
constexpr std::uint64_t known_instructions = 1 + std::uint64_t{rounds} * (nops + 2) + 2;

/// The marks are 1 and 2.
void count() {
  asm volatile(
      "mov %[leaf], %%eax\n"
      "mov $1, %%ecx\n"
      "mov %[rounds], %%r8d\n"
      "cpuid\n"
      "1: nop\n"
      "nop\n"
      "nop\n"
      "dec %%r8d\n"
      "jnz 1b\n"
      "mov %[leaf], %%eax\n"
      "mov $2, %%ecx\n"
      "cpuid\n"
      :
      : [leaf] "i"(neap::x86::model_machine_leaf), [rounds] "i"(rounds)
      : "rax", "rbx", "rcx", "rdx", "r8", "cc", "memory");
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  // A core takes interrupts between events only.
  count();
  print("known_count ", known_instructions);
  co_return 0;
}
