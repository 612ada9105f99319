// SPDX-License-Identifier: BSL-1.0
// Sampling the counters that a CPU has.
//
// A log with a sample each millisecond reads a dozen MSRs a thousand times a second. So only the counters that exist are visited, and the
// CPU's type is a template argument: its functions are inlined, and a test's CPU is read the same way.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernel/power.hpp"
#include "kernel/x86/power/encodings.hpp"

namespace neap::x86::power {

/// The general counter of the first chosen event.
constexpr unsigned first_event_counter = 1;

struct CounterPlace {
  std::uint32_t msr;
  std::uint32_t offset;  ///< of the value in a CounterSample
};
/// Index: the number of the counter's bit.
constexpr std::array<CounterPlace, 16> counter_places = [] {
  std::array<CounterPlace, 16> places{};
  const auto place = [&](std::uint16_t bit, std::uint32_t msr, std::size_t offset) {
    places[static_cast<unsigned>(std::countr_zero(bit))] = {.msr = msr, .offset = static_cast<std::uint32_t>(offset)};
  };
  place(counter::instructions, msr::fixed_counter0, offsetof(CounterSample, instructions));
  place(counter::cycles, msr::fixed_counter1, offsetof(CounterSample, cycles));
  place(counter::reference_cycles, msr::fixed_counter2, offsetof(CounterSample, reference_cycles));
  place(counter::llc_misses, msr::pmc0, offsetof(CounterSample, llc_misses));
  place(counter::package_energy, msr::package_energy, offsetof(CounterSample, package_energy));
  place(counter::dram_energy, msr::dram_energy, offsetof(CounterSample, dram_energy));
  place(counter::core_c3, msr::core_c3_residency, offsetof(CounterSample, core_c3));
  place(counter::core_c6, msr::core_c6_residency, offsetof(CounterSample, core_c6));
  place(counter::core_c7, msr::core_c7_residency, offsetof(CounterSample, core_c7));
  place(counter::package_c2, msr::package_c2_residency, offsetof(CounterSample, package_c2));
  place(counter::package_c3, msr::package_c3_residency, offsetof(CounterSample, package_c3));
  place(counter::package_c6, msr::package_c6_residency, offsetof(CounterSample, package_c6));
  place(counter::package_c7, msr::package_c7_residency, offsetof(CounterSample, package_c7));
  for (unsigned i = 0; i < chosen_events_max; ++i) {
    place(static_cast<std::uint16_t>(counter::event1 << i), msr::pmc0 + first_event_counter + i,
          offsetof(CounterSample, events) + i * sizeof(std::uint64_t));
  }
  return places;
}();

/// Reads the counters in `counters`. A counter whose MSR faults is not in `CounterSample::present`.
template <class Cpu>
[[nodiscard]] CounterSample sample_counters(Cpu& cpu, std::uint16_t counters) noexcept {
  constexpr std::uint16_t half_words = counter::package_energy | counter::dram_energy;  // values of 32 bits
  CounterSample sample;
  unsigned present = 0;
  // The size of the copy is a constant, because a variable one takes 20 instructions more.
  const auto read = [&](unsigned bit, auto bytes) {
    const CounterPlace& place = counter_places[static_cast<unsigned>(std::countr_zero(bit))];
    const auto raw = cpu.read_msr(place.msr);
    if (!raw) return;
    const std::uint64_t value = *raw;
    std::memcpy(reinterpret_cast<std::byte*>(&sample) + place.offset, &value, bytes);
    present |= bit;
  };
  for (unsigned left = counters & ~half_words; left != 0; left &= left - 1)
    read(left & (0 - left), std::integral_constant<std::size_t, 8>{});
  for (unsigned left = counters & half_words; left != 0; left &= left - 1)
    read(left & (0 - left), std::integral_constant<std::size_t, 4>{});
  sample.present = static_cast<std::uint16_t>(present);
  return sample;
}

}  // namespace neap::x86::power
