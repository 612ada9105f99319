// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/events.hpp"

#include <algorithm>
#include <array>

#include "kernel/numbers.hpp"
#include "kernel/x86/power/encodings.hpp"

namespace neap::x86::power {
namespace {

struct Event {
  std::string_view name;
  std::uint8_t event, umask;
};
/// In the order of the bits in CPUID leaf 0Ah, EBX.
constexpr std::array architectural_events{
    Event{"core_cycles", 0x3c, 0x00},    Event{"instructions", 0xc0, 0x00}, Event{"reference_cycles", 0x3c, 0x01},
    Event{"llc_references", 0x2e, 0x4f}, Event{"llc_misses", 0x2e, 0x41},   Event{"branches", 0xc4, 0x00},
    Event{"branch_misses", 0xc5, 0x00},
};

struct ModelEvent {
  std::uint8_t model;
  Event event;
};
constexpr std::uint8_t sandy_bridge_ep = 0x2d, haswell_ep = 0x3f, sapphire_rapids = 0x8f;
constexpr ModelEvent model_events[] = {
    {sandy_bridge_ep, {"l1d.replacement", 0x51, 0x01}},
    {sandy_bridge_ep, {"l2_rqsts.demand_data_rd_hit", 0x24, 0x01}},
    {sandy_bridge_ep, {"mem_load_uops_retired.l2_hit", 0xd1, 0x02}},
    {sandy_bridge_ep, {"mem_load_uops_retired.llc_hit", 0xd1, 0x04}},
    {sandy_bridge_ep, {"mem_load_uops_retired.llc_miss", 0xd1, 0x20}},
    {sandy_bridge_ep, {"mem_load_uops_llc_miss_retired.local_dram", 0xd3, 0x01}},
    {sandy_bridge_ep, {"mem_load_uops_llc_miss_retired.remote_dram", 0xd3, 0x04}},
    {sandy_bridge_ep, {"offcore_requests.demand_data_rd", 0xb0, 0x01}},
    // The events of retired loads may count too much on Haswell while both threads of a core run (erratum HSD29).
    {haswell_ep, {"l1d.replacement", 0x51, 0x01}},
    {haswell_ep, {"l2_rqsts.demand_data_rd_miss", 0x24, 0x21}},
    {haswell_ep, {"mem_load_uops_retired.l2_miss", 0xd1, 0x10}},
    {haswell_ep, {"mem_load_uops_retired.l3_hit", 0xd1, 0x04}},
    {haswell_ep, {"mem_load_uops_retired.l3_miss", 0xd1, 0x20}},
    {haswell_ep, {"mem_load_uops_l3_miss_retired.local_dram", 0xd3, 0x01}},
    {haswell_ep, {"mem_load_uops_l3_miss_retired.remote_dram", 0xd3, 0x04}},
    {haswell_ep, {"offcore_requests.demand_data_rd", 0xb0, 0x01}},
    // These count on counters 0 to 3 only, which are the ones that Neap uses.
    {sapphire_rapids, {"l1d.replacement", 0x51, 0x01}},
    {sapphire_rapids, {"l2_lines_in.all", 0x25, 0x1f}},
    {sapphire_rapids, {"l2_rqsts.demand_data_rd_miss", 0x24, 0x21}},
    {sapphire_rapids, {"mem_load_retired.l2_miss", 0xd1, 0x10}},
    {sapphire_rapids, {"mem_load_retired.l3_hit", 0xd1, 0x04}},
    {sapphire_rapids, {"mem_load_retired.l3_miss", 0xd1, 0x20}},
    {sapphire_rapids, {"mem_load_l3_miss_retired.local_dram", 0xd3, 0x01}},
    {sapphire_rapids, {"mem_load_l3_miss_retired.remote_dram", 0xd3, 0x02}},
};

constexpr std::uint32_t select_of(Event event) { return static_cast<std::uint32_t>(event_select(event.event, event.umask)); }

bool is_available(std::size_t architectural, const EventFacts& facts) { return (facts.architectural >> architectural & 1) != 0; }

/// Parses "event=0xd1,umask=0x20,cmask=1,edge,inv". Only `event` is required; each part may be there once.
std::expected<std::uint32_t, std::string> parse_raw(std::string_view text) {
  constexpr std::uint64_t byte_max = 0xff;
  std::uint32_t select = select_of({});
  unsigned seen = 0;
  const std::string whole(text.substr(0, 64));
  const auto refuse = [&](std::string_view why) {
    return std::unexpected("'" + whole + "' is no event: " + std::string(why) + " (event=0xd1,umask=0x20[,cmask=N][,edge][,inv])");
  };
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    more = comma != std::string_view::npos;
    text.remove_prefix(more ? comma + 1 : text.size());
    const std::size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    constexpr std::string_view names[] = {"event", "umask", "cmask", "edge", "inv"};
    const auto at = static_cast<unsigned>(std::ranges::find(names, name) - std::begin(names));
    if (at == std::size(names) || (seen >> at & 1) != 0) return refuse("it has an unknown part, or one twice");
    seen |= 1U << at;
    if (at >= 3) {
      if (equals != std::string_view::npos) return refuse("edge and inv take no value");
      select |= static_cast<std::uint32_t>(bit(at == 3 ? select_edge_bit : select_invert_bit));
      continue;
    }
    const auto value = equals == std::string_view::npos ? std::nullopt : parse_number(part.substr(equals + 1), byte_max);
    if (!value) return refuse("a value is 0 to 0xff");
    constexpr unsigned shifts[] = {0, 8, 24};
    select |= static_cast<std::uint32_t>(*value << shifts[at]);
  }
  if ((seen & 1) == 0) return refuse("it has no event=");
  return select;
}

}  // namespace

