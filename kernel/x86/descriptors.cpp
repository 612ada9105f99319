// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/descriptors.hpp"

#include <cstring>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/layout.hpp"

namespace neap::x86 {

extern "C" {
extern const std::byte exception_entries[], interrupt_entries[];  // vectors.S: 16 bytes each
extern std::byte boot_stack_top[];
}

namespace {

// SDM 3A, 3.4.5 and 5.2.1: present, code or data, 64-bit.
constexpr std::uint64_t code_descriptor = 0x00af9b000000ffff;
constexpr std::uint64_t data_descriptor = 0x00cf93000000ffff;
constexpr std::uint16_t code_selector = 1 * 8, data_selector = 2 * 8, task_selector = 3 * 8;
constexpr std::uint64_t task_available = 0x89;  // present, 64-bit TSS

// SDM 3A, 6.14.1.
struct Gate {
  std::uint16_t offset_low;
  std::uint16_t selector;
  std::uint8_t stack;
  std::uint8_t type;
  std::uint16_t offset_middle;
  std::uint32_t offset_high;
  std::uint32_t reserved;
};
static_assert(sizeof(Gate) == 16);
constexpr std::uint8_t interrupt_gate = 0x8e;
constexpr unsigned vectors = 256, exceptions = 32;
constexpr std::uint64_t entry_bytes = 16;
constexpr unsigned vector_nmi = 2, vector_double_fault = 8, vector_machine_check = 18;

alignas(4096) constinit Gate interrupt_table[vectors]{};

struct [[gnu::packed]] TablePointer {
  std::uint16_t limit;
  std::uint64_t base;
};

void load_tables(Descriptors& descriptors) {
  const TablePointer segments{.limit = sizeof descriptors.segments - 1, .base = address_of(descriptors.segments)};
  const TablePointer gates{.limit = sizeof interrupt_table - 1, .base = address_of(interrupt_table)};
  asm volatile("lgdt %0" ::"m"(segments));
  asm volatile("lidt %0" ::"m"(gates));
  asm volatile(
      "pushq %[code]\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "lretq\n"
      "1:\n\t"
      "movl %[data], %%ss\n\t"
      "movl %[data], %%ds\n\t"
      "movl %[data], %%es\n\t"
      "ltr %w[task]"
      :
      : [code] "i"(code_selector), [data] "r"(std::uint32_t{data_selector}), [task] "r"(std::uint32_t{task_selector})
      : "rax", "memory");
}

void fill(Descriptors& descriptors) {
  const auto base = address_of(&descriptors.task_state);
  constexpr std::uint64_t limit = sizeof(TaskState) - 1;
  descriptors.segments[0] = 0;
  descriptors.segments[1] = code_descriptor;
  descriptors.segments[2] = data_descriptor;
  descriptors.segments[3] = limit | (base & 0xffffff) << 16 | task_available << 40 | (base >> 24 & 0xff) << 56;
  descriptors.segments[4] = base >> 32;
  descriptors.task_state.io_map = sizeof(TaskState);
}

}  // namespace

void fill_interrupt_table() {
  for (unsigned vector = 0; vector < vectors; ++vector) {
    const auto entry = vector < exceptions ? address_of(exception_entries) + vector * entry_bytes
                                           : address_of(interrupt_entries) + (vector - exceptions) * entry_bytes;
    auto stack = InterruptStack::none;
    if (vector == vector_nmi) stack = InterruptStack::nmi;
    if (vector == vector_double_fault) stack = InterruptStack::double_fault;
    if (vector == vector_machine_check) stack = InterruptStack::machine_check;
    interrupt_table[vector] = {.offset_low = static_cast<std::uint16_t>(entry),
                               .selector = code_selector,
                               .stack = static_cast<std::uint8_t>(stack),
                               .type = interrupt_gate,
                               .offset_middle = static_cast<std::uint16_t>(entry >> 16),
                               .offset_high = static_cast<std::uint32_t>(entry >> 32),
                               .reserved = 0};
  }
}

void load_descriptors(Descriptors& descriptors, unsigned core) {
  require(core < machine::cores_max, "load_descriptors: no such core", core);
  require(interrupt_table[0].type == interrupt_gate, "load_descriptors before fill_interrupt_table", core);
  fill(descriptors);
  auto& state = descriptors.task_state;
  state.interrupt_stack[static_cast<unsigned>(InterruptStack::nmi) - 1] = stack_top(core, nmi_stack);
  state.interrupt_stack[static_cast<unsigned>(InterruptStack::double_fault) - 1] = stack_top(core, fault_stack);
  state.interrupt_stack[static_cast<unsigned>(InterruptStack::machine_check) - 1] = stack_top(core, machine_check_stack);
  load_tables(descriptors);
}

void use_boot_stack_for_faults(Descriptors& descriptors) {
  fill(descriptors);
  // This is far enough below the stack's top that the frames of a fault do not overlap those of the interrupted code.
  constexpr std::uint64_t apart = 8192;
  for (unsigned i = 0; i < 3; ++i) descriptors.task_state.interrupt_stack[i] = address_of(boot_stack_top) - apart;
  load_tables(descriptors);
}

std::uint64_t tls_block_bytes() { return round_up(address_of(tls_bytes), address_of(tls_alignment)) + address_of(tls_alignment) + 64; }

std::uint64_t prepare_tls(std::byte* block) {
  // x86-64 TLS, variant II. The variables end at the thread pointer. Their size is the segment's size, rounded up to its alignment. The
  // word at the pointer is the pointer itself (System V ABI draft on TLS, 3.4.6).
  const auto alignment = address_of(tls_alignment);
  const auto pointer = round_up(address_of(block) + round_up(address_of(tls_bytes), alignment), alignment);
  auto* const variables = reinterpret_cast<std::byte*>(pointer - round_up(address_of(tls_bytes), alignment));
  std::memcpy(variables, tls_start, address_of(tls_data_end) - address_of(tls_start));
  require(pointer + sizeof pointer <= address_of(block) + tls_block_bytes(), "prepare_tls: the block is too short", pointer);
  *reinterpret_cast<std::uint64_t*>(pointer) = pointer;
  return pointer;
}

}  // namespace neap::x86
