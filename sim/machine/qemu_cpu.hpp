// SPDX-License-Identifier: BSL-1.0
// QEMU's structure of a CPU, and what qemu_instructions.cpp, qemu_attach.cpp, qemu_debugger.cpp and qemu.cpp share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sim/machine/qemu.hpp"
#include "sim/machine/qemu_layout.hpp"
#include "sim/machine/qemu_symbols.hpp"

namespace neap::model::qemu {

constexpr int clock_virtual = 1, hard_interrupt = 0x2, nonmaskable_interrupt = 0x200;

template <typename T>
T& field(void* structure, std::size_t at) {
  return *reinterpret_cast<T*>(static_cast<char*>(structure) + at);
}
template <typename F>
void* as_pointer(F* function) {
  return reinterpret_cast<void*>(function);
}

inline Hooks hooks;
inline std::array<Cpu*, cores_max> cpus{};
inline unsigned cpu_count = 0;
inline Cpu** current = nullptr;  // of the CPUs' one thread
inline std::uint64_t ahead = 0;  // instructions of the current translation block that are counted and not executed yet
alignas(16) inline std::array<char, timer_bytes> timer{};  // QEMU's QEMUTimer: the model's only one

inline unsigned number_of(Cpu* cpu) { return static_cast<unsigned>(field<std::int32_t>(cpu, offset::index)); }
/// The exception that a CPU is about to take: the member behind `halted`.
inline std::int32_t& exception_of(Cpu* cpu) { return field<std::int32_t>(cpu, offset::halted + 4); }
inline Cpu* cpu_of(void* registers) { return reinterpret_cast<Cpu*>(static_cast<char*>(registers) - offset::registers); }
inline void* registers_of(Cpu* cpu) { return reinterpret_cast<char*>(cpu) + offset::registers; }

inline std::uint64_t control_register(void* registers, unsigned number) {
  return field<std::uint64_t>(registers, offset::control_registers + 8 * number);
}
constexpr std::uint32_t hidden_level = 3;
inline std::uint32_t level_of(void* registers) { return field<std::uint32_t>(registers, offset::hidden_flags) & hidden_level; }

/// A sentence of a refusal, in memory that stays.
[[nodiscard]] const char* sentence(const char* what, const char* name);
/// Replaces the functions of instructions by the model's. Null, or a sentence.
[[nodiscard]] const char* replace_instructions();

// qemu_debugger.cpp
/// The CPU executes one instruction for gdb.
[[nodiscard]] bool is_stepped(Cpu* cpu);
/// Such a CPU would wait for others, which gdb holds.
[[nodiscard]] bool step_cannot_go_on(Cpu* cpu);
/// The CPU stops for gdb when it leaves its run. `sleeps`: it is halted then. Before, QEMU would skip time if gdb holds all other CPUs.
void request_stop(Cpu* cpu, bool sleeps = false);
/// At each entry into a CPU's run. Null, or a sentence.
[[nodiscard]] const char* keep_kick_timer();
/// Null, or a sentence.
[[nodiscard]] const char* replace_debug_exception();
/// Checks the offsets that only gdb's stops need. Null, or a sentence.
[[nodiscard]] const char* check_debugger(Cpu* cpu);

}  // namespace neap::model::qemu
