// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/checked_run.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "apps/tpcc/consistency.hpp"
#include "apps/tpcc/engine/transaction.hpp"
#include "apps/tpcc/loader.hpp"
#include "apps/tpcc/procedures.hpp"
#include "kernel/events.hpp"
#include "kernel/rcu.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::tpcc::test {
namespace {

using host::HostMachine;
using transactions::Epochs;
using transactions::Worker;

constexpr unsigned transactions_per_event = 8;
constexpr unsigned attempts_max = 100'000;
constexpr std::uint64_t first_date_us = 1'800'000'000'000'000;

struct Committed {
  std::uint64_t number;  // in the serial order
  std::uint64_t digest;  // of the result
  Inputs inputs;
};

/// A hash of the member of the transaction's type. The caller has zeroed `result` before the attempt, and its types have no padding that is
/// written.
std::uint64_t digest_of(TransactionType type, const Result& result) noexcept {
  const auto digest = [](const auto& member) {
    std::uint64_t hash = 0;
    const auto* const bytes = reinterpret_cast<const char*>(&member);
    for (std::size_t at = 0; at + 4 <= sizeof member; at += 4) {
      std::uint32_t word;
      std::memcpy(&word, bytes + at, sizeof word);
      hash = (hash ^ word) * 0x9e37'79b9'7f4a'7c15;
      hash ^= hash >> 32;
    }
    return hash;
  };
  switch (type) {
    case TransactionType::new_order:
      return digest(result.new_order);
    case TransactionType::payment:
      return digest(result.payment);
    case TransactionType::order_status:
      return digest(result.order_status);
    case TransactionType::delivery:
      return digest(result.delivery);
    case TransactionType::stock_level:
      return digest(result.stock_level);
  }
  return 0;
}

/// Calls `step` on each core, in one event after the other, until it returns false there. Returns false after `limit`.
bool run_on_cores(HostMachine& machine, unsigned cores, const std::function<bool(unsigned core)>& step, std::chrono::seconds limit) {
  std::atomic<unsigned> ended{0};
  std::vector<std::function<void()>> events(cores);
  for (unsigned core = 0; core < cores; ++core) {
    events[core] = [&, core] {
      if (step(core)) {
        spawn([&events, core] { events[core](); });
      } else {
        ++ended;
      }
    };
    machine.on(core, events[core]);
  }
  return HostMachine::wait_until([&] { return ended.load() == cores; }, limit);
}

/// Waits until no removed row or node is left on any core.
bool reclaim_all(HostMachine& machine, unsigned cores) {
  return HostMachine::wait_until([&] {
    std::uint64_t pending = 0;
    for (unsigned core = 0; core < cores; ++core) pending += machine.value_on(core, [] { return rcu::pending(); });
    return pending == 0;
  });
}

struct Player {
  std::unique_ptr<Loader> loader;
  std::unique_ptr<Worker> worker;
  std::unique_ptr<Transaction> transaction;
  std::unique_ptr<Generator> generator;
  std::uint64_t left = 0, date_us = 0;
  unsigned attempts = 0;  // of the transaction in progress
  const Inputs* inputs = nullptr;
  std::vector<Committed> committed;
  std::uint64_t rolled_back = 0, conflicts = 0;
  std::string failure;
  Result result;
};

class CheckedRun {
 public:
  explicit CheckedRun(const RunOptions& options) : options_(options), database_(options.scale), players_(options.cores) {}

  RunReport run() {
    if (play(); report_.failure.empty()) check(find_inconsistency(database_));
    if (report_.failure.empty()) repeat();
    return std::move(report_);
  }

 private:
  void check(std::string failure) {
    if (report_.failure.empty()) report_.failure = std::move(failure);
  }
  void play();
  bool play_some(Player& player);
  void repeat();

