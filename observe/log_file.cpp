// SPDX-License-Identifier: BSL-1.0
#include "observe/log_file.hpp"

#include <cstring>
#include <span>
#include <string_view>

#include "kernel/application.hpp"
#include "kernel/crc32c.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/policy_rows.hpp"
#include "observe/json.hpp"
#include "observe/log_configuration.hpp"
#include "observe/options.hpp"

namespace neap::observe {
namespace {

/// The fixed part of the header, little-endian like the machine.
struct FixedHeader {
  char magic[8];
  std::uint32_t version, header_bytes, entry_bytes, core;
  std::uint64_t entries;    ///< number of entries that follow
  std::uint64_t first;      ///< position of the first entry
  std::uint64_t unwritten;  ///< entries that did not fit into the log
  std::uint64_t tsc_hz;
  std::uint32_t json_bytes;
  std::uint32_t crc32c;  ///< CRC of the bytes before it and of the JSON
};
static_assert(sizeof(FixedHeader) == 64);
static_assert(header_bytes % 4096 == 0 && header_bytes <= 65536);
constexpr std::size_t json_bytes_max = header_bytes - sizeof(FixedHeader) - 1;

/// Names of the counters, by their bit in `Record::flags`.
constexpr std::string_view counter_names[] = {"instructions", "cycles",  "reference_cycles", "llc_misses", "package_energy", "dram_energy",
                                              "core_c3",      "core_c6", "core_c7",          "package_c2", "package_c3",     "package_c6",
                                              "package_c7",   "event1",  "event2",           "event3"};

}  // namespace

std::string hex_id(std::uint64_t id) {
  std::string text(16, '0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = "0123456789abcdef"[id >> (60 - 4 * i) & 0xF];
  return text;
}

BootFacts find_boot_facts(const Options& options) {
  const std::uint64_t hz = machine::timestamp_hz(), tsc = machine::timestamp(), now_ns = machine::now_ns();
  const std::uint64_t since_boot = now_ns / 1'000'000'000 * hz + now_ns % 1'000'000'000 * hz / 1'000'000'000;
  return {.boot_id = machine::random_bits(),
          .tsc_at_boot = tsc - since_boot,
          .control_core = options.control_core,
          .command_line = options.arguments == nullptr ? std::string() : options.arguments->shown(),
          .slow = options.slow};
}

std::string make_header_json(const BootFacts& boot, const LogPart& part) {
  const PowerAbilities& abilities = machine::power_abilities();
  const auto counted = [&](std::uint16_t which, std::uint8_t exponent) -> std::optional<std::uint64_t> {
    if ((abilities.counters & which) == 0) return std::nullopt;
    return exponent;
  };
  Json json;
  json.text("format", "neap-log");
  json.number("version", log::format_version);
  json.text("boot_id", hex_id(boot.boot_id));
  json.number("run", part.run);
  json.text("application", bounded(boot.application));
  json.text("neap", bounded(boot.version));
  json.number("core", part.core);
  json.number("cores", core_count());
  json.number("package", machine::package_of(part.core));
  json.number("packages", machine::package_count());
  json.text("cpu", bounded(abilities.cpu));
  json.number("tsc_hz", machine::timestamp_hz());
  json.number("wall_clock_at_boot_ns", machine::wall_clock_at_boot_ns());
  json.number("tsc_at_boot", boot.tsc_at_boot);
  json.number_or_null("energy_unit_exponent", counted(counter::package_energy, abilities.energy_unit_exponent));
  json.number_or_null("dram_energy_unit_exponent", counted(counter::dram_energy, abilities.dram_energy_unit_exponent));
  std::vector<std::string_view> counters;
  for (std::size_t bit = 0; bit < std::size(counter_names); ++bit) {
    if (abilities.counters >> bit & 1) counters.push_back(counter_names[bit]);
  }
  json.list("counters", counters);
  if (!boot.events.empty()) json.list("events", boot.events);
  json.list("idle_states", idle_state_names);
  json.list("flags", counter_names);
  json.number("sample_period_us", log::options().sample_period_us);
  if (log::options().sample_records != 0) json.number("sample_records", log::options().sample_records);
  json.text("when_full", log::options().when_full == log::WhenFull::stop ? "stop" : "overwrite");
  json.number_or_null("control_core", boot.control_core);
  json.open("lines");
  for (const auto& [kind, form] : log::kinds) json.text(std::to_string(static_cast<unsigned>(kind)), form);
  json.close();
  json.open("fields");
  for (const log::Form& form : log::forms) json.text(form.name, form.fields);
  json.close();
  json.open("settings");
  for (const policy::Row* const row : policy::rows()) {
    json.text(std::to_string(static_cast<unsigned>(row->setting)), policy::log_description(*row));
  }
  json.close();
  add_configuration(json, boot, part.card, json_bytes_max);
  return json.take();
}

Header make_header(const BootFacts& boot, const LogPart& part) {
  const std::string json = make_header_json(boot, part);
  require(json.size() <= json_bytes_max, "log: the header's JSON fits into the header", json.size());
  require(part.extent.first <= part.extent.end, "log: the first entry is not behind the last one", part.extent.first);
  FixedHeader fixed{.magic = {'N', 'E', 'A', 'P', 'L', 'O', 'G', '\n'},
                    .version = log::format_version,
                    .header_bytes = header_bytes,
                    .entry_bytes = log::entry_bytes,
                    .core = part.core,
                    .entries = part.extent.end - part.extent.first,
                    .first = part.extent.first,
                    .unwritten = part.extent.unwritten,
                    .tsc_hz = machine::timestamp_hz(),
                    .json_bytes = static_cast<std::uint32_t>(json.size()),
                    .crc32c = 0};
  Crc32c crc;
  crc.add(std::as_bytes(std::span(&fixed, 1)).first(offsetof(FixedHeader, crc32c)));
  crc.add(std::as_bytes(std::span(json)));
  fixed.crc32c = crc.value();
  Header header(header_bytes, std::byte{' '});
  std::memcpy(header.data(), &fixed, sizeof fixed);
  std::memcpy(header.data() + sizeof fixed, json.data(), json.size());
  header.back() = std::byte{'\n'};
  return header;
}

}  // namespace neap::observe
