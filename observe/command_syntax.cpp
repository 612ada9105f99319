// SPDX-License-Identifier: BSL-1.0
#include "observe/command_syntax.hpp"

#include <algorithm>

#include "kernel/numbers.hpp"
#include "kernel/panic.hpp"
#include "observe/line.hpp"

namespace neap::observe {

Shape shape_of(std::string_view usage) noexcept {
  Shape shape;
  unsigned depth = 0;
  for (const char letter : usage) {
    if (letter == '[') ++depth;
    if (letter == ']') --depth;
    if (letter != ',') continue;
    ++shape.words_max;
    if (depth == 0) ++shape.words_min;
  }
  require(depth == 0, "a usage's brackets are balanced", depth);
  std::string_view last = usage;
  while (last.ends_with(']')) last.remove_suffix(1);
  if (last.ends_with("...")) shape.words_max = any_number;
  shape.core_last = last.ends_with(",CORE");
  return shape;
}

std::expected<std::optional<unsigned>, std::string> parse_core(std::string_view text, unsigned cores) {
  if (text == "all") return std::nullopt;
  if (const auto core = parse_number(text, cores - 1)) return static_cast<unsigned>(*core);
  const std::string accepted = cores == 1 ? "0" : "0 to " + std::to_string(cores - 1);
  return std::unexpected("there is no core '" + shown(text) + "' (" + accepted + ", or all)");
}

std::expected<Checked, std::string> check_words(std::string_view usage, std::span<const std::string_view> words, unsigned cores) {
  require(!words.empty() && cores > 0, "a line has a name, and the machine a core", cores);
  const Shape shape = shape_of(usage);
  Checked checked{.words = words.subspan(1), .core = std::nullopt};
  if (checked.words.size() < shape.words_min || checked.words.size() > shape.words_max) {
    return std::unexpected("usage: " + std::string(usage));
  }
  if (shape.core_last && checked.words.size() == shape.words_max) {
    const auto core = parse_core(checked.words.back(), cores);
    if (!core) return std::unexpected(core.error());
    checked.core = *core;
    checked.words = checked.words.first(checked.words.size() - 1);
  }
  return checked;
}

std::expected<RunBounds, std::string> parse_run_bounds(std::span<const std::string_view> words) {
  struct Unit {
    std::string_view name;
    std::uint64_t ns;
  };
  constexpr Unit units[] = {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}, {"m", 60'000'000'000}};
  constexpr std::uint64_t time_ns_max = std::uint64_t{1} << 62;
  RunBounds bounds;
  if (words.empty()) return bounds;
  std::string_view unit = words[0];
  const auto refuse = [&] {
    return std::unexpected("'" + shown(words[0]) + "' is no bound of a run: a time (10s, 500ms, 2m) or a number of requests (100000)");
  };
  const auto number = take_digits(unit);
  if (!number || *number == 0) return refuse();
  if (unit.empty()) {
    bounds.requests = *number;
    return bounds;
  }
  const auto* const found = std::find_if(std::begin(units), std::end(units), [&](const Unit& one) { return one.name == unit; });
  if (found == std::end(units) || *number > time_ns_max / found->ns) return refuse();
  bounds.time_ns = *number * found->ns;
  return bounds;
}

std::expected<StreamRequest, std::string> parse_stream_request(std::span<const std::string_view> words, unsigned cores) {
  StreamRequest wanted{.live = false, .run = std::nullopt, .positions = std::vector<std::uint64_t>(cores)};
  std::vector<bool> given(cores);
  if (words.empty() || (words[0] != "after" && words[0] != "live")) return std::unexpected("stream takes after or live first");
  wanted.live = words[0] == "live";
  for (const std::string_view word : words.subspan(1)) {
    const std::size_t equals = word.find('=');
    const std::string_view name = trimmed(word.substr(0, equals));
    const auto value =
        equals == std::string_view::npos ? std::nullopt : parse_number(trimmed(word.substr(equals + 1)), ~std::uint64_t{0} >> 1);
    const auto core = parse_number(name, cores - 1);
    if (value && name == "run" && !wanted.run && *value > 0 && *value <= ~std::uint32_t{0}) {
      wanted.run = static_cast<std::uint32_t>(*value);
    } else if (value && core && !given[*core]) {
      given[*core] = true;
      wanted.positions[*core] = *value;
    } else {
      return std::unexpected("'" + shown(word) + "' is not run=N and not CORE=POSITION (cores 0 to " + std::to_string(cores - 1) +
                             "), each at most once");
    }
  }
  return wanted;
}

}  // namespace neap::observe
