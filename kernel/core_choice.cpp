// SPDX-License-Identifier: BSL-1.0
#include "kernel/core_choice.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernel/arguments.hpp"
#include "kernel/console.hpp"
#include "kernel/panic.hpp"

namespace neap {
namespace {

using machine::CorePlace;
using machine::CoreSet;

std::optional<std::size_t> number_of(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::expected<CoreSet, std::string> parse_list(std::string_view text, std::size_t present) {
  CoreSet set;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const std::size_t dash = item.find('-');
    const auto first = number_of(item.substr(0, dash));
    const auto last = dash == item.npos ? first : number_of(item.substr(dash + 1));
    if (!first || !last || *last < *first) return std::unexpected("is not a list of cores, like 0-3,6");
    if (*last >= present) return std::unexpected("names a core that is not there (0 to " + std::to_string(present - 1) + ')');
    for (std::size_t core = *first; core <= *last; ++core) set.set(core);
  }
  if (!set.test(0)) return std::unexpected("must name core 0, the one that booted");
  return set;
}

bool same_core(const CorePlace& one, const CorePlace& other) { return one.package == other.package && one.core == other.core; }

/// Removes every thread whose physical core has an earlier thread in the set.
void keep_first_threads(CoreSet& set, std::span<const CorePlace> present) {
  for (std::size_t core = 1; core < present.size(); ++core) {
    for (std::size_t before = 0; before < core && set.test(core); ++before) {
      if (set.test(before) && same_core(present[before], present[core])) set.reset(core);
    }
  }
}

std::vector<CorePlace> present_places() {
  std::vector<CorePlace> places(machine::cores_present());
  for (unsigned i = 0; i < places.size(); ++i) places[i] = machine::present_place(i);
  return places;
}

/// Number of different values of `key(place)` in `places`.
template <typename Key>
std::size_t count_different(const std::vector<CorePlace>& places, Key key) {
  std::vector<decltype(key(places[0]))> keys;
  for (const CorePlace& place : places) keys.push_back(key(place));
  std::ranges::sort(keys);
  return static_cast<std::size_t>(std::ranges::unique(keys).begin() - keys.begin());
}

/// Prints the cores of a package that are on one NUMA node.
void print_group(unsigned package, unsigned node, std::size_t nodes, const std::vector<CorePlace>& places) {
  constexpr std::size_t core_text_max = 16;
  const auto begin_line = [&] {
    Line line;
    line << "cores: package " << package;
    if (nodes > 1) line << ", node " << node;
    line << ':';
    return line;
  };
  Line line = begin_line();
  std::vector<bool> said(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].package != package || places[i].node != node || said[i]) continue;
    if (line.text().size() + core_text_max > Line::bytes_max) {
      line.print();
      line = begin_line();
    }
    const char* separator = " ";
    for (std::size_t thread = i; thread < places.size(); ++thread) {
      if (!same_core(places[i], places[thread])) continue;
      said[thread] = true;
      line << separator;
      if (places[thread].running == machine::cores_max) {
        line << '-';
      } else {
        line << places[thread].running;
      }
      separator = "+";
    }
  }
  line.print();
}

}  // namespace

std::expected<CoreSet, std::string> choose_cores(std::string_view text, bool smt, std::span<const CorePlace> present) {
  require(!present.empty() && present.size() <= machine::cores_max, "number of present cores out of range", present.size());
  CoreSet all;
  for (std::size_t i = 0; i < present.size(); ++i) all.set(i);
  const auto count = number_of(text);
  auto set = text.empty() || count ? std::expected<CoreSet, std::string>(all) : parse_list(text, present.size());
  if (!set) return set;
  if (!smt) keep_first_threads(*set, present);
  if (!count) return set;
  const std::size_t max = set->count();
  if (*count < 1 || *count > max) return std::unexpected("is out of range (1 to " + std::to_string(max) + ')');
  for (std::size_t core = present.size(); core-- > 0 && set->count() > *count;) set->reset(core);
  return set;
}

CoreSet choose_cores(Arguments& arguments) {
  const std::vector<CorePlace> present = present_places();
  const std::string text =
      arguments.text("cores", std::to_string(present.size()), "number of cores that run, or a list such as 0-3,6; others are parked");
  const bool smt = arguments.flag("smt", true, "off: one thread of each physical core runs");
  // The default of `cores` is the number of all threads. With `smt=off` this number means all threads that may run.
  const auto chosen = choose_cores(text == std::to_string(present.size()) && !smt ? std::string() : text, smt, present);
  if (chosen) return *chosen;
  arguments.reject("cores", chosen.error());
  return CoreSet(1);
}

void print_cores() noexcept {
  const std::vector<CorePlace> places = present_places();
  const std::size_t packages = count_different(places, [](const CorePlace& place) { return place.package; });
  const std::size_t cores = count_different(places, [](const CorePlace& place) { return std::uint64_t{place.package} << 32 | place.core; });
  const std::size_t parked =
      static_cast<std::size_t>(std::ranges::count_if(places, [](const CorePlace& place) { return place.running == machine::cores_max; }));
  const std::size_t nodes = count_different(places, [](const CorePlace& place) { return place.node; });
  Line line;
  line << "cores: " << packages << (packages == 1 ? " package, " : " packages, ");
  if (nodes > 1) line << nodes << " nodes, ";
  line << cores << (cores == 1 ? " core, " : " cores, ") << places.size() << (places.size() == 1 ? " thread" : " threads");
  if (parked != 0) line << "; " << parked << " parked";
  line.print();
  // A package may have several nodes, and a node may have several packages. So each pair of a package and a node is a group.
  for (unsigned package = 0; package < packages; ++package) {
    std::vector<bool> said(machine::nodes_max);
    for (const CorePlace& place : places) {
      if (place.package != package || said[place.node]) continue;
      said[place.node] = true;
      print_group(package, place.node, nodes, places);
    }
  }
}

}  // namespace neap
