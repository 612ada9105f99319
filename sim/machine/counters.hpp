// SPDX-License-Identifier: BSL-1.0
// The performance counters of a core (architectural performance monitoring version 3, SDM 3B chapter 20).
//
// Instructions, core cycles and reference cycles are what the model knows. Fixed counters count these three, and general counters may be
// set to them. CPUID lists all other events as absent, and a counter set to one of them stays at its value. An instruction counts at the
// privilege level at which it begins: SYSCALL at level 3, IRET at the level that it leaves. Counters raise no interrupt when they overflow.
#pragma once

#include <array>
#include <cstdint>

namespace neap::model {

/// Counts since reset, at one moment.
struct Executed {
  std::uint64_t instructions = 0, core_cycles = 0;
  std::uint64_t reference_cycles = 0;  ///< cycles of the TSC in C0
  std::uint64_t bus_cycles = 0;        ///< cycles of the 100 MHz clock in C0: the architectural event 3Ch, mask 01h
};

/// The same counts, at all privilege levels and at level 3 alone.
struct ExecutedByLevel {
  Executed all, user;
};

class Counters {
 public:
  static constexpr unsigned fixed_counters = 3, general_max = 8, bits = 48;
  static constexpr std::uint64_t value_mask = (std::uint64_t{1} << bits) - 1;

  explicit Counters(unsigned general) noexcept : general_(general) {}

  [[nodiscard]] unsigned general_counters() const noexcept { return general_; }
  [[nodiscard]] std::uint64_t fixed(unsigned counter, const ExecutedByLevel& now) const noexcept;
  [[nodiscard]] std::uint64_t general(unsigned counter, const ExecutedByLevel& now) const noexcept;
  [[nodiscard]] std::uint64_t event_select(unsigned counter) const noexcept { return selects_[counter]; }
  [[nodiscard]] std::uint64_t fixed_control() const noexcept { return fixed_control_; }
  [[nodiscard]] std::uint64_t global_control() const noexcept { return global_control_; }

  void set_fixed(unsigned counter, std::uint64_t value, const ExecutedByLevel& now) noexcept;
  void set_general(unsigned counter, std::uint64_t value, const ExecutedByLevel& now) noexcept;
  void set_event_select(unsigned counter, std::uint64_t value, const ExecutedByLevel& now) noexcept;
  void set_fixed_control(std::uint64_t value, const ExecutedByLevel& now) noexcept;
  void set_global_control(std::uint64_t value, const ExecutedByLevel& now) noexcept;

 private:
  // A counter that runs shows its source minus `base`; one that stands shows `value`.
  struct Counter {
    std::uint64_t value = 0, base = 0;
  };
  [[nodiscard]] bool fixed_runs(unsigned counter) const noexcept;
  [[nodiscard]] bool general_runs(unsigned counter) const noexcept;
  [[nodiscard]] std::uint64_t fixed_source(unsigned counter, const ExecutedByLevel& now) const noexcept;
  [[nodiscard]] std::uint64_t general_source(unsigned counter, const ExecutedByLevel& now) const noexcept;
  void stop_all(const ExecutedByLevel& now) noexcept;
  void start_all(const ExecutedByLevel& now) noexcept;

  unsigned general_;
  std::array<Counter, fixed_counters> fixed_{};
  std::array<Counter, general_max> generals_{};
  std::array<std::uint64_t, general_max> selects_{};
  std::uint64_t fixed_control_ = 0, global_control_ = 0;
};

}  // namespace neap::model
