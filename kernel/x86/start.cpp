// SPDX-License-Identifier: BSL-1.0
// From the first C++ line to the portable kernel. The order matters: the comments of the functions name the earlier steps that they need.
#include "kernel/boot_sequence.hpp"
#include "kernel/console.hpp"
#include "kernel/early_options.hpp"
#include "kernel/kept_panic.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/heap_checks.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/acpi.hpp"
#include "kernel/x86/apic.hpp"
#include "kernel/x86/boot_info.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/console.hpp"
#include "kernel/x86/cores.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/descriptors.hpp"
#include "kernel/x86/firmware/this_machine.hpp"
#include "kernel/x86/layout.hpp"
#include "kernel/x86/machine_checks.hpp"
#include "kernel/x86/memory.hpp"
#include "kernel/x86/paging.hpp"
#include "kernel/x86/pci.hpp"
#include "kernel/x86/power/this_cpu.hpp"

namespace neap::x86 {

namespace {

constinit Descriptors first_core_descriptors{};

extern "C" {
using Constructor = void (*)();
extern const Constructor init_array_start[], init_array_end[];
}

// Runs on core 0's own stack, which has guard pages.
[[noreturn]] void start_on_own_stack() {
  const EarlyOptions options = EarlyOptions::from(boot_info().command_line);
  load_descriptors(first_core_descriptors, 0);
  use_first_core_tls_pointer();
  acpi::initialise();
  require(apic::initialise(), "this CPU has no local APIC");
  apic::enable_this_core(true);
  initialise_first_core();
  power::find_abilities({.assume_mwait = options.assume_mwait, .keep_demotion = options.keep_demotion, .wake_up_us = options.wake_up_us});
  power::start_this_core(0);
  power::place_core(0, apic_id_of(0));
  machine_checks::find();
  machine_checks::start_this_core(0);
  initialise_clock();
  initialise_alarm();
  firmware::check_machine();
  scan_pci();
  memory::hand_over();
  neap::memory::initialise_pages(machine::usable_memory());
  if (options.checked_heap) neap::memory::checks::turn_on();
  for (const auto* constructor = init_array_start; constructor != init_array_end; ++constructor) (*constructor)();
  run_kernel();
}

[[noreturn]] void switch_stack(std::uint64_t top, void (*next)()) {
  asm volatile(
      "movq %[top], %%rsp\n\t"
      "xorl %%ebp, %%ebp\n\t"
      "pushq $0\n\t"  // a null return address: the stack is aligned as after a call, and backtraces end here
      "jmp *%[next]"
      :
      : [top] "r"(top), [next] "r"(next)
      : "memory");
  __builtin_unreachable();
}

}  // namespace

extern "C" [[noreturn]] void neap_start_machine(std::uint32_t magic, std::uint32_t information, std::uint32_t image_physical) noexcept {
  mark_boot();
  use_first_core_tls();
  enable_cpu_state();
  fill_interrupt_table();
  use_boot_stack_for_faults(first_core_descriptors);
  use_first_core_tls_pointer();
  const bool multiboot = capture_boot_info(magic, information, image_physical);
  console::open(EarlyOptions::from(boot_info().command_line));
  require(multiboot, "not started by a Multiboot loader: EAX holds no magic number", magic);
  if (boot_info().cut) print("neap: the boot loader's memory map or command line is too long; the rest is ignored");
  require(memory::initialise(), "the boot loader's memory map names no usable memory below 4 GiB");
  kept_panic::take_over();
  require(paging::initialise(), "not enough memory for page tables");
  console::use_new_tables();
  require(paging::map_stacks(0), "not enough memory for the first stacks");
  switch_stack(stack_top(0, main_stack), start_on_own_stack);
}

}  // namespace neap::x86
