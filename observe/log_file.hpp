// SPDX-License-Identifier: BSL-1.0
// A core's log as a file: a header that describes itself, then the entries (docs/log-format.md).
//
// A log outlives the build that wrote it. So the header holds everything that a reader needs: names, types and units of all fields, names
// and values of all settings, the clock's rate, the energy unit, the machine, the boot and the run. tools/log/ builds its types from the
// header. The header depends only on the run, so every request after the run gets the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/application.hpp"
#include "kernel/log.hpp"
#include "observe/run_card.hpp"

namespace neap::observe {

/// A multiple of 4096, at most 65536: readers take it from the header.
constexpr std::size_t header_bytes = 16384;
/// The header is longer than a core's stack should carry, so it is on the heap.
using Header = std::vector<std::byte>;

/// The values that are the same in all log headers of one boot.
struct BootFacts {
  std::uint64_t boot_id = 0;
  std::uint64_t tsc_at_boot = 0;  ///< the TSC at which `machine::now_ns` was 0
  std::optional<unsigned> control_core;
  std::string_view application = application_name, version = neap_version, commit = neap_commit, build = neap_build;
  std::string command_line{};         ///< without secrets
  std::uint32_t slow = 1;             ///< the card's clock runs that many times slower than the CPU's
  std::vector<std::string> events{};  ///< the names of the chosen events: event1, event2, event3
};
struct Options;
/// Returns the values for this boot, with a new boot id.
[[nodiscard]] BootFacts find_boot_facts(const Options& options);

/// A log's run, core and entries; the entries are those from `extent.first` to `extent.end`.
struct LogPart {
  std::uint32_t run = 0;
  unsigned core = 0;
  log::Extent extent;
  const RunCard* card = nullptr;  ///< null: not known
};
/// Returns the file's first `header_bytes` bytes. Throws `bad_alloc`.
[[nodiscard]] Header make_header(const BootFacts& boot, const LogPart& part);
/// Returns the JSON text in the header. Public for tests.
[[nodiscard]] std::string make_header_json(const BootFacts& boot, const LogPart& part);

/// Returns `id` as 16 hexadecimal digits.
[[nodiscard]] std::string hex_id(std::uint64_t id);

}  // namespace neap::observe
