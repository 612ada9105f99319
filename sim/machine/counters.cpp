// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/counters.hpp"

namespace neap::model {

namespace {

constexpr std::uint64_t enabled_at_any_level = 3;                      // IA32_FIXED_CTR_CTRL, 4 bits a counter (20.2.2)
constexpr std::uint64_t select_enabled = std::uint64_t{1} << 22;       // IA32_PERFEVTSELx.EN (20.2.1.1)
constexpr std::uint64_t select_at_any_level = std::uint64_t{3} << 16;  // USR, OS

std::uint64_t fixed_source(unsigned counter, const Executed& now) {
  return counter == 0 ? now.instructions : counter == 1 ? now.core_cycles : now.reference_cycles;
}

}  // namespace

bool Counters::fixed_runs(unsigned counter) const noexcept {
  return (global_control_ >> (32 + counter) & 1) != 0 && (fixed_control_ >> (4 * counter) & enabled_at_any_level) != 0;
}

bool Counters::general_runs(unsigned counter) const noexcept {
  const std::uint64_t select = selects_[counter];
  return (global_control_ >> counter & 1) != 0 && (select & select_enabled) != 0 && (select & select_at_any_level) != 0;
}

// Event in bits 7:0, mask in bits 15:8 (20.2.1.2, table 20-1).
std::uint64_t Counters::general_source(unsigned counter, const Executed& now) const noexcept {
  switch (selects_[counter] & 0xffff) {
    case 0x003c:
      return now.core_cycles;
    case 0x013c:
      return now.bus_cycles;
    case 0x00c0:
      return now.instructions;
    default:
      return 0;
  }
}

std::uint64_t Counters::fixed(unsigned counter, const Executed& now) const noexcept {
  const Counter& one = fixed_[counter];
  return (fixed_runs(counter) ? one.value + fixed_source(counter, now) - one.base : one.value) & value_mask;
}

std::uint64_t Counters::general(unsigned counter, const Executed& now) const noexcept {
  const Counter& one = generals_[counter];
  return (general_runs(counter) ? one.value + general_source(counter, now) - one.base : one.value) & value_mask;
}

void Counters::stop_all(const Executed& now) noexcept {
  for (unsigned i = 0; i < fixed_counters; ++i) fixed_[i].value = fixed(i, now);
  for (unsigned i = 0; i < general_; ++i) generals_[i].value = general(i, now);
}

void Counters::start_all(const Executed& now) noexcept {
  for (unsigned i = 0; i < fixed_counters; ++i) fixed_[i].base = fixed_source(i, now);
  for (unsigned i = 0; i < general_; ++i) generals_[i].base = general_source(i, now);
}

void Counters::set_fixed(unsigned counter, std::uint64_t value, const Executed& now) noexcept {
  stop_all(now);
  fixed_[counter].value = value & value_mask;
  start_all(now);
}

void Counters::set_general(unsigned counter, std::uint64_t value, const Executed& now) noexcept {
  stop_all(now);
  generals_[counter].value = value & value_mask;
  start_all(now);
}

void Counters::set_event_select(unsigned counter, std::uint64_t value, const Executed& now) noexcept {
  stop_all(now);
  selects_[counter] = value;
  start_all(now);
}

void Counters::set_fixed_control(std::uint64_t value, const Executed& now) noexcept {
  stop_all(now);
  fixed_control_ = value;
  start_all(now);
}

void Counters::set_global_control(std::uint64_t value, const Executed& now) noexcept {
  stop_all(now);
  global_control_ = value;
  start_all(now);
}

}  // namespace neap::model
