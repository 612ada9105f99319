// SPDX-License-Identifier: BSL-1.0
// Instructions without a C++ equivalent, and the bits that they use (Intel SDM, volumes 2 and 3A).
#pragma once

#include <cstdint>

namespace neap::x86 {

// --- Ports -------------------------------------------------------------------------------------------------------------------------------
inline void out8(std::uint16_t port, std::uint8_t value) { asm volatile("outb %0, %1" ::"a"(value), "Nd"(port) : "memory"); }
inline void out16(std::uint16_t port, std::uint16_t value) { asm volatile("outw %0, %1" ::"a"(value), "Nd"(port) : "memory"); }
inline void out32(std::uint16_t port, std::uint32_t value) { asm volatile("outl %0, %1" ::"a"(value), "Nd"(port) : "memory"); }
inline std::uint8_t in8(std::uint16_t port) {
  std::uint8_t value;
  asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port) : "memory");
  return value;
}
inline std::uint16_t in16(std::uint16_t port) {
  std::uint16_t value;
  asm volatile("inw %1, %0" : "=a"(value) : "Nd"(port) : "memory");
  return value;
}
inline std::uint32_t in32(std::uint16_t port) {
  std::uint32_t value;
  asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port) : "memory");
  return value;
}

// --- CPUID -------------------------------------------------------------------------------------------------------------------------------
struct CpuidResult {
  std::uint32_t eax, ebx, ecx, edx;
};
inline CpuidResult cpuid(std::uint32_t leaf, std::uint32_t subleaf = 0) {
  CpuidResult result;
  asm volatile("cpuid" : "=a"(result.eax), "=b"(result.ebx), "=c"(result.ecx), "=d"(result.edx) : "a"(leaf), "c"(subleaf));
  return result;
}

/// A leaf that only the model machine (sim/machine, for tests) has. Its range is reserved for hypervisors (SDM 2A, CPUID).
constexpr std::uint32_t model_machine_leaf = 0x4e656170;

// --- Control registers -------------------------------------------------------------------------------------------------------------------
constexpr std::uint64_t cr0_monitor_coprocessor = 1 << 1;
constexpr std::uint64_t cr0_emulation = 1 << 2;
constexpr std::uint64_t cr0_task_switched = 1 << 3;
constexpr std::uint64_t cr0_numeric_error = 1 << 5;
constexpr std::uint64_t cr0_write_protect = 1 << 16;
constexpr std::uint64_t cr0_not_write_through = 1 << 29;
constexpr std::uint64_t cr0_cache_disable = 1 << 30;
constexpr std::uint64_t cr4_machine_check = 1 << 6;
constexpr std::uint64_t cr4_page_global = 1 << 7;
constexpr std::uint64_t cr4_fxsr = 1 << 9;
constexpr std::uint64_t cr4_simd_exceptions = 1 << 10;
constexpr std::uint64_t cr4_xsave = 1 << 18;

inline std::uint64_t read_cr0() {
  std::uint64_t value;
  asm volatile("movq %%cr0, %0" : "=r"(value));
  return value;
}
inline void write_cr0(std::uint64_t value) { asm volatile("movq %0, %%cr0" ::"r"(value) : "memory"); }
inline std::uint64_t read_cr2() {
  std::uint64_t value;
  asm volatile("movq %%cr2, %0" : "=r"(value));
  return value;
}
inline void write_cr3(std::uint64_t value) { asm volatile("movq %0, %%cr3" ::"r"(value) : "memory"); }
inline std::uint64_t read_cr4() {
  std::uint64_t value;
  asm volatile("movq %%cr4, %0" : "=r"(value));
  return value;
}
inline void write_cr4(std::uint64_t value) { asm volatile("movq %0, %%cr4" ::"r"(value) : "memory"); }
inline void write_xcr0(std::uint64_t value) {
  asm volatile("xsetbv" ::"c"(0), "a"(static_cast<std::uint32_t>(value)), "d"(static_cast<std::uint32_t>(value >> 32)));
}

// --- Time, waiting, interrupts -----------------------------------------------------------------------------------------------------------
inline std::uint64_t read_tsc() {
  std::uint64_t low, high;  // the upper halves are cleared (SDM 2B, RDTSC)
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  return high << 32 | low;
}
/// Waits for all earlier loads. Later instructions do not start before the read (SDM 2B, RDTSC).
inline std::uint64_t read_tsc_ordered() {
  std::uint32_t low, high;
  asm volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high)::"memory");
  return static_cast<std::uint64_t>(high) << 32 | low;
}
inline void pause() { asm volatile("pause" ::: "memory"); }
[[noreturn]] inline void halt_for_ever() {
  for (;;) asm volatile("cli; hlt" ::: "memory");
}

// --- Model specific registers of every x86-64 CPU. All others MUST be accessed by msr.hpp, which handles #GP -----------------------------
constexpr std::uint32_t msr_apic_base = 0x1b;
constexpr std::uint32_t msr_tsc_adjust = 0x3b;
constexpr std::uint32_t msr_platform_info = 0xce;
constexpr std::uint32_t msr_tsc_deadline = 0x6e0;
constexpr std::uint32_t msr_x2apic_first = 0x800;
constexpr std::uint32_t msr_fs_base = 0xc0000100;

inline std::uint64_t read_msr_known(std::uint32_t msr) {
  std::uint32_t low, high;
  asm volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr) : "memory");
  return static_cast<std::uint64_t>(high) << 32 | low;
}
inline void write_msr_known(std::uint32_t msr, std::uint64_t value) {
  asm volatile("wrmsr" ::"c"(msr), "a"(static_cast<std::uint32_t>(value)), "d"(static_cast<std::uint32_t>(value >> 32)) : "memory");
}

/// The features of this CPU that Neap uses. Read once by core 0.
struct Features {
  bool x2apic, tsc_deadline, huge_pages, xsave, rdrand, hypervisor, tsc_adjust, machine_check;
  bool fast_strings;  ///< REP MOVSB and REP STOSB are fast for long areas (ERMS)
  bool modelled;      ///< this is the model machine (sim/machine, for tests), which imitates a real CPU without a hypervisor
  std::uint32_t largest_leaf;
  bool intel;
  std::uint8_t family, model;  ///< including CPUID's extended family and model
  std::uint8_t physical_bits;  ///< number of address bits: a page-table entry with a higher bit set faults (SDM 3A, 4.1.4)
};
[[nodiscard]] const Features& features();

/// Turns on for this core: SSE, AVX and similar extensions; faults on writes to read-only pages; global pages.
void enable_cpu_state();

}  // namespace neap::x86