  const RunOptions& options_;
  Database database_;
  Epochs epochs_;
  std::atomic<std::uint64_t> commit_counter_{0};
  std::vector<Player> players_;
  RunReport report_;
};

void CheckedRun::play() {
  const unsigned cores = options_.cores;
  HostMachine machine{cores};
  for (unsigned core = 0; core < cores; ++core) {
    Player& player = players_[core];
    player.loader = std::make_unique<Loader>(database_, options_.seed, core, cores);
    player.worker = Worker::make(epochs_);
    player.transaction = std::make_unique<Transaction>(*player.worker);
    player.transaction->number_commits(&commit_counter_);
    player.transaction->skip_validation(options_.skip_validation);
    player.generator = std::make_unique<Generator>(options_.seed, core + 1, home_warehouses(options_.scale, core, cores), options_.scale);
    player.left = options_.transactions * (core + 1) / cores - options_.transactions * core / cores;
    player.date_us = first_date_us + core;
  }
  std::atomic<bool> no_memory{false};
  const auto load_some = [&](unsigned core) {
    const Loader::Progress progress = players_[core].loader->step();
    if (progress == Loader::Progress::no_memory) no_memory = true;
    return progress == Loader::Progress::more;
  };
  if (!run_on_cores(machine, cores, load_some, options_.limit)) return check("loading takes too long");
  if (no_memory) return check("no memory for the database");
  const auto play_on = [&](unsigned core) { return play_some(players_[core]); };
  if (!run_on_cores(machine, cores, play_on, options_.limit)) return check("the run takes too long");
  if (!reclaim_all(machine, cores)) check("removed rows are not reclaimed");
  for (Player& player : players_) {
    check(player.failure);
    report_.rolled_back += player.rolled_back;
    report_.conflicts += player.conflicts;
    for (const Committed& committed : player.committed) ++report_.committed[static_cast<unsigned>(type_of(committed.inputs))];
  }
}

/// Runs a few attempts. Core 0 advances the epoch, more often than the timer would.
bool CheckedRun::play_some(Player& player) {
  if (&player == players_.data()) epochs_.advance();
  for (unsigned attempt = 0; attempt < transactions_per_event; ++attempt) {
    if (player.inputs == nullptr) {
      if (player.left == 0) return false;
      --player.left;
      player.inputs = &player.generator->next(player.date_us += options_.cores);
      player.attempts = 0;
    }
    std::memset(static_cast<void*>(&player.result), 0, sizeof player.result);
    const Outcome outcome = tpcc::run(*player.transaction, database_, *player.inputs, player.result);
    switch (outcome) {
      case Outcome::committed:
        player.committed.push_back(
            {player.transaction->commit_number(), digest_of(type_of(*player.inputs), player.result), *player.inputs});
        player.inputs = nullptr;
        break;
      case Outcome::absent:
        ++player.rolled_back;
        player.inputs = nullptr;
        break;
      case Outcome::conflict:
        ++player.conflicts;
        if (++player.attempts < attempts_max) break;
        [[fallthrough]];
      default:
        player.failure = std::string(name_of(type_of(*player.inputs))) + " ended with outcome " +
                         std::to_string(static_cast<unsigned>(outcome)) + " after " + std::to_string(player.attempts) + " conflicts";
        return false;
    }
  }
  return true;
}

void CheckedRun::repeat() {
  std::vector<Committed> all;
  for (Player& player : players_) {
    std::ranges::move(player.committed, std::back_inserter(all));
    player.committed = {};
  }
  std::ranges::sort(all, {}, &Committed::number);
  Database repeated(options_.scale);
  HostMachine machine{1};
  Loader loader(repeated, options_.seed, 0, 1);
  const std::unique_ptr<Worker> worker = Worker::make(epochs_);
  Transaction transaction(*worker);
  Result result;
  std::size_t at = 0;
  const auto repeat_some = [&](unsigned) {
    for (unsigned count = 0; count < transactions_per_event && at < all.size(); ++count, ++at) {
      const TransactionType type = type_of(all[at].inputs);
      std::memset(static_cast<void*>(&result), 0, sizeof result);
      if (tpcc::run(transaction, repeated, all[at].inputs, result) != Outcome::committed) {
        check("transaction " + std::to_string(at) + " of the serial order does not commit alone: " + std::string(name_of(type)));
      } else if (digest_of(type, result) != all[at].digest) {
        check("transaction " + std::to_string(at) + " of the serial order has another result alone: " + std::string(name_of(type)));
      }
      if (!report_.failure.empty()) return false;
    }
    return at < all.size();
  };
  if (!run_on_cores(machine, 1, [&](unsigned) { return loader.step() == Loader::Progress::more; }, options_.limit))
    return check("loading takes too long");
  if (!run_on_cores(machine, 1, repeat_some, options_.limit)) return check("the repetition takes too long");
  if (!reclaim_all(machine, 1)) check("removed rows are not reclaimed");
  check(find_difference(database_, repeated));
  check(find_inconsistency(repeated));
}

}  // namespace

RunReport run_and_check(const RunOptions& options) { return CheckedRun(options).run(); }

}  // namespace neap::tpcc::test
