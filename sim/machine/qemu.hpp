// SPDX-License-Identifier: BSL-1.0
// Everything that the model uses of QEMU's inside.
//
// QEMU's interface for plugins can observe instructions, but not change the clock, the MSRs or the way in which a CPU sleeps. Debian's QEMU
// exports its symbols, because its modules need them. So this part replaces functions in QEMU's tables: the accelerator's clock, the
// helpers of some instructions, the entry into a CPU's run, its halt and its interrupts, and the register access of the card.
//
// Symbols and offsets are those of one version. `attach` compares the version, finds every symbol and checks the tables. `check_cpu` checks
// the offsets inside a CPU before its first instruction. A difference is reported in one sentence, and nothing runs.
//
// The hooks are plain functions that return. QEMU's code leaves helpers by longjmp, and only functions of qemu_instructions.cpp and
// qemu_debugger.cpp are on the stack then. They hold no object with a destructor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/machine/registers.hpp"

namespace neap::model::qemu {

constexpr const char* pinned_version = "11.1.3";

/// The operands of MWAIT, and the state of interrupts at that time.
struct MwaitRequest {
  std::uint8_t hint = 0;
  bool breaks_by_masked_interrupt = false;  ///< ECX bit 0 while interrupts are disabled (SDM 2B, MWAIT)
  bool interrupt_pending = false;           ///< such an interrupt is there already
};
enum class AfterInstruction : std::uint8_t { continue_run, sleep, end_run };

/// The model's functions. All are called in the thread of the CPUs, except `clock_ns`, `tsc` and `interrupt_raised`, which may come from
/// others.
struct Hooks {
  std::int64_t (*clock_ns)();
  std::int64_t (*tsc)();
  /// CPU `cpu` is about to run. Returns how many instructions it may execute; 0: it is not its turn.
  std::uint64_t (*enter)(unsigned cpu);
  /// All CPUs are about to sleep, or a timer's work is done: ends the halt of those whose watched line has changed.
  void (*look_at_memory)();
  void (*interrupt_taken)(unsigned cpu);
  /// After an instruction that may change the privilege level. Interrupts and exceptions are reported by QEMU's plugin interface.
  void (*level_changed)(unsigned cpu, bool user);
  /// Before and after QEMU marks the interrupt. `wakes`: one that ends a masked MWAIT.
  void (*interrupt_raised)(unsigned cpu);
  bool (*masked_interrupt_wakes)(unsigned cpu);

  bool (*read_msr)(unsigned cpu, std::uint32_t number, std::uint64_t& value);
  bool (*write_msr)(unsigned cpu, std::uint32_t number, std::uint64_t value);
  bool (*read_counter)(unsigned cpu, std::uint32_t selector, std::uint64_t& value);
  void (*cpuid)(unsigned cpu, std::uint32_t leaf, std::uint32_t subleaf, CpuidWords& words);
  /// `line`: the host's address of the 64 bytes; null if they are no RAM.
  void (*monitor)(unsigned cpu, const std::uint8_t* line);
  AfterInstruction (*mwait)(unsigned cpu, const MwaitRequest& request);
  void (*halt)(unsigned cpu);
  AfterInstruction (*pause)(unsigned cpu);
  /// Before RDTSC. False: the CPU MUST wait for others, and will execute the instruction again.
  bool (*may_read_tsc)(unsigned cpu);
  void (*port_write)(unsigned cpu, std::uint32_t port, std::uint32_t value);

  /// Around an access to the card's registers by a CPU.
  void (*before_card_access)(bool write, std::uint32_t region, std::uint64_t offset, const void* data, std::size_t bytes);
  void (*after_card_access)();
  /// The timer of `set_timer` has expired.
  void (*timer)();
};

/// At the plugin's installation. Null if this QEMU is the expected one; otherwise a sentence.
[[nodiscard]] const char* attach(const Hooks& hooks);
/// When a CPU is created, in the CPUs' thread, before its first instruction. Null, or a sentence.
[[nodiscard]] const char* check_cpu(unsigned cpu);

/// Instructions that were executed since the last call, by whichever CPU ran. May be negative: see CoreClock::run.
[[nodiscard]] std::int64_t take_executed();
/// The time skipped by QEMU while all CPUs slept, in ns.
[[nodiscard]] std::uint64_t skipped_ns();
/// Of QEMU's next timer, from clock_ns() on; -1: none.
[[nodiscard]] std::int64_t next_timer_ns();

[[nodiscard]] bool in_cpu_thread();
[[nodiscard]] unsigned current_cpu();
/// The current CPU executes guest code. Otherwise its thread is between two runs, or in another lock's care.
[[nodiscard]] bool current_cpu_runs();
[[nodiscard]] bool global_lock_held();

[[nodiscard]] bool is_awake(unsigned cpu);  ///< not halted, or with an interrupt to take
[[nodiscard]] bool is_at_user_level(unsigned cpu);
void end_halt(unsigned cpu);
void end_current_run();
/// Changes how many instructions the CPU that runs may still execute.
void set_budget(unsigned cpu, std::uint64_t instructions);

void set_timer(std::uint64_t at_ns);
void clear_timer();
/// Sends the card's message of vector `number`.
void notify_card_vector(unsigned number);

/// From now on idle time is not skipped by the model. With -icount's sleep=on it then passes as the host's time does.
void leave_idle_time_to_qemu();

/// For tests: from now on another thread interrupts the CPUs' runs again and again, at host times about `mean_us` apart.
void interrupt_runs(unsigned mean_us);

/// Ends QEMU's process at once with this status; files of the model MUST be written before.
[[noreturn]] void end_process(int status);

}  // namespace neap::model::qemu
