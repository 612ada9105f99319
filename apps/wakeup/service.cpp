// SPDX-License-Identifier: BSL-1.0
#include "apps/wakeup/service.hpp"

#include <mutex>
#include <utility>

#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/log.hpp"

namespace neap::wakeup {

namespace {

// Rounds of one row that may be disturbed, for each good one. A host that is busy with other work disturbs many.
constexpr std::uint64_t repeats_max_per_round = 10;

// The order of the table: from no sleep to the deepest.
constexpr std::array states{IdleState::poll, IdleState::monitor, IdleState::halt, IdleState::c1,
                            IdleState::c1e,  IdleState::c3,      IdleState::c6,   IdleState::c7};

bool has(IdleState state) noexcept {
  return state == IdleState::poll || (machine::power_abilities().idle_states >> static_cast<unsigned>(state) & 1) != 0;
}

// On CPUs with this erratum the kernel sends an interrupt with each write.
bool measurable(IdleState state, Doorbell doorbell) noexcept {
  const bool write_alone = state == IdleState::poll || !machine::power_abilities().writes_missed;
  return exists(state, doorbell) && (doorbell != Doorbell::write || write_alone);
}

}  // namespace

unsigned core_apart() noexcept {
  const unsigned present = machine::cores_present();
  machine::CorePlace first;
  for (unsigned i = 0; i < present; ++i) {
    if (const auto place = machine::present_place(i); place.running == 0) first = place;
  }
  unsigned found = 0;
  for (unsigned i = 0; i < present; ++i) {
    const auto place = machine::present_place(i);
    const bool apart = place.package != first.package || place.core != first.core;
    if (apart && place.running < core_count() && (found == 0 || place.running < found)) found = place.running;
  }
  return found;
}

Options Options::from_words(Arguments& arguments) {
  using namespace std::chrono_literals;
  const unsigned apart = core_apart();
  Options options;
  options.rounds = static_cast<std::uint32_t>(
      arguments.number("rounds", options.rounds, {1, 100'000}, "wake-ups to measure for each idle state and doorbell"));
  options.asleep = arguments.duration("asleep", options.asleep, "time from the begin of a sleep to the doorbell, 100us to 1s");
  if (options.asleep < 100us || options.asleep > 1s) arguments.reject("asleep", "not from 100us to 1s");
  options.sleeper = static_cast<unsigned>(
      arguments.number("sleeper", apart == 0 ? 1 : apart, {1, core_count() - 1}, "the core that sleeps; core 0 rings"));
  return options;
}

task<Result<Row>> Service::measure_row(IdleState state, Doorbell doorbell) {
  Row row{.state = state, .doorbell = doorbell, .latency = {}, .repeated = 0};
  std::vector<std::uint64_t> ticks;
  ticks.reserve(options_.rounds);
  while (ticks.size() < options_.rounds) {
    const Result<Round> round = pair_.ring(state, doorbell, options_.asleep);
    if (!round) co_return std::unexpected(round.error());
    if (round->good) {
      ticks.push_back(round->ticks);
    } else if (++row.repeated > repeats_max_per_round * options_.rounds) {
      co_return failure(ErrorCode::timeout, "other events ended too many sleeps", static_cast<unsigned>(state));
    }
    co_await on_core(0, [] {});  // other events of this core run between two rounds
  }
  co_await pair_.restore_alarms();
  row.latency = summarise(ticks, machine::timestamp_hz());
  co_return row;
}

task<Result<void>> Service::measure_all() {
  {
    const std::lock_guard guard(lock_);
    rows_.clear();
  }
  for (const IdleState state : states) {
    for (const Doorbell doorbell : doorbells) {
      if (!has(state) || !measurable(state, doorbell)) continue;
      const Result<Row> row = co_await measure_row(state, doorbell);
      if (!row) {
        co_await pair_.restore_alarms();
        co_return std::unexpected(row.error());
      }
      const std::lock_guard guard(lock_);
      rows_.push_back(*row);
    }
  }
  co_return Result<void>{};
}

task<Result<void>> Service::measure() {
  if (std::exchange(measuring_, true)) co_return failure(ErrorCode::closed, "a measurement is running");
  bool logged = false;
  if (log::options().idle_records && !log::state().running) {
    const auto started = co_await log::start({});
    logged = started.has_value();
    if (!logged) print("wakeup: no log: ", started.error().message);
  }
  const Result<void> measured = co_await measure_all();
  if (logged) {
    if (const auto stopped = co_await log::stop(); !stopped) print("wakeup: the log has ended before: ", stopped.error().message);
  }
  if (measured) print_table();
  measuring_ = false;
  co_return measured;
}

void Service::print_table() {
  std::vector<Row> rows;
  {
    const std::lock_guard guard(lock_);
    rows = rows_;
  }
  print("wakeup: core 0 rings, core ", options_.sleeper, " sleeps; ", options_.asleep.count() / 1000,
        " us from sleep to doorbell; CPU: ", machine::power_abilities().cpu);
  print("wakeup: ", table_head());
  for (const Row& row : rows) print("wakeup: ", row.text());
  print("wakeup: end of the table");
  if (const std::string option = boot_option(rows); !option.empty()) print("wakeup: boot option for this machine: ", option);
}

std::string Service::results() {
  const std::lock_guard guard(lock_);
  if (rows_.empty()) return "error: nothing is measured yet";
  std::string text = "ok";
  for (const Row& row : rows_) {
    const Summary& of = row.latency;
    text += std::string(text == "ok" ? " " : "; ") + idle_state_names[static_cast<std::size_t>(row.state)] + ' ' + name_of(row.doorbell) +
            " rounds=" + std::to_string(of.rounds) + " min=" + std::to_string(of.min) + " median=" + std::to_string(of.median) +
            " p99=" + std::to_string(of.p99) + " max=" + std::to_string(of.max) + " repeated=" + std::to_string(row.repeated);
  }
  return text;
}

task<void> Service::measure_again() {
  const Result<void> measured = co_await measure();
  if (!measured) print("wakeup: not measured: ", measured.error().message, " (", measured.error().detail, ")");
}

task<std::string> Service::command(std::span<const std::string_view> words) {
  const std::string_view what = words.empty() ? std::string_view() : words.front();
  if (what != "run" && what != "results") co_return "error: wakeup takes run or results";
  const bool running = co_await on_core(0, [this, run = what == "run"] {
    const bool before = measuring_;
    if (run && !before) start(measure_again());
    return before;
  });
  if (running) co_return "error: a measurement is running";
  co_return what == "run" ? std::string("ok") : results();
}

}  // namespace neap::wakeup
