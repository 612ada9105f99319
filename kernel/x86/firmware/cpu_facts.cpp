// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/firmware/cpu_facts.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace neap::x86::cpu_facts {

namespace {

constexpr std::uint32_t smi_count_msr = 0x34, signature_msr = 0x8b;
constexpr std::uint32_t hypervisor_bit = 1U << 31;

bool is_intel(power::CpuAccess& cpu) noexcept {
  const auto leaf = cpu.cpuid(0, 0);
  return leaf.ebx == 0x756e6547 && leaf.edx == 0x49656e69 && leaf.ecx == 0x6c65746e;  // "GenuineIntel"
}

bool is_amd(power::CpuAccess& cpu) noexcept {
  const auto leaf = cpu.cpuid(0, 0);
  return leaf.ebx == 0x68747541 && leaf.edx == 0x69746e65 && leaf.ecx == 0x444d4163;  // "AuthenticAMD"
}

}  // namespace

Identity identify(power::CpuAccess& cpu) noexcept {
  Identity found;
  found.intel = is_intel(cpu);
  found.amd = is_amd(cpu);
  const auto leaf1 = cpu.cpuid(1, 0);
  const auto family = leaf1.eax >> 8 & 0xf;
  found.family = static_cast<std::uint16_t>(family == 0xf ? family + (leaf1.eax >> 20 & 0xff) : family);
  found.model = static_cast<std::uint16_t>((leaf1.eax >> 4 & 0xf) | (leaf1.eax >> 12 & 0xf0));
  found.stepping = leaf1.eax & 0xf;
  found.hypervisor = leaf1.ecx & hypervisor_bit;
  constexpr std::uint32_t name_first = 0x80000002, name_last = 0x80000004;
  if (cpu.cpuid(0x80000000, 0).eax < name_last) return found;
  std::array<char, 48> raw{};
  for (std::uint32_t leaf = name_first; leaf <= name_last; ++leaf) {
    const auto words = cpu.cpuid(leaf, 0);
    std::memcpy(raw.data() + (leaf - name_first) * sizeof words, &words, sizeof words);
  }
  std::string_view text(raw.data(), std::find(raw.begin(), raw.end(), '\0'));
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  std::ranges::transform(text, found.name.begin(), [](char c) { return c >= ' ' && c <= '~' ? c : '?'; });
  return found;
}

std::optional<std::uint32_t> microcode(power::CpuAccess& cpu) noexcept {
  const bool intel = is_intel(cpu);
  // On Intel CPUs the CPUID instruction loads the revision into the register, which MUST be zero before.
  if (intel) {
    if (!cpu.write_msr(signature_msr, 0)) return std::nullopt;
    (void)cpu.cpuid(1, 0);
  }
  const auto value = cpu.read_msr(signature_msr);
  if (!value) return std::nullopt;
  const auto revision = static_cast<std::uint32_t>(intel ? *value >> 32 : *value);
  return revision == 0 ? std::nullopt : std::optional(revision);
}

bool deadline_may_fail(const Identity& identity, std::uint32_t microcode) noexcept {
  if (!identity.intel || identity.family != 6 || identity.hypervisor) return false;
  constexpr std::uint16_t any_stepping = 0xffff;
  struct FixedIn {
    std::uint16_t model, stepping;
    std::uint32_t microcode;  // the first revision without the erratum
  };
  constexpr FixedIn list[] = {
      {0x3c, any_stepping, 0x22},        // Haswell
      {0x3f, 2, 0x3a},                   // Haswell-EP
      {0x3f, 4, 0x0f},                   // Haswell-EX
      {0x45, any_stepping, 0x20},        // Haswell, low power
      {0x46, any_stepping, 0x17},        // Haswell with embedded memory
      {0x3d, any_stepping, 0x25},        // Broadwell
      {0x47, any_stepping, 0x17},        // Broadwell with embedded memory
      {0x4f, any_stepping, 0x0b000020},  // Broadwell-EP
      {0x56, 2, 0x00000011},             // Broadwell-DE
      {0x56, 3, 0x0700000e},
      {0x56, 4, 0x0f00000c},
      {0x56, 5, 0x0e000003},
      {0x55, 3, 0x01000136},  // Skylake-SP
      {0x55, 4, 0x02000014},
      {0x4e, any_stepping, 0xb2},  // Skylake
      {0x5e, any_stepping, 0xb2},
      {0x8e, any_stepping, 0x52},  // Kaby Lake
      {0x9e, any_stepping, 0x52},
  };
  return std::ranges::any_of(list, [&](const FixedIn& entry) {
    return entry.model == identity.model && (entry.stepping == any_stepping || entry.stepping == identity.stepping) &&
           microcode < entry.microcode;
  });
}

std::optional<std::uint32_t> system_management_interrupts(power::CpuAccess& cpu) noexcept {
  const auto identity = identify(cpu);
  constexpr std::uint16_t nehalem = 0x1a;
  if (!identity.intel || identity.hypervisor || identity.family != 6 || identity.model < nehalem) return std::nullopt;
  const auto value = cpu.read_msr(smi_count_msr);
  return value ? std::optional(static_cast<std::uint32_t>(*value)) : std::nullopt;
}

}  // namespace neap::x86::cpu_facts
