// SPDX-License-Identifier: BSL-1.0
// This file is compiled without vector registers (CMakeLists.txt), because the handler of an expected #GP (msr.cpp) returns to code that
// uses them.
#include "kernel/x86/exceptions.hpp"

#include <array>
#include <atomic>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/apic.hpp"
#include "kernel/x86/backtrace.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/console.hpp"
#include "kernel/x86/cores.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/layout.hpp"
#include "kernel/x86/machine_checks.hpp"
#include "kernel/x86/paging.hpp"

namespace neap::x86 {

namespace {

constexpr std::uint64_t vector_nmi = 2, vector_double_fault = 8, vector_stack_fault = 12, vector_general_protection = 13,
                        vector_page_fault = 14, vector_machine_check = 18;
constexpr std::uint64_t flag_carry = 1 << 0;
// SDM 3A, 4.7.
constexpr std::uint64_t fault_present = 1 << 0, fault_write = 1 << 1, fault_reserved = 1 << 3, fault_fetch = 1 << 4;

constexpr std::array<const char*, 32> names{"divide error",
                                            "debug",
                                            "NMI",
                                            "breakpoint",
                                            "overflow",
                                            "bound range exceeded",
                                            "invalid opcode",
                                            "no coprocessor",
                                            "double fault",
                                            "coprocessor overrun",
                                            "invalid TSS",
                                            "segment not present",
                                            "stack segment fault",
                                            "general protection fault",
                                            "page fault",
                                            "exception 15",
                                            "x87 floating-point error",
                                            "alignment check",
                                            "machine check",
                                            "SIMD floating-point error",
                                            "virtualisation",
                                            "control protection",
                                            "exception 22",
                                            "exception 23",
                                            "exception 24",
                                            "exception 25",
                                            "exception 26",
                                            "exception 27",
                                            "hypervisor injection",
                                            "VMM communication",
                                            "security",
                                            "exception 31"};

struct Fixup {
  std::uint64_t fault, resume;
};
extern "C" const Fixup exception_fixups_start[], exception_fixups_end[];

bool fix_up(ExceptionFrame& frame) {
  for (const auto* fixup = exception_fixups_start; fixup != exception_fixups_end; ++fixup) {
    if (fixup->fault != frame.rip) continue;
    frame.rip = fixup->resume;
    frame.rflags |= flag_carry;
    return true;
  }
  return false;
}

void print_registers(const ExceptionFrame& f, std::uint64_t address) {
  print("  rip ", hex(f.rip), "  cs ", hex(f.cs), "  rflags ", hex(f.rflags), "  error code ", hex(f.error_code), "  cr2 ", hex(address));
  print("  rax ", hex(f.rax), "  rbx ", hex(f.rbx), "  rcx ", hex(f.rcx), "  rdx ", hex(f.rdx));
  print("  rsi ", hex(f.rsi), "  rdi ", hex(f.rdi), "  rbp ", hex(f.rbp), "  rsp ", hex(f.rsp));
  print("  r8  ", hex(f.r8), "  r9  ", hex(f.r9), "  r10 ", hex(f.r10), "  r11 ", hex(f.r11));
  print("  r12 ", hex(f.r12), "  r13 ", hex(f.r13), "  r14 ", hex(f.r14), "  r15 ", hex(f.r15));
}

// The attempted access, in words.
const char* page_fault_kind(std::uint64_t error_code, std::uint64_t address) {
  constexpr std::uint64_t nearly_null = 64 * 1024;
  if (error_code & fault_reserved) return "reserved bit set in the page tables";
  if (error_code & fault_fetch)
    return error_code & fault_present ? "execution of memory that is not code" : "jump to an address that is not mapped";
  if (address < nearly_null) return error_code & fault_write ? "write through a null pointer" : "read through a null pointer";
  if (error_code & fault_present) return "write to read-only memory";
  return error_code & fault_write ? "write to an address that is not mapped" : "read of an address that is not mapped";
}

// A pointer whose bits 63 to 47 differ is not canonical. Using it raises #GP, which does not report the pointer (SDM 1, 3.3.7.1). So the
// report names the registers that hold such a value.
void add_noncanonical_registers(Line& text, const ExceptionFrame& f) {
  struct Named {
    const char* name;
    std::uint64_t value;
  };
  const std::array registers{Named{"rax", f.rax}, Named{"rbx", f.rbx}, Named{"rcx", f.rcx}, Named{"rdx", f.rdx}, Named{"rsi", f.rsi},
                             Named{"rdi", f.rdi}, Named{"rbp", f.rbp}, Named{"rsp", f.rsp}, Named{"r8", f.r8},   Named{"r9", f.r9},
                             Named{"r10", f.r10}, Named{"r11", f.r11}, Named{"r12", f.r12}, Named{"r13", f.r13}, Named{"r14", f.r14},
                             Named{"r15", f.r15}, Named{"rip", f.rip}};
  const char* between = ": not a canonical address: ";
  for (const auto& [name, value] : registers) {
    const auto sign = static_cast<std::int64_t>(value) >> 47;
    if (sign == 0 || sign == -1) continue;
    text << between << name << ' ' << hex(value);
    between = ", ";
  }
}

// A jump to an unmapped address has no frame to unwind, but its call left the return address on the stack. So the frame is set as if the
// call had returned.
void step_out_of_bad_jump(ExceptionFrame& frame) {
  if (is_code(frame.rip) || !paging::is_mapped(frame.rsp, 8)) return;
  const auto caller = *reinterpret_cast<const std::uint64_t*>(frame.rsp);
  if (!is_code(caller)) return;
  frame.rip = caller;
  frame.rsp += 8;
}

// A core with badly damaged registers may fault again in each report, without end. No per-core state can be trusted then, so the reports of
// all cores are counted together. Only such a core causes `reports_max` reports.
constinit std::atomic<unsigned> reports{0};
constexpr unsigned reports_max = 20;

[[noreturn]] void report(ExceptionFrame& frame) {
  if (reports.fetch_add(1) >= reports_max) {
    console::break_lock();
    machine::console_write("neap: exceptions in the report of an exception\n");
    machine::exit(machine::ExitStatus::panic);
  }
  const auto address = read_cr2();
  unsigned guarded = 0;
  const bool may_be_stack = frame.vector == vector_page_fault || frame.vector == vector_double_fault;
  Line text;
  if (may_be_stack && paging::is_stack_guard(address, guarded)) {
    text << "stack overflow on core " << guarded;
    char buffer[200];
    if (const auto event = event_of(frame, buffer); !event.empty()) text << ", in the event " << event;
  } else {
    text << names[frame.vector % names.size()];
    if (frame.vector == vector_general_protection && frame.error_code == 0) add_noncanonical_registers(text, frame);
    if (frame.vector == vector_machine_check) machine_checks::report_here(machine::this_core(), text);
    if (frame.vector == vector_page_fault) text << ": " << page_fault_kind(frame.error_code, address) << " (" << hex(address) << ')';
  }
  print("neap: ", text.text(), ": core ", machine::this_core(), " at ", hex(frame.rip));
  print_registers(frame, may_be_stack ? address : 0);
  step_out_of_bad_jump(frame);
  panic(text.text());
}

// --- Stopping the other cores in a panic -------------------------------------------------------------------------------------------------
constinit std::atomic<bool> stopping{false};
constinit std::atomic<unsigned> stopped{0};
constinit std::array<std::atomic<const ExceptionFrame*>, machine::cores_max> stopped_at{};

[[noreturn]] void stop_here(const ExceptionFrame& frame) {
  stopped_at[machine::this_core()].store(&frame, std::memory_order_release);
  stopped.fetch_add(1);
  halt_for_ever();
}

// --- Inspecting another core -------------------------------------------------------------------------------------------------------------
constexpr unsigned no_core = ~0U;
constinit std::atomic<unsigned> inspected{no_core};                // the core that must wait
constinit std::atomic<const ExceptionFrame*> waiting_at{nullptr};  // the frame at which it waits
constexpr std::uint64_t inspection_limit_ns = 1'000'000'000;

// An NMI may arrive after its sender's wait has timed out. For each such time-out, one NMI is ignored.
constinit std::array<std::atomic<unsigned>, machine::cores_max> late_inspections{};
bool is_late_inspection(unsigned core) {
  unsigned left = late_inspections[core].load();
  while (left != 0) {
    if (late_inspections[core].compare_exchange_weak(left, left - 1)) return true;
  }
  return false;
}

bool wait_while_inspected(const ExceptionFrame& frame) {
  const ExceptionFrame* nowhere = nullptr;
  if (inspected.load() != machine::this_core() || !waiting_at.compare_exchange_strong(nowhere, &frame)) return false;
  const WaitLimit limit(inspection_limit_ns);
  while (inspected.load() == machine::this_core() && !stopping.load() && !limit.passed()) pause();
  const ExceptionFrame* here = &frame;
  waiting_at.compare_exchange_strong(here, nullptr);
  return true;
}

// --- Machine checks ----------------------------------------------------------------------------------------------------------------------
//
// The exception is raised on all threads at once, parked ones included (SDM 3B, 16.10.4.1). One core reports: a core that sees the error in
// its own bank or, if none does, the first whose wait for a reporter times out. The other cores halt until the panic's NMI interrupts them.

constinit std::atomic<unsigned> machine_check_reporter{no_core};
constexpr std::uint64_t other_reporter_ns = 200'000'000;

void wait_for_machine_check_reporter() {
  machine_checks::leave_exception();
  const WaitLimit limit(other_reporter_ns);
  const auto there = [] { return machine_check_reporter.load() != no_core; };
  while (!machine_checks::any_here() && !there() && !limit.passed()) pause();
  unsigned reporter = no_core;
  const unsigned self = machine::this_core();
  if (!machine_check_reporter.compare_exchange_strong(reporter, self) && reporter != self) halt_for_ever();
}

}  // namespace

extern "C" void neap_handle_exception(ExceptionFrame* frame) noexcept {
  if (frame->vector == vector_general_protection && fix_up(*frame)) return;
  if (frame->vector == vector_nmi) {
    const bool looked = wait_while_inspected(*frame);
    if (stopping.load()) stop_here(*frame);
    if (looked || is_late_inspection(machine::this_core())) return;
  }
  if (frame->vector == vector_machine_check) wait_for_machine_check_reporter();
  const bool may_be_bad_memory =
      frame->vector == vector_page_fault || frame->vector == vector_general_protection || frame->vector == vector_stack_fault;
  if (may_be_bad_memory) leave_broken_walk();
  report(*frame);
}

bool inspect_core(unsigned core, std::uint64_t limit_ns, void (*look)(const ExceptionFrame& frame, void* context), void* context) noexcept {
  require(core < machine::core_count() && core != machine::this_core(), "inspect_core: not another running core", core);
  unsigned expected = no_core;
  if (!inspected.compare_exchange_strong(expected, core)) return false;
  apic::send_nmi(apic_id_of(core));
  const WaitLimit limit(limit_ns);
  while (waiting_at.load(std::memory_order_acquire) == nullptr && !limit.passed()) pause();
  static constexpr ExceptionFrame given_up{};
  const ExceptionFrame* frame = nullptr;
  const bool came = !waiting_at.compare_exchange_strong(frame, &given_up);
  if (came) {
    look(*frame, context);
  } else {
    late_inspections[core].fetch_add(1);
  }
  inspected.store(no_core);
  waiting_at.store(nullptr);
  return came;
}

const ExceptionFrame* stopped_core(unsigned core) {
  require(core < machine::cores_max, "stopped_core: no such core", core);
  return stopped_at[core].load(std::memory_order_acquire);
}

}  // namespace neap::x86

namespace neap::machine {

using namespace x86;

void stop_other_cores() noexcept {
  // A virtual core may be descheduled for long. If it cannot be stopped, only its part of the report is missing.
  const std::uint64_t stop_limit_ns = features().hypervisor ? 10'000'000'000 : 100'000'000;
  if (stopping.exchange(true)) return;
  if (const auto others = core_count() - 1; others != 0) {
    for (unsigned core = 0; core <= others; ++core) {
      if (core != machine::this_core()) apic::send_nmi(apic_id_of(core));
    }
    const WaitLimit limit(stop_limit_ns);
    while (stopped.load() < others && !limit.passed()) x86::pause();
  }
  console::break_lock();
}

}  // namespace neap::machine
