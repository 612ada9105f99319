// SPDX-License-Identifier: BSL-1.0
#include "observe/turns.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "observe/testing.hpp"

namespace neap::observe::testing {
namespace {

TEST(Turns, OneAtATimeAcrossCores) {
  host::HostMachine machine(3);
  Turns turns;
  std::atomic<int> inside{0}, overlaps{0}, done{0};
  const auto work = [&]() -> task<void> {
    for (int i = 0; i < 50; ++i) {
      const Turns::Turn turn = co_await turns.take();
      if (inside.fetch_add(1) != 0) ++overlaps;
      co_await on_core((this_core() + 1) % 3, [] {});
      inside.fetch_sub(1);
    }
    ++done;
  };
  for (unsigned i = 0; i < 9; ++i) {
    machine.on(i % 3, [&] { start(work()); });
  }
  EXPECT_TRUE(HostMachine::wait_until([&] { return done == 9; }));
  EXPECT_EQ(overlaps, 0);
}

}  // namespace
}  // namespace neap::observe::testing
