// SPDX-License-Identifier: BSL-1.0
// No history of the engine has a cycle of dependencies. The checker and the seeded fault are tested, too.
#include "apps/tpcc/engine/isolation.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "apps/tpcc/engine/transaction.hpp"
#include "kernel/events.hpp"
#include "kernel/rcu.hpp"
#include "tests/host/allocated_bytes.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::transactions {
namespace {

using namespace testing;
using host::HostMachine;

TEST(IsolationCheck, AcceptsASerialHistory) {
  EXPECT_EQ(find_violation({{{{{1, 0}}, {{1, 1}}}, {{{1, 1}, {2, 0}}, {{2, 1}}}, {{{2, 1}}, {}}}}), "");
}
TEST(IsolationCheck, FindsALostUpdate) { EXPECT_NE(find_violation({{{{{1, 0}}, {{1, 1}}}, {{{1, 0}}, {{1, 1}}}}}), ""); }
TEST(IsolationCheck, FindsAWriteSkew) { EXPECT_NE(find_violation({{{{{1, 0}, {2, 0}}, {{1, 1}}}, {{{1, 0}, {2, 0}}, {{2, 1}}}}}), ""); }
TEST(IsolationCheck, FindsAnInconsistentRead) { EXPECT_NE(find_violation({{{{}, {{1, 1}, {2, 1}}}, {{{1, 1}, {2, 0}}, {}}}}), ""); }
TEST(IsolationCheck, FindsAReadOfAnAbortedWrite) { EXPECT_NE(find_violation({{{{{1, 1}}, {}}}}), ""); }

TEST(Epochs, AdvanceByATimerUntilTheyAreStopped) {
  Epochs epochs;
  const std::uint64_t before = epochs.current();
  HostMachine machine{2};
  machine.on(0, [&] { epochs.start(); });
  EXPECT_TRUE(HostMachine::wait_until([&] { return epochs.current() >= before + 2; }));
  machine.on(0, [&] { epochs.stop(); });
  const std::uint64_t after = epochs.current();
  std::this_thread::sleep_for(2 * Epochs::period);
  EXPECT_EQ(epochs.current(), after);
}

struct Row {
  std::uint64_t version;
};
constexpr std::uint64_t keys = 24;

/// A core, or a thread's share of one: transactions that read and update some rows.
struct Client {
  Client(const Epochs& epochs, Table<Row>& with, unsigned number)
      : worker(Worker::make(epochs)), transaction(*worker), table(with), random(number) {}

  /// Executes one operation; begins and commits transactions as needed.
  void step() {
    if (left == 0) {
      left = 2 + static_cast<unsigned>(random() % 5);
      entry = {};
      transaction.begin();
    }
    const Key<1> key{random() % keys};
    Outcome outcome{};
    if (random() % 2 == 0) {
      Row row{};
      outcome = transaction.read(table, key, row);
      // A read of the transaction's own change says nothing about other transactions.
      bool own = false;
      for (const Access& write : entry.writes) own |= write.key == key[0];
      if (outcome == Outcome::found && !own) entry.reads.push_back({key[0], row.version});
    } else {
      Row* row = nullptr;
      outcome = transaction.update(table, key, row);
      bool again = false;
      for (const Access& write : entry.writes) again |= write.key == key[0];
      if (outcome == Outcome::found && !again) {
        entry.reads.push_back({key[0], row->version});
        entry.writes.push_back({key[0], ++row->version});
      }
    }
    if (--left != 0 && !is_failure(outcome)) return;
    left = 0;
    outcome = transaction.commit();
    if (outcome == Outcome::committed) history.entries.push_back(std::move(entry));
  }

  void one_event() {
    do {
      step();
    } while (left != 0);
    if (history.entries.size() < wanted) {
      spawn([this] { one_event(); });
    } else {
      done = true;
    }
  }

