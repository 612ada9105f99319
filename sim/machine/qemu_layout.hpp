// SPDX-License-Identifier: BSL-1.0
// The layout of structures of QEMU 11.1.3 for x86-64 that the plugin accesses: byte offsets of members.
//
// QEMU publishes no header for them. qemu_attach.cpp checks the offsets at the start and refuses to run if one does not hold. They are
// variables so that a test can misplace each of them and see the refusal (the plugin's option `misplace`).
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace neap::model::qemu {

namespace offset {
// CPUState
inline std::size_t running = 0xb4, interrupt_request = 0xd0, budget = 0xd8, budget_rest = 0xe0, index = 0x2b0, halted = 0x2bc;
inline std::size_t stop = 0xc2;  // 8 bits, and behind it those of a CPU that has stopped
inline std::size_t single_step = 0xd4;
inline std::size_t budget_low = 0x405c;  // 16 bits: what translated code counts down
inline std::size_t registers = 0x4070;   // CPUX86State
// CPUX86State, from its start
inline std::size_t rip = 0x100, flags = 0x108, direction = 0x12c, hidden_flags = 0x130, control_registers = 0x228;
// timers_state
inline std::size_t skipped = 0x28, executed = 0x40;
// TCGCPUOps
inline std::size_t exec_enter = 0x30, debug_exception = 0x40, exec_interrupt = 0x58;
// AccelOpsClass
inline std::size_t handle_interrupt = 0xb8, clock = 0xc8, ticks = 0xd8;
// VFIOUserDeviceIOOps
inline std::size_t region_read = 0x28, region_write = 0x30;
// QEMUTimer
inline std::size_t timer_expiry = 0, timer_next = 0x20;

struct Named {
  std::string_view name;
  std::size_t* value;
};
inline constexpr std::array all{
    Named{"running", &running},
    Named{"interrupt_request", &interrupt_request},
    Named{"budget", &budget},
    Named{"budget_rest", &budget_rest},
    Named{"index", &index},
    Named{"halted", &halted},
    Named{"stop", &stop},
    Named{"single_step", &single_step},
    Named{"budget_low", &budget_low},
    Named{"registers", &registers},
    Named{"rip", &rip},
    Named{"flags", &flags},
    Named{"direction", &direction},
    Named{"hidden_flags", &hidden_flags},
    Named{"control_registers", &control_registers},
    Named{"skipped", &skipped},
    Named{"executed", &executed},
    Named{"exec_enter", &exec_enter},
    Named{"debug_exception", &debug_exception},
    Named{"exec_interrupt", &exec_interrupt},
    Named{"handle_interrupt", &handle_interrupt},
    Named{"clock", &clock},
    Named{"ticks", &ticks},
    Named{"region_read", &region_read},
    Named{"region_write", &region_write},
    Named{"timer_expiry", &timer_expiry},
    Named{"timer_next", &timer_next},
};
}  // namespace offset
constexpr std::size_t timer_bytes = 128;

}  // namespace neap::model::qemu
