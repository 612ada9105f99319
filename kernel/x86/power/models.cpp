// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/models.hpp"

#include <algorithm>

namespace neap::x86::power {

namespace {

constexpr std::uint8_t family_core = 6;

constexpr Hints hints_of(std::uint8_t c1, std::uint8_t c1e, std::uint8_t c3, std::uint8_t c6, std::uint8_t c7) {
  Hints hints;
  hints.fill(no_hint);
  hints[static_cast<unsigned>(IdleState::c1)] = c1;
  hints[static_cast<unsigned>(IdleState::c1e)] = c1e;
  hints[static_cast<unsigned>(IdleState::c3)] = c3;
  hints[static_cast<unsigned>(IdleState::c6)] = c6;
  hints[static_cast<unsigned>(IdleState::c7)] = c7;
  return hints;
}

constexpr std::uint16_t c2_to_c7 = counter::core_c3 | counter::core_c6 | counter::core_c7 | counter::package_c2 | counter::package_c3 |
                                   counter::package_c6 | counter::package_c7;
constexpr std::uint16_t c2_to_c6 = counter::core_c3 | counter::core_c6 | counter::package_c2 | counter::package_c3 | counter::package_c6;
constexpr std::uint16_t c2_and_c6 = counter::core_c6 | counter::package_c2 | counter::package_c6;

// 1/65536 J, "15.3 uJ" in the datasheets of the E5 v3 and later servers; MSR_RAPL_POWER_UNIT holds for their package alone.
constexpr std::uint8_t dram_15uj = 16;

constexpr std::array models{
    Model{0x2d, "Sandy Bridge-EP", hints_of(0x00, 0x01, 0x10, 0x20, 0x30), c2_to_c7, true, 0},
    Model{0x3e, "Ivy Bridge-EP", hints_of(0x00, 0x01, 0x10, 0x20, no_hint), c2_to_c7, true, 0},
    Model{0x3f, "Haswell-EP", hints_of(0x00, 0x01, 0x10, 0x20, no_hint), c2_to_c6, true, dram_15uj},
    Model{0x4f, "Broadwell-EP", hints_of(0x00, 0x01, 0x10, 0x20, no_hint), c2_to_c6, true, dram_15uj},
    Model{0x55, "Skylake-SP", hints_of(0x00, 0x01, no_hint, 0x20, no_hint), c2_and_c6, true, dram_15uj},
    Model{0x6a, "Ice Lake-SP", hints_of(0x00, 0x01, no_hint, 0x20, no_hint), c2_and_c6, true, dram_15uj},
};

}  // namespace

const Model* find_model(std::uint8_t family, std::uint8_t model) noexcept {
  if (family != family_core) return nullptr;
  const auto* const found = std::find_if(models.begin(), models.end(), [model](const Model& entry) { return entry.model == model; });
  return found == models.end() ? nullptr : found;
}

Hints usual_hints(bool intel) noexcept {
  return intel ? hints_of(0x00, 0x01, 0x10, 0x20, 0x30) : hints_of(0x00, no_hint, no_hint, no_hint, no_hint);
}

std::uint32_t ratio_step_khz(std::uint8_t model) noexcept {
  constexpr std::array<std::uint8_t, 7> nehalem_and_westmere{0x1a, 0x1e, 0x1f, 0x2e, 0x25, 0x2c, 0x2f};
  const bool old = std::find(nehalem_and_westmere.begin(), nehalem_and_westmere.end(), model) != nehalem_and_westmere.end();
  return old ? 133'333 : 100'000;
}

}  // namespace neap::x86::power
