// SPDX-License-Identifier: BSL-1.0
#include "kernel/interrupts.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "kernel/events.hpp"
#include "kernel/timer.hpp"
#include "tests/host/busy_core.hpp"
#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

using host::HostMachine;

TEST(Interrupts, MarkedTwiceBeforeTheWindowIsOneEvent) {
  std::atomic<int> runs{0};
  HostMachine machine{1};
  const std::uint8_t vector = machine.value_on(0, [&] { return allocate_vector(0, [&] { ++runs; }).value(); });
  host::BusyCore busy(machine, 0);
  for (int i = 0; i < 5; ++i) machine.interrupt(0, vector);
  EXPECT_EQ(runs, 0) << "an interrupt ran inside an event";
  busy.release();
  ASSERT_TRUE(HostMachine::wait_until([&] { return runs == 1; }));
  machine.on(0, [] {});
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(event_counters(0).interrupts, 1U);
  machine.interrupt(0, vector);
  EXPECT_TRUE(HostMachine::wait_until([&] { return runs == 2; }));
}

TEST(Interrupts, RunInTheOrderOfTheirArrival) {
  std::vector<int> order;
  HostMachine machine{1};
  std::vector<std::uint8_t> vectors;
  machine.on(0, [&] {
    for (int i = 0; i < 3; ++i) vectors.push_back(allocate_vector(0, [&order, i] { order.push_back(i); }).value());
    for (const int i : {2, 0, 1, 2}) interrupt_arrived(vectors[static_cast<std::size_t>(i)]);
  });
  machine.on(0, [] {});
  EXPECT_EQ(order, (std::vector<int>{2, 0, 1}));
}

// A vector that interrupts after each of its events must not keep queued events and timers from running.
TEST(Interrupts, AFloodStarvesNothing) {
  std::atomic<bool> ends{false}, spawned{false}, fired{false};
  std::uint8_t vector = 0;
  Timer timer;
  HostMachine machine{1};
  machine.on(0, [&] {
    vector = allocate_vector(0, [&] {
               if (!ends) machine.interrupt(0, vector);
             }).value();
    timer.arm(std::chrono::milliseconds{1}, [&] { fired = true; });
    machine.interrupt(0, vector);
    spawn([&] { spawned = true; });
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return spawned && fired; }));
  machine.on(0, [&] { ends = true; });
}

TEST(Interrupts, WakeASleepingCoreAndRunThereOnly) {
  std::atomic<unsigned> ran_on{99};
  std::uint8_t vector = 0;
  HostMachine machine{3};
  machine.on(0, [&] { vector = allocate_vector(2, [&] { ran_on = this_core(); }).value(); });
  machine.interrupt(2, vector);
  EXPECT_TRUE(HostMachine::wait_until([&] { return ran_on == 2; }));
  const std::uint64_t spurious = event_counters(1).spurious;
  machine.interrupt(1, vector);  // core 1 has no vector with this number
  EXPECT_TRUE(HostMachine::wait_until([&] { return event_counters(1).spurious == spurious + 1; }));
}

TEST(Interrupts, EachCoreHasItsOwnVectorsAndRefusesWhenNoneIsFree) {
  constexpr unsigned all = machine::vector_last - machine::vector_first + 1;
  std::set<unsigned> vectors;
  std::atomic<unsigned> calls{0};
  HostMachine machine{2};
  machine.on(0, [&] {
    for (unsigned i = 0; i < all; ++i) {
      const auto vector = allocate_vector(1, [&] { ++calls; });
      ASSERT_TRUE(vector.has_value());
      vectors.insert(*vector);
    }
    const auto none = allocate_vector(1, [] {});
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code, ErrorCode::full);
    EXPECT_TRUE(allocate_vector(0, [] {}).has_value());
  });
  EXPECT_EQ(vectors.size(), all);
  EXPECT_EQ(*vectors.begin(), machine::vector_first);
  EXPECT_EQ(*vectors.rbegin(), machine::vector_last);
  for (const unsigned vector : vectors) machine.interrupt(1, static_cast<std::uint8_t>(vector));
  EXPECT_TRUE(HostMachine::wait_until([&] { return calls == all; }));
}

TEST(Interrupts, VectorFreedByItsOwnCallbackIsSpuriousThenFree) {
  const auto witness = std::make_shared<int>(0);
  std::atomic<int> runs{0};
  std::uint8_t vector = 0;
  HostMachine machine{1};
  machine.on(0, [&] {
    vector = allocate_vector(0, [&, witness] {
               ++runs;
               free_vector(0, vector);
             }).value();
  });
  machine.interrupt(0, vector);
  ASSERT_TRUE(HostMachine::wait_until([&] { return runs == 1; }));
  machine.on(0, [] {});
  machine.interrupt(0, vector);
  EXPECT_TRUE(HostMachine::wait_until([] { return event_counters(0).spurious == 1; }));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(witness.use_count(), 1) << "the callback was not destroyed";
  machine.on(0, [&] { EXPECT_EQ(allocate_vector(0, [] {}).value(), vector); });
}

// Cores allocate and free vectors of one core while interrupts arrive on it.
TEST(Interrupts, AllocationFromManyCoresRacesWithArrival) {
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0}, runs{0};
  std::function<void()> churn = [&] {
    std::vector<std::uint8_t> mine;
    for (int i = 0; i < 3; ++i) {
      if (const auto vector = allocate_vector(0, [&runs, big = std::make_unique<int>(1)] { runs += *big; })) mine.push_back(*vector);
    }
    for (const std::uint8_t vector : mine) free_vector(0, vector);
    ++rounds;
    if (!stop) spawn([&] { churn(); });
  };
  HostMachine machine{3};
  std::thread device([&] {
    for (unsigned i = 0; !stop; ++i) {
      machine.interrupt(0, static_cast<std::uint8_t>(machine::vector_first + i % 8));
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  for (unsigned core = 1; core < 3; ++core) machine.on(core, [&] { spawn([&] { churn(); }); });
  EXPECT_TRUE(HostMachine::wait_until([&] { return rounds > 5'000 && runs > 20; }));
  stop = true;
  device.join();
}

}  // namespace
}  // namespace neap
