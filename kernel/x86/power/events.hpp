// SPDX-License-Identifier: BSL-1.0
// Names of events that the CPU's general performance counters can count.
//
// Architectural events have the same encoding on all Intel CPUs, and CPUID leaf 0Ah says which of them a CPU has. All other events differ
// from model to model, and there are thousands. So the table has a few events of cache and memory for the CPUs of the published studies and
// of the model machine. Every other event has the raw form `event=0xd1,umask=0x20`, as for Linux's perf.
//
// Sources: architectural events: SDM 3B, 20.2.1.2, table 20-1. The others: Linux, tools/perf/pmu-events/arch/x86 (jaketown, haswellx,
// sapphirerapids), Intel's own lists. Only events that every general counter can count are in the table.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace neap::x86::power {

/// What CPUID leaf 0Ah and leaf 1 say of a CPU's events.
struct EventFacts {
  std::uint8_t counters = 0;       ///< general counters of a core (EAX 15:8); 0: no events can be counted
  std::uint8_t architectural = 0;  ///< bit i: architectural event i is available (EAX 31:24, EBX)
  std::uint8_t model = 0;          ///< model number of family 6; 0: another family
};
/// `eax` and `ebx` are those of CPUID leaf 0Ah.
[[nodiscard]] EventFacts event_facts(std::uint32_t eax, std::uint32_t ebx, std::uint8_t model) noexcept;

/// Returns the value of IA32_PERFEVTSELx that counts the event `text` at every privilege level (20.2.1.1). The error is the reason to
/// report, with the accepted names.
[[nodiscard]] std::expected<std::uint32_t, std::string> parse_event(std::string_view text, const EventFacts& facts);

/// The names that this CPU has, separated by blanks.
[[nodiscard]] std::string event_names(const EventFacts& facts);

}  // namespace neap::x86::power
