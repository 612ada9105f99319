// SPDX-License-Identifier: BSL-1.0
// Interrupts are disabled except in two functions, both in this file.
//
// Between two events the loop opens an interrupt window. A core with nothing to do sleeps until an interrupt or a write wakes it. The
// compiler treats both functions as calls that clobber all caller-saved registers, so the entry code saves none (vectors.S).
#include "kernel/interrupts.hpp"

#include "kernel/machine.hpp"
#include "kernel/wake_word.hpp"
#include "kernel/watched_line.hpp"
#include "kernel/x86/apic.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/cores.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/power/this_cpu.hpp"

namespace neap::x86 {

namespace {

// The vector of the first interrupt taken since the core announced its sleep; 0: none.
constinit thread_local std::uint8_t first_vector = 0;

// All registers that a handler's C++ code may use, except RAX and RCX. The sleeping instructions name these two as their operands.
#define NEAP_HANDLER_REGISTERS                                                                                                           \
  "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
      "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

// With ECX = 0, an interrupt ends MWAIT only while interrupts are enabled. HLT and MWAIT run in the shadow of STI, so an interrupt that is
// already pending ends the sleep at once.
struct SleepingCpu {
  void monitor(const volatile void* line) { asm volatile("monitor" ::"a"(line), "c"(0), "d"(0) : "memory"); }
  // On the CPUs that need a CLFLUSH before MONITOR, only fences order it with the surrounding loads and stores (SDM 2A, CLFLUSH).
  void flush(const volatile void* line) { asm volatile("mfence; clflush (%0); mfence" ::"r"(line) : "memory"); }
  void halt() {
    first_vector = 0;
    asm volatile("sti; hlt; cli" ::: "rax", "rcx", NEAP_HANDLER_REGISTERS);
  }
  void mwait(std::uint8_t hint) {
    first_vector = 0;
    std::uint64_t state = hint, extensions = 0;
    asm volatile("sti; mwait; cli" : "+a"(state), "+c"(extensions)::NEAP_HANDLER_REGISTERS);
  }
  [[nodiscard]] std::uint8_t first_vector_taken() const { return first_vector; }
};

}  // namespace

static_assert(machine::vector_first == 0x30 && machine::vector_last == 0xdf, "vectors.S has these numbers");

/// The entries of the vectors that belong to devices call this function.
extern "C" void neap_handle_device_interrupt(std::uint64_t number) noexcept {
  const auto vector = static_cast<std::uint8_t>(number);
  if (first_vector == 0) first_vector = vector;
  interrupt_arrived(vector);
  apic::end_of_interrupt();
}

extern "C" void neap_handle_interrupt(std::uint64_t number) noexcept {
  const auto vector = static_cast<std::uint8_t>(number);
  if (first_vector == 0) first_vector = vector;
  switch (vector) {
    case apic::vector_alarm:
      alarm_fired();
      alarm_arrived();
      break;
    case apic::vector_wake:
      break;  // the interrupt was sent only to end the sleep
    case apic::vector_error:
      apic::error_arrived();
      break;
    case apic::vector_spurious:
      return;  // MUST NOT be acknowledged (SDM 3A, 11.9)
    default:
      interrupt_arrived(vector);  // no handler: the interrupt is counted
      break;
  }
  apic::end_of_interrupt();
}

}  // namespace neap::x86

namespace neap::machine {

using namespace x86;

void open_interrupt_window() noexcept {
  // The instruction after STI still runs with interrupts disabled, so a NOP is needed before CLI.
  asm volatile("sti; nop; cli" ::: "rax", "rcx", NEAP_HANDLER_REGISTERS);
}

Sleep sleep(IdleState state, WakeWord& word, const WatchedLine* watched) noexcept {
  SleepingCpu cpu;
  return power::sleep_until_woken(cpu, word, power::plan_sleep(state, watched != nullptr), watched,
                                  {.alarm = apic::vector_alarm, .wake = apic::vector_wake});
}

void pause() noexcept { x86::pause(); }

void end_sleep(unsigned core) noexcept { apic::send(apic_id_of(core), apic::vector_wake); }

}  // namespace neap::machine
