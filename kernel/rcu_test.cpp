// SPDX-License-Identifier: BSL-1.0
#include "kernel/rcu.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "kernel/events.hpp"
#include "tests/host/busy_core.hpp"
#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

using host::HostMachine;

/// The members are not atomic, because only the grace period may separate readers from the reclaimer. The address sanitizer detects a read
/// after the reclamation; the thread sanitizer detects a read that is not ordered before it.
struct Entry : rcu::Node {
  static constexpr std::uint64_t alive = 0xA11FE;
  std::uint64_t state = alive, number = 0;
  static inline std::atomic<std::uint64_t> living{0};

  explicit Entry(std::uint64_t with) : number(with) {
    ++living;
    reclaim = [](Node* node) noexcept {
      auto* const entry = static_cast<Entry*>(node);
      entry->state = 0;
      --living;
      delete entry;
    };
  }
};

bool settled(HostMachine& machine, unsigned core) {
  return HostMachine::wait_until([&] { return machine.value_on(core, [] { return rcu::pending(); }) == 0; });
}

TEST(Rcu, ReclaimsInALaterEventOnItsOwnCore) {
  HostMachine machine{1};
  struct Witness : rcu::Node {
    std::atomic<int>* runs = nullptr;
  };
  std::atomic<int> runs{0};
  Witness node;
  node.runs = &runs;
  node.reclaim = [](rcu::Node* retired) noexcept { ++*static_cast<Witness*>(retired)->runs; };
  machine.on(0, [&] {
    rcu::retire(node);
    EXPECT_EQ(rcu::pending(), 1U);
    EXPECT_EQ(runs, 0);
  });
  EXPECT_TRUE(settled(machine, 0));
  EXPECT_EQ(runs, 1);
}

TEST(Rcu, ReadersOnFourCoresNeverSeeReclaimedMemory) {
  constexpr unsigned cores = 4;
  constexpr std::uint64_t replacements = 20'000;
  std::array<std::atomic<Entry*>, 8> table{};
  for (auto& place : table) place = new Entry(0);
  std::atomic<std::uint64_t> wrong{0}, reads{0};
  std::atomic<bool> stop{false};
  std::atomic<unsigned> writers_done{0}, readers_done{0};
  std::function<void()> read = [&] {
    for (unsigned round = 0; round < 10; ++round) {
      for (auto& place : table) {
        const Entry* const entry = place.load(std::memory_order_acquire);
        for (unsigned again = 0; again < 5; ++again) {  // repeated reads: the pointer is valid until the event ends
          if (entry->state != Entry::alive) ++wrong;
        }
      }
    }
    ++reads;
    if (!stop) {
      spawn([&] { read(); });
    } else {
      ++readers_done;
    }
  };
  struct Writer {
    std::uint64_t left = replacements;
  };
  std::array<Writer, 2> writers;
  std::function<void(Writer&)> write = [&](Writer& writer) {
    for (unsigned i = 0; i < 4 && writer.left > 0; ++i, --writer.left) {
      Entry* const old = table[writer.left % table.size()].exchange(new Entry(writer.left), std::memory_order_acq_rel);
      rcu::retire(*old);
    }
    if (writer.left > 0) {
      spawn([&] { write(writer); });
    } else {
      ++writers_done;
    }
  };
  HostMachine machine{cores};
  // Two cores write and read, two cores only read.
  for (unsigned core = 0; core < cores; ++core) machine.on(core, [&] { spawn([&] { read(); }); });
  for (unsigned i = 0; i < 2; ++i) machine.on(i, [&, i] { spawn([&, i] { write(writers[i]); }); });
  EXPECT_TRUE(HostMachine::wait_until([&] { return writers_done == 2; }, std::chrono::seconds(50)));
  // All nodes must be reclaimed while readers run without a pause: no core needs to sleep for that.
  EXPECT_TRUE(settled(machine, 0));
  EXPECT_TRUE(settled(machine, 1));
  EXPECT_EQ(Entry::living, table.size());
  stop = true;
  EXPECT_TRUE(HostMachine::wait_until([&] { return readers_done == cores; }));
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(reads, 1'000U);
  for (auto& place : table) delete place.load();
  Entry::living = 0;
}

TEST(Rcu, IdleCoresDelayNothingAndAreNotWoken) {
  HostMachine machine{4};
  for (unsigned core = 1; core < 4; ++core) ASSERT_TRUE(HostMachine::wait_until([&] { return event_counters(core).sleeps > 0; }));
  std::array<std::uint64_t, 4> before{};
  for (unsigned core = 1; core < 4; ++core) before[core] = event_counters(core).sleeps;
  for (int i = 0; i < 100; ++i) {
    machine.on(0, [] { rcu::retire(*new Entry(1)); });
    ASSERT_TRUE(settled(machine, 0));
  }
  EXPECT_EQ(Entry::living, 0U);
  for (unsigned core = 1; core < 4; ++core) EXPECT_EQ(event_counters(core).sleeps, before[core]) << "core " << core << " was woken";
}

// Core 0 retires nodes and sleeps, while core 1 is in one long event. No node may be reclaimed before that event ends. Then all nodes must
// be reclaimed, although no event wakes core 0.
TEST(Rcu, GracePeriodLastsUntilALongEventEnds) {
  HostMachine machine{3};
  for (int round = 0; round < 50; ++round) {
    host::BusyCore busy(machine, 1);
    machine.on(0, [] {
      for (int i = 0; i < 10; ++i) rcu::retire(*new Entry(2));
    });
    machine.on(0, [] {});
    if (round % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(Entry::living, 10U) << "reclaimed while an event that may hold it runs";
    busy.release();
    // `living` is not read by an event on core 0, because that event would make the core check its batches.
    ASSERT_TRUE(HostMachine::wait_until([] { return Entry::living == 0; }));
  }
}

TEST(Rcu, ManyNodesAreReclaimedInBoundedBatches) {
  constexpr unsigned count = 300'000;
  std::atomic<int> others{0};
  HostMachine machine{2};
  machine.on(0, [] {
    for (unsigned i = 0; i < count; ++i) rcu::retire(*new Entry(i));
  });
  while (Entry::living == count) std::this_thread::yield();
  machine.on(0, [&] { others = Entry::living > 0 ? 1 : 2; });
  EXPECT_EQ(others, 1) << "an event waited for all of them";
  EXPECT_TRUE(settled(machine, 0));
  EXPECT_EQ(Entry::living, 0U);
}

}  // namespace
}  // namespace neap
