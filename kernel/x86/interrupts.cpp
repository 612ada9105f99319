// SPDX-License-Identifier: BSL-1.0
// Interrupts are closed except in two places, both here.
//
// Between two events the loop opens a window; with nothing to do it sleeps, and wakes by an interrupt. Because both are calls as far as the
// compiler can tell (all caller-saved registers are declared lost), the entry code need not save vector registers.
#include "kernel/interrupts.hpp"

#include <array>
#include <atomic>

#include "kernel/machine.hpp"
#include "kernel/x86/apic.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/cores.hpp"
#include "kernel/x86/cpu.hpp"

namespace neap::x86 {

namespace {

enum class Sleep : std::uint32_t { awake, asleep, woken };

struct alignas(64) SleepState {
  std::atomic<Sleep> state{Sleep::awake};
};
constinit std::array<SleepState, machine::cores_max> sleep_states{};

// Everything that a handler's C++ code may use beyond what the entry code saves.
#define NEAP_VECTOR_REGISTERS \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

}  // namespace

extern "C" void neap_handle_interrupt(std::uint64_t number) noexcept {
  const auto vector = static_cast<std::uint8_t>(number);
  switch (vector) {
    case apic::vector_alarm:
      alarm_arrived();
      break;
    case apic::vector_wake:
      break;  // that it ended the sleep was its purpose
    case apic::vector_error:
      apic::error_arrived();
      break;
    case apic::vector_spurious:
      return;  // must not be acknowledged (SDM 3A, 11.9)
    default:
      interrupt_arrived(vector);
      break;
  }
  apic::end_of_interrupt();
}

}  // namespace neap::x86

namespace neap::machine {

using namespace x86;

void open_interrupt_window() noexcept {
  // The instruction after STI still runs closed; so one more is needed for the window to be one.
  asm volatile("sti; nop; cli" ::: "memory", "cc", NEAP_VECTOR_REGISTERS);
}

void sleep(bool (*still_idle)() noexcept) noexcept {
  auto& state = sleep_states[this_core()].state;
  // From here on a `wake` either finds `asleep` and sends an interrupt, which HLT takes because STI opens only after it, or has left
  // `woken` before.
  auto expected = Sleep::awake;
  if (state.compare_exchange_strong(expected, Sleep::asleep, std::memory_order_seq_cst) && still_idle()) {
    asm volatile("sti; hlt; cli" ::: "memory", "cc", NEAP_VECTOR_REGISTERS);
  }
  state.exchange(Sleep::awake, std::memory_order_seq_cst);
}

void wake(unsigned core) noexcept {
  if (sleep_states[core].state.exchange(Sleep::woken, std::memory_order_seq_cst) == Sleep::asleep)
    apic::send(apic_id_of(core), apic::vector_wake);
}

}  // namespace neap::machine
