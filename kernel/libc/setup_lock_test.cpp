// SPDX-License-Identifier: BSL-1.0
#include "kernel/libc/setup_lock.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "kernel/events.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::libc {
namespace {

using host::HostMachine;

TEST(SetupLock, OneCoreAtATimeHoldsTheLock) {
  constexpr int rounds = 20'000;
  SetupLock lock;
  int counted = 0;  // not atomic: only the lock prevents a race
  std::atomic<unsigned> finished{0};
  HostMachine machine{3};
  for (unsigned core = 0; core < 3; ++core) {
    machine.on(core, [&] {
      spawn([&] {
        for (int i = 0; i < rounds; ++i) {
          if (i % 2 == 0) {
            lock.lock();
          } else {
            lock.lock_recursive();
          }
          ++counted;
          lock.unlock();
        }
        ++finished;
      });
    });
  }
  ASSERT_TRUE(HostMachine::wait_until([&] { return finished == 3; }));
  EXPECT_EQ(counted, 3 * rounds);
}

TEST(SetupLock, RecursionIsCounted) {
  SetupLock lock;
  lock.lock_recursive();
  lock.lock_recursive();
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST(SetupLock, WaitsThatCannotEndArePanics) {
  SetupLock lock;
  SetupCondition condition;
  lock.lock();
  EXPECT_EXIT(lock.lock(), testing::ExitedWithCode(18), "this wait cannot end");
  EXPECT_EXIT(condition.wait(lock, no_deadline), testing::ExitedWithCode(18), "cannot end");
  EXPECT_FALSE(lock.lock_until(machine::now_ns() + 1'000'000, false));
  EXPECT_FALSE(condition.wait(lock, machine::now_ns() + 1'000'000));
  lock.unlock();
  EXPECT_EXIT(lock.unlock(), testing::ExitedWithCode(18), "does not hold it");
}

TEST(SetupCondition, ASignalEndsTheWaitAndRestoresTheLockDepth) {
  SetupLock lock;
  SetupCondition condition;
  bool ready = false;
  std::atomic<bool> seen{false};
  HostMachine machine{2};
  machine.on(1, [&] {
    spawn([&] {
      lock.lock_recursive();
      lock.lock_recursive();
      while (!ready) condition.wait(lock, no_deadline);
      lock.unlock();
      EXPECT_FALSE(lock.try_lock());
      lock.unlock();
      seen = true;
    });
  });
  machine.on(0, [&] {
    lock.lock();
    ready = true;
    lock.unlock();
    condition.signal();
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return seen.load(); }));
}

std::atomic<int> once_runs{0}, once_failures{0};

TEST(SetupOnce, RunsOnceOnManyCoresAndAgainAfterAnException) {
  std::uint32_t state = 0;
  std::atomic<unsigned> finished{0};
  HostMachine machine{4};
  for (unsigned core = 0; core < 4; ++core) {
    machine.on(core, [&] {
      spawn([&] {
        for (;;) {
          try {
            SetupOnce(state).run([] {
              if (once_failures.fetch_add(1) < 2) throw std::runtime_error("not yet");
              ++once_runs;
            });
            break;
          } catch (const std::runtime_error&) {
          }
        }
        ++finished;
      });
    });
  }
  ASSERT_TRUE(HostMachine::wait_until([&] { return finished == 4; }));
  EXPECT_EQ(once_runs, 1);
}

}  // namespace
}  // namespace neap::libc
