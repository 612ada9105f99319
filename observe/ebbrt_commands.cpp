// SPDX-License-Identifier: BSL-1.0
#include "observe/ebbrt_commands.hpp"

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "kernel/console.hpp"
#include "kernel/log.hpp"
#include "kernel/machine.hpp"
#include "kernel/numbers.hpp"
#include "kernel/panic.hpp"
#include "kernel/policy.hpp"
#include "observe/built_in.hpp"
#include "observe/ebbrt_records.hpp"
#include "observe/line.hpp"
#include "observe/server.hpp"
#include "observe/stream_block.hpp"

namespace neap::observe::ebbrt {
namespace {

std::string describe(const Error& error) {
  if (error.code == ErrorCode::not_found) return "error: this image runs without a log (log= on its command line)";
  return "error: " + std::string(error.message);
}

// --- Settings, of all cores --------------------------------------------------------------------------------------------------------------
task<std::string> set(Server& server, policy::Setting setting, std::string value) {
  const AsyncMutex::Lock lock = co_await server.change_mutex().lock();
  const auto applied = co_await policy::set(setting, std::move(value), policy::all_cores);
  co_return applied ? std::string() : "error: " + applied.error().why;
}

// --- Runs --------------------------------------------------------------------------------------------------------------------------------
// EbbRT's commands set or clear a flag, so a second `start` or `stop` changes nothing.
task<std::string> start_run(Server& server) {
  const AsyncMutex::Lock lock = co_await server.change_mutex().lock();
  const auto run = co_await log::start({});
  co_return run || run.error().code == ErrorCode::closed ? std::string() : describe(run.error());
}

task<std::string> stop_run(Server& server) {
  const AsyncMutex::Lock lock = co_await server.change_mutex().lock();
  const auto stopped = co_await log::stop();
  co_return stopped || stopped.error().code == ErrorCode::closed ? std::string() : describe(stopped.error());
}

/// EbbRT empties its logs also while they are written. A script that was interrupted leaves such a run; its next try begins with `clear,0`
/// and `start,0`.
task<std::string> clear_run(Server& server) {
  const AsyncMutex::Lock lock = co_await server.change_mutex().lock();
  if (log::state().running && (co_await log::stop()).has_value()) {
    const auto run = co_await log::start({});
    co_return run ? std::string() : describe(run.error());
  }
  const auto cleared = co_await log::clear();
  co_return cleared ? std::string() : describe(cleared.error());
}

// --- The run's bounds and counters -------------------------------------------------------------------------------------------------------
/// Visits each core. Empty if there is no run. The caller MUST hold the mutex of changes, so that no other run begins meanwhile.
task<std::vector<log::RunEnds>> ends_of_cores() {
  std::vector<log::RunEnds> ends;
  if (log::state().run == 0) co_return ends;
  for (unsigned core = 0; core < core_count(); ++core) ends.push_back(co_await on_core(core, [] { return log::run_ends(); }));
  co_return ends;
}

/// The latest start and the earliest end of all cores; the end is 0 while the run is on. EbbRT sends no line feed.
task<std::string> bounds_text(Server& server) {
  const AsyncMutex::Lock lock = co_await server.change_mutex().lock();
  std::uint64_t start = 0, stop = 0;
  for (const log::RunEnds& ends : co_await ends_of_cores()) {
    start = std::max(start, ends.start.tsc);
    if (!ends.on) stop = stop == 0 ? ends.stop.tsc : std::min(stop, ends.stop.tsc);
  }
  co_return std::to_string(start) + ' ' + std::to_string(stop);
}

/// `count` / `per_unit` as a decimal number with six places, "12.345678", rounded down. `per_unit` MUST be below 2^44 and not 0.
std::string decimal(std::uint64_t count, std::uint64_t per_unit) {
  constexpr std::uint64_t millionths = 1'000'000;
  require(per_unit != 0 && per_unit >> 44 == 0, "a decimal number has a divisor, and its remainder fits", per_unit);
  const std::string places = std::to_string(millionths + count % per_unit * millionths / per_unit);
  return std::to_string(count / per_unit) + '.' + places.substr(1);
}

/// The words after the time in a line of `getcounters`: frames by their number of descriptors (40), and others that no script reads.
constexpr unsigned uncounted_words = 60;

/// The units of energy that package `number` used in the run; 0 if there is no such package or no counter.
std::uint32_t package_energy(unsigned number, std::span<const log::RunEnds> cores) {
  for (unsigned core = 0; core < cores.size(); ++core) {
    const auto& [start, stop, on] = cores[core];
    if (machine::package_of(core) == number) return stop.counters.package_energy - start.counters.package_energy;  // wraps at 32 bits
  }
  return 0;
}

/// One line for each core, in the form that the studies' mutilate_bench.py reads: core, rx_desc, rsc_desc, rx_bytes, tx_desc, tx_bytes,
/// instructions, cycles, ref_cycles, llc_miss, joules, time, and further words. The script adds the joules of the first two lines. So line
/// i has the energy of package i, and the other lines have 0.
task<std::string> counters_text(Server& server) {
  const AsyncMutex::Lock lock = co_await server.change_mutex().lock();
  const std::vector<log::RunEnds> cores = co_await ends_of_cores();
  if (cores.empty()) co_return "error: there is no run (start,0 begins one)";
  constexpr std::uint64_t counter_mask = (std::uint64_t{1} << 48) - 1;  // the width of the CPU's counters
  std::string text;
  for (unsigned core = 0; core < cores.size(); ++core) {
    const auto& [start, stop, on] = cores[core];
    const auto word = [&](std::uint64_t value) { text += std::to_string(value) + ' '; };
    const auto counted = [&](std::uint64_t CounterSample::* counter) {
      word((stop.counters.*counter - start.counters.*counter) & counter_mask);
    };
    word(core);
    word(stop.traffic.rx_descriptors - start.traffic.rx_descriptors);
    word(0);  // descriptors of RSC
    word(stop.traffic.rx_bytes - start.traffic.rx_bytes);
    word(stop.traffic.tx_descriptors - start.traffic.tx_descriptors);
    word(stop.traffic.tx_bytes - start.traffic.tx_bytes);
    counted(&CounterSample::instructions);
    counted(&CounterSample::cycles);
    counted(&CounterSample::reference_cycles);
    counted(&CounterSample::llc_misses);
    const std::uint64_t units_per_joule = std::uint64_t{1} << machine::power_abilities().energy_unit_exponent;
    text += decimal(package_energy(core, cores), units_per_joule) + ' ' + decimal(stop.tsc - start.tsc, machine::timestamp_hz());
    for (unsigned i = 0; i < uncounted_words; ++i) text += " 0";
    text += '\n';
  }
  co_return text;
}

// --- Logs --------------------------------------------------------------------------------------------------------------------------------
task<std::string> send_log(Server& server, Client& client, std::uint64_t core) {
  if (core >= core_count()) {
    co_return "error: there is no core '" + std::to_string(core) + "' (0 to " + std::to_string(core_count() - 1) + ')';
  }
  const auto from = static_cast<unsigned>(core);
  const log::State state = log::state();
  const log::Extent extent = log::extent(from);
  if (state.run == 0 || log::state().run != state.run) co_return std::string();  // EbbRT's log then has no records
  count(server.counters().gets);
  Folder folder;
  std::vector<log::Record> entries(block_entries_max);
  std::vector<Record> records;
  bool sent = true;
  for (std::uint64_t position = first_to_keep(extent, state.running); sent && position < extent.end;) {
    if (!co_await client.log_room()) break;
    const std::size_t wanted = std::min<std::uint64_t>(entries.size(), extent.end - position);
    const std::size_t got = log::read(from, position, std::span(entries).first(wanted));
    if (got == 0 || log::state().run != state.run) {  // the entries were overwritten
      count(server.counters().gets_overtaken);
      client.abort();
      co_return std::string();
    }
    require(got <= wanted, "log: no more entries are read than wanted", got);
    position += got;
    count(server.counters().get_lines, got);
    records.clear();
    for (const log::Record& entry : std::span(entries).first(got)) {
      if (const auto record = folder.take(entry)) records.push_back(*record);
    }
    if (position == extent.end) {
      if (const auto last = folder.finish()) records.push_back(*last);
    }
    if (!records.empty()) sent = co_await client.send_bytes(std::as_bytes(std::span(records)));
    co_await next_event();
  }
  co_return std::string();
}

/// EbbRT prints a core's records; here the console gets their number.
std::string print_log(std::uint64_t core) {
  if (core >= core_count()) return "error: there is no core '" + std::to_string(core) + '\'';
  const log::Extent extent = log::extent(static_cast<unsigned>(core));
  print("control: core ", core, " has ", extent.end - extent.first, " log entries, and ", extent.unwritten, " were lost");
  return {};
}

}  // namespace

task<std::string> execute(Server& server, Client& client, Line line) {
  std::string text;
  switch (line.action) {
    case Action::start:
      co_return co_await start_run(server);
    case Action::stop:
      co_return co_await stop_run(server);
    case Action::clear:
      co_return co_await clear_run(server);
    case Action::moderation:
      co_return co_await set(server, policy::Setting::itr, std::to_string(line.number * moderation_unit_us) + "us");
    case Action::performance:
      co_return co_await set(server, policy::Setting::pstate, hexadecimal(line.number));
    case Action::power_limit:
      co_return co_await set(server, policy::Setting::power_limit, std::to_string(line.number) + 'W');
    case Action::idle:
      co_return co_await set(server, policy::Setting::idle, std::string(idle_state_of_hint(line.number)));
    case Action::segmentation:
      co_return co_await set(
          server, policy::Setting::segmentation,
          policy::segmentation_names[static_cast<unsigned>(line.number == 1 ? policy::Segmentation::copy : policy::Segmentation::chain)]);
    case Action::log:
      co_return co_await send_log(server, client, line.number);
    case Action::print:
      co_return print_log(line.number);
    case Action::bounds:
      text = co_await bounds_text(server);
      break;
    case Action::counters:
      text = co_await counters_text(server);
      if (text.starts_with("error")) co_return text;
      break;
  }
  static_cast<void>(co_await client.send_text(std::move(text)));
  co_return std::string();
}

void report_refusal(std::string_view name, std::string_view answer) noexcept {
  constexpr unsigned reports_max = 32;
  static constinit std::atomic<unsigned> reports{0};
  if (reports.load(std::memory_order_relaxed) >= reports_max) return;
  const unsigned before = reports.fetch_add(1, std::memory_order_relaxed);
  if (before >= reports_max) return;
  const char* const last = before + 1 == reports_max ? " (further refusals are only counted: control.refused)" : "";
  print("control: dialect=ebbrt: '", name, "' was refused: ", answer, last);
}

}  // namespace neap::observe::ebbrt
