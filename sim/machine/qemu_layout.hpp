// SPDX-License-Identifier: BSL-1.0
// The layout of structures of QEMU 11.1.3 for x86-64 that the plugin accesses: byte offsets of members.
//
// QEMU publishes no header for them. qemu.cpp checks the offsets at the start and refuses to run if one does not hold.
#pragma once

#include <cstddef>

namespace neap::model::qemu {

namespace offset {
// CPUState
constexpr std::size_t running = 0xb4, interrupt_request = 0xd0, budget = 0xd8, budget_rest = 0xe0, index = 0x2b0, halted = 0x2bc;
constexpr std::size_t budget_low = 0x405c;  // 16 bits: what translated code counts down
constexpr std::size_t registers = 0x4070;   // CPUX86State
// CPUX86State, from its start
constexpr std::size_t rip = 0x100, flags = 0x108, direction = 0x12c, hidden_flags = 0x130;
// timers_state
constexpr std::size_t skipped = 0x28, executed = 0x40;
// TCGCPUOps
constexpr std::size_t exec_enter = 0x30, exec_exit = 0x38, exec_interrupt = 0x58;
// AccelOpsClass
constexpr std::size_t handle_interrupt = 0xb8, clock = 0xc8, ticks = 0xd8;
// VFIOUserDeviceIOOps
constexpr std::size_t region_read = 0x28, region_write = 0x30;
}  // namespace offset
constexpr std::size_t timer_bytes = 128;

}  // namespace neap::model::qemu