  std::unique_ptr<Worker> worker;
  Transaction transaction;
  Table<Row>& table;
  std::mt19937_64 random;
  unsigned left = 0;
  std::size_t wanted = 0;
  History::Entry entry;
  History history;
  std::atomic<bool> done{false};
};

struct Clients {
  explicit Clients(unsigned count) {
    for (std::uint64_t key = 0; key < keys; ++key) EXPECT_TRUE(table.load({key}, {0}));
    for (unsigned at = 0; at < count; ++at) all.push_back(std::make_unique<Client>(epochs, table, at));
  }
  History history() const {
    History sum;
    for (const auto& client : all) sum.entries.insert(sum.entries.end(), client->history.entries.begin(), client->history.entries.end());
    return sum;
  }
  Epochs epochs;
  Table<Row> table{"rows"};
  std::vector<std::unique_ptr<Client>> all;
};

History interleaved(bool skips_validation) {
  Clients clients(4);
  for (const auto& client : clients.all) client->transaction.skip_validation(skips_validation);
  std::mt19937_64 random(5);
  for (int step = 0; step < 30'000; ++step) clients.all[random() % 4]->step();
  for (const auto& client : clients.all) client->transaction.abort();
  return clients.history();
}

TEST(Isolation, InterleavedTransactionsHaveNoCycle) {
  const History history = interleaved(false);
  EXPECT_GT(history.entries.size(), 1000U);
  EXPECT_EQ(find_violation(history), "");
}

TEST(Isolation, CommitsWithoutValidationAreFound) { EXPECT_NE(find_violation(interleaved(true)), ""); }

class IsolationOnCores : public ::testing::TestWithParam<unsigned> {};
TEST_P(IsolationOnCores, HasNoCycle) {
  Clients clients(GetParam());
  {
    HostMachine machine{GetParam()};
    machine.on(0, [&] { clients.epochs.start(); });
    for (unsigned core = 0; core < GetParam(); ++core) {
      clients.all[core]->wanted = 8000;
      machine.on(core, [&, core] { clients.all[core]->one_event(); });
    }
    for (const auto& client : clients.all)
      EXPECT_TRUE(HostMachine::wait_until([&] { return client->done.load(); }, std::chrono::seconds(100)));
    machine.on(0, [&] { clients.epochs.stop(); });
  }
  const History history = clients.history();
  EXPECT_EQ(history.entries.size(), 8000U * GetParam());
  EXPECT_EQ(find_violation(history), "");
}
INSTANTIATE_TEST_SUITE_P(Cores, IsolationOnCores, ::testing::Values(1U, 2U, 4U));

/// A queue of orders: half of the cores insert at the right, half remove the first row.
struct QueueCore {
  QueueCore(const Epochs& epochs, Table<Row, 2>& with, unsigned number, unsigned count)
      : worker(Worker::make(epochs)), transaction(*worker), table(with), core(number), left(count) {}
  void one_event() {
    transaction.begin();
    if (core % 2 == 0) {
      // The number of the next row is in a row of its own, as a district's next order number.
      Row* next = nullptr;
      if (transaction.update(table, {0, 0}, next) == Outcome::found)
        static_cast<void>(transaction.insert(table, {1, next->version++}, Row{}));
      if (transaction.commit() == Outcome::committed) --left;
    } else {
      Key<2> first{};
      const Outcome outcome = transaction.scan(table, {1, 0}, {1, ~0UL}, [&](const Key<2>& key, const Row&) {
        first = key;
        return false;
      });
      const bool found = outcome == Outcome::done && first[0] == 1;
      if (found) static_cast<void>(transaction.remove(table, first));
      if (transaction.commit() == Outcome::committed && found) {
        --left;
        ordered &= first[1] >= last;
        last = first[1];
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
  Table<Row, 2>& table;
  unsigned core, left;
  std::uint64_t last = 0;
  bool ordered = true;
  std::atomic<bool> done{false};
};

// Records, leaves and retirements of a queue are freed: the memory does not grow with the number of rows that have passed.
TEST(Churn, OfAQueueNeedsBoundedMemory) {
  constexpr unsigned cores = 4, rounds = 3, rows = 1500;
  Epochs epochs;
  Table<Row, 2> table("queue");
  ASSERT_TRUE(table.load({0, 0}, {0}));
  std::size_t bytes_after_first = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    {
      std::vector<std::unique_ptr<QueueCore>> all;
      for (unsigned core = 0; core < cores; ++core) all.push_back(std::make_unique<QueueCore>(epochs, table, core, rows));
      HostMachine machine{cores};
      for (unsigned core = 0; core < cores; ++core) machine.on(core, [&, core] { all[core]->one_event(); });
      for (const auto& queue : all) ASSERT_TRUE(HostMachine::wait_until([&] { return queue->done.load(); }, std::chrono::seconds(100)));
      for (unsigned core = 0; core < cores; ++core) {
        EXPECT_TRUE(HostMachine::wait_until([&] { return machine.value_on(core, [] { return rcu::pending(); }) == 0; }));
        EXPECT_TRUE(all[core]->ordered);
      }
    }
    EXPECT_EQ(table.rows(), 1U);
    EXPECT_LE(table.index().nodes(), 3U);
    if (round == 0) bytes_after_first = host::allocated_bytes();
  }
  EXPECT_LT(host::allocated_bytes(), bytes_after_first + 256 * 1024);
}

}  // namespace
}  // namespace neap::transactions
