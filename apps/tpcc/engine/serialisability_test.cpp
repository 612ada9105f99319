// SPDX-License-Identifier: BSL-1.0
// Random transactions are equal to the same transactions one after the other, in the order of their commit numbers. They run as steps of
// several transactions in turn on one thread, where every interleaving of steps can be repeated, and on several cores.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "apps/tpcc/engine/random_transactions.hpp"
#include "kernel/events.hpp"
#include "kernel/rcu.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::transactions {
namespace {

using namespace testing;
using host::HostMachine;

struct Result {
  std::uint64_t committed = 0, conflicts = 0, wrong = 0;
  bool broken = false, equal = false;
};

void load(TestTable& table, std::uint64_t keys, Contents& contents) {
  for (std::uint64_t key = 0; key < keys; key += 2) {
    ASSERT_TRUE(table.load(key_of(key), row_of(key)));
    contents.emplace(key, key);
  }
}

/// Several transactions in turn on this thread.
Result interleave(std::uint64_t seed, std::uint64_t keys, unsigned parallel, unsigned steps, bool skips_validation) {
  const Epochs epochs;
  std::atomic<std::uint64_t> numbers{0};
  TestTable table("test");
  Contents contents;
  load(table, keys, contents);
  struct Slot {
    explicit Slot(const Epochs& of) : worker(Worker::make(of)), transaction(*worker) {}
    std::unique_ptr<Worker> worker;
    Transaction transaction;
    std::optional<Script> script;
    std::uint64_t seed = 0;
  };
  std::vector<std::unique_ptr<Slot>> slots;
  for (unsigned at = 0; at < parallel; ++at) {
    slots.push_back(std::make_unique<Slot>(epochs));
    slots[at]->transaction.number_commits(&numbers);
    slots[at]->transaction.skip_validation(skips_validation);
  }
  Result result;
  std::vector<Committed> history;
  std::mt19937_64 random(seed);
  for (unsigned step = 0; step < steps; ++step) {
    Slot& slot = *slots[random() % parallel];
    if (!slot.script) {
      slot.seed = random();
      slot.script.emplace(slot.seed, keys);
      slot.transaction.begin();
    }
    EngineStore store{slot.transaction, table};
    Outcome outcome = slot.script->step(store);
    result.broken |= store.broken;
    if (is_failure(outcome)) {
      slot.transaction.abort();
    } else if (slot.script->finished()) {
      if (random() % 8 == 0) {
        slot.transaction.abort();
      } else {
        outcome = slot.transaction.commit();
        if (outcome == Outcome::committed) history.push_back({slot.transaction.commit_number(), slot.seed, slot.script->digest()});
      }
    } else {
      continue;
    }
    result.conflicts += outcome == Outcome::conflict ? 1 : 0;
    slot.script.reset();
  }
  for (auto& slot : slots) slot->transaction.abort();
  result.committed = history.size();
  result.wrong = replay(history, keys, contents);
  result.equal = contents == contents_of(table);
  return result;
}

TEST(Serialisability, OneTransactionAtATimeEqualsTheModel) {
  for (const std::uint64_t keys : {40U, 2000U}) {
    const Result result = interleave(keys, keys, 1, 30'000, false);
    EXPECT_EQ(result.wrong, 0U);
    EXPECT_EQ(result.conflicts, 0U);
    EXPECT_TRUE(result.equal && !result.broken);
  }
}

TEST(Serialisability, InterleavedTransactionsEqualASerialOrder) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const std::uint64_t keys = seed % 2 == 0 ? 50 : 3000;
    const Result result = interleave(seed, keys, 2 + seed % 4, 10'000, false);
    EXPECT_EQ(result.wrong, 0U) << seed;
    EXPECT_GT(result.committed, 300U);
    EXPECT_GT(result.conflicts, 10U);
    EXPECT_TRUE(result.equal && !result.broken) << seed;
  }
}

// The test finds the fault that it is for.
TEST(Serialisability, CommitsWithoutValidationAreFound) { EXPECT_GT(interleave(1, 50, 4, 10'000, true).wrong, 0U); }

/// One core that runs transactions, some in each event. A transaction that meets a conflict is repeated.
struct Runner {
  Runner(const Epochs& epochs, TestTable& with, std::uint64_t keys_of, unsigned number, unsigned count)
      : worker(Worker::make(epochs)), transaction(*worker), table(with), keys(keys_of), random(number + 77), left(count) {}

  void one_event() {
    for (int at = 0; at < 8 && left > 0; ++at) {
      if (repeats == 0) seed = random();
      Script script(seed, keys);
      EngineStore store{transaction, table};
      transaction.begin();
      Outcome outcome = Outcome::done;
      while (!script.finished() && !is_failure(outcome)) outcome = script.step(store);
      outcome = transaction.commit();
      // A transaction that does not commit has not proved that its reads belong together, but each row MUST be of one version.
      broken |= store.broken;
      if (outcome == Outcome::committed) {
        history.push_back({transaction.commit_number(), seed, script.digest()});
        repeats = 0;
        --left;
      } else {
        failed |= outcome != Outcome::conflict;
        ++conflicts;
        ++repeats;
      }
    }
    if (left == 0) {
      done = true;
    } else {
      spawn([this] { one_event(); });
    }
  }

  std::unique_ptr<Worker> worker;
  Transaction transaction;
  TestTable& table;
  std::uint64_t keys;
  std::mt19937_64 random;
  unsigned left, repeats = 0;
  std::uint64_t seed = 0, conflicts = 0;
  std::vector<Committed> history;
  bool broken = false, failed = false;
  std::atomic<bool> done{false};
};

Result run_on_cores(unsigned cores, std::uint64_t keys, unsigned transactions) {
  Epochs epochs;
  std::atomic<std::uint64_t> numbers{0};
  TestTable table("test");
  Contents contents;
  load(table, keys, contents);
  Result result;
  std::vector<std::unique_ptr<Runner>> runners;
  for (unsigned core = 0; core < cores; ++core) {
    runners.push_back(std::make_unique<Runner>(epochs, table, keys, core, transactions));
    runners[core]->transaction.number_commits(&numbers);
  }
  {
    HostMachine machine{cores};
    for (unsigned core = 0; core < cores; ++core) machine.on(core, [&, core] { runners[core]->one_event(); });
    for (auto& runner : runners) {
      EXPECT_TRUE(HostMachine::wait_until(
          [&] {
            epochs.advance();
            return runner->done.load();
          },
          std::chrono::seconds(100)));
    }
    for (unsigned core = 0; core < cores; ++core) {
      EXPECT_TRUE(HostMachine::wait_until([&] { return machine.value_on(core, [] { return rcu::pending(); }) == 0; }));
    }
  }
  std::vector<Committed> history;
  for (auto& runner : runners) {
    history.insert(history.end(), runner->history.begin(), runner->history.end());
    result.conflicts += runner->conflicts;
    result.broken |= runner->broken || runner->failed;
  }
  result.committed = history.size();
  result.wrong = replay(history, keys, contents);
  result.equal = contents == contents_of(table);
  return result;
}

void expect_serial(const Result& result, std::uint64_t committed) {
  EXPECT_EQ(result.committed, committed);
  EXPECT_EQ(result.wrong, 0U);
  EXPECT_FALSE(result.broken);
  EXPECT_TRUE(result.equal);
  ::testing::Test::RecordProperty("conflicts", static_cast<int>(result.conflicts));
}

TEST(Serialisability, OfOneCore) { expect_serial(run_on_cores(1, 500, 2000), 2000); }
TEST(Serialisability, OfTwoCoresWithFewKeys) { expect_serial(run_on_cores(2, 60, 4000), 8000); }
TEST(Serialisability, OfFourCoresWithFewKeys) { expect_serial(run_on_cores(4, 60, 3000), 12'000); }
TEST(Serialisability, OfFourCoresWithManyKeys) { expect_serial(run_on_cores(4, 5000, 3000), 12'000); }

}  // namespace
}  // namespace neap::transactions
