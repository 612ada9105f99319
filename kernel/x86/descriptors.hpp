// SPDX-License-Identifier: BSL-1.0
// Segment and interrupt descriptors.
//
// Long mode still requires three parts of segmentation: a code segment, a TSS, and the base of FS. The TSS names the stacks for faults that
// must not use the current stack. FS points to a core's thread-local storage. All cores share one interrupt table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neap::x86 {

/// The TSS (SDM 3A, 8.7), packed as the CPU reads it.
struct [[gnu::packed]] TaskState {
  std::uint32_t reserved0;
  std::uint64_t stack_by_privilege[3];
  std::uint64_t reserved1;
  std::uint64_t interrupt_stack[7];
  std::uint64_t reserved2;
  std::uint16_t reserved3;
  std::uint16_t io_map;
};

/// The descriptor tables of one core, which the CPU reads; MUST exist as long as the core.
struct alignas(64) Descriptors {
  std::uint64_t segments[5];
  TaskState task_state;
};

/// Entries of the interrupt stack table, 1 to 7 (0: stay on the current stack).
enum class InterruptStack : std::uint8_t { none = 0, nmi = 1, double_fault = 2, machine_check = 3 };

/// Fills the interrupt table. Called on core 0, before any core loads it.
void fill_interrupt_table();

/// Loads `descriptors` on this core, with the fault stacks of `core` (layout.hpp), and loads the interrupt table.
void load_descriptors(Descriptors& descriptors, unsigned core);

/// Makes core 0 take its faults on the boot stack until its own stacks are mapped.
void use_boot_stack_for_faults(Descriptors& descriptors);

/// Size of a core's thread-local block, including alignment and the pointer to itself.
[[nodiscard]] std::uint64_t tls_block_bytes();

/// Lays a core's thread-local variables out in `block` (zeroed, `tls_block_bytes()` long) and returns the thread pointer for FS.
[[nodiscard]] std::uint64_t prepare_tls(std::byte* block);

}  // namespace neap::x86
