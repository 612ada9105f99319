// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/cpu.hpp"

#include <algorithm>

#include "kernel/libc/memory_functions.hpp"

namespace neap::x86 {

namespace {

constexpr std::uint32_t bit(unsigned n) { return std::uint32_t{1} << n; }

Features read_features() {
  Features f{};
  const auto leaf0 = cpuid(0);
  f.largest_leaf = leaf0.eax;
  f.intel = leaf0.ebx == 0x756e6547 && leaf0.edx == 0x49656e69 && leaf0.ecx == 0x6c65746e;  // "GenuineIntel"
  const auto leaf1 = cpuid(1);
  const unsigned base_family = leaf1.eax >> 8 & 0xf;
  f.family = static_cast<std::uint8_t>(base_family == 0xf ? base_family + (leaf1.eax >> 20 & 0xff) : base_family);
  f.model = static_cast<std::uint8_t>((leaf1.eax >> 4 & 0xf) | (leaf1.eax >> 12 & 0xf0));
  f.x2apic = leaf1.ecx & bit(21);
  f.tsc_deadline = leaf1.ecx & bit(24);
  f.xsave = leaf1.ecx & bit(26);
  f.rdrand = leaf1.ecx & bit(30);
  f.hypervisor = leaf1.ecx & bit(31);
  f.machine_check = leaf1.edx & bit(7);
  if (f.largest_leaf >= 7) {
    const auto leaf7 = cpuid(7);
    f.tsc_adjust = leaf7.ebx & bit(1);
    f.fast_strings = leaf7.ebx & bit(9);
  }
  const auto model_leaf = cpuid(model_machine_leaf);
  f.modelled = model_leaf.ebx == 0x7061654e && model_leaf.ecx == 0x65646f6d && model_leaf.edx == 0x64656c6c;  // "Neapmodelled"
  f.huge_pages = cpuid(0x80000001).edx & bit(26);
  constexpr std::uint8_t bits_without_leaf = 36, bits_max = 52;
  f.physical_bits = bits_without_leaf;
  if (cpuid(0x80000000).eax >= 0x80000008) f.physical_bits = std::min(static_cast<std::uint8_t>(cpuid(0x80000008).eax), bits_max);
  return f;
}

}  // namespace

const Features& features() {
  static constinit Features known{};
  static constinit bool read = false;
  if (!read) {  // the first call is core 0's, long before other cores start
    known = read_features();
    read = true;
    libc::fast_string_instructions = known.fast_strings;
  }
  return known;
}

void enable_cpu_state() {
  auto cr0 = read_cr0();
  cr0 &= ~(cr0_emulation | cr0_task_switched | cr0_not_write_through | cr0_cache_disable);  // an INIT leaves the caches off
  cr0 |= cr0_monitor_coprocessor | cr0_numeric_error | cr0_write_protect;
  write_cr0(cr0);
  auto cr4 = read_cr4() | cr4_page_global | cr4_fxsr | cr4_simd_exceptions;
  if (features().xsave) cr4 |= cr4_xsave;
  if (features().machine_check) cr4 |= cr4_machine_check;  // otherwise a machine check silently shuts the machine down
  write_cr4(cr4);
  if (features().xsave) {
    // Turns on x87, SSE, AVX and the three parts of AVX-512, if present: an application may be compiled for them (SDM 1, 13.3).
    constexpr std::uint64_t wanted = 0b11100111;
    auto state = cpuid(0xd).eax & wanted;
    constexpr std::uint64_t avx512 = 0b11100000;
    if ((state & avx512) != avx512) state &= ~avx512;
    write_xcr0(state);
  }
  asm volatile("fninit");
  constexpr std::uint32_t all_masked = 0x1f80;
  asm volatile("ldmxcsr %0" ::"m"(all_masked));
}

}  // namespace neap::x86
