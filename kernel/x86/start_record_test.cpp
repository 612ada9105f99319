// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/start_record.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace neap::x86 {
namespace {

using State = StartRecord::State;

// The started core's side, as trampoline.S has it: LOCK CMPXCHG of the state.
bool enter(StartRecord& record) {
  auto expected = State::waiting;
  return record.state.compare_exchange_strong(expected, State::in);
}

// A clock that advances by one with each reading, so that a limit is a number of checks.
struct CountingClock {
  std::uint64_t* now;
  std::uint64_t operator()() const { return (*now)++; }
};

constexpr auto no_pause = [] {};

TEST(StartRecord, LateCoreStaysOutAndTheOthersAreIn) {
  std::array<StartRecord, 4> records;
  for (const unsigned core : {0u, 2u, 3u}) EXPECT_TRUE(enter(records[core]));
  std::uint64_t now = 0;
  EXPECT_EQ(decide(records, 100, CountingClock{&now}, no_pause), 3u);
  EXPECT_GE(now, 100u) << "the late core had less than its limit";
  EXPECT_FALSE(enter(records[1])) << "a core that was given up entered";
  EXPECT_EQ(records[1].state.load(), State::out);
  for (const unsigned core : {0u, 2u, 3u}) EXPECT_TRUE(records[core].is_in()) << "core " << core << " was left out for a neighbour";
}

TEST(StartRecord, NoCoreIsGivenUpBeforeItsLimitForAnEarlierOne) {
  // Core 0 of the list never starts. The last one starts at the end of the limit, and is in.
  std::array<StartRecord, 3> records;
  std::uint64_t now = 0;
  const auto clock = [&] {
    if (now == 99) EXPECT_TRUE(enter(records[2]));
    return now++;
  };
  EXPECT_EQ(decide(records, 100, clock, no_pause), 1u);
  EXPECT_TRUE(records[2].is_in());
}

TEST(StartRecord, AllStartedEndsTheWaitAtOnce) {
  std::array<StartRecord, 2> records;
  for (auto& record : records) EXPECT_TRUE(enter(record));
  std::uint64_t now = 0;
  EXPECT_EQ(decide(records, 1'000'000, CountingClock{&now}, no_pause), 2u);
  EXPECT_LE(now, 1u);
}

// The cores start at the moment at which core 0's limit ends, so both sides exchange the state at the same time.
TEST(StartRecord, BothSidesAgreeWhenACoreStartsAtItsLimit) {
  constexpr unsigned rounds = 2000, cores = 3;
  unsigned in_total = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    std::array<StartRecord, cores> records;
    std::array<bool, cores> entered{};
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (unsigned core = 0; core < cores; ++core) {
      threads.emplace_back([&, core] {
        while (!go.load()) std::this_thread::yield();
        entered[core] = enter(records[core]);
      });
    }
    std::uint64_t now = 0;
    go.store(true);
    const unsigned in = decide(records, round % 50, CountingClock{&now}, [] { std::this_thread::yield(); });
    for (auto& thread : threads) thread.join();
    unsigned counted = 0;
    for (unsigned core = 0; core < cores; ++core) {
      ASSERT_EQ(entered[core], records[core].is_in()) << "a core and core 0 decided differently";
      ASSERT_NE(records[core].state.load(), State::waiting);
      counted += entered[core] ? 1 : 0;
    }
    ASSERT_EQ(in, counted) << "the number changed after core 0 had it";
    in_total += in;
  }
  // Otherwise the two sides did not meet, and the test shows nothing.
  EXPECT_GT(in_total, 0u);
  EXPECT_LT(in_total, rounds * cores);
}

}  // namespace
}  // namespace neap::x86
