// SPDX-License-Identifier: BSL-1.0
#include "kernel/timer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "kernel/event_loop.hpp"
#include "kernel/events.hpp"
#include "tests/host/host_machine.hpp"
#include "tests/host/panics.hpp"

namespace neap {
namespace {

using host::HostMachine;
using host::ManualClock;
using std::chrono::nanoseconds;
using namespace std::chrono_literals;

constexpr std::uint64_t tick_ns = static_cast<std::uint64_t>(timer_tick.count());

std::uint64_t next_tick(std::uint64_t ns) { return (ns + tick_ns - 1) / tick_ns * tick_ns; }

TEST(Timer, HundredThousandFireNeverEarlyAndInOrder) {
  constexpr unsigned count = 100'000;
  struct Expected {
    Timer timer;
    std::uint64_t not_before_ns = 0;
    std::uint64_t deadline_max_ns = 0;  // the deadline is between these two times, because the clock runs during `arm`
  };
  std::vector<Expected> timers(count);
  std::atomic<unsigned> fired{0};
  std::uint64_t latest_tick = 0;
  unsigned early = 0, disorder = 0;
  HostMachine machine{1};
  machine.on(0, [&] {
    std::mt19937 random(7);
    for (Expected& each : timers) {
      const nanoseconds delay(random() % 500'000'000);
      each.not_before_ns = machine::now_ns() + static_cast<std::uint64_t>(delay.count());
      each.timer.arm(delay, [&] {
        if (machine::now_ns() < each.not_before_ns) ++early;
        if (next_tick(each.deadline_max_ns) < latest_tick) ++disorder;
        latest_tick = std::max(latest_tick, next_tick(each.not_before_ns));
        ++fired;
      });
      each.deadline_max_ns = machine::now_ns() + static_cast<std::uint64_t>(delay.count());
    }
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return fired == count; }));
  EXPECT_EQ(early, 0U);
  EXPECT_EQ(disorder, 0U);
  machine.on(0, [&] { timers.clear(); });
}

// Compares the wheel with a list of deadlines. Timers are armed, re-armed and cancelled at random with delays over twelve orders of
// magnitude, and the clock advances by steps of the same range.
TEST(Timer, AgreesWithAListOfDeadlines) {
  constexpr unsigned count = 300;
  ManualClock clock(123'456'789);
  HostMachine machine{1};
  machine.on(0, [&] {
    struct Model {
      Timer timer;
      std::uint64_t due_ns = 0;  // the tick at which the timer must fire; 0: it is not pending
      unsigned fired = 0;
    };
    std::vector<Model> models(count);
    std::mt19937_64 random(11);
    const auto random_ns = [&] { return random() >> (16 + random() % 48); };
    std::uint64_t firings = 0;
    for (unsigned step = 0; step < 60'000; ++step) {
      Model& model = models[random() % count];
      const std::uint64_t delay = random_ns();
      const unsigned kind = random() % 4;
      const bool arms = kind == 0 || (kind == 1 && model.timer.pending());
      if (arms && kind == 0) model.timer.arm(nanoseconds(delay), [&model] { ++model.fired; });
      if (arms && kind == 1) model.timer.rearm(nanoseconds(delay));
      if (arms) model.due_ns = next_tick(machine::now_ns() + delay);
      if (kind == 2) ASSERT_EQ(model.timer.cancel(), std::exchange(model.due_ns, 0) != 0);
      if (kind == 3) clock.advance(nanoseconds(random_ns() >> 8));
      while (timer_wheel.run_due(1'000, machine::timestamp())) {
      }
      const std::uint64_t now = machine::now_ns();
      for (Model& each : models) {
        const bool must_fire = each.due_ns != 0 && now >= each.due_ns;
        ASSERT_EQ(each.fired, must_fire ? 1U : 0U) << "step " << step << ", due " << each.due_ns << ", now " << now;
        ASSERT_EQ(each.timer.pending(), each.due_ns != 0 && !must_fire);
        if (must_fire) each.due_ns = 0;
        firings += each.fired;
        each.fired = 0;
      }
    }
    EXPECT_GT(firings, 5'000U);
  });
}

TEST(Timer, FarDeadlinesFireAtTheirTickAndNotBefore) {
  for (const nanoseconds delay : {nanoseconds(0), nanoseconds(1), nanoseconds(timer_tick), nanoseconds(64 * timer_tick), nanoseconds(1s),
                                  nanoseconds(1h), nanoseconds(24h * 365), nanoseconds(24h * 365 * 100)}) {
    ManualClock clock(5'000'000'001);
    std::atomic<bool> fired{false};
    Timer timer;
    HostMachine machine{1};
    machine.on(0, [&] { timer.arm(delay, [&] { fired = true; }); });
    const std::uint64_t due = next_tick(5'000'000'001 + static_cast<std::uint64_t>(delay.count()));
    clock.set(due - 1);
    machine.on(0, [] {});
    machine.on(0, [] {});
    EXPECT_FALSE(fired) << delay.count();
    clock.set(due);
    EXPECT_TRUE(HostMachine::wait_until([&] { return fired.load(); })) << delay.count();
  }
}

TEST(Timer, DelaysBeyondTheClockAndBelowZeroAreTaken) {
  ManualClock clock(1'000'000'000);
  Timer never, at_once;
  std::atomic<int> fired{0};
  HostMachine machine{1};
  machine.on(0, [&] {
    never.arm(nanoseconds::max(), [&] { fired += 100; });
    at_once.arm(nanoseconds::min(), [&] { ++fired; });
  });
  clock.advance(timer_tick);
  EXPECT_TRUE(HostMachine::wait_until([&] { return fired == 1; }));
  machine.on(0, [&] { EXPECT_TRUE(never.cancel()); });
}

// The alarm is the only cost of timers on an idle core. There is one alarm for the earliest timer, at its exact tick. If there are no
// timers, no alarm is set. The alarm of a cancelled timer wakes the core once.
TEST(Timer, AlarmIsArmedForTheEarliestOnlyAndAnIdleCoreTakesNone) {
  constexpr std::uint64_t begin = 77'000'000'000;
  ManualClock clock(begin);
  HostMachine machine{2};
  const auto asleep = [&](unsigned core) {
    const std::uint64_t sleeps = event_counters(core).sleeps;
    machine.on(core, [] {});
    return HostMachine::wait_until([&] { return event_counters(core).sleeps > sleeps; });
  };
  ASSERT_TRUE(asleep(0) && asleep(1));
  EXPECT_EQ(host::alarms_set(0), 0U);
  Timer near, far;
  std::atomic<int> fired{0};
  machine.on(0, [&] {
    far.arm(2h, [&] { ++fired; });
    near.arm(1h, [&] { ++fired; });
  });
  ASSERT_TRUE(asleep(0));
  EXPECT_EQ(host::alarm_of(0), next_tick(begin + 3'600'000'000'000));
  EXPECT_EQ(host::alarms_set(0), 1U);
  ASSERT_TRUE(asleep(0));
  EXPECT_EQ(host::alarms_set(0), 1U) << "armed again for the same time";
  // Half an hour passes: moving timers between levels must not wake the core.
  const std::uint64_t sleeps = event_counters(0).sleeps;
  clock.advance(30min);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(event_counters(0).sleeps, sleeps);
  clock.advance(30min + timer_tick);
  EXPECT_TRUE(HostMachine::wait_until([&] { return fired == 1; }));
  ASSERT_TRUE(asleep(0));
  EXPECT_EQ(host::alarm_of(0), next_tick(begin + 7'200'000'000'000));
  machine.on(0, [&] { far.cancel(); });
  ASSERT_TRUE(asleep(0));
  const std::uint64_t set = host::alarms_set(0);
  clock.advance(1h);
  ASSERT_TRUE(HostMachine::wait_until([] { return host::alarm_of(0) == machine::alarm_none; }));
  EXPECT_EQ(host::alarms_set(0), set) << "no timer, no alarm";
  EXPECT_EQ(host::alarms_set(1), 0U);
  EXPECT_EQ(fired, 1);
}

// A time-out that each request postpones must not set the alarm each time. The alarm for its first deadline stays and wakes the core once.
TEST(Timer, AnAlarmThatIsTooEarlyStays) {
  constexpr std::uint64_t begin = 77'000'000'000;
  ManualClock clock(begin);
  std::atomic<int> fired{0};
  Timer timer;
  HostMachine machine{1};
  const auto asleep = [&] {
    const std::uint64_t sleeps = event_counters(0).sleeps;
    machine.on(0, [] {});
    return HostMachine::wait_until([&] { return event_counters(0).sleeps > sleeps; });
  };
  for (int request = 0; request < 10; ++request) {
    machine.on(0, [&] {
      timer.cancel();
      timer.arm(2s, [&] { ++fired; });
    });
    ASSERT_TRUE(asleep());
    clock.advance(100ms);
  }
  EXPECT_EQ(host::alarms_set(0), 1U);
  EXPECT_EQ(host::alarm_of(0), next_tick(begin + 2'000'000'000));
  clock.set(next_tick(begin + 2'000'000'000));
  const std::uint64_t deadline = next_tick(begin + 2'900'000'000);
  ASSERT_TRUE(HostMachine::wait_until([&] { return host::alarm_of(0) == deadline; })) << "the early alarm's successor is exact";
  EXPECT_EQ(fired, 0);
  EXPECT_EQ(host::alarms_set(0), 2U);
  clock.set(deadline);
  EXPECT_TRUE(HostMachine::wait_until([&] { return fired == 1; }));
}

TEST(Timer, CallbacksMayCancelRearmReplaceAndDestroy) {
  ManualClock clock(1'000'000'000);
  std::array<Timer, 4> timers;
  auto destroyed = std::make_unique<Timer>();
  std::atomic<int> rearmed{0}, replaced{0}, never{0}, last{0};
  const auto witness = std::make_shared<int>(0);
  HostMachine machine{1};
  machine.on(0, [&] {
    // All timers are due in one tick. So the second timer has left the wheel when the first one cancels it.
    timers[0].arm(1us, [&] { EXPECT_TRUE(timers[1].cancel()); });
    timers[1].arm(1us, [&] { ++never; });
    timers[2].arm(1us, [&] {
      if (++rearmed < 3) timers[2].rearm(1ms);
    });
    timers[3].arm(1us, [&, witness] { timers[3].arm(1ms, [&] { ++replaced; }); });
    destroyed->arm(1us, [&, witness] {
      destroyed.reset();
      EXPECT_EQ(*witness, 0);  // the callback's captures outlive the timer
      ++last;
    });
  });
  for (int i = 0; i < 4; ++i) {
    clock.advance(1ms + timer_tick);
    machine.on(0, [] {});
    machine.on(0, [] {});
  }
  EXPECT_TRUE(HostMachine::wait_until([&] { return rearmed == 3 && replaced == 1 && last == 1; }));
  EXPECT_EQ(never, 0);
  EXPECT_EQ(witness.use_count(), 1);
  machine.on(0, [&] {
    for (Timer& timer : timers) EXPECT_FALSE(timer.pending());
  });
}

TEST(Timer, OfAnIdleCoreFiresByTheRealAlarm) {
  Timer timer;
  std::atomic<int> fired{0};
  std::atomic<unsigned> fired_on{99};
  std::uint64_t armed_ns = 0;
  std::atomic<std::uint64_t> fired_ns{0};
  HostMachine machine{2};
  for (int round = 1; round <= 20; ++round) {
    machine.on(1, [&] {
      armed_ns = machine::now_ns();
      timer.arm(3ms, [&] {
        fired_on = this_core();
        fired_ns = machine::now_ns();
        ++fired;
      });
    });
    ASSERT_TRUE(HostMachine::wait_until([&] { return fired == round; }));
    EXPECT_GE(fired_ns - armed_ns, 3'000'000U);
    EXPECT_EQ(fired_on, 1U);
  }
}

TEST(TimerDeathTest, CancelOnAnotherCoreIsAPanic) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  host::expect_panic("belongs to the core", [] {
    Timer timer;
    HostMachine machine{2};
    machine.on(0, [&] { timer.arm(1h, [] {}); });
    machine.on(1, [&] { timer.cancel(); });
  });
}

// A repeating timer fires at multiples of its period: a late call does not move the later ones, and missed times are skipped.
TEST(Timer, RepeatsAtMultiplesOfItsPeriodUntilCancelled) {
  constexpr auto period = std::chrono::milliseconds(10);
  host::ManualClock clock(1'000'000'000);
  HostMachine machine{1};
  std::atomic<int> fired{0};
  std::unique_ptr<Timer> timer;
  machine.on(0, [&] {
    timer = std::make_unique<Timer>();
    timer->repeat(period, [&] {
      if (++fired == 5) timer->cancel();
    });
  });
  const auto after = [&](std::chrono::milliseconds by) {
    clock.advance(by);
    machine.on(0, [] {});
    machine.on(0, [] {});
    return fired.load();
  };
  EXPECT_EQ(after(std::chrono::milliseconds(9)), 0);
  EXPECT_EQ(after(std::chrono::milliseconds(2)), 1);
  EXPECT_EQ(after(std::chrono::milliseconds(35)), 2) << "46 ms: 20, 30 and 40 are one";
  EXPECT_EQ(after(std::chrono::milliseconds(5)), 3) << "51 ms: the next multiple";
  EXPECT_EQ(after(std::chrono::milliseconds(10)), 4);
  EXPECT_EQ(after(std::chrono::milliseconds(10)), 5);
  EXPECT_EQ(after(std::chrono::milliseconds(100)), 5) << "cancelled by its own callback";
  machine.on(0, [&] {
    EXPECT_FALSE(timer->pending());
    timer.reset();
  });
}

}  // namespace
}  // namespace neap
