// SPDX-License-Identifier: BSL-1.0
#include "observe/ebbrt_lines.hpp"

#include <algorithm>

#include "kernel/numbers.hpp"
#include "observe/line.hpp"

namespace neap::observe::ebbrt {
namespace {

struct Name {
  std::string_view name;
  Action action;
  bool shared = false;  ///< Neap has a command of this name, too
  std::uint64_t largest = number_max;
  std::string_view accepts{};  ///< the accepted numbers; empty: any number
};
constexpr std::uint64_t raw_max = 0xFFFF;
constexpr Name names[] = {
    {.name = "start", .action = Action::start, .shared = true},
    {.name = "stop", .action = Action::stop, .shared = true},
    {.name = "clear", .action = Action::clear, .shared = true},
    {.name = "rdtsc", .action = Action::bounds, .shared = true},
    {.name = "get", .action = Action::log, .shared = true},
    {.name = "print", .action = Action::print, .shared = true},
    {.name = "getcounters", .action = Action::counters},
    {.name = "rx_usecs", .action = Action::moderation, .largest = moderation_units_max, .accepts = "units of 2 us, 0 to 511"},
    {.name = "dvfs", .action = Action::performance, .largest = raw_max, .accepts = "what goes into PERF_CTL, decimal or 0x hexadecimal"},
    {.name = "rapl", .action = Action::power_limit, .largest = raw_max, .accepts = "watts"},
    {.name = "sleep_state", .action = Action::idle, .largest = 0xFF, .accepts = "0 (c1), 1 (c1e), 16 (c3), 32 (c6) or 48 (c7)"},
    {.name = "ixgbe_switch_send", .action = Action::segmentation, .largest = 2, .accepts = "1 (tso=copy) or 2 (tso=chain)"},
};

}  // namespace

std::string_view idle_state_of_hint(std::uint64_t hint) noexcept {
  struct Hint {
    std::uint64_t hint;
    std::string_view state;
  };
  constexpr Hint hints[] = {{0x00, "c1"}, {0x01, "c1e"}, {0x10, "c3"}, {0x20, "c6"}, {0x30, "c7"}};
  const auto* const found = std::ranges::find(hints, hint, &Hint::hint);
  return found == std::end(hints) ? std::string_view() : found->state;
}

std::optional<Parsed> parse_line(std::span<const std::string_view> words) {
  if (words.empty()) return std::nullopt;
  const auto* const name = std::ranges::find(names, words[0], &Name::name);
  if (name == std::end(names)) return std::nullopt;
  const bool one = words.size() == 2;
  if (name->shared) {
    const auto number = one ? parse_digits(words[1]) : std::nullopt;
    if (!number) return std::nullopt;
    return Line{.action = name->action, .number = *number};
  }
  const auto refuse = [&](const std::string& why) {
    const std::string accepts = name->accepts.empty() ? std::string("one number") : "one number: " + std::string(name->accepts);
    return std::unexpected(std::string(name->name) + " takes " + accepts + " (dialect=ebbrt)" + why);
  };
  if (!one) return refuse("");
  // EbbRT itself reads "0x1d00" as 0. Only `dvfs` accepts hexadecimal digits here, because its numbers are usually written so.
  const auto number = name->action == Action::performance ? parse_number(words[1], name->largest) : parse_digits(words[1], name->largest);
  const bool known = number && (name->action != Action::idle || !idle_state_of_hint(*number).empty()) &&
                     (name->action != Action::segmentation || *number >= 1);
  if (!known) return refuse(", not '" + shown(words[1]) + "'");
  return Line{.action = name->action, .number = *number};
}

}  // namespace neap::observe::ebbrt