EventFacts event_facts(std::uint32_t eax, std::uint32_t ebx, std::uint8_t model) noexcept {
  EventFacts facts{.counters = static_cast<std::uint8_t>(bits(eax, 8, 8)), .architectural = 0, .model = model};
  // EBX has a bit for each architectural event that is NOT available; EAX 31:24 is the number of valid bits.
  const auto valid = std::min<std::uint64_t>(bits(eax, 24, 8), architectural_events.size());
  facts.architectural = static_cast<std::uint8_t>(~ebx & (bit(static_cast<unsigned>(valid)) - 1));
  return facts;
}

std::string event_names(const EventFacts& facts) {
  std::string names;
  const auto add = [&](std::string_view name) { names += (names.empty() ? "" : " ") + std::string(name); };
  for (std::size_t i = 0; i < architectural_events.size(); ++i) {
    if (is_available(i, facts)) add(architectural_events[i].name);
  }
  for (const ModelEvent& one : model_events) {
    if (facts.model != 0 && one.model == facts.model) add(one.event.name);
  }
  return names;
}

std::expected<std::uint32_t, std::string> parse_event(std::string_view text, const EventFacts& facts) {
  if (facts.counters == 0) return std::unexpected("this CPU has no counters for events");
  if (text.starts_with("event=") || text.find('=') != std::string_view::npos) return parse_raw(text);
  for (std::size_t i = 0; i < architectural_events.size(); ++i) {
    if (architectural_events[i].name != text) continue;
    if (is_available(i, facts)) return select_of(architectural_events[i]);
    return std::unexpected("CPUID says that this CPU cannot count " + std::string(text));
  }
  for (const ModelEvent& one : model_events) {
    if (facts.model != 0 && one.model == facts.model && one.event.name == text) return select_of(one.event);
  }
  return std::unexpected("'" + std::string(text.substr(0, 64)) + "' is no event that this CPU is known to have: " + event_names(facts) +
                         ", or event=0xd1,umask=0x20");
}

}  // namespace neap::x86::power
