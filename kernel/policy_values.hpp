// SPDX-License-Identifier: BSL-1.0
// From what somebody typed to a value that may be set.
//
// Values come from command lines and over the network, and a wrong one must change nothing and must say what would have been right. So
// reading them is apart from setting them: text and what the CPU can do go in, a value or a refusal comes out. Kernel-internal.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "kernel/policy.hpp"

namespace neap::policy {

/// Which member counts depends on the setting.
struct Value {
  IdleState idle = IdleState::halt;
  std::uint32_t number =
      0;  ///< itr, poll_budget: microseconds; power_limit: milliwatts, 0 firmware's; switches: 0, 1; epp and the card's: as it is
  std::uint64_t performance = 0;  ///< pstate: as IA32_PERF_CTL takes it; 0 firmware's
};

constexpr std::uint32_t poll_budget_us_max = 1'000'000;

/// All of the check that concerns neither a core nor a card.
[[nodiscard]] std::expected<Value, Refusal> parse(Setting setting, std::string_view text, const PowerAbilities& abilities);

/// As an answer shows it: "itr=8us".
[[nodiscard]] std::string text_of(Setting setting, const Value& value);

/// "halt poll deepest": what `parse` takes for `idle` on this CPU.
[[nodiscard]] std::string accepted_idle_states(const PowerAbilities& abilities);

[[nodiscard]] std::unexpected<Refusal> refuse(ErrorCode code, Setting setting, std::string_view why);

}  // namespace neap::policy
