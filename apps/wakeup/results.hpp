// SPDX-License-Identifier: BSL-1.0
// What was measured: a summary for each idle state and doorbell, and its line in the table.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernel/power.hpp"

namespace neap::wakeup {

/// The event that ends a sleep. A log entry contains these numbers (docs/experiments.md).
enum class Doorbell : std::uint8_t {
  ipi = 1,        ///< an interrupt from the core that rings
  write = 2,      ///< a write by the core that rings: to the sleeper's wake-up word, with `monitor` and `poll` to a line of the application
  timer = 3,      ///< the sleeper's own timer, while the core that rings sleeps in HLT
  timer_all = 4,  ///< the sleeper's own timer, while the core that rings sleeps in the same state
};
inline constexpr std::array<Doorbell, 4> doorbells{Doorbell::ipi, Doorbell::write, Doorbell::timer, Doorbell::timer_all};
[[nodiscard]] const char* name_of(Doorbell doorbell) noexcept;

/// False if no wake-up of this kind exists: a write does not end HLT, and a core that polls has no state that others could share.
[[nodiscard]] bool exists(IdleState state, Doorbell doorbell) noexcept;
/// The cause that the sleep's end MUST have. Another cause means that another event ended the sleep.
[[nodiscard]] WakeCause expected_cause(IdleState state, Doorbell doorbell) noexcept;

/// Converts a latency in ticks of a clock of `hz`. Both MUST be below 2^34, as a second of a clock of 17 GHz.
[[nodiscard]] constexpr std::uint64_t to_nanoseconds(std::uint64_t ticks, std::uint64_t hz) noexcept {
  constexpr std::uint64_t second_ns = 1'000'000'000;  // 30 bits
  return (ticks * second_ns + hz / 2) / hz;
}

/// Latencies in nanoseconds. Percentiles are values that occurred (nearest rank). All are zero if `rounds` is zero.
struct Summary {
  std::uint64_t rounds = 0;
  std::uint64_t min = 0, median = 0, p99 = 0, max = 0;
};
/// Summarises latencies in ticks. Sorts `ticks`.
[[nodiscard]] Summary summarise(std::vector<std::uint64_t>& ticks, std::uint64_t hz) noexcept;

/// One row of the table. `repeated`: rounds that another event disturbed, and that were done again.
struct Row {
  IdleState state = IdleState::halt;
  Doorbell doorbell = Doorbell::ipi;
  Summary latency;
  std::uint64_t repeated = 0;

  /// The columns of `table_head`, without a newline.
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] std::string table_head();

/// The boot option that gives these wake-up times to a later start of the same machine (docs/policy.md): `wake_up_times=c1:2us,c6:104us`,
/// rounded to microseconds, at least one. Empty if no C-state was measured. A state's time is the largest median of its interrupts: a state
/// is chosen before it is known which one ends the sleep, and whether the package sleeps. Doorbell `write` is left out, because only idle
/// state `monitor` waits for writes of a card.
[[nodiscard]] std::string boot_option(std::span<const Row> rows);

}  // namespace neap::wakeup
