// SPDX-License-Identifier: BSL-1.0
#include "apps/wakeup/results.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace neap::wakeup {

namespace {

constexpr std::size_t name_width = 9, number_width = 10;

std::string padded(std::string_view name) {
  std::string text(name);
  text.resize(std::max(name.size(), name_width), ' ');
  return text + ' ';
}

std::string aligned_right(std::string_view text) {
  return std::string(number_width - std::min(number_width, text.size()), ' ').append(text);
}

/// The smallest value that at least `percent` of the values do not exceed. `sorted` MUST NOT be empty.
std::uint64_t percentile(const std::vector<std::uint64_t>& sorted, std::uint64_t percent) {
  return sorted[(sorted.size() * percent + 99) / 100 - 1];
}

}  // namespace

const char* name_of(Doorbell doorbell) noexcept {
  switch (doorbell) {
    case Doorbell::ipi:
      return "ipi";
    case Doorbell::write:
      return "write";
    case Doorbell::timer:
      return "timer";
    case Doorbell::timer_all:
      return "timer-all";
  }
  return "?";
}

bool exists(IdleState state, Doorbell doorbell) noexcept {
  if (doorbell == Doorbell::write) return state != IdleState::halt;
  return doorbell != Doorbell::timer_all || state != IdleState::poll;
}

WakeCause expected_cause(IdleState state, Doorbell doorbell) noexcept {
  switch (doorbell) {
    case Doorbell::ipi:
      return state == IdleState::poll ? WakeCause::interrupt : WakeCause::wake_up;
    case Doorbell::write:
      return WakeCause::memory;
    default:
      return WakeCause::timer;
  }
}

Summary summarise(std::vector<std::uint64_t>& ticks, std::uint64_t hz) noexcept {
  if (ticks.empty()) return {};
  std::ranges::sort(ticks);
  return {.rounds = ticks.size(),
          .min = to_nanoseconds(ticks.front(), hz),
          .median = to_nanoseconds(percentile(ticks, 50), hz),
          .p99 = to_nanoseconds(percentile(ticks, 99), hz),
          .max = to_nanoseconds(ticks.back(), hz)};
}

std::string table_head() {
  std::string text = padded("state") + padded("doorbell");
  for (const std::string_view name : {"rounds", "min ns", "median ns", "p99 ns", "max ns", "repeated"}) text += aligned_right(name);
  return text;
}

std::string Row::text() const {
  std::string text = padded(idle_state_names[static_cast<std::size_t>(state)]) + padded(name_of(doorbell));
  for (const std::uint64_t value : {latency.rounds, latency.min, latency.median, latency.p99, latency.max, repeated}) {
    text += aligned_right(std::to_string(value));
  }
  return text;
}

std::string boot_option(std::span<const Row> rows) {
  constexpr std::uint64_t us_ns = 1000;
  std::string text;
  for (const IdleState state : {IdleState::c1, IdleState::c1e, IdleState::c3, IdleState::c6, IdleState::c7}) {
    std::uint64_t longest_ns = 0;
    bool measured = false;
    for (const Row& row : rows) {
      if (row.state != state || row.doorbell == Doorbell::write || row.latency.rounds == 0) continue;
      longest_ns = std::max(longest_ns, row.latency.median);
      measured = true;
    }
    if (!measured) continue;
    const std::uint64_t us = std::max<std::uint64_t>((longest_ns + us_ns / 2) / us_ns, 1);
    text += (text.empty() ? "wake_up_times=" : ",") + std::string(idle_state_names[static_cast<std::size_t>(state)]) + ':' +
            std::to_string(us) + "us";
  }
  return text;
}

}  // namespace neap::wakeup
