// SPDX-License-Identifier: BSL-1.0
#include "observe/options.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernel/events.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/numbers.hpp"

namespace neap::observe {
namespace {

constexpr std::size_t token_bytes_least = 8, token_bytes_most = 128;
constexpr unsigned queues_most = 16;  // of the 82599's RSS: further cores receive nothing

void read_log(Arguments& arguments, log::Options& log) {
  log.records_per_core =
      arguments.bytes("log", log.records_per_core, {0, log::records_per_core_max}, "lines of 64 bytes in each core's log; 0: no log");
  log.when_full = arguments.choice("log_full", {"stop", "overwrite"}, 0, "what a full log does: stop, or overwrite the oldest") == 0
                      ? log::WhenFull::stop
                      : log::WhenFull::overwrite;
  const auto period =
      arguments.duration("log_sample", std::chrono::milliseconds(1), "counters are sampled this often; 0s: at a run's ends");
  const auto period_us = std::chrono::duration_cast<std::chrono::microseconds>(period).count();
  if (period_us > std::numeric_limits<std::uint32_t>::max() || (period_us == 0 && period.count() > 0)) {
    arguments.reject("log_sample", "is out of range (1us to 4294s, or 0s)");
  } else {
    log.sample_period_us = static_cast<std::uint32_t>(period_us);
  }
  log.idle_records = arguments.flag("log_idle", false, "a line for each sleep, too");

  // As log::prepare rounds it, so that nobody plans with less than it takes.
  if (log.records_per_core != 0) log.records_per_core = std::bit_ceil(log.records_per_core);
  const std::uint64_t bytes = log.records_per_core * log::record_bytes * core_count();
  const std::uint64_t free_bytes = memory::page_counters().free_bytes;
  if (free_bytes > 0 && bytes > free_bytes / 8 * 7) {
    arguments.reject("log", "is more than there is memory for: 64 bytes a line on each core");
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
  options.token = arguments.text("control_token", "", "what a client must send first (token,...); 8 to 128 characters without comma");
  if (options.token.empty()) return;
  const bool plain = std::all_of(options.token.begin(), options.token.end(), [](char letter) { return letter > ' ' && letter <= '~'; });
  if (options.token.size() < token_bytes_least || options.token.size() > token_bytes_most || !plain ||
      options.token.find(',') != std::string::npos) {
    arguments.reject("control_token", "is not 8 to 128 printable characters without comma");
  }
}

void read_allow(Arguments& arguments, Options& options) {
  const std::string text =
      arguments.text("control_allow", "", "who may use control: A.B.C.D[/LEN],... or any; without it, the machine's own network");
  if (text.empty()) return;
  if (auto list = AllowList::parse(text); list) {
    options.allow = std::move(*list);
  } else {
    arguments.reject("control_allow", std::string("is ") + list.error());
  }
}

void read_core(Arguments& arguments, Options& options) {
  const std::string text = arguments.text("control_core", "none", "the core that control is served on, and nothing else; or none");
  if (text == "none") return;
  const unsigned cores = std::min(core_count(), queues_most);
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

Options Options::from(Arguments& arguments) {
  Options options;
  read_log(arguments, options.log);
  read_port(arguments, options);
  read_token(arguments, options);
  read_allow(arguments, options);
  read_core(arguments, options);
  options.wishes = policy::Wishes::from(arguments);
  options.arguments = &arguments;
  return options;
}

}  // namespace neap::observe
