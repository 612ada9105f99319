// SPDX-License-Identifier: BSL-1.0
#include "observe/options.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/numbers.hpp"
#include "kernel/slow_card.hpp"

namespace neap::observe {
namespace {

constexpr std::size_t token_bytes_min = 8, token_bytes_max = 128;
constexpr const char* sampling_help = "time between samples of the counters (0s: only at a run's start and end), or a number of interrupts";
constexpr unsigned queues_max = 16;  // the limit of the 82599's RSS: further cores receive nothing

/// `log_sample=` is a time with its unit, or a number of interrupts without one.
void read_sampling(Arguments& arguments, log::Options& log) {
  constexpr std::uint64_t records_max = std::numeric_limits<std::uint32_t>::max();
  const std::string text = arguments.text("log_sample", "1ms", sampling_help);
  if (const auto records = parse_digits(text)) {
    if (*records == 0 || *records > records_max) {
      arguments.reject("log_sample", "is out of range (1 to 4294967295 interrupts)");
    } else {
      log.sample_records = static_cast<std::uint32_t>(*records);
      log.sample_period_us = 0;
    }
    return;
  }
  const auto period = arguments.duration("log_sample", std::chrono::milliseconds(1), sampling_help);
  const auto period_us = std::chrono::duration_cast<std::chrono::microseconds>(period).count();
  if (period_us > std::numeric_limits<std::uint32_t>::max() || (period_us == 0 && period.count() > 0)) {
    arguments.reject("log_sample", "is out of range (1us to 4294s, or 0s)");
  } else {
    log.sample_period_us = static_cast<std::uint32_t>(period_us);
  }
}

/// Reads the names of events, with a plus sign between them.
void read_events(Arguments& arguments, Options& options) {
  const std::string text =
      arguments.text("log_events", "none", "further events that each core counts: NAME+NAME+..., or event=0xd1,umask=0x20");
  if (text == "none") return;
  const unsigned free = machine::power_abilities().free_event_counters;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const std::size_t plus = rest.find('+');
    const std::string_view name = rest.substr(0, plus);
    more = plus != std::string_view::npos;
    rest.remove_prefix(more ? plus + 1 : rest.size());
    constexpr std::size_t name_bytes_max = 48;  // so that a log's header has room for the names
    if (name.size() > name_bytes_max || std::ranges::find(options.events, name) != options.events.end()) {
      return arguments.reject("log_events", "names an event twice, or in more than 48 characters");
    }
    const auto event = machine::find_event(name);
    if (!event) return arguments.reject("log_events", event.error());
    if (options.log.events_count == free) {
      return arguments.reject("log_events", "names more events than this CPU has counters left: " + std::to_string(free));
    }
    options.log.events[options.log.events_count++] = *event;
    options.events.emplace_back(name);
  }
}

void read_log(Arguments& arguments, log::Options& log) {
  log.entries_per_core =
      arguments.bytes("log", log.entries_per_core, {0, log::entries_per_core_max}, "entries of 64 bytes in each core's log; 0: no log");
  log.when_full = arguments.choice("log_full", {"stop", "overwrite"}, 0, "a full log stops, or overwrites the oldest entries") == 0
                      ? log::WhenFull::stop
                      : log::WhenFull::overwrite;
  read_sampling(arguments, log);
  log.idle_records = arguments.flag("log_idle", false, "also records each sleep");

  // The number is rounded as in log::prepare, so that the check below uses the real size.
  if (log.entries_per_core != 0) log.entries_per_core = std::bit_ceil(log.entries_per_core);
  const std::uint64_t bytes = log.entries_per_core * log::entry_bytes * core_count();
  const std::uint64_t free_bytes = memory::page_counters().free_bytes;
  if (free_bytes > 0 && bytes > free_bytes / 8 * 7) {
    arguments.reject("log", "needs more memory than there is: 64 bytes an entry on each core");
  }
}

void read_port(Arguments& arguments, Options& options) {
  const std::string text = arguments.text("control", "5002", "TCP port of the control server, or off");
  if (text == "off") {
    options.control_port.reset();
  } else if (const auto port = parse_number(text, 65535); port && *port > 0) {
    options.control_port = static_cast<std::uint16_t>(*port);
  } else {
    arguments.reject("control", "is not a port (1 to 65535) and not off");
  }
}

void read_token(Arguments& arguments, Options& options) {
  arguments.mark_secret("control_token");
  options.token =
      arguments.text("control_token", "", "the token that a client must send first (token,...); 8 to 128 characters without comma");
  if (options.token.empty()) return;
  const bool plain = std::all_of(options.token.begin(), options.token.end(), [](char letter) { return letter > ' ' && letter <= '~'; });
  if (options.token.size() < token_bytes_min || options.token.size() > token_bytes_max || !plain ||
      options.token.find(',') != std::string::npos) {
    arguments.reject("control_token", "is not 8 to 128 printable characters without comma");
  }
}

void read_allow(Arguments& arguments, Options& options) {
  const std::string text =
      arguments.text("control_allow", "", "clients that may use control: ADDRESS[/LEN],... or any; by default the machine's own network");
  if (text.empty()) return;
  if (auto list = AllowList::parse(text); list) {
    options.allow = std::move(*list);
  } else {
    arguments.reject("control_allow", std::string("is ") + list.error());
  }
}

void read_core(Arguments& arguments, Options& options) {
  const std::string text = arguments.text("control_core", "none", "a core that serves control only, or none");
  if (text == "none") return;
  const unsigned cores = std::min(core_count(), queues_max);
  const auto core = parse_number(text, cores - 1);
  if (cores < 2) {
    arguments.reject("control_core", "needs a second core for the application");
  } else if (!core) {
    arguments.reject("control_core", "is not none and not a core with a queue (0 to " + std::to_string(cores - 1) + ")");
  } else {
    options.control_core = static_cast<unsigned>(*core);
  }
}

}  // namespace

Options Options::from(Arguments& arguments, std::span<const policy::Row> card_settings) {
  Options options;
  read_log(arguments, options.log);
  read_events(arguments, options);
  read_port(arguments, options);
  read_token(arguments, options);
  read_allow(arguments, options);
  read_core(arguments, options);
  const auto dialect =
      arguments.choice("dialect", {"none", "ebbrt"}, 0, "control answers the lines of EbbRT's protocol as EbbRT does (ebbrt)");
  options.dialect = dialect == 0 ? Dialect::none : Dialect::ebbrt;
  options.boot_settings = policy::BootSettings::from(arguments, card_settings);
  options.slow = read_slow(arguments);
  options.arguments = &arguments;
  return options;
}

}  // namespace neap::observe
