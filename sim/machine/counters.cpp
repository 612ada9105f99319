// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/counters.hpp"

namespace neap::model {

namespace {

constexpr std::uint64_t select_enabled = std::uint64_t{1} << 22;  // IA32_PERFEVTSELx.EN (20.2.1.1)

/// The levels at which a counter counts. IA32_FIXED_CTR_CTRL has them in this form, 4 bits a counter (20.2.2).
enum Levels : std::uint8_t { nowhere = 0, at_os = 1, at_user = 2, everywhere = 3 };
Levels fixed_levels(std::uint64_t control, unsigned counter) { return static_cast<Levels>(control >> (4 * counter) & everywhere); }
/// IA32_PERFEVTSELx has USR in bit 16 and OS in bit 17.
Levels general_levels(std::uint64_t select) {
  return static_cast<Levels>(((select >> 16 & 1) != 0 ? at_user : nowhere) | ((select >> 17 & 1) != 0 ? at_os : nowhere));
}

std::uint64_t at_levels(Levels levels, const ExecutedByLevel& now, std::uint64_t Executed::* count) {
  switch (levels) {
    case at_os:
      return now.all.*count - now.user.*count;
    case at_user:
      return now.user.*count;
    case everywhere:
      return now.all.*count;
    case nowhere:
      break;
  }
  return 0;
}

}  // namespace

std::uint64_t Counters::fixed_source(unsigned counter, const ExecutedByLevel& now) const noexcept {
  constexpr std::array sources{&Executed::instructions, &Executed::core_cycles, &Executed::reference_cycles};
  return at_levels(fixed_levels(fixed_control_, counter), now, sources[counter]);
}

bool Counters::fixed_runs(unsigned counter) const noexcept {
  return (global_control_ >> (32 + counter) & 1) != 0 && fixed_levels(fixed_control_, counter) != nowhere;
}

bool Counters::general_runs(unsigned counter) const noexcept {
  const std::uint64_t select = selects_[counter];
  return (global_control_ >> counter & 1) != 0 && (select & select_enabled) != 0 && general_levels(select) != nowhere;
}

// Event in bits 7:0, mask in bits 15:8 (20.2.1.2, table 20-1).
std::uint64_t Counters::general_source(unsigned counter, const ExecutedByLevel& now) const noexcept {
  const Levels levels = general_levels(selects_[counter]);
  switch (selects_[counter] & 0xffff) {
    case 0x003c:
      return at_levels(levels, now, &Executed::core_cycles);
    case 0x013c:
      return at_levels(levels, now, &Executed::bus_cycles);
    case 0x00c0:
      return at_levels(levels, now, &Executed::instructions);
    default:
      return 0;
  }
}

std::uint64_t Counters::fixed(unsigned counter, const ExecutedByLevel& now) const noexcept {
  const Counter& one = fixed_[counter];
  return (fixed_runs(counter) ? one.value + fixed_source(counter, now) - one.base : one.value) & value_mask;
}

std::uint64_t Counters::general(unsigned counter, const ExecutedByLevel& now) const noexcept {
  const Counter& one = generals_[counter];
  return (general_runs(counter) ? one.value + general_source(counter, now) - one.base : one.value) & value_mask;
}

void Counters::stop_all(const ExecutedByLevel& now) noexcept {
  for (unsigned i = 0; i < fixed_counters; ++i) fixed_[i].value = fixed(i, now);
  for (unsigned i = 0; i < general_; ++i) generals_[i].value = general(i, now);
}

void Counters::start_all(const ExecutedByLevel& now) noexcept {
  for (unsigned i = 0; i < fixed_counters; ++i) fixed_[i].base = fixed_source(i, now);
  for (unsigned i = 0; i < general_; ++i) generals_[i].base = general_source(i, now);
}

void Counters::set_fixed(unsigned counter, std::uint64_t value, const ExecutedByLevel& now) noexcept {
  stop_all(now);
  fixed_[counter].value = value & value_mask;
  start_all(now);
}

void Counters::set_general(unsigned counter, std::uint64_t value, const ExecutedByLevel& now) noexcept {
  stop_all(now);
  generals_[counter].value = value & value_mask;
  start_all(now);
}

void Counters::set_event_select(unsigned counter, std::uint64_t value, const ExecutedByLevel& now) noexcept {
  stop_all(now);
  selects_[counter] = value;
  start_all(now);
}

void Counters::set_fixed_control(std::uint64_t value, const ExecutedByLevel& now) noexcept {
  stop_all(now);
  fixed_control_ = value;
  start_all(now);
}

void Counters::set_global_control(std::uint64_t value, const ExecutedByLevel& now) noexcept {
  stop_all(now);
  global_control_ = value;
  start_all(now);
}

}  // namespace neap::model
